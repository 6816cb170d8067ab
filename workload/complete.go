package workload

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// pollSends takes all completions of the send queues.
func (e *Endpoint) pollSends(now vtime.Time) (progress bool) {
	for {
		n := e.scq.Poll(e.tmp.wcs[:])
		for i := range e.tmp.wcs[:n] {
			e.sendDone(now, &e.tmp.wcs[i])
		}
		progress = progress || n > 0
		if n < len(e.tmp.wcs) {
			return progress
		}
	}
}

// sendDone takes one completion of a send queue.
func (e *Endpoint) sendDone(now vtime.Time, wc *cq.WC) {
	if e.Hooks.Completion != nil {
		e.Hooks.Completion(now, wc)
	}
	qi := int(wc.WRID >> 48)
	if qi >= len(e.qps) || e.qps[qi].q.QPN != wc.QPN {
		e.unsure.add(e.Name() + ": a send completion names wr " + hex(wc.WRID) + " of qp " + wc.QPN.String() + ", which posted no such work request")
		return
	}
	c := e.qps[qi]
	i := wc.WRID & (1<<48 - 1)
	if i&bindWRID != 0 {
		e.bindDone(now, c, int(i&^bindWRID), wc)
		return
	}
	e.stats.Statuses[wc.Status]++
	s := &c.send
	from, fault := s.complete(i, wc.Status, e.Spec.signaled)
	if fault != faultNone {
		e.violate(c, "send wr %d with %v: %s (posted %d, retired %d)", i, wc.Status, fault, s.posted, s.retired)
		if fault == faultTwice || fault == faultNotPosted {
			return
		}
	}
	for ; from < i; from++ {
		e.sent(c, s.slot(from))
	}
	p := s.slot(i)
	if wc.Status == ib.WCSuccess {
		e.checkSendWC(c, p, wc)
		e.sent(c, p)
		if e.Hooks.Latency != nil {
			e.Hooks.Latency.Record(int64(now.Sub(p.at)))
		}
	} else {
		e.noteFailure(now, wc)
		c.down = true
	}
	e.stats.LastCompletion = now
	e.list(c)
}

// list has post look at a QP.
func (e *Endpoint) list(c *conn) {
	if e.role.sends && !c.send.listed {
		c.send.listed = true
		e.ready = append(e.ready, c.i)
	}
}

// noteFailure remembers the first failure of the endpoint, for reports.
func (e *Endpoint) noteFailure(now vtime.Time, wc *cq.WC) {
	if e.stats.FirstFailure.Status == ib.WCSuccess {
		e.stats.FirstFailure, e.stats.FirstFailureAt = *wc, now
	}
}

func (e *Endpoint) bindDone(now vtime.Time, c *conn, i int, wc *cq.WC) {
	if i >= len(c.mws) || !c.mws[i].busy {
		e.violate(c, "binding %d completed twice or was never posted", i)
		return
	}
	c.mws[i].busy = false
	e.binding--
	if wc.Status != ib.WCSuccess {
		e.noteFailure(now, wc)
		c.down = true
	}
}

// checkSendWC tests the fields of a successful completion.
func (e *Endpoint) checkSendWC(c *conn, p *posted, wc *cq.WC) {
	if wc.Opcode != p.par.WCOpcode {
		e.violate(c, "send wr %d (%v) completed as %v", p.index, p.op, wc.Opcode)
	}
	if (p.op == ib.WRRDMARead || p.par.Has(swqe.OpAtomic)) && wc.ByteLen != uint32(p.size) {
		e.violate(c, "send wr %d (%v of %d bytes) completed with byte_len %d", p.index, p.op, p.size, wc.ByteLen)
	}
}

