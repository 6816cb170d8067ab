package qp

import (
	"strconv"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
)

// PostSend (ibv_post_send, kernel: rvt_post_send) posts work requests in order and
// stops at the first bad one: n is the number posted, which is the index of bad_wr.
// The posted ones stay posted. Nothing is sent before the next Emit.
func (q *QP) PostSend(wrs []swqe.SendWR) (n int, err error) {
	if !q.can(PostSendOK) {
		return 0, q.postErr(ib.EINVAL, "state is "+q.State.String()+": sends may be posted in RTS, SQD, SQE and ERR")
	}
	for i := range wrs {
		if err := q.postOne(&wrs[i]); err != nil {
			return i, err
		}
	}
	q.check()
	return len(wrs), nil
}

func (q *QP) postErr(errno ib.Errno, reason string) error {
	return ib.NewVerbError(errno, "post_send", q.object(), reason)
}

// isAvail (kernel: rvt_qp_is_avail) reports whether the send queue has a free slot.
// SAvail is a lower bound that is recomputed when it reaches 0.
func (q *QP) isAvail() bool {
	if q.SAvail > 0 {
		return true
	}
	q.SAvail = q.ring.Size() - 1 - q.dist(q.SLast, q.SHead)
	return q.SAvail > 0
}

// postOne (kernel: rvt_post_one_wr) checks one work request and puts it into the send
// queue. The order of the checks is the kernel's.
func (q *QP) postOne(wr *swqe.SendWR) error {
	if q.failPosts > 0 {
		q.failPosts--
		return q.postErr(ib.ENOMEM, "an injected fault refuses it")
	}
	inline := wr.Flags&ib.SendInline != 0
	if !inline && len(wr.SGL) > q.Cap.MaxSendSGE {
		return q.postErr(ib.EINVAL, wrName(wr)+" has "+strconv.Itoa(len(wr.SGL))+" gather entries, the QP allows "+strconv.Itoa(q.Cap.MaxSendSGE))
	}
	op := swqe.Params(wr.Opcode)
	if op == nil || !q.offers(op) {
		if q.Env.Prof.BadOpcodeAtPost || op == nil && q.Type.IsDatagram() {
			return q.postErr(ib.EINVAL, wrName(wr)+": "+q.article()+" QP has no "+wr.Opcode.String())
		}
		return q.enqueue(wr, 0, 0)
	}
	if err := q.checkOp(wr, op, inline); err != nil {
		return err
	}
	length, err := q.messageLength(wr, op, inline)
	if err != nil {
		return err
	}
	if !q.isAvail() {
		return q.postErr(ib.ENOMEM, wrName(wr)+": the send queue is full: "+strconv.Itoa(q.Outstanding())+" of "+strconv.Itoa(q.ring.Size()-1)+" WRs are outstanding")
	}
	if q.Env.Prof.BadKeyAtPost && !inline {
		if c := q.Env.Keys.CheckSGL(q.PD, wr.SGL, q.localAccess(wr.Opcode, op)); c != ib.CauseNone {
			return q.postErr(ib.EINVAL, wrName(wr)+": "+c.String())
		}
	}
	return q.enqueue(wr, length, q.packetsOf(op, length))
}

// offers reports whether a QP of this type and profile has the operation.
func (q *QP) offers(op *swqe.OpParams) bool {
	return op.Allowed(q.Type) && (!op.Has(swqe.OpPlacement) || q.Env.Prof.MemoryPlacement)
}

func wrName(wr *swqe.SendWR) string {
	return "wr " + strconv.FormatUint(wr.WRID, 10) + " (" + wr.Opcode.String() + ")"
}

