package qp

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// CompleteSWQE (kernel: rvt_qp_complete_swqe) retires the oldest send WQE: it moves
// SLast on, and inserts a completion if the QP signals every WR (sq_sig_all), if the
// WR asked for one (SIGNALED), or if status is not SUCCESS (IBTA 10.7.3.1). It returns
// the new SLast.
//
// The WQE is read before SLast moves: from then on the poster may reuse the slot.
func (q *QP) CompleteSWQE(w *swqe.SWQE, opcode ib.WCOpcode, status ib.WCStatus, cause ib.Cause) int {
	p := q.Env.Prof
	wanted := q.SFlags&SSignalReqWR == 0 || w.WR.Flags&ib.SendSignaled != 0 || status != ib.WCSuccess
	wc := cq.WC{WRID: w.WR.WRID, Status: status, QPN: q.QPN, VendorErr: cause}
	if status == ib.WCSuccess || p.ErrorWCFilled {
		wc.Opcode, wc.ByteLen = opcode, w.Length
	}
	if op := w.Op(); status == ib.WCSuccess {
		q.Env.Ctr.MessagesSent++
		if p.SendImmFlag && op != nil && op.Has(swqe.OpImm) {
			wc.Flags |= ib.WCFlagWithImm
		}
	}
	q.SLast = q.ring.Next(q.SLast)
	if q.SQ != nil {
		q.SQ.Retired()
	}
	if status == ib.WCWRFlushErr {
		q.noteFlush(wc.WRID, cause)
	}
	entered := wanted && q.Env.enter(q.SendCQ, &wc, status != ib.WCSuccess)
	if o := q.Env.Observer; o != nil {
		o.SendDone(q, w, status, entered)
	}
	if wanted && !entered && p.CQErrorKillsQP {
		q.errorQP(ib.WCLocQPOpErr, ib.CauseCQOverflow, ib.CauseFlushCQError, false)
	}
	return q.SLast
}

// SendComplete (kernel: rvt_send_complete) retires the WQE at SLast and moves every
// other index that stood there.
func (q *QP) SendComplete(status ib.WCStatus, cause ib.Cause) {
	if !q.can(ProcessSendOK) && !q.can(FlushSend) {
		return
	}
	old := q.SLast
	w := q.ring.At(old)
	opcode := ib.WCSend
	if op := w.Op(); op != nil {
		opcode = op.WCOpcode
	}
	next := q.ring.Next(old)
	if q.SAcked == old {
		q.SAcked = next
	}
	if q.SCur == old {
		q.SCur = next
	}
	if q.STail == old {
		q.STail = next
	}
	q.CompleteSWQE(w, opcode, status, cause)
}

// failSend completes the oldest send WQE in error and takes the QP to ERR, or to SQE
// where the transport and profile allow that. All WQEs before it are retired.
func (q *QP) failSend(status ib.WCStatus, cause ib.Cause) {
	q.Env.Ctr.SendErrors++
	q.noteSend(status, cause)
	if q.Type != ib.QPTypeRC && q.Env.Prof.SQEOnSendError && q.State == ib.StateRTS {
		q.SendComplete(status, cause)
		if q.State == ib.StateRTS { // a full CQ may have taken it to ERR
			q.setState(ib.StateSQE)
			q.hist.failures[len(q.hist.failures)-1].To = ib.StateSQE
			q.flushCause = ib.CauseFlushAfter
		}
		return
	}
	q.SendComplete(status, cause)
	q.errorQP(ib.WCWRFlushErr, ib.CauseFlushAfter, ib.CauseFlushAfter, false)
}

