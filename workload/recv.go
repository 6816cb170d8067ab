package workload

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// receiver is the receiving side of one QP.
type receiver struct {
	script   script
	want     message // the message that the next receive is for; see expect
	complete bool    // the script has no more messages that take a receive
	got      uint64  // messages received
	ring     recvRing
}

// expect starts the script of what the peer sends.
func (r *receiver) expect(sc script) {
	r.script = sc
	r.advance(0)
}

// advance looks for the next message from i on that takes a receive.
func (r *receiver) advance(i uint64) {
	if !r.script.spec.TakesReceives() {
		r.complete = true
		return
	}
	m, ok := r.script.next(i)
	r.want, r.complete = m, !ok
}

// recvRing is the receive slots of one queue. Receives that complete in any order, as
// with an SRQ, free their slots in that order.
type recvRing struct {
	first int      // its first slot in the endpoint's memory
	seq   []uint64 // by slot: number of the receive posted there plus 1; 0: free
	free  []int    // slots, used from the front
	next  uint64   // number of the next receive
	due   uint64   // own queue: number of the receive that must complete next
}

func newRecvRing(first, n int) recvRing {
	r := recvRing{first: first, seq: make([]uint64, n), free: make([]int, n)}
	for i := range r.free {
		r.free[i] = i
	}
	return r
}

// outstanding returns how many receives are posted.
func (r *recvRing) outstanding() int { return len(r.seq) - len(r.free) }

// recvWRID names a receive: the queue, the slot, and the low bits of its number.
func recvWRID(queue, slot int, seq uint64) uint64 {
	return uint64(queue)<<48 | uint64(slot)<<24 | seq&(1<<24-1)
}

// stepReceives polls and replenishes the receive queues.
func (e *Endpoint) stepReceives(now vtime.Time) (progress bool) {
	if e.rearmSRQ && e.srq != nil {
		e.rearmSRQ = false
		limit := e.Spec.SRQLimit
		if err := e.dev.ModifySRQ(e.srq, nil, &limit); err != nil {
			e.fail(err)
		}
	}
	if now >= e.recvAt && !e.recvStarted && e.binding == 0 {
		e.recvStarted = true
		progress = e.replenish()
	}
	for {
		n := e.rcq.Poll(e.tmp.wcs[:])
		for i := range e.tmp.wcs[:n] {
			e.recvDone(now, &e.tmp.wcs[i])
		}
		progress = progress || n > 0
		if n < len(e.tmp.wcs) {
			break
		}
	}
	if e.refill && e.recvStarted && e.binding == 0 {
		progress = e.replenish() || progress
	}
	return progress
}

// replenish posts a receive for every free slot.
func (e *Endpoint) replenish() (progress bool) {
	e.refill = false
	if e.srq != nil {
		return e.replenishRing(nil, &e.srqRing)
	}
	for _, c := range e.qps {
		if !c.down && c.q.State != ib.StateErr {
			progress = e.replenishRing(c, &c.recv.ring) || progress
		}
	}
	return progress
}

// replenishRing fills the queue of c, or the shared one if c is nil.
func (e *Endpoint) replenishRing(c *conn, r *recvRing) bool {
	any := false
	for len(r.free) > 0 {
		e.tmp.recvs, e.tmp.rsges = e.tmp.recvs[:0], e.tmp.rsges[:0]
		for _, slot := range r.free[:min(len(r.free), e.Spec.batch())] {
			e.tmp.recvs = append(e.tmp.recvs, e.buildRecv(c, r, slot))
		}
		var n int
		var err error
		if c == nil {
			n, err = e.dev.PostSRQRecv(e.srq, e.tmp.recvs)
		} else {
			n, err = e.dev.PostRecv(c.q, e.tmp.recvs)
		}
		for _, slot := range r.free[:n] {
			r.seq[slot] = r.next + 1
			r.next++
		}
		rest := copy(r.free, r.free[n:])
		r.free = r.free[:rest]
		e.stats.RecvPosted += uint64(n)
		any = any || n > 0
		if err != nil {
			e.fail(err)
			break
		}
	}
	return any
}

func (e *Endpoint) buildRecv(c *conn, r *recvRing, slot int) swqe.RecvWR {
	queue := len(e.qps)
	if c != nil {
		queue = c.i
	}
	seq := r.next + uint64(len(e.tmp.recvs))
	at := e.lay.recvSlot(r.first + slot)
	sgl := e.pieces(&e.tmp.rsges, localBase+uint64(at), e.lay.recvBytes, e.local.LKey, false, mix(e.Spec.Seed, seq))
	return swqe.RecvWR{WRID: recvWRID(queue, slot, seq), SGL: sgl}
}

