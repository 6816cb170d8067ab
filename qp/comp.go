package qp

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// recvResponse (kernel: rc_rcv_resp) takes an acknowledgement, an atomic's result or a
// packet of a READ response.
func (q *QP) recvResponse(now vtime.Time, pkt *wire.Packet) wire.DropReason {
	psn := pkt.PSN
	if !q.can(ProcessSendOK) {
		return wire.DropQPState
	}
	// Only PSNs that were sent can be answered; after a rewind the highest counts.
	if q.SAcked == q.STail {
		return wire.DropUnexpectedResponse
	}
	isAck := pkt.Opcode == ib.OpAcknowledge
	if q.unacked(psn) >= q.unacked(q.SSendingHPSN.Add(1)) {
		if psn.Cmp(q.SLastPSN) > 0 {
			return wire.DropUnexpectedResponse
		}
		if isAck && psn == q.SLastPSN && pkt.AETH.Syndrome.Kind() == ib.SyndromeACK {
			q.getCredit(pkt.AETH)
		}
		return wire.DropDuplicate
	}
	if q.RFlags&RRdmarSeq != 0 {
		// An ACK is no response, though soft-RoCE sends one with this PSN for each
		// duplicate before the READ or atomic. To go back for each would use up the
		// retries while the response is on its way.
		ack := isAck && pkt.AETH.Syndrome.Kind() == ib.SyndromeACK
		if ack || psn != q.SLastPSN.Add(1) {
			return wire.DropOutOfSequence
		}
		q.RFlags &^= RRdmarSeq
	}
	switch pkt.Opcode {
	case ib.OpAcknowledge:
		return q.doRCAck(now, pkt)
	case ib.OpAtomicAck:
		return q.atomicResponse(now, pkt)
	}
	return q.readResponse(now, pkt)
}

// doRCAck (kernel: do_rc_ack) takes an ACK, an RNR NAK or a NAK.
func (q *QP) doRCAck(now vtime.Time, pkt *wire.Packet) wire.DropReason {
	syn := pkt.AETH.Syndrome
	ackPSN := pkt.PSN
	switch syn.Kind() {
	case ib.SyndromeACK:
	case ib.SyndromeRNR, ib.SyndromeNAK:
		ackPSN = ackPSN.Add(-1) // everything before it is acknowledged
		q.hist.lastNAK = NAK{Syndrome: syn, PSN: pkt.PSN, At: now}
	default:
		return wire.DropUnexpectedResponse
	}
	if !q.retire(now, ackPSN) {
		return wire.DropNone
	}
	if (syn.Kind() == ib.SyndromeRNR || syn == ib.NAKPSNSequence) && q.skipsResponse(ackPSN) {
		q.lostResponse(now)
		return wire.DropNone
	}
	switch syn.Kind() {
	case ib.SyndromeRNR:
		q.rnrNAK(now, pkt.PSN, syn.Value())
	case ib.SyndromeNAK:
		q.nak(now, pkt.PSN, syn)
	default:
		q.ackProgress(now, pkt.PSN)
		q.getCredit(pkt.AETH)
	}
	return wire.DropNone
}

// retire completes every WQE whose last packet is not after ackPSN. A READ or atomic
// among them was not answered: its response is lost, so the requester goes back to it
// and retire returns false.
func (q *QP) retire(now vtime.Time, ackPSN ib.PSN) bool {
	for q.SAcked != q.STail && q.can(ProcessSendOK) {
		w := q.ring.At(q.SAcked)
		if ackPSN.Sub(w.PSN) < int(w.Packets)-1 {
			break
		}
		if isRdAtomic(w) {
			q.lostResponse(now)
			return false
		}
		q.retireOne(now, w)
	}
	return q.can(ProcessSendOK)
}

// retireOne completes the WQE at SAcked with SUCCESS. If it was being sent again, the
// engine skips to the next one.
func (q *QP) retireOne(now vtime.Time, w *swqe.SWQE) {
	if isRdAtomic(w) && q.SNumRdAtomic > 0 {
		q.SNumRdAtomic--
	}
	if q.SAcked == q.SCur {
		q.SCur = q.ring.Next(q.SCur)
		q.SPSN = w.LPSN.Add(1)
		q.SNumRdAtomic = 0 // nothing after SCur is issued
	}
	q.SLastPSN = w.LPSN
	q.SAcked = q.ring.Next(q.SAcked)
	q.progress(now)
	q.CompleteSWQE(w, w.Op().WCOpcode, ib.WCSuccess, ib.CauseNone)
	q.checkDrained()
}

// progress records that the peer answered with something new: retries are full again
// and the timer starts over.
func (q *QP) progress(now vtime.Time) {
	q.growWindow()
	q.SRetry, q.SRNRRetry, q.sSpared = q.Attr.RetryCnt, q.Attr.RNRRetry, 0
	q.SFlags &^= SSendOne | SWaitAck
	q.restartTimer(now)
}

// ackProgress takes the part of an ACK that covers a message which is not complete.
func (q *QP) ackProgress(now vtime.Time, psn ib.PSN) {
	if psn.Cmp(q.SLastPSN) > 0 {
		if q.skipsResponse(psn) {
			q.lostResponse(now)
			return
		}
		q.SLastPSN = psn
	}
	if next := psn.Add(1); q.SPSN.Cmp(next) < 0 {
		q.SPSN = next // acknowledged meanwhile: no need to send it again
	}
	q.progress(now)
}

// skipsResponse reports whether taking psn for acknowledged would pass over data of
// the READ or atomic at SAcked. Only its own responses may do that.
func (q *QP) skipsResponse(psn ib.PSN) bool {
	if q.SAcked == q.STail || psn.Cmp(q.SLastPSN) <= 0 {
		return false
	}
	w := q.ring.At(q.SAcked)
	return isRdAtomic(w) && psn.Cmp(w.PSN) >= 0
}