// errorQP (kernel: rvt_error_qp) moves the QP to ERR. A receive in progress completes
// with status and cause; the receives of its own queue are flushed at once, oldest
// first. The send queue is flushed by the next Emit. responder says that the
// responder's side, a modify_qp or a lost region is the reason: some devices announce
// the last WQE only then.
func (q *QP) errorQP(status ib.WCStatus, cause, flush ib.Cause, responder bool) {
	if q.State == ib.StateErr || q.State == ib.StateReset {
		return
	}
	q.noteError(status, cause, flush)
	q.setState(ib.StateErr)
	q.STimerAt, q.SRNRTimerAt = vtime.Never, vtime.Never
	q.SFlags &^= sAnyWaitSend
	q.flushCause = flush
	q.wantDrained = false
	if !q.fatal {
		q.dropAnswers()
	}
	if q.RFlags&(RWRIDValid|RRewindSGE) != 0 {
		q.RFlags &^= RWRIDValid | RRewindSGE
		q.recvComplete(&cq.WC{WRID: q.rwqe.WRID, Status: status, VendorErr: cause}, true)
	}
	if q.SRQ == nil {
		for range q.RQ.Cap() { // a program that fills its own ring could go on for ever
			ok, _ := q.RQ.Take(&q.rwqe)
			if !ok {
				break
			}
			q.recvComplete(&cq.WC{WRID: q.rwqe.WRID, Status: ib.WCWRFlushErr, VendorErr: flush}, true)
		}
		return
	}
	if p := q.Env.Prof; p.LastWQE && (responder || p.LastWQEAll) {
		q.Env.Raise(Event{Type: ib.EventQPLastWQEReached, QP: q})
	}
}

// recvComplete puts a receive's completion into the receive CQ. If that is full the
// QP goes to ERR where the profile says so (kernel: rvt_recv_cq).
func (q *QP) recvComplete(wc *cq.WC, solicited bool) {
	p := q.Env.Prof
	wc.QPN = q.QPN
	if wc.Status != ib.WCSuccess && p.ErrorWCFilled {
		wc.Opcode = ib.WCRecv
	}
	if wc.Status == ib.WCSuccess {
		q.Env.Ctr.MessagesReceived++
		if p.RecvGRHFlag {
			wc.Flags |= ib.WCFlagGRH
		}
	}
	if wc.Status == ib.WCWRFlushErr {
		q.noteFlush(wc.WRID, wc.VendorErr)
	}
	entered := q.Env.enter(q.RecvCQ, wc, solicited)
	if o := q.Env.Observer; o != nil {
		o.RecvDone(q, wc.WRID, wc.Status, entered)
	}
	if !entered && (p.CQErrorKillsQP || q.Env.Drv.RecvOverflowKills) {
		// What was received before is acknowledged still where this message is not.
		q.fatal = q.fatal || q.Env.Drv.RecvOverflowKills
		q.errorQP(ib.WCWRFlushErr, ib.CauseFlushCQError, ib.CauseFlushCQError, true)
	}
}

// flushSend completes every send WQE that is left, oldest first, signaled or not.
func (q *QP) flushSend() {
	for q.SLast != q.SHead {
		q.SendComplete(ib.WCWRFlushErr, q.flushCause)
	}
	q.SPSN = q.SNextPSN
	q.SNumRdAtomic = 0
}

// MRGone (kernel: rvt_qp_mr_clean) takes the QP to ERR if a WQE or an unanswered READ
// still names the region that is being deregistered.
func (q *QP) MRGone(lkey ib.LKey, rkey ib.RKey) {
	if q.can(ProcessSendOK) || q.can(ProcessRecvOK) {
		if q.usesKey(lkey, rkey) {
			q.errorQP(ib.WCLocProtErr, ib.CauseLKeyInvalidated, ib.CauseFlushMRGone, true)
		}
	}
	q.check()
}

func (q *QP) usesKey(lkey ib.LKey, rkey ib.RKey) bool {
	for i := q.SLast; i != q.SHead; i = q.ring.Next(i) {
		for _, e := range q.ring.At(i).WR.SGL {
			if e.LKey == lkey && e.Length > 0 {
				return true
			}
		}
	}
	if q.RFlags&RWRIDValid != 0 {
		for _, e := range q.rwqe.SGL {
			if e.LKey == lkey {
				return true
			}
		}
	}
	return q.resp.usesKey(q, rkey)
}

