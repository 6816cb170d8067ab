package qp

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Emit (kernel: the send engine, rvt_do_send) appends at most one packet to o and
// reports whether it did. Responses go before requests. In ERR and SQE it flushes the
// send queue. The owner calls it until it returns false whenever an input may have
// given the QP something to do.
func (q *QP) Emit(now vtime.Time, o *Outbox) bool {
	sent := q.emit(now, o)
	q.check()
	return sent
}

func (q *QP) emit(now vtime.Time, o *Outbox) bool {
	q.rSafePSN = q.RPSN // the owner has carried out all writes so far
	if q.emitCNP(o) {
		return true
	}
	held := q.held(now)
	for q.resp.n > 0 && !(held && q.resp.at(0).kind == respRead) {
		if q.makeRCAck(o) {
			q.charge(now, o)
			return true
		}
	}
	sent := false
	if !held && q.can(ProcessSendOK) {
		q.SFlags &^= SWaitFence | SWaitRdAtomic | SWaitSSNCredit | SWaitWindow | SWaitLast
		switch q.Type {
		case ib.QPTypeRC:
			sent = q.makeRCReq(now, o)
		case ib.QPTypeUC:
			sent = q.makeUCReq(o)
		default:
			sent = q.makeUDReq(o)
		}
		if sent {
			q.charge(now, o)
		}
	}
	if !sent && q.can(FlushSend) && q.SLast != q.SHead {
		q.flushSend()
	}
	return sent
}

// Left is how many packets are left of the message that the QP is sending, if the next
// message begins with a packet longer than those: it has another header (RETH, AETH), and a
// segmentation offload train may end with a shorter packet, not go on with a longer one.
// Otherwise it is 0, and there is no better place than another to stop.
func (q *QP) Left() int {
	if q.resp.n > 0 {
		if r := q.resp.at(0); r.kind == respRead && r.sent {
			return r.lpsn.Sub(r.psn) + 1
		}
		return 0
	}
	if q.SCur == q.STail {
		return 0
	}
	w := q.ring.At(q.SCur)
	if w.WR.Opcode != ib.WRRDMAWrite && w.WR.Opcode != ib.WRRDMAWriteWithImm || q.SPSN == w.PSN {
		return 0
	}
	return max(w.LPSN.Sub(q.SPSN)+1, 0)
}

// Unhurried reports whether Emit would send positive acknowledgements (acks) and whether
// there is nothing else for it to do (only). An acknowledgement may wait for a moment: it
// covers what comes meanwhile.
func (q *QP) Unhurried() (acks, only bool) {
	if q.SCur != q.STail || q.STail != q.SHead || q.SLast != q.SHead && !q.can(ProcessSendOK) {
		return false, false
	}
	if q.resp.n == 0 {
		return false, true
	}
	acks = q.resp.acks()
	return acks, acks
}

// makeRCReq (kernel: hfi1_make_rc_req) builds the next request packet.
func (q *QP) makeRCReq(now vtime.Time, o *Outbox) bool {
	for q.SFlags&(SWaitRNR|SWaitAck|SWaitLast) == 0 && q.can(ProcessSendOK) {
		fresh := q.SCur == q.STail
		if fresh && (!q.can(ProcessNextSendOK) || q.STail == q.SHead) {
			return false
		}
		w := q.ring.At(q.SCur)
		op := w.Op()
		if q.SPSN == w.PSN {
			wait, local := q.mayStart(w, op)
			if wait != 0 {
				q.SFlags |= wait
				return false
			}
			if local {
				q.localOp(w, op)
				continue
			}
		}
		if q.windowFull(w, op) {
			q.SFlags |= SWaitWindow
			return false
		}
		if fresh {
			q.STail = q.ring.Next(q.STail)
			if !op.Has(swqe.OpCredit) && q.SFlags&SUnlimitedCredit == 0 {
				q.SLSN = (q.SLSN + 1) & ib.PSNMask
			}
		}
		if q.buildRequest(o, w, op) {
			q.armRetry(now)
			return true
		}
	}
	return false
}