// lostResponse goes back to the first PSN without a response: a later answer shows
// that a READ response or an atomic's result is missing. Other responses that are
// still on their way are ignored until the answer to the new request comes.
func (q *QP) lostResponse(now vtime.Time) {
	q.Env.Ctr.LostResponse++
	q.RFlags |= RRdmarSeq
	q.restartRC(now, q.SLastPSN.Add(1), ib.CauseRetrySequence)
}

// rnrNAK takes a "receiver not ready": wait as long as it says, then send the same PSN
// again. rnr_retry 7 means for ever.
func (q *QP) rnrNAK(now vtime.Time, psn ib.PSN, code uint8) {
	q.Env.Ctr.RcvdRNRNAK++
	q.NRNRNAKs++
	if q.SAcked == q.STail || q.SFlags&SWaitRNR != 0 {
		return
	}
	w := q.ring.At(q.SAcked)
	w.RNRNAKs++
	if q.Attr.RNRRetry != 7 {
		if q.SRNRRetry == 0 {
			q.Env.Ctr.RNRRetryExceeded++
			q.failSend(ib.WCRNRRetryExcErr, ib.CauseRNRRetry)
			return
		}
		q.SRNRRetry--
	}
	// The peer is alive: only RNR NAKs count against it now.
	q.SRetry = q.Attr.RetryCnt
	q.SLastPSN = psn.Add(-1)
	q.SFlags &^= SSendOne | SWaitAck
	q.SFlags |= SWaitRNR
	q.shrinkWindow() // what follows the message is dropped and sent again as well
	q.STimerAt = vtime.Never
	wait := ib.RNRTimeout(code)
	q.Env.Ctr.RNRNanos += uint64(wait)
	q.SRNRTimerAt = now.Add(wait)
	q.resetPSN(psn)
}

// nak takes a NAK.
func (q *QP) nak(now vtime.Time, psn ib.PSN, syn ib.Syndrome) {
	if syn == ib.NAKPSNSequence {
		q.Env.Ctr.RcvdSeqNAK++
		q.seqNAK(now, psn)
		return
	}
	status, cause := ib.WCRemOpErr, ib.CauseNAKReserved
	switch syn {
	case ib.NAKInvalidReq:
		status, cause = ib.WCRemInvReqErr, ib.CauseNAKInvalidReq
	case ib.NAKRemoteAccess:
		status, cause = ib.WCRemAccessErr, ib.CauseNAKAccess
	case ib.NAKRemoteOp:
		status, cause = ib.WCRemOpErr, ib.CauseNAKOp
	}
	q.failSend(status, cause)
}

// seqNAK goes back to the PSN that the responder misses. If the engine is there
// already, nothing was sent since, and the NAK is old.
func (q *QP) seqNAK(now vtime.Time, psn ib.PSN) {
	if last := psn.Add(-1); last.Cmp(q.SLastPSN) > 0 {
		q.SLastPSN = last
		q.progress(now)
	}
	if q.SPSN.Cmp(psn) <= 0 {
		q.SPSN = psn
		return
	}
	if q.SFlags&SWaitRNR != 0 {
		return
	}
	q.restartRC(now, psn, ib.CauseRetrySequence)
	if q.Env.Prof.SeqNAKKeepsRetry && q.can(ProcessSendOK) {
		q.SRetry = q.Attr.RetryCnt // after the restart has taken one off, as hfi1 does
	}
}

// getCredit (kernel: rvt_get_credit) takes the end-to-end credit of an ACK.
func (q *QP) getCredit(a wire.AETH) {
	n, ok := ib.Credits(a.Syndrome.Value())
	if !ok {
		q.SFlags |= SUnlimitedCredit
		return
	}
	if q.SFlags&SUnlimitedCredit != 0 {
		return
	}
	if lsn := a.MSN.Add(int(n)); lsn.Cmp(ib.MSN(q.SLSN)) > 0 {
		q.SLSN = uint32(lsn)
	}
}

// atomicResponse takes the result of the oldest WQE, which must be an atomic.
func (q *QP) atomicResponse(now vtime.Time, pkt *wire.Packet) wire.DropReason {
	if !q.retire(now, pkt.PSN.Add(-1)) {
		return wire.DropNone
	}
	if q.SAcked == q.STail {
		return wire.DropUnexpectedResponse
	}
	w := q.ring.At(q.SAcked)
	op := w.Op()
	switch {
	case pkt.PSN != w.PSN: // inside a message: retire has dealt with those before it
		return wire.DropUnexpectedResponse
	case !op.Has(swqe.OpAtomic) || pkt.AETH.Syndrome.Kind() != ib.SyndromeACK:
		q.failSend(q.Env.Prof.BadResponseStatus, ib.CauseReadRespOpcode)
		return wire.DropNone
	}
	// The result is a number in host byte order. It goes out with the burst.
	buf := q.Env.scratch8()
	binary.LittleEndian.PutUint64(buf, pkt.AtomicAck)
	if c := q.scatter(q.PD, w.WR.SGL, 0, buf); c != ib.CauseNone {
		q.failSend(ib.WCLocProtErr, c)
		return wire.DropNone
	}
	q.getCredit(pkt.AETH)
	q.retireOne(now, w)
	return wire.DropNone
}

// checkDrained raises SQ_DRAINED when every WQE that was started before SQD is
// retired.
func (q *QP) checkDrained() {
	if !q.wantDrained || q.State != ib.StateSQD || q.SLast != q.STail {
		return
	}
	q.wantDrained = false
	q.Env.Raise(Event{Type: ib.EventSQDrained, QP: q})
}
