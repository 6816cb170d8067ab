package rpma

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rdmacm"
)

// Flags (RPMA_F_*) say when an operation completes.
type Flags uint8

const (
	FlagCompletionOnError Flags = 1 // RPMA_F_COMPLETION_ON_ERROR
	FlagCompletionAlways  Flags = 3 // RPMA_F_COMPLETION_ALWAYS
)

// The operations share their arguments. Offsets and lengths are bytes, and are not
// checked against the regions: an operation that leaves one completes with an error. An
// operation without regions, offsets and length moves nothing but still completes.
// opContext is what the completion has as its WRID.
//
// Errors: ErrInval if one region of two is missing, or flags is 0; ErrProvider if the
// operation cannot be posted, because the queue is full or there is no connection.

// local returns the gather or scatter list of a part of a region; none for no region.
func local(op string, mr *MRLocal, off, n int) ([]verbs.SGE, error) {
	switch {
	case off < 0 || n < 0 || int64(n) > 1<<32-1:
		return nil, inval(op, "offset or length is out of range")
	case mr == nil && (off != 0 || n != 0):
		return nil, inval(op, "offset or length without a region")
	case mr == nil:
		return nil, nil
	}
	return []verbs.SGE{mr.mr.SGE(off, n)}, nil
}

func (c *Conn) post(op string, wr verbs.SendWR, flags Flags) error {
	if flags == 0 {
		return inval(op, "no flags")
	}
	qp := c.id.QP()
	if qp == nil {
		return inval(op, "the connection was deleted")
	}
	if flags&^FlagCompletionOnError != 0 {
		wr.Flags |= ib.SendSignaled
	}
	return provider(op, qp.PostSend(wr))
}

// rdma posts an operation between a region here and one there.
func (c *Conn) rdma(op string, code ib.WROpcode, here *MRLocal, hereOff int, there *MRRemote, thereOff uint64, n int, imm uint32, flags Flags, opContext uint64) error {
	if (here == nil) != (there == nil) || there == nil && thereOff != 0 {
		return inval(op, "one of two regions is missing")
	}
	sgl, err := local(op, here, hereOff, n)
	if err != nil {
		return err
	}
	wr := verbs.SendWR{WRID: opContext, Opcode: code, SGL: sgl, Imm: imm}
	if there != nil {
		wr.RemoteAddr, wr.RKey = there.addr+thereOff, there.rkey
	}
	return c.post(op, wr, flags)
}

// Read (rpma_read) reads from the other side's region into one of this side.
func (c *Conn) Read(dst *MRLocal, dstOff int, src *MRRemote, srcOff uint64, n int, flags Flags, opContext uint64) error {
	return c.rdma("read", ib.WRRDMARead, dst, dstOff, src, srcOff, n, 0, flags, opContext)
}

// Write (rpma_write) writes from a region of this side to the other side's.
func (c *Conn) Write(dst *MRRemote, dstOff uint64, src *MRLocal, srcOff, n int, flags Flags, opContext uint64) error {
	return c.rdma("write", ib.WRRDMAWrite, src, srcOff, dst, dstOff, n, 0, flags, opContext)
}

// WriteWithImm (rpma_write_with_imm) is Write, and takes a receive of the other side,
// which completes with imm.
func (c *Conn) WriteWithImm(dst *MRRemote, dstOff uint64, src *MRLocal, srcOff, n int, flags Flags, imm uint32, opContext uint64) error {
	return c.rdma("write_with_imm", ib.WRRDMAWriteWithImm, src, srcOff, dst, dstOff, n, imm, flags, opContext)
}

// AtomicWriteBytes (RPMA_ATOMIC_WRITE_ALIGNMENT) is the size of an atomic write and the
// alignment of its offset.
const AtomicWriteBytes = 8