// mayStart tells what keeps the WQE at SCur from sending its first packet, 0 if
// nothing does, and whether it is to be dealt with locally: because it sends nothing,
// or because it fails before it could. Those keep the order of completions, so they
// wait until all before them are retired. Every wait ends with the progress of an
// earlier WQE, which runs the engine again.
func (q *QP) mayStart(w *swqe.SWQE, op *swqe.OpParams) (wait SFlag, local bool) {
	if local := !q.sendable(op) || q.localError(w, op) != ib.CauseNone; local || w.Alone {
		switch {
		case q.SLast != q.SCur:
			return SWaitLast, false
		case local:
			return 0, true
		}
	}
	switch {
	case w.WR.Flags&ib.SendFence != 0 && q.SNumRdAtomic > 0:
		return SWaitFence, false
	case op.Has(swqe.OpRdAtomic) && q.SNumRdAtomic >= int(q.Attr.MaxRdAtomic):
		return SWaitRdAtomic, false
	case op.Has(swqe.OpCredit) && q.SFlags&SUnlimitedCredit == 0 && q.SLast != q.SCur && ib.PSN(w.SSN).Sub(ib.PSN(q.SLSN+1)) > 0:
		return SWaitSSNCredit, false
	}
	return 0, false
}

// sendable reports whether the operation puts packets on the wire at all.
func (q *QP) sendable(op *swqe.OpParams) bool {
	return op != nil && q.offers(op) && !op.Has(swqe.OpLocal)
}

// localError checks what only the requester can know to be wrong.
func (q *QP) localError(w *swqe.SWQE, op *swqe.OpParams) ib.Cause {
	if w.WR.Flags&ib.SendInline != 0 {
		if !op.Has(swqe.OpInline) {
			return ib.CauseInlineOp
		}
		return ib.CauseNone
	}
	if q.Env.Drv.LateLocalCheck {
		return ib.CauseNone // the packet, or the response, will tell
	}
	return q.Env.Keys.CheckSGL(q.PD, w.WR.SGL, q.localAccess(w.WR.Opcode, op))
}

// localOp carries out a WQE that sends nothing, or fails one that must not be sent.
// All before it are retired.
func (q *QP) localOp(w *swqe.SWQE, op *swqe.OpParams) {
	if q.SCur == q.STail {
		q.STail = q.ring.Next(q.STail)
	}
	switch {
	case op == nil || !q.offers(op):
		q.failSend(ib.WCLocQPOpErr, ib.CauseOpcodeForQP)
		return
	case !op.Has(swqe.OpLocal):
		c := q.localError(w, op)
		q.failSend(q.keyStatus(c), c)
		return
	}
	switch w.WR.Opcode {
	case ib.WRLocalInv:
		if !q.Env.Keys.Invalidate(q.PD, q.QPN, w.WR.InvRKey) {
			q.failSend(ib.WCLocQPOpErr, ib.CauseLocalInvKey)
			return
		}
	case ib.WRBindMW:
		b := &w.WR.Bind
		if c := q.Env.Keys.Bind(q.PD, q.QPN, b.MW, b.RKey, b.MR, b.Addr, b.Length, b.Access); c != ib.CauseNone {
			q.failSend(ib.WCMWBindErr, c)
			return
		}
	}
	q.SendComplete(ib.WCSuccess, ib.CauseNone)
}

// windowFull keeps the unacknowledged PSNs within the window. A READ counts with all of its
// responses, but for no more than half a window: otherwise a long one would wait until the
// one before it is complete, and the responder would have nothing to send meanwhile.
func (q *QP) windowFull(w *swqe.SWQE, op *swqe.OpParams) bool {
	out := q.unacked(q.SPSN)
	if out == 0 {
		return false
	}
	need := 1
	if op.Has(swqe.OpRdAtomic) {
		need = max(min(w.LPSN.Sub(q.SPSN)+1, q.window()/2), 1)
	}
	return out+need > q.window()
}

