package strict

import (
	"math/rand/v2"
	"slices"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
)

// Guard is a [Tracker] inside of a device: for hosts whose programs use the device's
// own calls and rings, so that nobody stands between who could follow each of them.
// Its methods belong to the device's owner.
//
// Nobody tells the guard about polls. It sees them by the consumer index of a ring,
// which also works for rings that a C program polls without a system call.
type Guard struct {
	*Tracker
	// Channel tells whether a completion queue has a completion channel; nil means that
	// all have.
	Channel func(*cq.CQ) bool
	// Where tells where in the program the call is made that the device carries out; nil
	// means that nobody knows.
	Where func() Site

	seed uint64
	cqs  []*cq.CQ

	waited []*cq.CQ // room of overdueUnarmed
}

var _ rvt.Guard = (*Guard)(nil)

// NewGuard makes a guard for one device and adapts the device's configuration to the
// checks. report takes what is found.
func NewGuard(checks Checks, seed uint64, report func(Report), dc *rvt.Config) *Guard {
	g := &Guard{Tracker: NewTracker(checks, nil, report), seed: seed}
	Configure(checks, seed, dc)
	dc.Guard = g
	return g
}

// Configure sets what the checks need of a device besides being told: poison, different
// keys, and QPNs and keys that start elsewhere.
func Configure(checks Checks, seed uint64, dc *rvt.Config) {
	dc.Poison = checks.Poison
	dc.DistinctKeys = dc.DistinctKeys || checks.Memory
	if checks.Freedom {
		dc.Seed = seed // of the keys' generations
		rng := rand.New(rand.NewPCG(seed, 2))
		dc.ReuseKey = func() bool { return rng.IntN(3) == 0 }
	}
	if checks.Freedom && dc.FirstQPN == 0 && dc.StartQPN == 0 {
		first, last := dc.QPNRange()
		dc.StartQPN = first + ib.QPN(rand.New(rand.NewPCG(seed, 1)).Uint32N(uint32(last-first)+1))
	}
}

func (g *Guard) site() Site {
	if g.Where == nil {
		return Site{}
	}
	return g.Where()
}

// Attach implements rvt.Guard. A device that is made anew from the same configuration
// starts with nothing; what was said of objects that had the same names is not repeated.
func (g *Guard) Attach(keys *mr.Table) {
	said := g.said
	g.Tracker, g.cqs = NewTracker(g.checks, keys, g.report), nil
	g.said = said
}

// Memory implements rvt.Guard.
func (g *Guard) Memory(m mr.Memory) mr.Memory { return Memory{Mem: m, Freedom: g.checks.Freedom, T: g} }

// Wrote implements Writes.
func (g *Guard) Wrote(m mr.Memory, addr uint64, n int) { g.DeviceWrote(m, addr, n) }

// Room implements rvt.Guard.
func (g *Guard) Room(q *qp.QP) (ok bool, why string) {
	g.catchUp(q.SendCQ)
	if !g.checks.Slots {
		return true, ""
	}
	n, why := g.Tracker.Room(q, g.site())
	return n > 0, why
}

// SendPosted implements rvt.Guard.
func (g *Guard) SendPosted(q *qp.QP, wr *swqe.SendWR) { g.PostSend(q, wr, g.site()) }

// RecvPosting implements rvt.Guard.
func (g *Guard) RecvPosting(q *qp.QP, s *swqe.SRQ, wr *swqe.RecvWR) {
	if q != nil {
		g.catchUp(q.RecvCQ)
	}
	g.PostRecv(q, s, wr, g.site())
}

// RecvTakenBack implements rvt.Guard.
func (g *Guard) RecvTakenBack(q *qp.QP, s *swqe.SRQ, n int) { g.UnpostRecv(q, s, n) }

// NewCQ implements rvt.Guard.
func (g *Guard) NewCQ(c *cq.CQ) {
	g.cqs = append(g.cqs, c)
	g.cq(c).tail = tailOf(c)
	if g.checks.Freedom {
		rng := rand.New(rand.NewPCG(g.seed, uint64(c.Handle)))
		c.Vary = func(n int) bool {
			swap := rng.IntN(2) == 0
			if swap {
				g.swap(c, n)
			}
			return swap
		}
	}
}