// recvDone takes one completion of a receive.
func (e *Endpoint) recvDone(now vtime.Time, wc *cq.WC) {
	switch {
	case e.Hooks.RecvCompletion != nil:
		e.Hooks.RecvCompletion(now, wc)
	case e.Hooks.Completion != nil:
		e.Hooks.Completion(now, wc)
	}
	e.stats.RecvStatuses[wc.Status]++
	qi, ok := e.index[wc.QPN]
	if !ok {
		e.unsure.add(e.Name() + ": a receive completion names qp " + wc.QPN.String() + ", which is not of this flow")
		return
	}
	c := e.qps[qi]
	ring := &c.recv.ring
	if e.srq != nil {
		ring = &e.srqRing
	}
	slot, ok := e.freeSlot(c, ring, wc)
	if !ok {
		return
	}
	e.refill = true
	if wc.Status != ib.WCSuccess {
		if c.q.State == ib.StateErr {
			e.noteFailure(now, wc)
			c.down = true
			e.list(c)
		} else { // UC-07: its message was abandoned, the QP goes on
			e.stats.Aborted++
		}
		if e.Spec.Verify { // part of a message may have arrived
			at := e.lay.recvSlot(ring.first + slot)
			fillCanary(e.buf[at : at+e.lay.recvBytes])
		}
		return
	}
	e.received(now, c, ring, slot, wc)
}

// freeSlot finds the receive that completed and takes it off the books.
func (e *Endpoint) freeSlot(c *conn, r *recvRing, wc *cq.WC) (slot int, ok bool) {
	queue := len(e.qps)
	if e.srq == nil {
		queue = c.i
	}
	slot = int(wc.WRID >> 24 & (1<<24 - 1))
	if slot >= len(r.seq) || r.seq[slot] == 0 || recvWRID(queue, slot, r.seq[slot]-1) != wc.WRID {
		e.violate(c, "receive wr %s completed twice, or was never posted to this queue", hex(wc.WRID))
		return 0, false
	}
	if e.srq == nil {
		if n := r.seq[slot] - 1; n != r.due {
			e.violate(c, "receive %d completed, %d was posted before it", n, r.due)
		}
		r.due = r.seq[slot]
	}
	r.seq[slot] = 0
	r.free = append(r.free, slot)
	return slot, true
}

// received accounts for a message and checks it.
func (e *Endpoint) received(now vtime.Time, c *conn, ring *recvRing, slot int, wc *cq.WC) {
	e.stats.Received++
	e.stats.LastReceived = now
	c.recv.got++
	n := int(wc.ByteLen)
	head := 0
	if e.Spec.Transport == ib.QPTypeUD {
		head = ib.GRHBytes
	}
	at := e.lay.recvSlot(ring.first + slot)
	buf := e.buf[at : at+e.lay.recvBytes : at+e.lay.recvBytes]
	switch {
	case n < head:
		e.violate(c, "a receive has byte_len %d", n)
		return
	case wc.Opcode == ib.WCRecv && n > len(buf):
		e.violate(c, "a message of %d bytes is in a receive of %d", n, len(buf))
		return
	}
	e.stats.ReceivedBytes += uint64(n - head)
	in := arrival{wc: wc, size: n - head, buf: buf[head:max(head, min(n, len(buf)))]}
	if wc.Opcode != ib.WCRecv {
		in.buf = nil // a WRITE left the receive's own memory alone
	}
	m, ok := e.identify(c, &in)
	if ok {
		e.checkArrival(c, &m, &in)
	}
	if e.Spec.Verify {
		e.checkBehind(c, &m, &in, buf)
	}
	if ok && m.op == ib.WRSendWithInv {
		e.rebind(c, wc)
	}
	if e.Hooks.Received != nil {
		e.Hooks.Received(now)
	}
}

// checkBehind tests that a receive was filled no further than its message reaches, and
// makes it ready for the next one. UC may have used the receive for a message that it
// abandoned, which leaves traces.
func (e *Endpoint) checkBehind(c *conn, m *message, in *arrival, buf []byte) {
	used := 0
	if in.buf != nil {
		used = len(buf) - cap(in.buf) + len(in.buf)
	}
	if i := untouched(buf[used:]); i >= 0 && e.Spec.Transport != ib.QPTypeUC {
		e.violate(c, "message %d (%v of %d bytes): byte %d of the receive was written, behind the message", m.index, m.op, m.size, used+i)
	}
	fillCanary(buf)
}

// rebind binds the window that a SEND_WITH_INV took.
func (e *Endpoint) rebind(c *conn, wc *cq.WC) {
	for i := range c.mws {
		if w := &c.mws[i]; !w.busy && w.mw.RKey == wc.InvRKey {
			if w.mw.Bound() {
				e.violate(c, "window %v was invalidated but is still bound", wc.InvRKey)
			}
			if !e.Spec.Bidirectional {
				e.bind(c, i)
			}
			return
		}
	}
	e.violate(c, "a receive says that %v was invalidated, which is no window of this QP", wc.InvRKey)
}
