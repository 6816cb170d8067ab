package qp

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// grhIPv4 is where the IPv4 header starts in the 40 bytes; what is before means nothing.
const grhIPv4 = 20

// qkeyPrivileged marks a Q_Key that stands for the QP's own (IBTA 10.2.5).
const qkeyPrivileged ib.QKey = 1 << 31

// makeUDReq (kernel: hfi1_make_ud_req) builds the datagram of the next WQE.
func (q *QP) makeUDReq(o *Outbox) bool {
	for q.can(ProcessNextSendOK) && q.STail != q.SHead {
		w := q.ring.At(q.SCur)
		op := w.Op()
		if !q.sendable(op) || q.localError(w, op) != ib.CauseNone {
			q.localOp(w, op)
			continue
		}
		q.STail = q.ring.Next(q.STail)
		if int(w.Length) > q.Env.MTU.Bytes() {
			// Profiles that accept it at the post report success and send nothing.
			q.SPSN = q.SPSN.Add(1)
			q.sentLast(w)
			continue
		}
		if q.buildUD(o, w) {
			return true
		}
	}
	return false
}

func (q *QP) buildUD(o *Outbox, w *swqe.SWQE) bool {
	segs := len(o.Segs)
	p := o.add()
	if !q.payload(o, p, w, 0, uint64(w.Length)) {
		o.undo(segs)
		return false
	}
	pkt := &p.Pkt
	pkt.Opcode = ib.UDSendOnly
	if w.WR.Opcode == ib.WRSendWithImm {
		pkt.Opcode = ib.UDSendOnlyImm
		pkt.Imm = w.WR.Imm
	}
	pkt.SE = w.WR.Flags&ib.SendSolicited != 0
	pkt.DETH = wire.DETH{QKey: w.WR.RemoteQKey, SrcQP: q.QPN}
	if w.WR.RemoteQKey&qkeyPrivileged != 0 && !q.Env.Prof.UDQKeyVerbatim {
		pkt.DETH.QKey = q.Attr.QKey
	}
	q.bth(p, q.SPSN)
	pkt.DestQP = w.WR.RemoteQPN
	q.path(&p.Path, &w.AV)
	q.SPSN = q.SPSN.Add(1)
	q.sentLast(w)
	return true
}

// recvUD (kernel: hfi1_ud_rcv) takes a datagram. Everything that does not fit is
// dropped in silence. The first 40 bytes of the receive are the network header.
func (q *QP) recvUD(from *wire.Path, pkt *wire.Packet) wire.DropReason {
	if pkt.DETH.QKey != q.Attr.QKey {
		return wire.DropBadQKey
	}
	n := uint64(len(pkt.Payload))
	switch q.takeRecv(false) {
	case vRNR:
		q.noReceive()
		return wire.DropNoRecv
	case vBadRecv:
		q.noteRequest(pkt)
		q.errorQP(q.Env.Prof.RecvBadLKey, ib.CauseRecvLKey, ib.CauseFlushAfter, true)
		return wire.DropNone
	}
	if ib.GRHBytes+n > q.RLen {
		if q.Env.Prof.UCErrorKillsQP {
			q.noteRequest(pkt)
			q.errorQP(q.Env.Prof.RecvTooSmall, ib.CauseRecvTooSmall, ib.CauseFlushAfter, true)
			return wire.DropRecvTooSmall
		}
		q.giveUpRecv(pkt, ib.CauseRecvTooSmall)
		return wire.DropRecvTooSmall
	}
	grh := q.Env.scratchGRH()
	wire.AppendGRH(grh[:0], from, 8+pkt.HeaderBytes()+len(pkt.Payload)+int(pkt.Pad)+wire.ICRCBytes)
	if q.Env.Poison && from.IsIPv4() {
		for i := range grh[:grhIPv4] {
			grh[i] = 0xe5
		}
	}
	if q.scatter(q.recvPD(), q.rwqe.SGL, 0, grh) != ib.CauseNone || q.scatter(q.recvPD(), q.rwqe.SGL, ib.GRHBytes, pkt.Payload) != ib.CauseNone {
		q.noteRequest(pkt)
		q.errorQP(q.Env.Prof.RecvBadLKey, ib.CauseRecvLKey, ib.CauseFlushAfter, true)
		return wire.DropNone
	}
	q.Env.Ctr.RcvdBytes += n
	wc := cq.WC{WRID: q.rwqe.WRID, Opcode: ib.WCRecv, ByteLen: uint32(n) + ib.GRHBytes, SrcQP: pkt.DETH.SrcQP, Flags: ib.WCFlagGRH, PortNum: 1}
	if q.Env.Prof.RecvHeaderSL { // WC-SL-01
		wc.SL = ib.WCSLIPv6
		if from.IsIPv4() {
			wc.SL = ib.WCSLIPv4
		}
	}
	if pkt.Opcode == ib.UDSendOnlyImm {
		wc.Flags |= ib.WCFlagWithImm
		wc.Imm = pkt.Imm
	}
	q.RFlags &^= RWRIDValid
	q.recvComplete(&wc, pkt.SE)
	return wire.DropNone
}
