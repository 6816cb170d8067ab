package uverbs

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
)

// be is the order of what travels on the wire: immediate data, GUIDs.
var be = binary.BigEndian

// sqRing is a send ring of the rxe ABI. The program produces; the device takes work
// requests at head and frees their slots, by moving the consumer index, as the WQEs
// retire. Both indices are the device's own; the shared consumer index is a copy.
type sqRing struct {
	q       rxeQueue
	head    uint32 // next to take
	cons    uint32 // oldest not retired
	maxSGE  int
	maxData int // inline bytes

	busy   bool     // there are some between cons and head, as gate was told
	gate   PostGate // nil if the host has none
	handle uint32   // of the QP
	ctx    *Context // that has it
}

var _ qp.SendQueue = (*sqRing)(nil)

func newSQRing(b []byte, maxWR, maxSGE, maxInline int) *sqRing {
	return &sqRing{q: newRXEQueue(b, maxWR+1, rxeSQElem(maxSGE, maxInline)), maxSGE: maxSGE, maxData: maxInline}
}

// waiting returns how many work requests the program posted and the device did not
// take yet.
func (s *sqRing) waiting() int { return int((s.q.producer() - s.head) & s.q.mask) }

// Retired implements qp.SendQueue.
func (s *sqRing) Retired() {
	s.cons = (s.cons + 1) & s.q.mask
	storeWord(s.q.b, rxeConsOff, s.cons)
	if s.cons == s.head {
		s.showBusy()
	}
}

// reset empties the ring: nothing is outstanding, and what waits was never posted.
func (s *sqRing) reset() {
	s.head = s.q.producer()
	s.cons = s.head
	storeWord(s.q.b, rxeConsOff, s.cons)
	s.showBusy()
}

// setPostable tells the program's side whether posts are accepted.
func (s *sqRing) setPostable(ok bool) {
	v := uint32(0)
	if ok {
		v = 1
	}
	storeWord(s.q.b, SQPostableOffset, v)
}

// Offsets in struct rxe_send_wqe.
const (
	sendWRID    = 0
	sendOpcode  = 12
	sendFlags   = 16
	sendImm     = 20 // or invalidate_rkey
	sendAddr    = 24 // rdma, atomic
	sendRKey    = 32 // rdma
	sendCompare = 32 // atomic
	sendSwap    = 40
	sendAtRKey  = 48 // atomic
	sendFlLen   = 32 // flush
	sendFlRKey  = 36
	sendFlType  = 40
	sendFlLevel = 41
	sendQPN     = 24 // ud
	sendQKey    = 28
	sendPKey    = 32
	sendAHNum   = 36
	sendAV      = 56 // struct rxe_av, used if ah_num is 0
	sendMWAddr  = 24 // mw
	sendMWLen   = 32
	sendMRLKey  = 40
	sendMWRKey  = 44
	sendNewRKey = 48
	sendMWAcc   = 52

	avPort  = 0 // struct rxe_av
	avDGID  = 8
	avFlow  = 24
	avSGID  = 28
	avHop   = 29
	avClass = 30
)

// decoder turns entries of a send ring into work requests. Its storage is reused: a
// work request is valid until the next.
type decoder struct {
	raw []byte
	wr  [1]swqe.SendWR
}

// decode reads one entry for QP o. The entry is copied first: the program may write
// it at any time. It returns false if the entry cannot be a work request at all; only
// WRID is set then.
func (c *decoder) decode(o *qpObj, d *rvt.Device, entry []byte) bool {
	c.raw = append(c.raw[:0], entry...)
	b, wr := c.raw, &c.wr[0]
	*wr = swqe.SendWR{WRID: native.Uint64(b[sendWRID:]), SGL: wr.SGL[:0]}
	op := native.Uint32(b[sendOpcode:])
	if op >= ib.NumWROpcodes {
		return false
	}
	wr.Opcode = ib.WROpcode(op)
	wr.Flags = ib.SendFlags(native.Uint32(b[sendFlags:])) & sendFlagsKnown
	if !c.payload(o.sq) {
		return false
	}
	c.operation(o, d)
	return true
}

const sendFlagsKnown = ib.SendFence | ib.SendSignaled | ib.SendSolicited | ib.SendInline

// payload reads the inline data or the gather list.
func (c *decoder) payload(s *sqRing) bool {
	b, wr := c.raw, &c.wr[0]
	if wr.Opcode == ib.WRAtomicWrite {
		// The provider puts the value where inline data would be (atomic_wr), flag or not.
		wr.Flags |= ib.SendInline
		wr.Inline = b[rxeSendData : rxeSendData+8]
		return native.Uint32(b[rxeSendLen:]) == 8
	}
	if wr.Flags&ib.SendInline != 0 {
		n := native.Uint32(b[rxeSendLen:])
		if int64(n) > int64(s.maxData) {
			return false
		}
		wr.Inline = b[rxeSendData : rxeSendData+int(n)]
		return true
	}
	sgl, bad := takeSGL(wr.SGL, b[rxeSendData:], native.Uint32(b[rxeSendNum:]), s.maxSGE)
	wr.SGL = sgl
	return !bad
}

