package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
)

const (
	sendWRBytes = 56 // struct ib_uverbs_send_wr
	recvWRBytes = 16 // struct ib_uverbs_recv_wr
)

// postSend (POST_SEND). With a send ring it is a doorbell: the provider put the work
// requests into the ring, and those in the command, if any, do not count. Without one
// they are in the command.
func postSend(k *call) error {
	var cmd postWR
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[qpObj](k.c, cmd.Handle)
	if o == nil {
		return noHandle("post_send", "QP")
	}
	if o.sq != nil {
		err := o.post(k.d)
		k.d.FlushRecv(o.q)
		k.respond(postResp{})
		return err
	}
	wrs, err := k.sendWRs(o, &cmd)
	if err != nil {
		return err
	}
	n, err := k.d.PostSend(o.q, wrs)
	if o.journal != nil {
		for i := range wrs[:n] {
			o.journal.add(wrs[i].WRID)
		}
	}
	k.d.FlushRecv(o.q)
	return k.posted(n, err)
}

// posted stores the answer of a post: the number of the bad work request, counted
// from 1, or 0.
func (k *call) posted(n int, err error) error {
	r := postResp{}
	if err != nil {
		r.BadWR = uint32(n) + 1
	}
	k.respond(r)
	return err
}

// wrList is the tail of a post command: work requests of a fixed size, then the
// gather entries of all of them in order.
type wrList struct {
	verb string
	wrs  []byte
	size int
	sges []byte
}

// list splits the command, checking that the lengths fit (kernel: ib_uverbs_post_send,
// ib_uverbs_unmarshall_recv).
func (k *call) list(verb string, cmd *postWR, wrBytes int) (*wrList, error) {
	tail := k.in[24:]
	wrs, sges := uint64(cmd.WQESize)*uint64(cmd.WRCount), sgeBytes*uint64(cmd.SGECount)
	switch {
	case int64(cmd.WQESize) < int64(wrBytes):
		return nil, ib.NewVerbError(ib.EINVAL, verb, "", "wqe_size is too small")
	case wrs > uint64(len(tail)) || sges > uint64(len(tail))-wrs:
		return nil, ib.NewVerbError(ib.EINVAL, verb, "", "the command is shorter than its work requests")
	}
	return &wrList{verb: verb, wrs: tail[:wrs], size: int(cmd.WQESize), sges: tail[wrs : wrs+sges]}, nil
}

// sgl takes the next n entries.
func (l *wrList) sgl(n uint32) ([]mr.SGE, error) {
	if uint64(n)*sgeBytes > uint64(len(l.sges)) {
		return nil, ib.NewVerbError(ib.EINVAL, l.verb, "", "num_sge of a work request exceeds sge_count")
	}
	sgl := make([]mr.SGE, n)
	for i := range sgl {
		sgl[i] = getSGE(l.sges[i*sgeBytes:])
	}
	l.sges = l.sges[int(n)*sgeBytes:]
	return sgl, nil
}

// sendWRs reads the work requests of a POST_SEND.
func (k *call) sendWRs(o *qpObj, cmd *postWR) ([]swqe.SendWR, error) {
	l, err := k.list("post_send", cmd, sendWRBytes)
	if err != nil {
		return nil, err
	}
	var wrs []swqe.SendWR
	for b := l.wrs; len(b) > 0; b = b[l.size:] {
		wr, err := k.sendWR(o, b, l)
		if err != nil {
			return nil, err
		}
		wrs = append(wrs, wr)
	}
	return wrs, nil
}

