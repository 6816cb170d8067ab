package workload

import (
	"math/bits"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
)

// mix is the finaliser of SplitMix64 over seed and n: neighbouring n give unrelated
// numbers.
func mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Purposes of derived seeds.
const (
	seedScript uint64 = iota + 1
	seedPattern
	seedReadZone
	seedPSN
)

// direction tells the two streams of a bidirectional flow apart.
type direction uint64

const (
	toServer direction = iota
	toClient
)

func (d direction) other() direction { return 1 - d }

// script is the sequence of messages that one QP sends in one direction. Both
// endpoints run it: the sender to post, the receiver to know what to expect.
type script struct {
	spec    *Spec
	draws   uint64 // seed of operations and sizes
	content uint64 // seed of contents
	weights uint64
	single  bool // one operation and one size: nothing is drawn
}

func newScript(s *Spec, dir direction, qp int) script {
	stream := uint64(dir)<<32 | uint64(qp)
	sc := script{spec: s, draws: mix(mix(s.Seed, seedScript), stream), content: mix(mix(s.Seed, seedPattern), stream)}
	for _, o := range s.Ops {
		sc.weights += o.Weight
	}
	sc.single = len(s.Ops) == 1 && len(s.Sizes.List) == 0 && s.Sizes.Min == s.Sizes.Max
	return sc
}

// message is one work request of a script.
type message struct {
	index uint64
	op    ib.WROpcode
	par   *swqe.OpParams
	size  int
	draw  uint64 // random bits for what else varies
}

// at returns message i.
func (sc *script) at(i uint64) message {
	s := sc.spec
	m := message{index: i, op: s.Ops[0].Op, size: s.Sizes.Max}
	if !sc.single {
		m.draw = mix(sc.draws, i)
		m.op = sc.pickOp(m.draw)
		m.size = sc.pickSize(mix(m.draw, 1), i)
	}
	m.par = swqe.Params(m.op)
	if m.par.Has(swqe.OpAtomic) {
		m.size = atomicBytes
	}
	return m
}

func (sc *script) pickOp(draw uint64) ib.WROpcode {
	ops := sc.spec.Ops
	at, _ := bits.Mul64(draw, sc.weights)
	for _, o := range ops {
		if at < o.Weight {
			return o.Op
		}
		at -= o.Weight
	}
	return ops[len(ops)-1].Op
}

func (sc *script) pickSize(draw, i uint64) int {
	s := &sc.spec.Sizes
	if len(s.List) > 0 {
		return s.List[i%uint64(len(s.List))]
	}
	n, _ := bits.Mul64(draw, uint64(s.Max-s.Min)+1)
	return s.Min + int(n)
}

// takesReceive reports whether the message uses up a receive at the peer.
func (m *message) takesReceive() bool { return m.par.Has(swqe.OpCredit) }

// hasImm reports whether the message carries immediate data.
func (m *message) hasImm() bool { return m.par.Has(swqe.OpImm) }

// imm is the immediate data of message i: receivers check it.
func (sc *script) imm(i uint64) uint32 { return uint32(sc.content) ^ uint32(i) }

// signaled reports whether message i asks for a completion.
func (s *Spec) signaled(i uint64) bool {
	return s.SignalEvery == 1 || (i+1)%uint64(s.SignalEvery) == 0 || s.Count > 0 && i+1 == s.Count
}

// next returns the first message from i on that takes a receive; ok is false if there
// is none before the end.
func (sc *script) next(i uint64) (m message, ok bool) {
	for n := sc.spec.Count; n == 0 || i < n; i++ {
		if m = sc.at(i); m.takesReceive() {
			return m, true
		}
	}
	return message{}, false
}

// add is the addend of FETCH_ADD i, never 0.
func (sc *script) add(i uint64) uint64 { return mix(sc.content, i)>>40 + 1 }

// swap is the new value of CMP_SWP i.
func (sc *script) swap(i uint64) uint64 { return mix(sc.content, ^i) }
