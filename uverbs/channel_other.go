//go:build !linux

package uverbs

import (
	"errors"
	"os"
)

// channel exists on Linux only, as the programs do that this package serves.
type channel struct {
	ino   uint64
	users int
}

func newChannel(int) (*channel, *os.File, error) {
	return nil, nil, errors.New("event channels need Linux")
}

func (*channel) send([]byte, *uint32)          {}
func (*channel) forget(uint64, *uint32) uint32 { return 0 }
func (*channel) abandoned() bool               { return true }
func (*channel) close()                        {}

func (ch *channel) writeEnd() *os.File { return nil }
