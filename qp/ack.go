package qp

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// AckEntry (kernel: rvt_ack_entry) remembers a READ or an atomic that was executed, so
// that a duplicate can be answered.
type AckEntry struct {
	Opcode ib.Opcode
	PSN    ib.PSN
	LPSN   ib.PSN
	RETH   wire.RETH // READ
	Atomic uint64    // atomic: the value found
	MSN    ib.MSN
}

type respKind uint8

const (
	respAck respKind = iota
	respRead
	respAtomic
)

// response is one answer that waits to be sent.
type response struct {
	kind   respKind
	open   bool // counts against max_dest_rd_atomic until it is sent
	syn    ib.Syndrome
	psn    ib.PSN // of the next packet of the answer
	lpsn   ib.PSN
	msn    ib.MSN
	reth   wire.RETH // READ: what is left
	sent   bool      // READ: at least one packet went out
	atomic uint64
	entry  int
}

// respQueue holds the answers in the order of their requests. An ACK must not overtake
// the READ response before it: the requester would take that for lost.
type respQueue struct {
	buf  []response
	head int
	n    int
}

// respLimit bounds the queue; a request that finds it full is dropped and comes again.
const respLimit = 64

func (r *respQueue) clear() { r.head, r.n = 0, 0 }

// room reports whether a request may be executed: it queues at most one answer.
func (r *respQueue) room() bool { return r.n < respLimit }

func (r *respQueue) push(e response) {
	if r.n == len(r.buf) {
		// Grow in small steps: most QPs never have more than a few answers waiting.
		grown := make([]response, min(max(4, 2*len(r.buf)), respLimit))
		for i := range r.n {
			grown[i] = *r.at(i)
		}
		r.buf, r.head = grown, 0
	}
	r.n++
	*r.at(r.n - 1) = e
}

func (r *respQueue) at(i int) *response {
	if i += r.head; i >= len(r.buf) {
		i -= len(r.buf)
	}
	return &r.buf[i]
}

func (r *respQueue) pop() {
	if r.head++; r.head == len(r.buf) {
		r.head = 0
	}
	r.n--
}

// last returns the newest answer, nil if there is none.
func (r *respQueue) last() *response {
	if r.n == 0 {
		return nil
	}
	return r.at(r.n - 1)
}

// acks reports whether the queue holds positive acknowledgements and nothing else.
func (r *respQueue) acks() bool {
	for i := range r.n {
		if e := r.at(i); e.kind != respAck || e.syn.Kind() != ib.SyndromeACK {
			return false
		}
	}
	return r.n > 0
}

// usesKey reports whether a READ response that is not complete needs rkey.
func (r *respQueue) usesKey(q *QP, rkey ib.RKey) bool {
	for i := range r.n {
		if e := r.at(i); e.kind == respRead && e.reth.RKey == rkey && e.reth.DMALen > 0 {
			return true
		}
	}
	return false
}

// queueAck acknowledges everything up to psn. An ACK that has not left yet is merged
// with it, unless the profile sends each.
func (q *QP) queueAck(psn ib.PSN) {
	if l := q.resp.last(); l != nil && l.kind == respAck && l.syn.Kind() == ib.SyndromeACK {
		if !q.Env.Prof.AckEach || q.resp.n > respLimit/2 {
			l.psn, l.msn, l.syn = psn, q.RMSN, q.computeAETH()
			q.Env.Ctr.AckDeferred++
			return
		}
	}
	q.resp.push(response{kind: respAck, psn: psn, msn: q.RMSN, syn: q.computeAETH()})
}

// computeAETH (kernel: rvt_compute_aeth) is the syndrome of a positive acknowledgement:
// the credit code for the receives that are posted, or "no credits".
func (q *QP) computeAETH() ib.Syndrome {
	if !q.Env.Prof.CreditFlow || q.SRQ != nil {
		return ib.SyndromeACK | ib.Syndrome(ib.CreditInvalid)
	}
	return ib.SyndromeACK | ib.Syndrome(ib.CreditCode(uint32(q.RQ.Len())))
}