// AtomicWrite (rpma_atomic_write) writes 8 bytes that others see all at once, after all
// earlier READs. dstOff is a multiple of 8, or ErrInval. The device has no ATOMIC_WRITE
// of its own, so it is a fenced inline WRITE, as librpma does it then.
func (c *Conn) AtomicWrite(dst *MRRemote, dstOff uint64, src [AtomicWriteBytes]byte, flags Flags, opContext uint64) error {
	const op = "atomic_write"
	if dst == nil || dstOff%AtomicWriteBytes != 0 {
		return inval(op, "no region, or an offset that is not a multiple of 8")
	}
	return c.post(op, verbs.SendWR{WRID: opContext, Opcode: ib.WRRDMAWrite, Flags: ib.SendInline | ib.SendFence, Inline: src[:],
		RemoteAddr: dst.addr + dstOff, RKey: dst.rkey}, flags)
}

// FlushType (enum rpma_flush_type) says how far written data must have come.
type FlushType uint8

const (
	FlushPersistent FlushType = 0 // RPMA_FLUSH_TYPE_PERSISTENT
	FlushVisibility FlushType = 1 // RPMA_FLUSH_TYPE_VISIBILITY: others see them
)

// flushBytes is what a flush reads.
const flushBytes = 8

// Flush (rpma_flush) completes when what was written to the region before is visible,
// or persistent. The device has no FLUSH of its own, so it is a READ of 8 bytes at dstOff
// as librpma does it then; n is not used.
//
// ErrInval without a region or flags, or for an unknown type; ErrNoSupp for a persistent
// flush if the other side has not said that it writes directly to persistent memory (see
// ApplyRemotePeerCfg), or if the region is not registered for the type.
func (c *Conn) Flush(dst *MRRemote, dstOff uint64, n int, typ FlushType, flags Flags, opContext uint64) error {
	const op = "flush"
	_ = n // in C the length of a native FLUSH
	if dst == nil || flags == 0 || typ > FlushVisibility {
		return inval(op, "no region, no flags, or an unknown type")
	}
	need := UsageFlushVisibility
	if typ == FlushPersistent {
		need = UsageFlushPersistent
		if !c.direct.Load() {
			return fail(op, ErrNoSupp, reason("the other side does not write directly to persistent memory"))
		}
	}
	if dst.usage&need == 0 {
		return fail(op, ErrNoSupp, reason("the region was not registered for this type of flush"))
	}
	return c.post(op, verbs.SendWR{WRID: opContext, Opcode: ib.WRRDMARead, SGL: []verbs.SGE{c.page.SGE(0, flushBytes)},
		RemoteAddr: dst.addr + dstOff, RKey: dst.rkey}, flags)
}

// Send (rpma_send) sends a message of n bytes of a region.
func (c *Conn) Send(src *MRLocal, off, n int, flags Flags, opContext uint64) error {
	return c.send("send", verbs.SendWR{WRID: opContext, Opcode: ib.WRSend}, src, off, n, flags)
}

// SendWithImm (rpma_send_with_imm) is Send with a number that arrives with the message.
func (c *Conn) SendWithImm(src *MRLocal, off, n int, flags Flags, imm uint32, opContext uint64) error {
	return c.send("send_with_imm", verbs.SendWR{WRID: opContext, Opcode: ib.WRSendWithImm, Imm: imm}, src, off, n, flags)
}

func (c *Conn) send(op string, wr verbs.SendWR, src *MRLocal, off, n int, flags Flags) (err error) {
	if wr.SGL, err = local(op, src, off, n); err != nil {
		return err
	}
	return c.post(op, wr, flags)
}

// Recv (rpma_recv) posts room for a message. Do not rely on the order in which receives
// are used. It completes always.
func (c *Conn) Recv(dst *MRLocal, off, n int, opContext uint64) error {
	return recv("recv", c.id, dst, off, n, opContext)
}

func recv(op string, id *rdmacm.ID, dst *MRLocal, off, n int, opContext uint64) error {
	sgl, err := local(op, dst, off, n)
	if err != nil {
		return err
	}
	if id.QP() == nil {
		return inval(op, "the connection was deleted")
	}
	return provider(op, id.PostRecvV(opContext, sgl...))
}