// checkOp tests what the operation's row in the table asks for.
func (q *QP) checkOp(wr *swqe.SendWR, op *swqe.OpParams, inline bool) error {
	p := q.Env.Prof
	if op.Has(swqe.OpAtomic) {
		switch {
		case len(wr.SGL) == 0 || wr.SGL[0].Length < 8:
			return q.postErr(ib.EINVAL, wrName(wr)+": an atomic needs a local entry of 8 bytes")
		case q.Env.Drv.AtomicAlignLocal && wr.SGL[0].Addr%8 != 0:
			return q.postErr(ib.EINVAL, wrName(wr)+": the local address of an atomic must be a multiple of 8")
		case wr.RemoteAddr%8 != 0 && !q.Env.Drv.AtomicAlignLocal:
			return q.postErr(ib.EINVAL, wrName(wr)+": the remote address of an atomic must be a multiple of 8")
		}
	}
	if op.Has(swqe.OpRdAtomic) && q.Attr.MaxRdAtomic == 0 && p.RdAtomicZeroPost {
		return q.postErr(ib.EINVAL, wrName(wr)+": max_rd_atomic of the QP is 0")
	}
	if inline && !op.Has(swqe.OpInline) && !(p.InlineReadStatus && op.Has(swqe.OpRdAtomic)) {
		return q.postErr(ib.EINVAL, wrName(wr)+": INLINE is for SEND and RDMA WRITE only")
	}
	if op.Has(swqe.OpPlacement) {
		return q.checkPlacement(wr, inline)
	}
	if inline && len(wr.Inline) > q.Cap.MaxInlineData {
		return q.postErr(ib.EINVAL, wrName(wr)+": "+strconv.Itoa(len(wr.Inline))+" bytes inline, the QP allows "+strconv.Itoa(q.Cap.MaxInlineData))
	}
	if !q.Type.IsDatagram() {
		return nil
	}
	switch {
	case wr.AH == nil || !wr.AH.Live:
		return q.postErr(ib.EINVAL, wrName(wr)+": no address handle")
	case wr.AH.PD != q.PD:
		return q.postErr(ib.EINVAL, wrName(wr)+": the address handle belongs to another protection domain")
	}
	return nil
}

// checkPlacement tests an ATOMIC_WRITE or a FLUSH. The 8 bytes of an ATOMIC_WRITE may
// travel in the work request whatever max_inline_data is (ibv_wr_atomic_write takes them by
// value).
func (q *QP) checkPlacement(wr *swqe.SendWR, inline bool) error {
	n := swqe.Sum(wr.SGL)
	if inline {
		n = uint64(len(wr.Inline))
	}
	f := &wr.Flush
	switch {
	case wr.Opcode == ib.WRFlush && n > 0:
		return q.postErr(ib.EINVAL, wrName(wr)+" has "+strconv.FormatUint(n, 10)+" bytes: a FLUSH carries none")
	case wr.Opcode == ib.WRFlush && (f.Type == 0 || f.Type&^(ib.FlushGlobal|ib.FlushPersistent) != 0 || f.Level > ib.FlushMR):
		return q.postErr(ib.EINVAL, wrName(wr)+": type must be GLOBAL, PERSISTENT or both, and level RANGE or MR")
	case wr.Opcode == ib.WRAtomicWrite && n != atomicWriteBytes:
		return q.postErr(ib.EINVAL, wrName(wr)+" has "+strconv.FormatUint(n, 10)+" bytes: an ATOMIC_WRITE writes 8")
	case wr.Opcode == ib.WRAtomicWrite && wr.RemoteAddr%atomicWriteBytes != 0:
		return q.postErr(ib.EINVAL, wrName(wr)+": the remote address of an ATOMIC_WRITE must be a multiple of 8")
	}
	return nil
}

// messageLength returns the bytes of the message after the checks on its length.
func (q *QP) messageLength(wr *swqe.SendWR, op *swqe.OpParams, inline bool) (uint32, error) {
	n := swqe.Sum(wr.SGL)
	if inline {
		n = uint64(len(wr.Inline))
	}
	switch {
	case op.Has(swqe.OpLocal):
		return 0, nil
	case q.Type.IsDatagram():
		if n > uint64(q.Env.MTU.Bytes()) && q.Env.Prof.UDTooLongAtPost {
			return 0, q.postErr(ib.EINVAL, wrName(wr)+": "+strconv.FormatUint(n, 10)+" bytes in a datagram, the port's MTU is "+q.Env.MTU.String())
		}
	case n > q.Env.Limits.MaxMsgBytes:
		return 0, q.postErr(ib.EINVAL, wrName(wr)+": "+strconv.FormatUint(n, 10)+" bytes, max_msg_sz is "+strconv.FormatUint(q.Env.Limits.MaxMsgBytes, 10))
	}
	return uint32(min(n, 1<<32-1)), nil
}

// packetsOf returns how many PSNs a message takes.
func (q *QP) packetsOf(op *swqe.OpParams, length uint32) uint32 {
	switch {
	case op.Has(swqe.OpLocal):
		return 0
	case q.Type.IsDatagram() || op.Has(swqe.OpAtomic) || length == 0:
		return 1
	}
	return (length-1)>>q.Attr.PathMTU.Log2() + 1
}

