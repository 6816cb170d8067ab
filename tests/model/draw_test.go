package model

import (
	"math/bits"
	"time"

	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

// Simple values come first wherever something is drawn: that is where shrinking goes.

// evenly draws from 0 to n-1; rapid's own integers are mostly near zero, so that what
// is rare would never happen.
func evenly(t *rapid.T, n int) int {
	v := 0
	for range bits.Len(uint(n)) + 2 {
		v <<= 1
		if rapid.Bool().Draw(t, "bit") {
			v |= 1
		}
	}
	return v % n
}

func between(t *rapid.T, from, to int, label string) int {
	return rapid.Custom(func(t *rapid.T) int { return from + evenly(t, to-from+1) }).Draw(t, label)
}

// once in n, on average.
func once(t *rapid.T, n int, label string) bool {
	return rapid.Custom(func(t *rapid.T) bool { return evenly(t, n) == n-1 }).Draw(t, label)
}

func oneOf[V any](t *rapid.T, label string, of ...V) V { return of[evenly(t, len(of))] }

func drawPlan(t *rapid.T) *plan {
	p := &plan{
		profile: oneOf(t, "profile", qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE),
		mtu:     ib.MTU256 + ib.MTU(between(t, 0, 4, "mtu")),
		batch:   oneOf(t, "emit batch", 64, 1, 3),
		window:  oneOf(t, "window", 128, 4, 1),
		seed:    uint64(between(t, 0, 1<<20, "seed")),
		pairs:   between(t, 1, maxPairs, "pairs"),
		psn:     oneOf[ib.PSN](t, "psn", 0, 0xfffff8, 0x7ffffe),
		rdAtom:  uint8(between(t, 1, 4, "rd_atomic")),
	}
	l := mem.LinkConfig{Latency: 3 * time.Microsecond}
	switch im := &l.Impairment; between(t, 0, 3, "network") {
	case 1:
		p.lossy = true
		im.Loss = 0.03
	case 2:
		im.Duplicate = 0.2
	case 3:
		p.lossy = true
		im.Loss, im.Corrupt, im.Duplicate, im.Reorder, im.ReorderDelay = 0.02, 0.01, 0.05, 0.05, 20*time.Microsecond
		// Short enough for six retries: what exceeds them fails, and rightly.
		im.Burst = fabric.Burst{GoodToBad: 0.005, BadToGood: 0.95, LossBad: 1}
	}
	p.net = mem.Config{Default: l, Encode: rapid.Bool().Draw(t, "encode")}
	for side := range p.srq {
		p.srq[side] = once(t, 3, "srq")
	}
	all := ib.AccessRemoteMask
	for pair := range p.pairs {
		for side := range 2 {
			p.sigAll[pair][side] = !once(t, 3, "signal some")
			p.access[pair][side] = all
			if !p.lossy && once(t, 5, "fewer rights") {
				p.access[pair][side] &^= oneOf(t, "right", ib.AccessRemoteRead, ib.AccessRemoteWrite, ib.AccessRemoteAtomic)
			}
			p.rnr[pair][side] = oneOf[uint8](t, "rnr_retry", 7, 0, 2)
		}
	}
	return p
}

// split cuts n bytes at offset off into pieces.
func split(t *rapid.T, off, n, key int) (ps []piece) {
	for len(ps) < maxSGE-1 && n > 0 && once(t, 3, "cut") {
		k := between(t, 0, n, "piece")
		ps = append(ps, piece{off, k, key})
		off, n = off+k, n-k
	}
	if n > 0 || len(ps) == 0 && once(t, 2, "empty piece") {
		ps = append(ps, piece{off, n, key})
	}
	return ps
}

func (w *world) nextID() uint64 {
	w.ids++
	return w.ids
}

func (w *world) drawRecvs(l *link, n int, good bool) (ops []recvOp) {
	for range n {
		slot := *l.nextRecv % rqDepth
		*l.nextRecv++
		size, key := recvSlot, keyFull
		if !good && !w.p.lossy {
			switch between(w.t, 0, 9, "receive") {
			case 8:
				size = between(w.t, 0, recvSlot, "receive size")
			case 9:
				key = oneOf(w.t, "receive key", keyReadOnly, keyDead)
			}
		}
		ops = append(ops, recvOp{id: w.nextID() | recvID, local: split(w.t, l.recvArea()+slot*recvSlot, size, key)})
	}
	return ops
}

// span is a range of one side's memory.
type span struct{ from, to int }

func (s span) meets(o span) bool { return s.from < o.to && o.from < s.to }

// needsFence reports whether an operation must wait for earlier ones that fetch: it
// reads what they bring, or changes what they read (a lost response is fetched again).
func needsFence(o *sendOp, earlier []sendOp) bool {
	remote := span{o.remote, o.remote + o.size()}
	for i := range earlier {
		e := &earlier[i]
		if !e.fetches() {
			continue
		}
		if !o.fetches() && o.flags&ib.SendInline == 0 {
			for _, a := range o.local {
				for _, b := range e.local {
					if (span{a.off, a.off + a.n}).meets(span{b.off, b.off + b.n}) {
						return true
					}
				}
			}
		}
		if (o.isAtomic() || o.op == ib.WRRDMAWrite || o.op == ib.WRRDMAWriteWithImm) && remote.meets(span{e.remote, e.remote + e.size()}) {
			return true
		}
	}
	return false
}

func (w *world) drawSends(l *link, n int, good bool) (ops []sendOp) {
	for range n {
		o := w.drawSend(l, good)
		if needsFence(&o, append(append([]sendOp(nil), l.sends...), ops...)) {
			o.flags |= ib.SendFence
		}
		ops = append(ops, o)
	}
	return ops
}

func (w *world) drawSend(l *link, good bool) sendOp {
	t := w.t
	ops := []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAndAdd, ib.WRAtomicCmpAndSwp}
	// Who of several QPs takes the next receive of an SRQ is a matter of timing.
	if !w.p.srq[1-l.node] || l.pair == 0 {
		ops = append([]ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWriteWithImm}, ops...)
	}
	o := sendOp{id: w.nextID(), op: oneOf(t, "operation", ops...), rkey: keyFull, imm: uint32(between(t, 0, 1<<16, "imm")) * 0x10001}
	if once(t, 2, "signaled") {
		o.flags |= ib.SendSignaled
	}
	if once(t, 6, "fence") {
		o.flags |= ib.SendFence
	}
	if once(t, 4, "solicited") && o.takesReceive() {
		o.flags |= ib.SendSolicited
	}
	size := oneOf(t, "size class", 0, 1, 64, 256, 257, maxMessage)
	size = between(t, size/2, size, "size")
	key := keyFull
	if !good && w.p.profile.Name != "rdmavt" && once(t, 12, "bad lkey") {
		key = keyDead
	}
	switch {
	case o.isAtomic():
		size = 8
		o.remote = l.area() + remoteAt + 8*between(t, 0, 15, "word")
		o.add, o.swap = uint64(between(t, 0, 3, "add")), uint64(between(t, 0, 1<<30, "swap"))
		if v, ok := l.peer.side.word(o.remote); ok && once(t, 2, "match") {
			o.add = v
		}
		o.local = []piece{{l.area() + localAt + 8*between(t, 0, 63, "result"), 8, key}}
	case o.op != ib.WRRDMARead && size <= maxInline && once(t, 3, "inline"):
		o.flags |= ib.SendInline
		o.inline = l.side.mem[l.area() : l.area()+size : l.area()+size]
		o.inline = append([]byte{}, o.inline...)
	default:
		o.local = split(t, l.area()+localAt+between(t, 0, maxMessage/8, "local")*8, size, key)
	}
	if !o.isAtomic() {
		o.remote = l.area() + remoteAt + between(t, 0, maxMessage, "remote")
	}
	if !good && !w.p.lossy && once(t, 12, "bad remote") {
		w.spoil(&o)
	}
	return o
}

// word returns 8 bytes as a number if they are known.
func (s *side) word(off int) (v uint64, ok bool) {
	for i := 7; i >= 0; i-- {
		if s.unknown[off+i] {
			return 0, false
		}
		v = v<<8 | uint64(s.mem[off+i])
	}
	return v, true
}

// spoil makes the remote side of an operation wrong.
func (w *world) spoil(o *sendOp) {
	o.rkey = oneOf(w.t, "rkey", keyDead, keyLocal, keyReadOnly, keyFull)
	if o.rkey == keyFull {
		o.remote = maxPairs*areaBytes - 8*between(w.t, 0, 2, "beyond")
	}
}