// GatherFault is called by the owner when the payload of bad, a packet that this QP emitted,
// could not be fetched. first is the first packet that is withheld for that reason (see
// [Outbox.Withhold]). For a READ response that is the peer's business as well. A request fails
// when all before it are retired, and what comes behind it is flushed.
func (q *QP) GatherFault(first, bad *TxPacket) {
	if first.answers() {
		// The NAK is for this READ: nothing behind it counts as carried out (RC-NAK-08).
		q.rSafePSN = first.Pkt.PSN
		q.MemoryFault()
		return
	}
	q.Env.Ctr.MemoryFaults++
	if q.Type == ib.QPTypeRC && q.can(ProcessSendOK) && q.tryAlone(bad.Pkt.PSN) {
		q.check()
		return
	}
	switch told := q.amend(q.SendCQ); { // UC and UD complete when they emit
	case !told && q.SLast != q.STail && q.can(ProcessSendOK):
		q.Env.Ctr.SendErrors++
		q.noteSend(ib.WCLocProtErr, ib.CauseMemoryFault)
		q.SendComplete(ib.WCLocProtErr, ib.CauseMemoryFault)
		q.errorQP(ib.WCWRFlushErr, ib.CauseFlushAfter, ib.CauseFlushAfter, false)
	default:
		q.errorQP(ib.WCWRFlushErr, ib.CauseMemoryFault, ib.CauseMemoryFault, false)
	}
	q.check()
}

// tryAlone has the request that psn belongs to start again when all before it are retired. These
// are sent again from the oldest PSN that is not acknowledged on, whether they had left or not.
// It returns false if there are none, or no such request.
func (q *QP) tryAlone(psn ib.PSN) bool {
	for i := q.SLast; i != q.STail; i = q.ring.Next(i) {
		w := q.ring.At(i)
		if n := psn.Sub(w.PSN); n < 0 || n >= int(w.Packets) {
			continue
		}
		if i == q.SLast {
			return false
		}
		w.Alone = true
		q.resetPSN(q.SLastPSN.Add(1))
		return true
	}
	return false
}

// amend turns what is staged for this QP as success into the failure it is, and reports
// whether there was anything.
func (q *QP) amend(c *cq.CQ) (any bool) {
	c.Amend(q.QPN, func(wc *cq.WC) {
		if wc.Status == ib.WCSuccess {
			any = true
			*wc = cq.WC{WRID: wc.WRID, QPN: wc.QPN, Status: ib.WCLocProtErr, VendorErr: ib.CauseMemoryFault}
		}
	})
	return any
}

// MemoryGone is called by the owner when the memory as a whole is no more. The program
// has died: the queue pair falls silent, as a dead adapter does.
func (q *QP) MemoryGone() {
	q.Env.Ctr.MemoryFaults++
	q.amend(q.SendCQ)
	q.amend(q.RecvCQ)
	q.fatal = false
	q.dropAnswers()
	q.errorQP(ib.WCLocProtErr, ib.CauseMemoryFault, ib.CauseFlushAfter, false)
	q.check()
}

// MemoryFault is called by the owner when a copy for this QP failed although its key
// was good: the memory went away. What was staged as success did not happen.
func (q *QP) MemoryFault() {
	q.Env.Ctr.MemoryFaults++
	q.amend(q.SendCQ)
	q.amend(q.RecvCQ)
	if l := q.resp.last(); q.fatal && l != nil && l.syn == ib.NAKRemoteOp && l.psn == q.rSafePSN {
		return // a fault of the same burst was answered already
	}
	q.fatal = false
	q.dropAnswers()
	if q.can(ProcessRecvOK) && q.Type == ib.QPTypeRC {
		// A NAK acknowledges everything before it, so it may not name a later packet than
		// the one whose data is lost. Which of those since the last Emit that was is not
		// known here; none of them has been acknowledged.
		q.RPSN = q.rSafePSN
		q.sendFatalNAK(ib.NAKRemoteOp)
	}
	q.errorQP(ib.WCLocProtErr, ib.CauseMemoryFault, ib.CauseFlushAfter, true)
	q.check()
}

func (q *QP) setState(s ib.QPState) {
	q.State, q.Attr.State = s, s
}
