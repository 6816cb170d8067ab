package mem

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// egress is the sending end of a link: of one that was set apart, or of all the
// others of a node.
type egress struct {
	cfg       *LinkConfig
	busyUntil vtime.Time // when the last bit of the last frame is out
	carry     uint64     // what integer division left over of the last delay
	lastAt    vtime.Time // latest arrival before impairment; keeps jitter in order
	jitter    rand.PCG
	seed      uint64
	// place is where its packets wait for their arrival at a switch, noPlace if none is
	// at its far end.
	place int32
	stats PortStats
	// policy is nil as long as nothing can go wrong.
	policy *fabric.Impairment
}

func newEgress(cfg *LinkConfig, seed uint64) egress {
	e := egress{seed: seed, place: noPlace, jitter: *rand.NewPCG(fabric.Mix(seed, 1), fabric.Mix(seed, 2))}
	e.configure(cfg)
	return e
}

// configure puts cfg, which must be valid, in force from the next packet on.
func (e *egress) configure(cfg *LinkConfig) {
	e.cfg = cfg
	e.policy = nil
	if !cfg.Impairment.IsZero() {
		e.faults()
	}
}

// faults returns the policy, made at first need.
func (e *egress) faults() *fabric.Impairment {
	if e.policy == nil {
		p, err := fabric.NewImpairment(e.cfg.Impairment, e.seed)
		if err != nil {
			invariants.Unreachable("link configuration changed after it was validated: " + err.Error())
		}
		e.policy = p
	}
	return e.policy
}

// serialise sends a frame of n bytes at now and returns when its last bit is out; ok
// is false if the queue has no room. A queue that marks does so in path.
func (e *egress) serialise(now vtime.Time, n int, path *wire.Path) (out vtime.Time, ok bool) {
	bw := e.cfg.BandwidthBitsPerSecond
	if bw == 0 {
		e.stats.Packets++
		e.stats.Bytes += uint64(n)
		return now, true
	}
	if e.busyUntil <= now {
		e.busyUntil, e.carry = now, 0
	} else if waiting := e.waiting(now); !e.admit(waiting, n, path) {
		e.stats.Dropped++
		return 0, false
	}
	e.stats.Packets++
	e.stats.Bytes += uint64(n)
	// n < 2^16, so the product stays below 2^50.
	need := uint64(n)*8*uint64(time.Second) + e.carry
	e.carry = need % bw
	e.busyUntil = e.busyUntil.Add(time.Duration(need / bw))
	return e.busyUntil, true
}

// waiting is how many bytes wait at now.
func (e *egress) waiting(now vtime.Time) uint64 {
	if e.busyUntil <= now || e.cfg.BandwidthBitsPerSecond == 0 {
		return 0
	}
	return waitingBytes(e.busyUntil.Sub(now), e.cfg.BandwidthBitsPerSecond)
}

// admit decides about n more bytes behind those that wait.
func (e *egress) admit(waiting uint64, n int, path *wire.Path) bool {
	e.stats.MaxQueueBytes = max(e.stats.MaxQueueBytes, waiting)
	if limit := e.cfg.QueueBytes; limit > 0 && waiting+uint64(n) > uint64(limit) {
		return false
	}
	if m := &e.cfg.ECN; m.MaxBytes > 0 && wire.ECNCapable(path.TClass) && waiting > uint64(m.MinBytes) {
		if waiting >= uint64(m.MaxBytes) || e.draw() < m.Probability*float64(waiting-uint64(m.MinBytes))/float64(m.MaxBytes-m.MinBytes) {
			path.TClass |= wire.ECNCE
			e.stats.Marked++
		}
	}
	return true
}

// draw returns a number from 0 to 1, from how many packets the port has seen: it needs no
// state of its own.
func (e *egress) draw() float64 {
	return float64(fabric.Mix(e.seed, e.stats.Packets)>>11) / (1 << 53)
}

// waitingBytes is how many bytes a link of bw bit/s sends in d, at most what fits in
// 63 bits.
func waitingBytes(d time.Duration, bw uint64) uint64 {
	const perByte = 8 * uint64(time.Second)
	hi, lo := bits.Mul64(uint64(d), bw)
	if hi >= perByte/2 {
		return 1<<63 - 1
	}
	q, _ := bits.Div64(hi, lo, perByte)
	return q
}

// arrive returns when a frame that left at out reaches the far end of a sound link.
func (e *egress) arrive(out vtime.Time) vtime.Time {
	at := out.Add(e.cfg.Latency)
	if e.cfg.Jitter > 0 {
		hi, _ := bits.Mul64(e.jitter.Uint64(), uint64(e.cfg.Jitter)+1)
		at = at.Add(time.Duration(hi))
		at = max(at, e.lastAt)
	}
	e.lastAt = at
	return at
}
