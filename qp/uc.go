package qp

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// makeUCReq (kernel: hfi1_make_uc_req) builds the next packet. A WQE is complete when
// its last packet has been handed to the wire: nothing comes back.
func (q *QP) makeUCReq(o *Outbox) bool {
	for q.can(ProcessSendOK) {
		fresh := q.SCur == q.STail
		if fresh && (!q.can(ProcessNextSendOK) || q.STail == q.SHead) {
			return false
		}
		w := q.ring.At(q.SCur)
		op := w.Op()
		if q.SPSN == w.PSN && (!q.sendable(op) || q.localError(w, op) != ib.CauseNone) {
			q.localOp(w, op)
			continue
		}
		if fresh {
			q.STail = q.ring.Next(q.STail)
		}
		if q.buildUC(o, w) {
			return true
		}
	}
	return false
}

func (q *QP) buildUC(o *Outbox, w *swqe.SWQE) bool {
	off := uint64(fromStart(w, q.SPSN)) * uint64(q.pmtu())
	segs := len(o.Segs)
	p := o.add()
	n := min(uint64(q.pmtu()), uint64(w.Length)-off)
	last := off+n == uint64(w.Length)
	if !q.payload(o, p, w, off, n) {
		o.undo(segs)
		return false
	}
	q.dataHeaders(&p.Pkt, w, off == 0, last)
	q.bth(p, q.SPSN)
	q.stamp(w)
	q.SPSN = q.SPSN.Add(1)
	if last {
		q.sentLast(w)
	}
	return true
}

// sentLast retires a WQE of an unreliable transport. The completion is shown only
// after the payload has been fetched (see rvt.Device.Commit).
func (q *QP) sentLast(w *swqe.SWQE) {
	q.SLastPSN, q.SSendingHPSN = w.LPSN, w.LPSN
	q.SendComplete(ib.WCSuccess, ib.CauseNone)
	q.checkDrained()
}

// recvUC (kernel: hfi1_uc_rcv) takes a UC packet. A gap or a packet that does not fit
// abandons the message in progress; see giveUpRecv for its receive.
func (q *QP) recvUC(pkt *wire.Packet) wire.DropReason {
	m := wire.Info(pkt.Opcode).Mask
	q.commEst()
	cut, drop := ib.CauseNone, wire.DropNone
	switch {
	case pkt.PSN != q.RPSN:
		cut, drop = ib.CauseMessageCut, wire.DropOutOfSequence
	case q.checkOpSeq(pkt) != vOK:
		cut, drop = ib.CauseOpSequence, wire.DropBadMessage
	}
	if cut != ib.CauseNone {
		q.abandonUC(pkt, cut)
		if !q.can(ProcessRecvOK) {
			return wire.DropQPState // the completion met a full queue
		}
		if m&wire.Start == 0 {
			q.RPSN = pkt.PSN.Add(1)
			return drop
		}
	}
	v := q.execUC(pkt, m)
	q.RPSN = pkt.PSN.Add(1)
	switch v {
	case vOK:
		q.RState = pkt.Opcode
		return wire.DropNone
	case vBadRecv:
		q.noteRequest(pkt)
		q.errorQP(q.Env.Prof.RecvBadLKey, ib.CauseRecvLKey, ib.CauseFlushAfter, true)
		return wire.DropNone
	case vTooLong:
		if q.Env.Prof.UCErrorKillsQP {
			q.noteRequest(pkt)
			q.errorQP(q.Env.Prof.RecvTooSmall, ib.CauseRecvTooSmall, ib.CauseFlushAfter, true)
		}
		q.abandonUC(pkt, ib.CauseRecvTooSmall)
		return wire.DropRecvTooSmall
	case vRNR:
		q.noReceive()
		q.abandonUC(pkt, ib.CauseNone) // it has none
		return wire.DropNoRecv
	}
	q.abandonUC(pkt, q.action(v).cause)
	return wire.DropBadMessage
}

// abandonUC gives up the message in progress, for which a receive may have been taken.
// pkt is the packet that shows why.
func (q *QP) abandonUC(pkt *wire.Packet, cause ib.Cause) {
	if q.RFlags&RWRIDValid != 0 {
		q.giveUpRecv(pkt, cause)
	}
	q.RState = ib.OpSendLast
	q.RRcvLen = 0
}

// giveUpRecv decides about a receive whose message will not be delivered. It serves the
// QP's next message (kernel: RVT_R_REWIND_SGE), unless it came from a shared queue: there
// it may be the one that another QP waits for, so it goes back to the program (UC-07). The
// QP stays as it is: the fault is not its own.
func (q *QP) giveUpRecv(pkt *wire.Packet, cause ib.Cause) {
	q.RFlags &^= RWRIDValid
	status := q.Env.Prof.SRQAbort
	if q.SRQ == nil || status == ib.WCSuccess {
		q.RFlags |= RRewindSGE
		return
	}
	q.noteRequest(pkt)
	q.note(Failure{
		Kind: FailedRecv, WRID: q.rwqe.WRID, Status: status, Cause: cause, To: q.State,
		Request: q.hist.request, Room: q.RLen, Got: q.RRcvLen, Expected: q.RPSN,
	})
	q.recvComplete(&cq.WC{WRID: q.rwqe.WRID, Status: status, VendorErr: cause}, true)
}

// execUC executes a packet that is in sequence.
func (q *QP) execUC(pkt *wire.Packet, m wire.Mask) verdict {
	if v := q.checkLength(pkt, m); v != vOK {
		return v
	}
	if m&wire.Write != 0 {
		return q.execUCWrite(pkt, m)
	}
	if m&wire.Send == 0 || m&wire.HasIETH != 0 {
		return vUnknownOp
	}
	if v := q.recvPayload(pkt, m); v != vOK {
		return v
	}
	if m&wire.End != 0 {
		q.deliver(pkt, m, ib.WCRecv, uint32(q.RRcvLen))
	}
	return vOK
}

func (q *QP) execUCWrite(pkt *wire.Packet, m wire.Mask) verdict {
	if q.Attr.AccessFlags&ib.AccessRemoteWrite == 0 {
		return vAccess
	}
	if m&wire.Start != 0 {
		q.reth, q.RRcvLen = pkt.RETH, 0
		if r := q.reth; r.DMALen > 0 {
			if _, ok := q.remote(r.RKey, r.VA, uint64(r.DMALen), ib.AccessRemoteWrite); !ok {
				return vRKey
			}
		}
	}
	n := uint64(len(pkt.Payload))
	end := m&wire.End != 0
	if q.RRcvLen+n > uint64(q.reth.DMALen) || end && q.RRcvLen+n != uint64(q.reth.DMALen) {
		return vWriteLen
	}
	if end && m&wire.HasImm != 0 {
		if v := q.takeRecv(true); v != vOK {
			return v
		}
	}
	if n > 0 {
		seg, ok := q.remote(q.reth.RKey, q.reth.VA+q.RRcvLen, n, ib.AccessRemoteWrite)
		if !ok {
			return vRKey
		}
		q.Env.Scatter.Add(seg, pkt.Payload, uint32(q.QPN))
	}
	q.RRcvLen += n
	q.Env.Ctr.RcvdBytes += n
	if end {
		if m&wire.HasImm != 0 {
			q.deliver(pkt, m, ib.WCRecvRDMAWithImm, uint32(q.RRcvLen))
		}
	}
	return vOK
}