// sent accounts for a work request that succeeded and checks what it brought back.
func (e *Endpoint) sent(c *conn, p *posted) {
	e.stats.Completed++
	e.stats.Ops[p.op]++
	e.stats.Bytes += uint64(p.size)
	if e.Spec.RKey != RKeyGood && p.par.Has(swqe.OpRDMA) && p.size > 0 && e.Spec.reliable() {
		e.violate(c, "send wr %d (%v) succeeded without a right to the memory", p.index, p.op)
		return
	}
	at := e.lay.sendSlot(c.i*e.Spec.Depth + int(p.index%uint64(e.Spec.Depth)))
	buf := e.buf[at : at+p.size]
	switch {
	case p.par.Has(swqe.OpAtomic):
		e.checkAtomic(c, p, binary.LittleEndian.Uint64(buf))
	case p.op == ib.WRRDMARead && e.Spec.Verify:
		e.checkRead(c, p, buf)
	}
}

// checkRead tests what a READ brought.
func (e *Endpoint) checkRead(c *conn, p *posted, buf []byte) {
	if p.source == fromReadZone {
		if i := readZonePattern(e.Spec.Seed, e.out.other()).mismatch(buf, p.off); i >= 0 {
			e.violate(c, "READ %d of %d bytes: byte %d is %#x, which is not what the peer's memory holds", p.index, p.size, i, buf[i])
		}
		return
	}
	end := c.send.posted
	if e.Spec.Fence {
		end = p.index // later WRITEs waited for this READ
	}
	if i := c.send.script.unexplained(buf, p.write, uint64(e.Spec.Depth), end); i >= 0 {
		e.violate(c, "READ %d of what WRITE %d left: byte %d is %#x", p.index, p.write, i, buf[i])
	}
}

// unexplained returns the first index of b that is neither from WRITE w nor from a
// later one to the same slot, of those before end; -1 if there is none. A READ may see
// later WRITEs, because it reads again when its response was lost.
func (sc *script) unexplained(b []byte, w, depth, end uint64) int {
	first := sc.pattern(w)
	for i := first.mismatch(b, 0); i >= 0 && i < len(b); i++ {
		if b[i] == first.byteAt(i) {
			continue
		}
		found := false
		for j := w + depth; j < end && !found; j += depth {
			m := sc.at(j)
			found = m.writes() && i < m.size && sc.pattern(j).byteAt(i) == b[i]
		}
		if !found {
			return i
		}
	}
	return -1
}

// writes reports whether the message writes to the peer's write slots.
func (m *message) writes() bool {
	return m.op == ib.WRRDMAWrite || m.op == ib.WRRDMAWriteWithImm
}

// checkAtomic tests the value that an atomic found.
func (e *Endpoint) checkAtomic(c *conn, p *posted, old uint64) {
	s := &c.send
	if !p.shared {
		if old != p.old {
			e.violate(c, "%v %d found %#x, want %#x: one before it was executed not at all or twice", p.op, p.index, old, p.old)
		}
		return
	}
	if s.sharedAny && old <= s.sharedSeen {
		e.violate(c, "%v %d found %#x in the shared word, an earlier one found %#x", p.op, p.index, old, s.sharedSeen)
	}
	s.sharedAny, s.sharedSeen = true, old
	s.sharedAdded += s.script.add(p.index)
}

// checkEnded notes when a QP has posted and retired everything.
func (e *Endpoint) checkEnded(c *conn) {
	s := &c.send
	if c.down && s.outstanding() > 0 && c.q.Outstanding() == 0 && e.scq.Len() == 0 {
		if e.cqLost {
			s.retired = s.posted // what became of them nobody will know
		} else {
			e.retireSilent(c)
		}
	}
	if s.ended || s.outstanding() > 0 || e.more(s) && !c.down && e.err == nil {
		return
	}
	s.ended = true
	e.open--
}

// retireSilent takes note of work requests that succeeded without a report before
// their QP went to ERR. No later one will report on them.
func (e *Endpoint) retireSilent(c *conn) {
	s := &c.send
	for ; s.retired < s.posted; s.retired++ {
		if s.failed || e.Spec.signaled(s.retired) {
			e.violate(c, "send wr %d was never reported", s.retired)
			continue
		}
		e.sent(c, s.slot(s.retired))
	}
}