// operation reads what belongs to the operation.
func (c *decoder) operation(o *qpObj, d *rvt.Device) {
	b, wr := c.raw, &c.wr[0]
	u32 := func(off int) uint32 { return native.Uint32(b[off:]) }
	u64 := func(off int) uint64 { return native.Uint64(b[off:]) }
	switch wr.Opcode {
	case ib.WRSendWithImm, ib.WRRDMAWriteWithImm:
		wr.Imm = be.Uint32(b[sendImm:])
	case ib.WRSendWithInv, ib.WRLocalInv:
		wr.InvRKey = ib.RKey(u32(sendImm))
	}
	switch {
	case wr.Opcode == ib.WRBindMW:
		wr.Bind = swqe.BindInfo{RKey: ib.RKey(u32(sendNewRKey)), MR: d.Keys().FindRegion(ib.LKey(u32(sendMRLKey))),
			Addr: u64(sendMWAddr), Length: u64(sendMWLen), Access: ib.Access(u32(sendMWAcc))}
		if w := o.ctx.windows[u32(sendMWRKey)>>8]; w != nil {
			wr.Bind.MW = w.mw
		}
	case o.q.Type.IsDatagram():
		wr.RemoteQPN = ib.QPN(u32(sendQPN)) & ib.QPNMask
		wr.RemoteQKey = ib.QKey(u32(sendQKey))
		wr.PKeyIndex = native.Uint16(b[sendPKey:])
		wr.AH = o.ctx.sendAH(o, d, u32(sendAHNum), b[sendAV:])
	case wr.Opcode == ib.WRAtomicCmpAndSwp || wr.Opcode == ib.WRAtomicFetchAndAdd:
		wr.RemoteAddr, wr.RKey = u64(sendAddr), ib.RKey(u32(sendAtRKey))
		wr.CompareAdd, wr.Swap = u64(sendCompare), u64(sendSwap)
	case wr.Opcode == ib.WRFlush:
		wr.RemoteAddr, wr.RKey = u64(sendAddr), ib.RKey(u32(sendFlRKey))
		wr.Flush = swqe.FlushInfo{Length: u32(sendFlLen), Type: ib.FlushType(b[sendFlType]), Level: ib.FlushLevel(b[sendFlLevel])}
	default:
		wr.RemoteAddr, wr.RKey = u64(sendAddr), ib.RKey(u32(sendRKey))
	}
}

// sendAH finds the address handle of a datagram: by its number, or, for providers
// older than the numbers, from the address vector in the entry.
func (c *Context) sendAH(o *qpObj, d *rvt.Device, num uint32, av []byte) *swqe.AH {
	if num != 0 {
		if a := get[ahObj](c, num); a != nil {
			return a.ah
		}
		return nil
	}
	a := ib.AV{
		DGID: ib.GID(av[avDGID : avDGID+16]), IsGlobal: true, PortNum: av[avPort], FlowLabel: native.Uint32(av[avFlow:]),
		SGIDIndex: av[avSGID], HopLimit: av[avHop], TrafficClass: av[avClass],
	}
	ah, err := d.CreateAH(o.pd.pd, a)
	if err != nil {
		return nil
	}
	copied := *ah
	_ = d.DestroyAH(ah) // the entry carries a copy; nothing may stay in use
	return &copied
}

// errNotAWR is what a ring entry that cannot be decoded is refused with.
var errNotAWR = ib.NewVerbError(ib.EINVAL, "post_send", "", "the ring's entry is not a work request")

// postNext posts the oldest entry that waits.
func (o *qpObj) postNext(d *rvt.Device) error {
	if !o.ctx.wr.decode(o, d, o.sq.q.at(o.sq.head)) {
		return errNotAWR
	}
	_, err := d.PostSend(o.q, o.ctx.wr.wr[:])
	return err
}

func (o *qpObj) postable() bool { return qp.StateOps(o.q.State)&qp.PostSendOK != 0 }

// post takes the work requests that wait in the ring and posts them in order, for a
// caller who waits for the answer. At the first that is refused it stops with the
// error; neither that one nor those behind it were posted.
func (o *qpObj) post(d *rvt.Device) error {
	s := o.sq
	prod := loadWord(s.q.b, rxeProdOff)
	var err error
	if !o.postable() {
		_, err = d.PostSend(o.q, nil) // says why
	}
	for n := (prod - s.head) & s.q.mask; n > 0 && err == nil; n-- {
		if err = o.postNext(d); err == nil {
			s.head = (s.head + 1) & s.q.mask
		}
	}
	s.showBusy()
	if o.failing && o.q.PostErrors() == 0 {
		o.failing = false
		o.showPostable(o.postable())
	}
	if err != nil {
		// The program's side is inside this call, so the entries can be taken back;
		// if another thread posts meanwhile, its own call will see to them.
		atomic.CompareAndSwapUint32(word(s.q.b, rxeProdOff), prod, s.head)
	}
	return err
}

// drain takes the work requests that wait when nobody waits for an answer: one that
// is refused fails with a completion. It returns how many it took.
func (o *qpObj) drain(d *rvt.Device) int {
	s := o.sq
	if s == nil || !o.postable() {
		return 0
	}
	if f := o.q.PostErrors(); f > 0 { // those are for posts that can be refused
		o.q.InjectPostErrors(0)
		defer o.q.InjectPostErrors(f)
	}
	defer s.showBusy()
	n := s.waiting()
	for i := range n {
		err := o.postNext(d)
		if err != nil && ib.ErrnoOf(err) != ib.ENOMEM {
			o.ctx.refused(err)
			err = d.PostRefused(o.q, o.ctx.wr.wr[0].WRID)
		}
		if err != nil {
			return i
		}
		s.head = (s.head + 1) & s.q.mask
	}
	return n
}