// makeRCAck (kernel: hfi1_make_rc_ack, make_rc_ack) appends the next packet of the
// oldest answer. It returns false if that answer came to nothing.
func (q *QP) makeRCAck(o *Outbox) bool {
	r := q.resp.at(0)
	if r.kind == respRead {
		return q.makeReadResponse(o, r)
	}
	p := o.add()
	p.Pkt.Opcode = ib.OpAcknowledge
	p.Pkt.AETH = wire.AETH{Syndrome: r.syn, MSN: r.msn}
	if r.kind == respAtomic {
		p.Pkt.Opcode = ib.OpAtomicAck
		p.Pkt.AETH.Syndrome = q.computeAETH()
		p.Pkt.AtomicAck = r.atomic
	}
	q.bth(p, r.psn)
	q.popResponse(r)
	return true
}

// dropAnswers forgets every answer that has not been sent.
func (q *QP) dropAnswers() {
	q.resp.clear()
	q.rOpenRd = 0
}

func (q *QP) popResponse(r *response) {
	if r.open && q.rOpenRd > 0 {
		q.rOpenRd--
	}
	q.resp.pop()
}

// makeReadResponse appends one packet of a READ response. The rkey is checked for each
// packet: it may have been invalidated since the request came.
func (q *QP) makeReadResponse(o *Outbox, r *response) bool {
	n := min(int(r.reth.DMALen), q.pmtu())
	segs := len(o.Segs)
	p := o.add()
	if n > 0 {
		seg, c := q.Env.Keys.CheckRKey(q.PD, q.QPN, r.reth.RKey, r.reth.VA, uint64(n), ib.AccessRemoteRead)
		if c != ib.CauseNone {
			o.undo(segs)
			if r.open {
				q.readKeyGone(r, c)
			} else {
				q.popResponse(r) // a duplicate: silence is enough
			}
			return false
		}
		p.SegOff, p.SegLen = segs, 1
		o.Segs = append(o.Segs, seg)
	}
	p.Len = n
	p.Pkt.Pad = wire.PadFor(n)
	last := r.psn == r.lpsn
	switch {
	case !r.sent && last:
		p.Pkt.Opcode = ib.OpReadRespOnly
	case !r.sent:
		p.Pkt.Opcode = ib.OpReadRespFirst
	case last:
		p.Pkt.Opcode = ib.OpReadRespLast
	default:
		p.Pkt.Opcode = ib.OpReadRespMiddle
	}
	if p.Pkt.Opcode != ib.OpReadRespMiddle {
		p.Pkt.AETH = wire.AETH{Syndrome: q.computeAETH(), MSN: r.msn}
	}
	q.bth(p, r.psn)
	r.sent = true
	r.psn = r.psn.Add(1)
	r.reth.VA += uint64(n)
	r.reth.DMALen -= uint32(n)
	if last {
		q.popResponse(r)
	}
	return true
}

// readKeyGone ends a READ whose memory may no longer be read: NAK at the packet that
// cannot be sent, and the QP goes to ERR.
func (q *QP) readKeyGone(r *response, c ib.Cause) {
	psn, reth := r.psn, r.reth
	q.dropAnswers()
	if q.can(ProcessRecvOK) {
		q.fatal = true
		q.RNAKState = ib.NAKRemoteAccess
		q.hist.request = Request{Opcode: ib.OpReadRequest, PSN: psn, Addr: reth.VA, RKey: reth.RKey, Length: reth.DMALen}
		q.Env.Ctr.SentNAK++
		q.resp.push(response{kind: respAck, psn: psn, msn: q.RMSN, syn: ib.NAKRemoteAccess})
		q.errorQP(ib.WCLocProtErr, c, ib.CauseFlushAfter, true)
	}
}