// buildRequest appends the packet at SPSN of the WQE at SCur and moves on. It returns
// false if the WQE's local memory turned out to be unusable.
func (q *QP) buildRequest(o *Outbox, w *swqe.SWQE, op *swqe.OpParams) bool {
	off := uint64(fromStart(w, q.SPSN)) * uint64(q.pmtu())
	segs := len(o.Segs)
	p := o.add()
	pkt := &p.Pkt
	psn := q.SPSN
	end := true
	switch {
	case op.Has(swqe.OpAtomic):
		q.atomicRequest(pkt, w)
	case w.WR.Opcode == ib.WRRDMARead:
		pkt.Opcode = ib.OpReadRequest
		pkt.RETH = wire.RETH{VA: w.WR.RemoteAddr + off, RKey: w.WR.RKey, DMALen: w.Length - uint32(off)}
	case w.WR.Opcode == ib.WRFlush:
		f := &w.WR.Flush
		pkt.Opcode = ib.OpFlush
		pkt.FETH = wire.FETH{SEL: uint8(f.Level), PLT: uint8(f.Type)}
		pkt.RETH = wire.RETH{VA: w.WR.RemoteAddr, RKey: w.WR.RKey, DMALen: f.Length}
	default:
		n := min(uint64(q.pmtu()), uint64(w.Length)-off)
		end = off+n == uint64(w.Length)
		if !q.payload(o, p, w, off, n) {
			o.undo(segs)
			return false
		}
		q.dataHeaders(pkt, w, off == 0, end)
	}
	if op.Has(swqe.OpRdAtomic) {
		if q.SPSN == w.PSN {
			q.SNumRdAtomic++
		}
		q.SPSN = w.LPSN.Add(1)
	} else {
		q.SPSN = q.SPSN.Add(1)
	}
	if q.SPSN == w.LPSN.Add(1) {
		q.SCur = q.ring.Next(q.SCur)
	}
	q.finishRequest(p, w, psn, end, op)
	return true
}

// fromStart is how many packets of the message come before psn.
func fromStart(w *swqe.SWQE, psn ib.PSN) int { return psn.Sub(w.PSN) & ib.PSNMask }

// atomicRequest fills in an atomic's headers. FETCH_ADD has its addend in the swap
// field.
func (q *QP) atomicRequest(pkt *wire.Packet, w *swqe.SWQE) {
	pkt.AtomicETH = wire.AtomicETH{VA: w.WR.RemoteAddr, RKey: w.WR.RKey}
	if w.WR.Opcode == ib.WRAtomicCmpAndSwp {
		pkt.Opcode = ib.OpCmpSwap
		pkt.AtomicETH.SwapAdd, pkt.AtomicETH.Compare = w.WR.Swap, w.WR.CompareAdd
		return
	}
	pkt.Opcode = ib.OpFetchAdd
	pkt.AtomicETH.SwapAdd = w.WR.CompareAdd
}

// payload describes n bytes of the message from off on. If a key went bad, the WQE
// fails: at once if it is the oldest, else when it has become that.
func (q *QP) payload(o *Outbox, p *TxPacket, w *swqe.SWQE, off, n uint64) bool {
	p.Len = int(n)
	p.Pkt.Pad = wire.PadFor(int(n))
	if w.WR.Flags&ib.SendInline != 0 {
		p.Pkt.Payload = w.WR.Inline[off : off+n]
		return true
	}
	p.SegOff = len(o.Segs)
	var c ib.Cause
	o.Segs, c = q.Env.Keys.Resolve(o.Segs, q.PD, w.WR.SGL, off, n, q.localAccess(w.WR.Opcode, w.Op()))
	p.SegLen = len(o.Segs) - p.SegOff
	if c == ib.CauseNone {
		return true
	}
	if q.SLast != q.SCur {
		q.SFlags |= SWaitLast
	} else {
		q.failSend(q.keyStatus(c), c)
	}
	return false
}

// keyStatus is the status of a send WQE whose local memory failed its check.
func (q *QP) keyStatus(c ib.Cause) ib.WCStatus {
	switch c {
	case ib.CauseLKeyRange:
		return ib.WCLocProtErr
	case ib.CauseInlineOp:
		return ib.WCLocProtErr
	}
	return q.Env.Prof.BadLKeyStatus
}

