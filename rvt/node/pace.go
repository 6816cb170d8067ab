package node

import (
	"math"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/crcfold"
	"github.com/rvtsim/rvtsim/wire"
)

// The delays of this package are some messages long on a processor of today. Where one is
// emulated everything takes ten or thirty times as long, and what was meant to bridge the
// gap between two messages never would.

const (
	// ordinary is the longest that sample takes on a processor that needs no allowance.
	// Fast ones need half of it.
	ordinary = 10 * time.Microsecond
	// maxPace bounds the allowance.
	maxPace = 16
	// paceSamples are taken, and the fastest counts: the process may lose the processor.
	paceSamples = 8
)

// Pace is how many times longer this process needs for a message than processors of today
// do: 1, or up to 16 where instructions are emulated. It measures that when it is first
// called, which takes some microseconds, and chooses the faster way to compute ICRCs.
var Pace = sync.OnceValue(func() int {
	best := sample()
	for range paceSamples - 1 {
		best = min(best, sample())
	}
	pace := paceOf(best)
	if pace > 1 {
		crcfold.PreferTables(icrcTime(true) < icrcTime(false))
	}
	return pace
})

// icrcTime is how long the ICRC of 4 KiB takes, by tables or not.
func icrcTime(tables bool) time.Duration {
	crcfold.PreferTables(tables)
	path, b := wire.Path{}, make([]byte, 4096)
	best := time.Duration(math.MaxInt64)
	for range paceSamples {
		start := time.Now()
		_ = wire.ICRC(&path, b)
		best = min(best, time.Since(start))
	}
	return best
}

func paceOf(d time.Duration) int { return int(min(max(d/ordinary, 1), maxPace)) }

// sample does what a hundred small messages have done to them, and returns how long it took.
func sample() time.Duration {
	var buf [128]byte
	pkt := wire.Packet{Opcode: ib.OpSendOnly}
	path := wire.Path{}
	start := time.Now()
	for range 100 {
		b := wire.AppendHeaders(buf[:0], &pkt)
		b = b[:len(b)+64]
		wire.PutICRC(buf[len(b):], wire.ICRC(&path, b))
		_ = wire.Decode(b, &pkt)
	}
	return time.Since(start)
}