// CQResized implements rvt.Guard: what waits is at the front of the new ring.
func (g *Guard) CQResized(c *cq.CQ) {
	cs := g.cq(c)
	g.Polled(c, len(cs.items)-c.Len())
	cs.tail = tailOf(c)
}

// CQGone implements rvt.Guard.
func (g *Guard) CQGone(c *cq.CQ) {
	g.catchUp(c)
	g.DestroyCQ(c)
	g.cqs = slices.DeleteFunc(g.cqs, func(o *cq.CQ) bool { return o == c })
}

// Arming implements rvt.Guard.
func (g *Guard) Arming(c *cq.CQ) {
	g.catchUp(c)
	g.Arm(c, g.Channel == nil || g.Channel(c), g.site())
}

// QPModified implements rvt.Guard.
func (g *Guard) QPModified(q *qp.QP, a *qp.Attr, mask ib.AttrMask, err error) {
	if err != nil {
		g.ModifyRefused(q, a, mask, g.site())
		return
	}
	if mask&ib.AttrState != 0 && q.State == ib.StateReset {
		g.Reset(q, q.Env.Prof.RQKeptOnReset)
	}
	g.Modify(q, mask, g.site())
}

// MRLeaving implements rvt.Guard.
func (g *Guard) MRLeaving(m *mr.Region) {
	g.CatchUp()
	g.Dereg(m.LKey, g.site())
}

// QPGone implements rvt.Guard. Polls that came before are not those of a dead QP.
func (g *Guard) QPGone(q *qp.QP) {
	g.catchUp(q.SendCQ)
	g.look(&g.qp(q).recv)
	g.catchUp(q.RecvCQ)
	g.DestroyQP(q)
}

// SRQGone implements rvt.Guard.
func (g *Guard) SRQGone(s *swqe.SRQ) { g.DestroySRQ(s) }

// CatchUp looks at all rings: what was polled, and which receives are new. A host calls
// it now and then, so that what a program does without a call is seen in time.
func (g *Guard) CatchUp() {
	for _, c := range g.cqs {
		g.catchUp(c)
	}
	for _, st := range g.live {
		g.look(&st.recv)
	}
	for _, rq := range g.srqs { //arch:sorted each is looked at by itself; reports name the queue
		g.look(rq)
	}
}

// overdueAfter is how often in a row a queue must be found unpolled.
const overdueAfter = 3

// Overdue finds queues that were armed while completions waited which the program still
// has not polled, or that have a channel and were never armed. The host calls it at regular
// intervals; at the third time in a row the program is taken to be asleep.
func (g *Guard) Overdue() {
	g.overdueUnarmed()
	for _, c := range g.cqs {
		g.catchUp(c)
		cs := g.cq(c)
		if !cs.armed {
			continue // see overdueUnarmed
		}
		if cs.missed == 0 || c.Notify() == cq.NotifyNone {
			cs.late = 0
			continue
		}
		if cs.late++; cs.late == overdueAfter {
			g.Wait(c, Site{})
		}
	}
}

// overdueUnarmed looks for a program that never arms anything: if one of the queues with a
// channel was armed once, the others may be polled when that one wakes the program.
func (g *Guard) overdueUnarmed() {
	if g.Channel == nil {
		return
	}
	g.waited = g.waited[:0]
	for _, c := range g.cqs {
		if g.Channel(c) {
			g.catchUp(c)
			g.waited = append(g.waited, c)
		}
	}
	c := g.neverArmed(g.waited)
	if c == nil {
		return
	}
	cs := g.cq(c)
	if cs.polls != cs.lately {
		cs.late, cs.lately = 0, cs.polls
	}
	if cs.late++; cs.late == overdueAfter {
		g.WaitUnarmed(g.waited, Site{})
	}
}

// tailOf is where the consumer of a queue is.
func tailOf(c *cq.CQ) uint32 { return min(c.Ring().LoadTail(), uint32(c.CQE())) }

// catchUp takes note of what was polled.
func (g *Guard) catchUp(c *cq.CQ) {
	cs := g.cq(c)
	tail := tailOf(c)
	n := int(tail) - int(cs.tail)
	if n < 0 {
		n += c.CQE() + 1
	}
	cs.tail = tail
	g.Polled(c, n)
}

// swap lets the completion that is n-th from the end change places with the next one.
func (g *Guard) swap(c *cq.CQ, n int) {
	items := g.cq(c).items
	if i := len(items) - n; i >= 0 && n > 1 {
		items[i], items[i+1] = items[i+1], items[i]
	}
}

