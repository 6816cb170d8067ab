package qp

import (
	"cmp"
	"errors"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Receive takes a packet that names this QP. from is what the network said about it.
// The packet and its payload must stay untouched until the owner has flushed the
// burst. The reason for a drop is returned and counted by the owner; DropNone means
// that the packet was used.
func (q *QP) Receive(now vtime.Time, from *wire.Path, pkt *wire.Packet) wire.DropReason {
	r := q.receive(now, from, pkt)
	q.check()
	return r
}

func (q *QP) receive(now vtime.Time, from *wire.Path, pkt *wire.Packet) wire.DropReason {
	if !q.can(ProcessRecvOK) {
		return wire.DropQPState
	}
	if !ib.PKeyMatch(pkt.PKey, ib.PKeyDefault) {
		return wire.DropBadPKey
	}
	switch q.Type {
	case ib.QPTypeRC:
		if pkt.Opcode.Transport() != ib.TransportRC {
			return wire.DropWrongTransport
		}
		if from.Src != q.Attr.AV.DGID {
			return wire.DropWrongPath
		}
		q.congested(now, from, pkt)
		if wire.Info(pkt.Opcode).Mask&wire.Response != 0 {
			return q.recvResponse(now, pkt)
		}
		return q.recvRequest(pkt)
	case ib.QPTypeUC:
		if pkt.Opcode.Transport() != ib.TransportUC {
			return wire.DropWrongTransport
		}
		if from.Src != q.Attr.AV.DGID {
			return wire.DropWrongPath
		}
		q.congested(now, from, pkt)
		return q.recvUC(pkt)
	}
	if pkt.Opcode.Transport() != ib.TransportUD {
		return wire.DropWrongTransport
	}
	q.congested(now, from, pkt)
	return q.recvUD(from, pkt)
}

// verdict is what the responder's checks make of a request.
type verdict uint8

const (
	vOK        verdict = iota
	vRNR               // no receive is posted
	vBadRecv           // the receive taken cannot be used
	vTooLong           // longer than the receive
	vSequence          // opcode out of order
	vLength            // payload does not fit opcode and MTU
	vAccess            // the QP lacks the right
	vAlign             // atomic address
	vTooMany           // more READs and atomics than allowed
	vRKey              // rkey, range or rights of the region
	vWriteLen          // WRITE of another length than announced
	vUnknownOp         // an opcode that no responder executes
)

// verdictAction says how the responder answers a failed check: the NAK, and the
// status and cause of the receive in progress.
type verdictAction struct {
	nak    ib.Syndrome
	status ib.WCStatus
	cause  ib.Cause
}

// action looks a verdict up in the profile.
func (q *QP) action(v verdict) verdictAction {
	p := q.Env.Prof
	invalid := cmp.Or(q.Env.Drv.InvalidReqStatus, ib.WCLocQPOpErr)
	switch v {
	case vBadRecv:
		return verdictAction{ib.NAKRemoteOp, p.RecvBadLKey, ib.CauseRecvLKey}
	case vTooLong:
		return verdictAction{p.RecvTooSmallNAK, p.RecvTooSmall, ib.CauseRecvTooSmall}
	case vSequence:
		return verdictAction{ib.NAKInvalidReq, invalid, ib.CauseOpSequence}
	case vLength:
		return verdictAction{ib.NAKInvalidReq, invalid, ib.CausePacketLength}
	case vAccess:
		return verdictAction{ib.NAKInvalidReq, p.QPAccessStatus, ib.CauseQPAccess}
	case vAlign:
		return verdictAction{ib.NAKInvalidReq, invalid, ib.CauseAtomicAlign}
	case vTooMany:
		return verdictAction{ib.NAKInvalidReq, invalid, ib.CauseTooManyReads}
	case vRKey:
		return verdictAction{ib.NAKRemoteAccess, p.RKeyStatus, q.hist.rkey}
	case vWriteLen:
		return verdictAction{ib.NAKInvalidReq, invalid, ib.CauseWriteLength}
	}
	return verdictAction{ib.NAKInvalidReq, invalid, ib.CauseOpcodeUnknown}
}

// recvRequest (kernel: hfi1_rc_rcv; steps as rxe_responder) takes an RC request.
func (q *QP) recvRequest(pkt *wire.Packet) wire.DropReason {
	switch d := pkt.PSN.Cmp(q.RPSN); {
	case d > 0:
		return q.ahead()
	case d < 0:
		return q.duplicate(pkt)
	}
	q.commEst()
	if !q.resp.room() {
		return wire.DropResponderBusy
	}
	v := q.checkOpSeq(pkt)
	if v == vOK {
		v = q.dispatch(pkt)
	}
	switch v {
	case vOK:
		q.RNAKState = 0
		q.RState = pkt.Opcode
	case vRNR:
		q.noReceive()
		q.sendRNR(pkt.PSN)
	default:
		q.noteRequest(pkt)
		q.refuse(v)
	}
	return wire.DropNone
}

// commEst (kernel: rvt_comm_est) announces the first valid request that arrives in RTR.
func (q *QP) commEst() {
	if q.State == ib.StateRTR && q.RFlags&RCommEst == 0 {
		q.RFlags |= RCommEst
		if q.Env.Prof.CommEst {
			q.Env.Raise(Event{Type: ib.EventCommEst, QP: q})
		}
	}
}

// checkOpSeq (rxe: check_op_seq) tests that the opcode may follow the one before.
func (q *QP) checkOpSeq(pkt *wire.Packet) verdict {
	last, op := q.RState.Operation(), pkt.Opcode.Operation()
	var ok bool
	switch last {
	case ib.OpSendFirst, ib.OpSendMiddle:
		ok = op == ib.OpSendMiddle || op == ib.OpSendLast || op == ib.OpSendLastImm || op == ib.OpSendLastInv
	case ib.OpWriteFirst, ib.OpWriteMiddle:
		ok = op == ib.OpWriteMiddle || op == ib.OpWriteLast || op == ib.OpWriteLastImm
	default:
		ok = wire.Info(pkt.Opcode).Mask&wire.Start != 0
	}
	if !ok {
		return vSequence
	}
	return vOK
}

// dispatch executes a request that is in sequence.
func (q *QP) dispatch(pkt *wire.Packet) verdict {
	switch m := wire.Info(pkt.Opcode).Mask; {
	case m&wire.Send != 0:
		return q.recvSend(pkt, m)
	case m&wire.Read != 0:
		return q.recvRead(pkt)
	case m&wire.Atomic != 0:
		return q.recvAtomic(pkt)
	case m&wire.Write != 0:
		return q.recvWrite(pkt, m)
	case m&wire.AtomicWrite != 0 && q.Env.Prof.MemoryPlacement:
		return q.recvAtomicWrite(pkt)
	case m&wire.Flush != 0 && q.Env.Prof.MemoryPlacement:
		return q.recvFlush(pkt)
	}
	return vUnknownOp
}

// checkLength (rxe: check_length) tests a data packet's payload against the path MTU.
func (q *QP) checkLength(pkt *wire.Packet, m wire.Mask) verdict {
	n, start, end := len(pkt.Payload), m&wire.Start != 0, m&wire.End != 0
	switch {
	case !end && n != q.pmtu(), n > q.pmtu():
		return vLength
	case end && !start && n == 0 && !q.Env.Prof.ZeroLastOK:
		return vLength
	}
	return vOK
}

// takeRecv (rxe: check_resource) takes a receive.
func (q *QP) takeRecv(widOnly bool) verdict {
	switch q.getRWQE(widOnly) {
	case takeEmpty:
		return vRNR
	case takeBad:
		return vBadRecv
	}
	return vOK
}

// recvPayload copies what a SEND packet carries into the receive, which the first packet
// of a message takes.
func (q *QP) recvPayload(pkt *wire.Packet, m wire.Mask) verdict {
	if m&wire.Start != 0 {
		if v := q.takeRecv(false); v != vOK {
			return v
		}
		q.RRcvLen = 0
	}
	n := uint64(len(pkt.Payload))
	if q.RRcvLen+n > q.RLen {
		return vTooLong
	}
	if q.scatter(q.recvPD(), q.rwqe.SGL, q.RRcvLen, pkt.Payload) != ib.CauseNone {
		return vBadRecv
	}
	q.RRcvLen += n
	q.Env.Ctr.RcvdBytes += n
	return vOK
}

// recvSend executes a SEND packet.
func (q *QP) recvSend(pkt *wire.Packet, m wire.Mask) verdict {
	if v := q.checkLength(pkt, m); v != vOK {
		return v
	}
	if v := q.recvPayload(pkt, m); v != vOK {
		return v
	}
	if m&wire.End != 0 {
		if m&wire.HasIETH != 0 && !q.Env.Keys.Invalidate(q.PD, q.QPN, pkt.InvRKey) {
			if !q.Env.Prof.SendInvBadIgnored {
				return q.badInvalidate(pkt)
			}
			m &^= wire.HasIETH
		}
		q.RMSN = q.RMSN.Add(1)
		q.deliver(pkt, m, ib.WCRecv, uint32(q.RRcvLen))
	}
	q.accept(pkt)
	return vOK
}

// badInvalidate ends a SEND_WITH_INV whose key cannot be invalidated. The message has
// arrived, so it is acknowledged; the receive fails and the QP goes to ERR.
func (q *QP) badInvalidate(pkt *wire.Packet) verdict {
	q.RMSN = q.RMSN.Add(1)
	q.fatal = true
	q.noteRequest(pkt)
	q.accept(pkt)
	q.errorQP(ib.WCRemInvReqErr, ib.CauseInvalidateKey, ib.CauseFlushAfter, true)
	return vOK
}

// remote resolves memory that the peer names by an rkey, and remembers why not.
func (q *QP) remote(rkey ib.RKey, va, n uint64, acc ib.Access) (mr.Seg, bool) {
	s, c := q.Env.Keys.CheckRKey(q.PD, q.QPN, rkey, va, n, acc)
	if c != ib.CauseNone {
		q.hist.rkey = c
	}
	return s, c == ib.CauseNone
}

// recvWrite executes a packet of an RDMA WRITE. Only the last packet of one with
// immediate data takes a receive.
func (q *QP) recvWrite(pkt *wire.Packet, m wire.Mask) verdict {
	if q.Attr.AccessFlags&ib.AccessRemoteWrite == 0 {
		return vAccess
	}
	if v := q.checkLength(pkt, m); v != vOK {
		return v
	}
	reth, got := q.reth, q.RRcvLen
	if m&wire.Start != 0 {
		reth, got = pkt.RETH, 0
		if reth.DMALen > 0 {
			if _, ok := q.remote(reth.RKey, reth.VA, uint64(reth.DMALen), ib.AccessRemoteWrite); !ok {
				return vRKey
			}
		}
	}
	n := uint64(len(pkt.Payload))
	end := m&wire.End != 0
	if got+n > uint64(reth.DMALen) || end && got+n < uint64(reth.DMALen) && !q.Env.Prof.ShortWriteOK {
		return vWriteLen
	}
	if end && m&wire.HasImm != 0 {
		if v := q.takeRecv(true); v != vOK {
			return v // nothing is written, so that the repeated packet starts over
		}
	}
	if n > 0 {
		seg, ok := q.remote(reth.RKey, reth.VA+got, n, ib.AccessRemoteWrite)
		if !ok {
			return vRKey
		}
		q.Env.Scatter.Add(seg, pkt.Payload, uint32(q.QPN))
	}
	q.reth, q.RRcvLen = reth, got+n
	q.Env.Ctr.RcvdBytes += n
	if end {
		q.RMSN = q.RMSN.Add(1)
		if m&wire.HasImm != 0 {
			q.deliver(pkt, m, ib.WCRecvRDMAWithImm, uint32(q.RRcvLen))
		}
	}
	q.accept(pkt)
	return vOK
}

// deliver completes the receive in progress.
func (q *QP) deliver(pkt *wire.Packet, m wire.Mask, op ib.WCOpcode, n uint32) {
	wc := cq.WC{WRID: q.rwqe.WRID, Opcode: op, ByteLen: n}
	if q.Env.Prof.RecvSrcQP {
		wc.SrcQP = q.Attr.DestQPN
	}
	switch {
	case m&wire.HasImm != 0:
		wc.Flags |= ib.WCFlagWithImm
		wc.Imm = pkt.Imm
	case m&wire.HasIETH != 0:
		wc.Flags |= ib.WCFlagWithInv
		wc.InvRKey = pkt.InvRKey
	}
	q.RFlags &^= RWRIDValid
	q.recvComplete(&wc, pkt.SE)
}

// accept moves on to the next PSN and acknowledges if the packet asks for it.
func (q *QP) accept(pkt *wire.Packet) {
	q.RPSN = q.RPSN.Add(1)
	q.noAckYet = false
	if pkt.AckReq && !(q.State == ib.StateErr && q.Env.Drv.RecvOverflowKills) {
		q.queueAck(pkt.PSN)
	}
}

// recvRead accepts a READ: its response is queued, and remembered for duplicates.
func (q *QP) recvRead(pkt *wire.Packet) verdict {
	if q.Attr.AccessFlags&ib.AccessRemoteRead == 0 {
		return vAccess
	}
	if len(pkt.Payload) > 0 {
		return vLength
	}
	if v := q.checkRdAtomic(); v != vOK {
		return v
	}
	r := pkt.RETH
	if r.DMALen > 0 {
		if _, ok := q.remote(r.RKey, r.VA, uint64(r.DMALen), ib.AccessRemoteRead); !ok {
			return vRKey
		}
	}
	n := 1
	if r.DMALen > 0 {
		n = int((r.DMALen-1)>>q.Attr.PathMTU.Log2()) + 1
	}
	q.answerRead(pkt, r, n)
	return vOK
}

// answerRead queues a READ response of n packets, and remembers the request for
// duplicates.
func (q *QP) answerRead(pkt *wire.Packet, r wire.RETH, n int) {
	q.RMSN = q.RMSN.Add(1)
	q.RPSN = q.RPSN.Add(n)
	q.noAckYet = false
	i := q.saveAck(AckEntry{Opcode: pkt.Opcode, PSN: pkt.PSN, LPSN: pkt.PSN.Add(n - 1), RETH: r, MSN: q.RMSN})
	q.rOpenRd++
	q.resp.push(response{kind: respRead, psn: pkt.PSN, lpsn: pkt.PSN.Add(n - 1), msn: q.RMSN, reth: r, entry: i, open: true})
}

// atomicWriteBytes is what an ATOMIC_WRITE writes, to an address that is a multiple of it.
const atomicWriteBytes = 8

// recvAtomicWrite (rxe: atomic_write_reply) executes an ATOMIC_WRITE: one copy of eight
// bytes, behind all earlier ones. The answer is a READ response without data.
func (q *QP) recvAtomicWrite(pkt *wire.Packet) verdict {
	if q.Attr.AccessFlags&ib.AccessRemoteWrite == 0 {
		return vAccess
	}
	r := pkt.RETH
	switch {
	case r.DMALen != atomicWriteBytes:
		return vWriteLen
	case r.VA%atomicWriteBytes != 0:
		return vAlign
	}
	if v := q.checkRdAtomic(); v != vOK {
		return v
	}
	seg, ok := q.remote(r.RKey, r.VA, atomicWriteBytes, ib.AccessRemoteWrite)
	if !ok {
		return vRKey
	}
	q.Env.Scatter.Add(seg, pkt.Payload, uint32(q.QPN))
	q.Env.Ctr.RcvdBytes += atomicWriteBytes
	q.answerRead(pkt, wire.RETH{}, 1)
	return vOK
}

// recvFlush (rxe: process_flush) executes a FLUSH. Its answer is a READ response without
// data, which leaves when all writes before it have been carried out; so that they are
// visible to everyone by then needs no work of its own. No region has persistent memory.
func (q *QP) recvFlush(pkt *wire.Packet) verdict {
	plt, level := ib.FlushType(pkt.FETH.PLT), ib.FlushLevel(pkt.FETH.SEL)
	acc := plt.Access()
	if acc&^q.Attr.AccessFlags != 0 {
		return vAccess
	}
	if plt == 0 || plt > ib.FlushGlobal|ib.FlushPersistent || level > ib.FlushMR {
		return vUnknownOp
	}
	if v := q.checkRdAtomic(); v != vOK {
		return v
	}
	r := pkt.RETH
	if level == ib.FlushMR {
		if q.hist.rkey = q.Env.Keys.Grants(q.PD, q.QPN, r.RKey, acc); q.hist.rkey != ib.CauseNone {
			return vRKey
		}
	} else if _, ok := q.remote(r.RKey, r.VA, uint64(r.DMALen), acc); !ok {
		return vRKey
	}
	q.answerRead(pkt, wire.RETH{}, 1)
	return vOK
}

// checkRdAtomic limits READs and atomics to max_dest_rd_atomic.
func (q *QP) checkRdAtomic() verdict {
	limit := int(q.Attr.MaxDestRdAtomic)
	if limit == 0 && !q.Env.Drv.DestRdStored || q.Env.Prof.EnforceDestRd && q.rOpenRd >= limit {
		return vTooMany
	}
	return vOK
}

// recvAtomic executes an atomic at once and queues its result. Pending writes go to
// memory first, since the atomic must see them.
func (q *QP) recvAtomic(pkt *wire.Packet) verdict {
	if q.Attr.AccessFlags&ib.AccessRemoteAtomic == 0 {
		return vAccess
	}
	if len(pkt.Payload) > 0 {
		return vLength
	}
	a := pkt.AtomicETH
	if a.VA%8 != 0 {
		return vAlign
	}
	if v := q.checkRdAtomic(); v != vOK {
		return v
	}
	seg, ok := q.remote(a.RKey, a.VA, 8, ib.AccessRemoteAtomic)
	if !ok {
		return vRKey
	}
	q.Env.flushFor()
	var old uint64
	var err error
	if pkt.Opcode == ib.OpCmpSwap {
		old, err = seg.Mem.CompareSwap64(seg.Addr, a.Compare, a.SwapAdd)
	} else {
		old, err = seg.Mem.FetchAdd64(seg.Addr, a.SwapAdd)
	}
	switch {
	case errors.Is(err, mr.ErrGone):
		q.MemoryGone()
		return vOK // in silence
	case err != nil:
		q.hist.rkey = ib.CauseMemoryFault
		return vRKey
	}
	q.RMSN = q.RMSN.Add(1)
	q.RPSN = q.RPSN.Add(1)
	q.noAckYet = false
	i := q.saveAck(AckEntry{Opcode: pkt.Opcode, PSN: pkt.PSN, LPSN: pkt.PSN, Atomic: old, MSN: q.RMSN})
	q.rOpenRd++
	q.resp.push(response{kind: respAtomic, psn: pkt.PSN, lpsn: pkt.PSN, msn: q.RMSN, atomic: old, entry: i, open: true})
	return vOK
}

// saveAck keeps a READ or atomic for duplicates; the oldest makes room.
func (q *QP) saveAck(e AckEntry) int {
	size := max(int(q.Attr.MaxDestRdAtomic), 1)
	if len(q.SAckQueue) < size {
		q.SAckQueue = append(q.SAckQueue, AckEntry{})
	}
	i := q.RHeadAck % size
	q.SAckQueue[i] = e
	q.RHeadAck = (i + 1) % size
	return i
}

// sendRNR answers that no receive is posted. The PSN stays expected.
func (q *QP) sendRNR(psn ib.PSN) {
	q.RNAKState = ib.SyndromeRNR | ib.Syndrome(q.Attr.MinRNRTimer)
	q.Env.Ctr.SentRNRNAK++
	q.resp.push(response{kind: respAck, psn: psn, msn: q.RMSN, syn: q.RNAKState})
}

// refuse answers a request that failed a check: NAK, and the QP goes to ERR.
func (q *QP) refuse(v verdict) {
	a := q.action(v)
	q.sendFatalNAK(a.nak)
	if q.Env.Prof.ReqAccessErr && q.RFlags&RWRIDValid == 0 {
		switch a.nak {
		case ib.NAKInvalidReq:
			q.Env.Raise(Event{Type: ib.EventQPReqErr, QP: q})
		case ib.NAKRemoteAccess:
			q.Env.Raise(Event{Type: ib.EventQPAccessErr, QP: q})
		}
	}
	q.errorQP(a.status, a.cause, ib.CauseFlushAfter, true)
}

// sendFatalNAK queues the last answer that this QP gives.
func (q *QP) sendFatalNAK(syn ib.Syndrome) {
	q.RNAKState = syn
	q.fatal = true
	q.Env.Ctr.SentNAK++
	q.resp.push(response{kind: respAck, psn: q.RPSN, msn: q.RMSN, syn: syn})
}
