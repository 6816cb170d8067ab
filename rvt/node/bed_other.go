//go:build !linux

package node

import (
	"sync/atomic"
	"time"
)

const canDoze = false

// bed is where threads sleep that polled in vain. Here none does.
type bed struct {
	turns    atomic.Uint32
	sleepers atomic.Int32
}

func (b *bed) sleep(uint32, time.Duration) {}

func (b *bed) wake() {}
