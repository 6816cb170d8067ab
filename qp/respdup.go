package qp

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// ahead answers a request whose PSN has not come up yet: packets before it are
// missing. One NAK is sent; the others stay silent until the missing PSN arrives.
func (q *QP) ahead() wire.DropReason {
	q.Env.Ctr.OutOfSeqRequest++
	rnr := q.RNAKState.Kind() == ib.SyndromeRNR && q.Env.Prof.NAKAfterRNR
	if (q.RNAKState == 0 || rnr) && q.resp.room() {
		q.RNAKState = ib.NAKPSNSequence
		q.Env.Ctr.SentNAK++
		q.resp.push(response{kind: respAck, psn: q.RPSN, msn: q.RMSN, syn: ib.NAKPSNSequence})
	}
	return wire.DropOutOfSequence
}

// duplicate answers a request that was executed before. Memory is not touched and
// nothing completes again.
func (q *QP) duplicate(pkt *wire.Packet) wire.DropReason {
	q.Env.Ctr.DuplicateRequest++
	if !q.resp.room() {
		return wire.DropDuplicate
	}
	switch m := wire.Info(pkt.Opcode).Mask; {
	case m&wire.Read != 0:
		q.dupRead(pkt)
	case m&(wire.Atomic|wire.AtomicWrite|wire.Flush) != 0:
		q.dupAtomic(pkt)
	case pkt.AckReq:
		q.dupData(pkt)
	}
	return wire.DropDuplicate
}

// dupData acknowledges a repeated SEND or WRITE. The ACK names the newest PSN that it
// may: it must not run past a READ or atomic whose response may be lost, since it
// cannot stand for that. (rxe's does. Its own requester takes an ACK with the PSN of a
// READ for the READ's response, so that it completes without its data.)
func (q *QP) dupData(pkt *wire.Packet) {
	psn := q.RPSN.Add(-1)
	for i := range q.SAckQueue {
		if e := &q.SAckQueue[i]; e.PSN.Cmp(pkt.PSN) > 0 && e.PSN.Add(-1).Cmp(psn) < 0 {
			psn = e.PSN.Add(-1)
		}
	}
	if q.noAckYet && q.Env.Prof.AckEach {
		// rxe keeps the PSN of its last ACK, which starts as "none".
		psn = ib.PSNMask
	}
	q.RNAKState = 0
	q.resp.push(response{kind: respAck, psn: psn, msn: q.RMSN, syn: q.computeAETH()})
}

// dupRead reads again what a repeated READ asks for, as long as it lies within one
// that was executed. The rkey is checked when the packets are built.
func (q *QP) dupRead(pkt *wire.Packet) {
	r := pkt.RETH
	n := 1
	if r.DMALen > 0 {
		n = int((r.DMALen-1)>>q.Attr.PathMTU.Log2()) + 1
	}
	e := q.findAck(pkt.PSN)
	ok := q.Env.Prof.DupReadAny && e != nil
	var msn ib.MSN = q.RMSN
	if e != nil && e.Opcode == ib.OpReadRequest {
		off := uint64(pkt.PSN.Sub(e.PSN)) * uint64(q.pmtu())
		ok = r.RKey == e.RETH.RKey && r.VA == e.RETH.VA+off && off+uint64(r.DMALen) == uint64(e.RETH.DMALen) || ok
		msn = e.MSN
	}
	if !ok || q.pendingRead(pkt.PSN) {
		return
	}
	q.RNAKState = 0
	q.resp.push(response{kind: respRead, psn: pkt.PSN, lpsn: pkt.PSN.Add(n - 1), msn: msn, reth: r})
}

// pendingRead reports whether a response that is queued already covers psn.
func (q *QP) pendingRead(psn ib.PSN) bool {
	for i := range q.resp.n {
		if e := q.resp.at(i); e.kind == respRead && psn.Cmp(e.psn) >= 0 && psn.Cmp(e.lpsn) <= 0 {
			return true
		}
	}
	return false
}

// dupAtomic repeats the saved result of an atomic, or the answer to an ATOMIC_WRITE or FLUSH. It is never executed twice; if it is too
// old to be remembered, silence is the answer.
func (q *QP) dupAtomic(pkt *wire.Packet) {
	e := q.findAck(pkt.PSN)
	if e == nil || e.Opcode != pkt.Opcode || e.PSN != pkt.PSN {
		return
	}
	q.RNAKState = 0
	kind := respAtomic
	if wire.Info(e.Opcode).Mask&wire.Atomic == 0 {
		kind = respRead // without data
	}
	q.resp.push(response{kind: kind, psn: e.PSN, lpsn: e.PSN, msn: e.MSN, atomic: e.Atomic})
}

// findAck returns the remembered READ or atomic that covers psn. The newest comes
// first: an older one may have had the same PSN, 2^24 packets ago.
func (q *QP) findAck(psn ib.PSN) *AckEntry {
	n := len(q.SAckQueue)
	for i := 1; i <= n; i++ {
		if e := &q.SAckQueue[(q.RHeadAck-i+n)%n]; psn.Cmp(e.PSN) >= 0 && psn.Cmp(e.LPSN) <= 0 {
			return e
		}
	}
	return nil
}