// dataHeaders chooses the opcode of a SEND, WRITE or ATOMIC_WRITE packet and fills in what it
// carries.
func (q *QP) dataHeaders(pkt *wire.Packet, w *swqe.SWQE, first, last bool) {
	wr := &w.WR
	if wr.Opcode == ib.WRAtomicWrite {
		pkt.Opcode = ib.OpAtomicWrite
		pkt.RETH = wire.RETH{VA: wr.RemoteAddr, RKey: wr.RKey, DMALen: w.Length}
		return
	}
	write := wr.Opcode == ib.WRRDMAWrite || wr.Opcode == ib.WRRDMAWriteWithImm
	var op ib.Opcode
	switch {
	case first && last:
		op = ib.OpSendOnly
	case first:
		op = ib.OpSendFirst
	case last:
		op = ib.OpSendLast
	default:
		op = ib.OpSendMiddle
	}
	if write {
		op += ib.OpWriteFirst - ib.OpSendFirst
		if first {
			pkt.RETH = wire.RETH{VA: wr.RemoteAddr, RKey: wr.RKey, DMALen: w.Length}
		}
	}
	if last {
		switch wr.Opcode {
		case ib.WRSendWithImm, ib.WRRDMAWriteWithImm:
			op++ // the opcode with immediate follows its plain form
			pkt.Imm = wr.Imm
		case ib.WRSendWithInv:
			op = ib.OpSendLastInv
			if first {
				op = ib.OpSendOnlyInv
			}
			pkt.InvRKey = wr.InvRKey
		}
		pkt.SE = wr.Flags&ib.SendSolicited != 0 && w.Op().Has(swqe.OpSolicit)
	}
	pkt.Opcode = op
	if q.Type == ib.QPTypeUC {
		pkt.Opcode |= ib.TransportUC
	}
}

// finishRequest fills in the BTH and the counters of an RC request.
func (q *QP) finishRequest(p *TxPacket, w *swqe.SWQE, psn ib.PSN, end bool, op *swqe.OpParams) {
	pkt := &p.Pkt
	q.bth(p, psn)
	pkt.AckReq = end || q.SFlags&SSendOne != 0 || q.sNoAck > q.Env.Prof.AckReqEvery || q.unacked(q.SPSN) >= q.window() || q.windowLeast()
	q.sNoAck++
	if pkt.AckReq {
		q.sNoAck = 0
	}
	if psn.Cmp(q.SSendingHPSN) <= 0 {
		q.NRCResends++
		q.Env.Ctr.RetransPackets++
	}
	high := psn
	if op.Has(swqe.OpRdAtomic) {
		high = w.LPSN
	}
	if q.unacked(high.Add(1)) > q.unacked(q.SSendingHPSN.Add(1)) {
		q.SSendingHPSN = high
	}
	q.stamp(w)
	if q.SFlags&SSendOne != 0 {
		q.SFlags |= SWaitAck
		q.sProbe = psn
	}
}

// bth fills in the header fields that every packet of a connected QP has, and counts.
func (q *QP) bth(p *TxPacket, psn ib.PSN) {
	p.QPN = q.QPN
	p.Pkt.PSN = psn
	p.Pkt.DestQP = q.Attr.DestQPN
	p.Pkt.PKey = ib.PKeyDefault
	q.path(&p.Path, &q.Attr.AV)
	q.Env.Ctr.SentPackets++
	q.Env.Ctr.SentBytes += uint64(p.Len)
}

// path turns an address vector into IP and UDP header fields.
func (q *QP) path(p *wire.Path, av *ib.AV) {
	if int(av.SGIDIndex) < len(q.Env.Sources) {
		p.Src = q.Env.Sources[av.SGIDIndex]
	}
	p.Dst = av.DGID
	p.TClass = av.TrafficClass
	p.HopLimit = av.HopLimit
	if p.HopLimit == 0 || q.Env.Prof.HopLimitFromRoute {
		p.HopLimit = 64
	}
	p.SPort = q.SPort
	if !p.Dst.IsIPv4() && !q.Env.Prof.FlowLabelUnsent {
		p.FlowLabel = av.FlowLabel
	}
}
