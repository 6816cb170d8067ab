package strict

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// busyMemory is a piece of memory that a posted receive owns.
type busyMemory struct {
	mem      mr.Memory
	from, to uint64
	queue    *recvQueue
	object   fmt.Stringer // whose queue it is
	wrID     uint64
	site     Site
}

// queueOf returns the receives of a queue pair, or of its shared queue.
func (t *Tracker) queueOf(q *qp.QP, s *swqe.SRQ) *recvQueue {
	if s == nil {
		return &t.qp(q).recv
	}
	rq := t.srqs[s]
	if rq == nil {
		rq = &recvQueue{}
		t.srqs[s] = rq
	}
	return rq
}

// PostRecv is told of a receive that is about to be posted, to a queue pair or to a
// shared queue. What turns out to be refused is taken back with UnpostRecv.
func (t *Tracker) PostRecv(q *qp.QP, s *swqe.SRQ, wr *swqe.RecvWR, site Site) {
	rq := t.queueOf(q, s)
	r := recv{wrID: wr.WRID, site: site}
	for _, e := range wr.SGL {
		r.lkeys = append(r.lkeys, e.LKey)
	}
	object, pd, sgl := fmt.Stringer(s), mr.PD(0), wr.SGL
	if s == nil {
		object, pd, r.cq = q, q.PD, t.cq(q.RecvCQ)
		// The network header of datagrams may go to one place for all of them.
		if q.Type == ib.QPTypeUD && len(sgl) > 1 && sgl[0].Length <= ib.GRHBytes {
			sgl = sgl[1:]
		}
	} else {
		pd = s.PD
	}
	if t.checks.Receives {
		for _, e := range sgl {
			t.occupy(object, pd, e, rq, &r)
		}
	}
	rq.posted = append(rq.posted, r)
	if r.cq != nil {
		t.expect(r.cq, r.place())
	}
}

// occupy marks the memory of a scatter entry as the receive's, and reports whose it was.
func (t *Tracker) occupy(object fmt.Stringer, pd mr.PD, e mr.SGE, rq *recvQueue, r *recv) {
	seg, c := t.keys.CheckLKey(pd, e, 0)
	if c != ib.CauseNone || seg.Len == 0 {
		return
	}
	b := busyMemory{mem: seg.Mem, from: seg.Addr, to: seg.Addr + uint64(seg.Len), queue: rq, object: object, wrID: r.wrID, site: r.site}
	i, _ := slices.BinarySearchFunc(t.busy, b, func(x, y busyMemory) int { return cmp.Compare(x.from, y.from) })
	for _, k := range []int{i - 1, i} {
		if k < 0 || k >= len(t.busy) {
			continue
		}
		if o := &t.busy[k]; o.mem == b.mem && o.from < b.to && b.from < o.to {
			other := recv{wrID: o.wrID, site: o.site}
			t.say(&RecvOverlap, object, overlap(o, &b), r.place(), other.place())
		}
	}
	t.busy = slices.Insert(t.busy, i, b)
}

// overlap says what two receives share; a was posted first.
func overlap(a, b *busyMemory) string {
	n, whose := min(a.to, b.to)-max(a.from, b.from), ""
	if a.queue != b.queue {
		whose = " of " + a.object.String()
	}
	return fmt.Sprintf("%s to receive wr %d%s, which is still posted",
		count(int(n), fmt.Sprintf("byte of receive wr %d belongs", b.wrID), fmt.Sprintf("bytes of receive wr %d belong", b.wrID)), a.wrID, whose)
}

// release gives the memory of a receive back.
func (t *Tracker) release(rq *recvQueue, r *recv) {
	if r.cq != nil {
		r.cq.expect--
	}
	if t.checks.Receives {
		t.busy = slices.DeleteFunc(t.busy, func(b busyMemory) bool { return b.queue == rq && b.wrID == r.wrID && b.site == r.site })
	}
}

// UnpostRecv takes the n receives back that were posted last.
func (t *Tracker) UnpostRecv(q *qp.QP, s *swqe.SRQ, n int) {
	rq := t.queueOf(q, s)
	n = min(n, len(rq.posted))
	for i := len(rq.posted) - n; i < len(rq.posted); i++ {
		t.release(rq, &rq.posted[i])
	}
	rq.posted = rq.posted[:len(rq.posted)-n]
}

// dropRecvs forgets the n oldest receives.
func (t *Tracker) dropRecvs(rq *recvQueue, n int) {
	for i := range rq.posted[:n] {
		t.release(rq, &rq.posted[i])
	}
	rq.posted = slices.Delete(rq.posted, 0, n)
}

// RecvDone implements qp.Observer.
func (t *Tracker) RecvDone(q *qp.QP, wrID uint64, _ ib.WCStatus, entered bool) {
	rq := t.queueOf(q, q.SRQ)
	// A shared queue's receives complete in the order in which its queue pairs finish
	// their messages, so the first of that wr_id is as good as any.
	if i := slices.IndexFunc(rq.posted, func(r recv) bool { return r.wrID == wrID }); i >= 0 {
		t.release(rq, &rq.posted[i])
		rq.posted = slices.Delete(rq.posted, i, i+1)
	}
	if entered {
		cs := t.cq(q.RecvCQ)
		cs.enter(item{st: t.qp(q), recv: true})
	}
}

// DestroySRQ is told that a shared queue is gone.
func (t *Tracker) DestroySRQ(s *swqe.SRQ) {
	rq := t.queueOf(nil, s)
	t.dropRecvs(rq, len(rq.posted))
	delete(t.srqs, s)
}

// NoReceive implements qp.Observer.
func (t *Tracker) NoReceive(q *qp.QP) {
	if !t.checks.Receives {
		return
	}
	what := "its sender has to wait and try again"
	if q.Type != ib.QPTypeRC {
		what = "it is lost"
	}
	t.say(&RecvEmpty, q, fmt.Sprintf("a message from qp %v found no receive posted in state %v: %s", q.Attr.DestQPN, q.State, what))
}