// localAccess is the right that an operation needs on its local entries.
func (q *QP) localAccess(o ib.WROpcode, op *swqe.OpParams) ib.Access {
	if op.Has(swqe.OpLocalWrite) || o == ib.WRSendWithInv && q.Env.Prof.SendInvLocalWrite {
		return ib.AccessLocalWrite
	}
	return 0
}

// enqueue takes the slot at SHead and assigns SSN and PSNs. PSNs are assigned when a
// WR is posted, not when it is sent.
func (q *QP) enqueue(wr *swqe.SendWR, length, packets uint32) error {
	if !q.isAvail() {
		return q.postErr(ib.ENOMEM, wrName(wr)+": the send queue is full")
	}
	w := q.ring.At(q.SHead)
	w.Set(wr)
	w.Length, w.Packets = length, packets
	w.PSN = q.SNextPSN
	w.LPSN = q.SNextPSN.Add(int(packets) - 1)
	if packets > 0 {
		w.SSN = q.SSSN & ib.PSNMask
		q.SSSN++
	}
	q.SNextPSN = w.LPSN.Add(1)
	if q.State == ib.StateErr && q.SLast == q.SHead {
		q.flushCause = ib.CauseFlushPosted
	}
	q.SAvail--
	q.SHead = q.ring.Next(q.SHead)
	q.Env.Ctr.SendsPosted++
	return nil
}

// PostRecv (ibv_post_recv, kernel: rvt_post_recv) posts receives in order and stops at
// the first bad one; n is the number posted.
func (q *QP) PostRecv(wrs []swqe.RecvWR) (n int, err error) {
	const verb = "post_recv"
	rq, ok := q.RQ.(*swqe.RQ)
	switch {
	case q.SRQ != nil:
		return 0, ib.NewVerbError(ib.EINVAL, verb, q.object(), "the QP uses an SRQ: post to that")
	case !ok:
		return 0, ib.NewVerbError(ib.EINVAL, verb, q.object(), "its receive queue is filled by the program itself")
	case !q.can(PostRecvOK):
		return 0, ib.NewVerbError(ib.EINVAL, verb, q.object(), "state is "+q.State.String()+": receives may be posted from INIT on")
	}
	for i := range wrs {
		if q.State == ib.StateErr && q.Env.Prof.RecvErrFlushes {
			if len(wrs[i].SGL) > q.Cap.MaxRecvSGE {
				return i, ib.NewVerbError(ib.EINVAL, verb, q.object(), "too many scatter entries")
			}
			q.recvComplete(&cq.WC{WRID: wrs[i].WRID, Status: ib.WCWRFlushErr, VendorErr: ib.CauseFlushPosted}, true)
			continue
		}
		if err := rq.Post(verb, q, &wrs[i]); err != nil {
			return i, err
		}
		q.Env.Ctr.RecvsPosted++
	}
	q.check()
	return len(wrs), nil
}

// takeResult is the outcome of fetching a receive (kernel: rvt_get_rwqe).
type takeResult uint8

const (
	takeOK    takeResult = iota
	takeEmpty            // no receive is posted
	takeBad              // the receive's scatter list failed its check
)

// getRWQE (kernel: rvt_get_rwqe) takes the oldest receive. widOnly is for a WRITE with
// immediate data, which uses up a receive but not its buffer. A receive that UC kept
// from an abandoned message is used first.
func (q *QP) getRWQE(widOnly bool) takeResult {
	if q.RFlags&RRewindSGE != 0 {
		q.RFlags &^= RRewindSGE
		q.RFlags |= RWRIDValid
		q.RLen = q.rwqe.Len()
		return takeOK
	}
	if q.noReceives {
		return takeEmpty
	}
	ok, bad := q.recvQueue().Take(&q.rwqe)
	if !ok {
		return takeEmpty
	}
	q.RFlags |= RWRIDValid
	pd := q.PD
	if q.SRQ != nil {
		pd = q.SRQ.PD
		if q.SRQ.CheckLimit() {
			q.Env.Raise(Event{Type: ib.EventSRQLimitReached, SRQ: q.SRQ})
		}
	}
	if bad || !widOnly && q.Env.Keys.CheckSGL(pd, q.rwqe.SGL, ib.AccessLocalWrite) != ib.CauseNone {
		return takeBad
	}
	q.RLen = q.rwqe.Len()
	return takeOK
}

// recvPD is the domain that receive SGEs are checked against.
func (q *QP) recvPD() mr.PD {
	if q.SRQ != nil {
		return q.SRQ.PD
	}
	return q.PD
}
