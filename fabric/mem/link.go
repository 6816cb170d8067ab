package mem

import (
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/vtime"
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
	// policy is nil as long as nothing can go wrong.
	policy *fabric.Impairment
}

func newEgress(cfg *LinkConfig, seed uint64) egress {
	e := egress{seed: seed, jitter: *rand.NewPCG(fabric.Mix(seed, 1), fabric.Mix(seed, 2))}
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
// is false if the queue has no room.
func (e *egress) serialise(now vtime.Time, n int) (out vtime.Time, ok bool) {
	bw := e.cfg.BandwidthBitsPerSecond
	if bw == 0 {
		return now, true
	}
	if e.busyUntil <= now {
		e.busyUntil, e.carry = now, 0
	} else if limit := e.cfg.QueueBytes; limit > 0 {
		waiting := waitingBytes(e.busyUntil.Sub(now), bw)
		if waiting+uint64(n) > uint64(limit) {
			return 0, false
		}
	}
	// n < 2^16, so the product stays below 2^50.
	need := uint64(n)*8*uint64(time.Second) + e.carry
	e.carry = need % bw
	e.busyUntil = e.busyUntil.Add(time.Duration(need / bw))
	return e.busyUntil, true
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