// sendWR reads one struct ib_uverbs_send_wr.
func (k *call) sendWR(o *qpObj, b []byte, l *wrList) (wr swqe.SendWR, err error) {
	u32 := func(off int) uint32 { return native.Uint32(b[off:]) }
	u64 := func(off int) uint64 { return native.Uint64(b[off:]) }
	op := u32(12)
	if op >= ib.NumWROpcodes {
		return wr, ib.NewVerbError(ib.EINVAL, l.verb, "", "unknown opcode")
	}
	wr = swqe.SendWR{WRID: u64(0), Opcode: ib.WROpcode(op), Flags: ib.SendFlags(u32(16)) & sendFlagsKnown}
	if wr.SGL, err = l.sgl(u32(8)); err != nil {
		return wr, err
	}
	if wr.Flags&ib.SendInline != 0 {
		if err := k.fetchInline(o, &wr); err != nil {
			return wr, err
		}
	}
	datagram := o.q.Type.IsDatagram()
	switch wr.Opcode {
	case ib.WRSendWithImm:
		wr.Imm = be.Uint32(b[20:])
	case ib.WRSend:
	case ib.WRSendWithInv:
		wr.InvRKey = ib.RKey(u32(20))
	case ib.WRRDMAWrite, ib.WRRDMARead, ib.WRRDMAWriteWithImm:
		wr.Imm = be.Uint32(b[20:])
		wr.RemoteAddr, wr.RKey = u64(24), ib.RKey(u32(32))
	case ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd:
		wr.RemoteAddr, wr.CompareAdd, wr.Swap, wr.RKey = u64(24), u64(32), u64(40), ib.RKey(u32(48))
	default:
		return wr, ib.NewVerbError(ib.EINVAL, l.verb, "", "this operation cannot be posted by a program")
	}
	if datagram {
		if wr.Opcode != ib.WRSend && wr.Opcode != ib.WRSendWithImm {
			return wr, ib.NewVerbError(ib.EINVAL, l.verb, "", "a UD QP sends only")
		}
		a := get[ahObj](k.c, u32(24))
		if a == nil {
			return wr, noHandle(l.verb, "address handle")
		}
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = a.ah, ib.QPN(u32(28))&ib.QPNMask, ib.QKey(u32(32))
	}
	return wr, nil
}

// fetchInline copies the payload at the post, as INLINE promises. The provider leaves
// that to the driver; it needs no key.
func (k *call) fetchInline(o *qpObj, wr *swqe.SendWR) error {
	n := swqe.Sum(wr.SGL)
	switch {
	case n > uint64(o.cap.MaxInlineData):
		return ib.NewVerbError(ib.EINVAL, "post_send", o.q.String(), "more inline data than max_inline_data")
	case k.caller.Mem == nil:
		return ib.NewVerbError(ib.EFAULT, "post_send", o.q.String(), "the caller has no memory")
	}
	wr.Inline = make([]byte, n)
	ops, rest := make([]mr.Op, 0, len(wr.SGL)), wr.Inline
	for _, e := range wr.SGL {
		if e.Length > 0 {
			ops = append(ops, mr.Op{Addr: e.Addr, Buf: rest[:e.Length]})
			rest = rest[e.Length:]
		}
	}
	if m, err := k.caller.Mem.ReadV(ops); err != nil || m < len(ops) {
		return ib.NewVerbError(ib.EFAULT, "post_send", o.q.String(), "the inline data cannot be read")
	}
	wr.SGL = nil
	return nil
}

// recvWRs reads the work requests of a POST_RECV or POST_SRQ_RECV.
func (k *call) recvWRs(verb string, cmd *postWR) ([]swqe.RecvWR, error) {
	l, err := k.list(verb, cmd, recvWRBytes)
	if err != nil {
		return nil, err
	}
	var wrs []swqe.RecvWR
	for b := l.wrs; len(b) > 0; b = b[l.size:] {
		sgl, err := l.sgl(native.Uint32(b[8:]))
		if err != nil {
			return nil, err
		}
		wrs = append(wrs, swqe.RecvWR{WRID: native.Uint64(b), SGL: sgl})
	}
	return wrs, nil
}

// postRecv (POST_RECV) is for QPs whose receive queue is not mapped.
func postRecv(k *call) error {
	var cmd postWR
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[qpObj](k.c, cmd.Handle)
	if o == nil {
		return noHandle("post_recv", "QP")
	}
	wrs, err := k.recvWRs("post_recv", &cmd)
	if err != nil {
		return err
	}
	return k.posted(k.d.PostRecv(o.q, wrs))
}

// postSRQRecv (POST_SRQ_RECV) is for shared receive queues that are not mapped.
func postSRQRecv(k *call) error {
	var cmd postWR
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[srqObj](k.c, cmd.Handle)
	if o == nil {
		return noHandle("post_srq_recv", "shared receive queue")
	}
	wrs, err := k.recvWRs("post_srq_recv", &cmd)
	if err != nil {
		return err
	}
	return k.posted(k.d.PostSRQRecv(o.srq, wrs))
}