// Peeker is a ring of receives that a program fills without a call.
type Peeker interface {
	Len() int
	// Peek reads the i-th of those that wait, and reports whether it can be a receive.
	Peek(i int, e *swqe.RWQE) bool
}

// NewRecvQueue implements rvt.Guard.
func (g *Guard) NewRecvQueue(q *qp.QP, s *swqe.SRQ) {
	ring := func(rq swqe.RecvQueue) swqe.RecvQueue {
		p, ok := rq.(Peeker)
		if !ok {
			return rq // posts go through the device
		}
		w := &watchedQueue{RecvQueue: rq, g: g, queue: g.queueOf(q, s)}
		w.queue.ring, w.queue.q, w.queue.s = p, q, s
		return w
	}
	switch {
	case s != nil:
		s.RQ = ring(s.RQ)
	case q.SRQ == nil:
		q.RQ = ring(q.RQ)
	}
}

// watchedQueue lets the guard see receives before one of them is taken.
type watchedQueue struct {
	swqe.RecvQueue
	g     *Guard
	queue *recvQueue
}

// Take implements swqe.RecvQueue.
func (w *watchedQueue) Take(e *swqe.RWQE) (ok, bad bool) {
	w.g.look(w.queue)
	if ok, bad = w.RecvQueue.Take(e); ok {
		w.queue.seen = max(w.queue.seen-1, 0)
	}
	return ok, bad
}

// look takes note of receives that are new in a ring.
func (g *Guard) look(rq *recvQueue) {
	if rq.ring == nil {
		return
	}
	if rq.q != nil {
		g.catchUp(rq.q.RecvCQ)
	}
	n := rq.ring.Len()
	var e swqe.RWQE
	for ; rq.seen < n; rq.seen++ {
		if rq.ring.Peek(rq.seen, &e) {
			g.PostRecv(rq.q, rq.s, &swqe.RecvWR{WRID: e.WRID, SGL: e.SGL}, Site{})
		}
	}
	rq.seen = n
	// A program that plays with the indices would have the list grow for ever.
	if most := 2 * (n + capOf(rq)); len(rq.posted) > most {
		g.dropRecvs(rq, len(rq.posted)-most)
	}
}

// capOf is the size of the queue.
func capOf(rq *recvQueue) int {
	if rq.s != nil {
		return rq.s.RQ.Cap()
	}
	return rq.q.RQ.Cap()
}

// Writes is told what a device writes to memory.
type Writes interface {
	Wrote(m mr.Memory, addr uint64, n int)
}

// Memory is memory whose writes somebody sees. Two of them are equal if they are the
// same memory.
type Memory struct {
	Mem     mr.Memory
	Freedom bool // the last bytes are stored first
	T       Writes
}

// ReadV implements mr.Memory.
func (m Memory) ReadV(ops []mr.Op) (int, error) { return m.Mem.ReadV(ops) }

// WriteV implements mr.Memory.
func (m Memory) WriteV(ops []mr.Op) (int, error) {
	for i := range ops {
		m.T.Wrote(m, ops[i].Addr, len(ops[i].Buf))
	}
	if m.Freedom {
		// A fault is found by the second pass again, which tells how far things went.
		_, _ = m.Mem.WriteV(Tails(ops))
	}
	return m.Mem.WriteV(ops)
}

// CompareSwap64 implements mr.Memory.
func (m Memory) CompareSwap64(addr, compare, swap uint64) (uint64, error) {
	m.T.Wrote(m, addr, 8)
	return m.Mem.CompareSwap64(addr, compare, swap)
}

// FetchAdd64 implements mr.Memory.
func (m Memory) FetchAdd64(addr, add uint64) (uint64, error) {
	m.T.Wrote(m, addr, 8)
	return m.Mem.FetchAdd64(addr, add)
}

// tail is how much of a write is stored before the rest: what programs that wait for
// the last bytes look at.
const tail = 8

// Tails returns the ends of writes of more than that. Nothing in the API says that the
// last byte of a WRITE arrives last.
func Tails(ops []mr.Op) []mr.Op {
	var out []mr.Op
	for _, o := range ops {
		if n := len(o.Buf); n > tail {
			out = append(out, mr.Op{Addr: o.Addr + uint64(n-tail), Buf: o.Buf[n-tail:]})
		}
	}
	return out
}
