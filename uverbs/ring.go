package uverbs

import (
	"sync/atomic"
	"unsafe"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
)

// Sizes and offsets that both personalities share.
const (
	wcBytes  = 48 // struct ib_uverbs_wc
	sgeBytes = 16 // struct ib_uverbs_sge, rxe_sge, rvt_wqe_sge
)

// word is an index in memory that the program writes too. Loads acquire and stores
// release, as the providers' do.
func word(b []byte, off int) *uint32 {
	return (*uint32)(unsafe.Pointer(&b[off : off+4][0]))
}

func loadWord(b []byte, off int) uint32     { return atomic.LoadUint32(word(b, off)) }
func storeWord(b []byte, off int, v uint32) { atomic.StoreUint32(word(b, off), v) }

// putWC writes a struct ib_uverbs_wc. Flags have the user's values, not the kernel's:
// the providers pass them on as they are.
func putWC(b []byte, w *cq.WC) {
	_ = b[wcBytes-1]
	native.PutUint64(b, w.WRID)
	native.PutUint32(b[8:], uint32(w.Status))
	native.PutUint32(b[12:], uint32(w.Opcode))
	native.PutUint32(b[16:], uint32(w.VendorErr))
	native.PutUint32(b[20:], w.ByteLen)
	if w.Flags&ib.WCFlagWithInv != 0 {
		native.PutUint32(b[24:], uint32(w.InvRKey))
	} else {
		be.PutUint32(b[24:], w.Imm)
	}
	native.PutUint32(b[28:], uint32(w.QPN))
	native.PutUint32(b[32:], uint32(w.SrcQP))
	native.PutUint32(b[36:], uint32(w.Flags))
	native.PutUint16(b[40:], w.PKeyIndex)
	native.PutUint16(b[42:], w.SLID)
	b[44], b[45], b[46], b[47] = w.SL, w.DLIDPathBits, w.PortNum, 0
}

// getWC reads a struct ib_uverbs_wc back, to move it to another ring.
func getWC(b []byte, w *cq.WC) {
	_ = b[wcBytes-1]
	*w = cq.WC{
		WRID: native.Uint64(b), Status: ib.WCStatus(native.Uint32(b[8:])), Opcode: ib.WCOpcode(native.Uint32(b[12:])),
		VendorErr: ib.Cause(native.Uint32(b[16:])), ByteLen: native.Uint32(b[20:]),
		QPN: ib.QPN(native.Uint32(b[28:])), SrcQP: ib.QPN(native.Uint32(b[32:])), Flags: ib.WCFlags(native.Uint32(b[36:])),
		PKeyIndex: native.Uint16(b[40:]), SLID: native.Uint16(b[42:]), SL: b[44], DLIDPathBits: b[45], PortNum: b[46],
	}
	if w.Flags&ib.WCFlagWithInv != 0 {
		w.InvRKey = ib.RKey(native.Uint32(b[24:]))
	} else {
		w.Imm = be.Uint32(b[24:])
	}
}

func getSGE(b []byte) mr.SGE {
	return mr.SGE{Addr: native.Uint64(b), Length: native.Uint32(b[8:]), LKey: ib.LKey(native.Uint32(b[12:]))}
}

func putSGE(b []byte, e mr.SGE) {
	native.PutUint64(b, e.Addr)
	native.PutUint32(b[8:], e.Length)
	native.PutUint32(b[12:], uint32(e.LKey))
}

// struct rxe_queue_buf.
const (
	rxeHeader   = 384
	rxeElemOff  = 0 // log2_elem_size
	rxeMaskOff  = 4 // index_mask
	rxeProdOff  = 128
	rxeConsOff  = 256
	rxeRecvNum  = 28  // rxe_recv_wqe.dma.num_sge
	rxeRecvSGE  = 40  // rxe_recv_wqe.dma.sge
	rxeSendNum  = 196 // rxe_send_wqe.dma.num_sge
	rxeSendLen  = 184 // rxe_send_wqe.dma.length
	rxeSendData = 208 // rxe_send_wqe.dma.sge and inline_data
)

// SQPostableOffset is where in a rxe send ring's header the device keeps a word that
// is 1 while sends may be posted and 0 otherwise. The kernel has padding there, and
// providers ignore it; a preload library that knows the ring can tell from it that a
// doorbell needs no answer (0: post_send fails with EINVAL).
const SQPostableOffset = 8

// rxeQueue is one rxe_queue_buf. The sizes are kept here: those in the header are for
// the program, which can change them.
type rxeQueue struct {
	b    []byte
	mask uint32
	elem int // log2 of an element's size
}

func newRXEQueue(b []byte, slots, elem int) rxeQueue {
	native.PutUint32(b[rxeElemOff:], uint32(elem))
	native.PutUint32(b[rxeMaskOff:], uint32(slots-1))
	return rxeQueue{b: b, mask: uint32(slots - 1), elem: elem}
}

func (q *rxeQueue) at(i uint32) []byte {
	off := rxeHeader + int(i&q.mask)<<q.elem
	return q.b[off : off+1<<q.elem : off+1<<q.elem]
}

func (q *rxeQueue) producer() uint32 { return loadWord(q.b, rxeProdOff) & q.mask }
func (q *rxeQueue) consumer() uint32 { return loadWord(q.b, rxeConsOff) & q.mask }

// rxeCQ is a completion queue: the device produces, the program consumes.
type rxeCQ struct{ q rxeQueue }

var _ cq.Ring = (*rxeCQ)(nil)

func (r *rxeCQ) Slots() uint32               { return r.q.mask + 1 }
func (r *rxeCQ) Put(slot uint32, wc *cq.WC)  { putWC(r.q.at(slot), wc) }
func (r *rxeCQ) Peek(slot uint32, wc *cq.WC) { getWC(r.q.at(slot), wc) }
func (r *rxeCQ) StoreHead(slot uint32)       { storeWord(r.q.b, rxeProdOff, slot) }
func (r *rxeCQ) LoadTail() uint32            { return r.q.consumer() }

// rxeRQ is a receive queue or shared receive queue: the program produces. The
// device's own index is cons; what the program makes of its copy does not matter.
type rxeRQ struct {
	q      rxeQueue
	cons   uint32
	maxSGE int
}

var _ recvRing = (*rxeRQ)(nil)

func (r *rxeRQ) Len() int { return int((r.q.producer() - r.cons) & r.q.mask) }
func (r *rxeRQ) Cap() int { return int(r.q.mask) }

// Take implements swqe.RecvQueue. An entry is read once; the number of its SGEs is
// checked on the copy.
func (r *rxeRQ) Take(e *swqe.RWQE) (ok, bad bool) {
	if r.q.producer() == r.cons {
		return false, false
	}
	b := r.q.at(r.cons)
	e.WRID = native.Uint64(b)
	e.SGL, bad = takeSGL(e.SGL[:0], b[rxeRecvSGE:], native.Uint32(b[rxeRecvNum:]), r.maxSGE)
	r.cons = (r.cons + 1) & r.q.mask
	storeWord(r.q.b, rxeConsOff, r.cons)
	return true, bad
}

// Peek implements strict.Peeker.
func (r *rxeRQ) Peek(i int, e *swqe.RWQE) bool {
	b := r.q.at(r.cons + uint32(i))
	e.WRID = native.Uint64(b)
	var bad bool
	e.SGL, bad = takeSGL(e.SGL[:0], b[rxeRecvSGE:], native.Uint32(b[rxeRecvNum:]), r.maxSGE)
	return !bad
}

func takeSGL(sgl []mr.SGE, b []byte, n uint32, most int) ([]mr.SGE, bool) {
	if int64(n) > int64(most) {
		return sgl, true
	}
	for i := range int(n) {
		sgl = append(sgl, getSGE(b[i*sgeBytes:]))
	}
	return sgl, false
}

func (r *rxeRQ) drop() {
	r.cons = r.q.producer()
	storeWord(r.q.b, rxeConsOff, r.cons)
}

func (r *rxeRQ) put(e *swqe.RWQE) bool {
	prod := r.q.producer()
	if (prod+1)&r.q.mask == r.cons || len(e.SGL) > r.maxSGE {
		return false
	}
	b := r.q.at(prod)
	native.PutUint64(b, e.WRID)
	n := swqe.Sum(e.SGL)
	native.PutUint32(b[16:], uint32(n))
	native.PutUint32(b[20:], uint32(n))
	native.PutUint32(b[rxeRecvNum:], uint32(len(e.SGL)))
	for i, s := range e.SGL {
		putSGE(b[rxeRecvSGE+i*sgeBytes:], s)
	}
	storeWord(r.q.b, rxeProdOff, (prod+1)&r.q.mask)
	return true
}

func (r *rxeRQ) moveTo(dst recvRing) { moveRing(r, dst) }

// moveRing moves at most as many receives as the source can hold, whatever the
// program does to the indices meanwhile.
func moveRing(src, dst recvRing) {
	var e swqe.RWQE
	for range src.Cap() {
		if ok, bad := src.Take(&e); !ok || bad || !dst.put(&e) {
			return
		}
	}
}

// struct rvt_cq_wc and struct rvt_rwq.
const (
	rvtHeadOff = 0
	rvtTailOff = 4
	rvtEntries = 8
	rvtRWQENum = 8  // rvt_rwqe.num_sge
	rvtRWQESGE = 16 // rvt_rwqe.sg_list
)

// rvtCQ is a struct rvt_cq_wc.
type rvtCQ struct {
	b     []byte
	slots uint32
}

var _ cq.Ring = (*rvtCQ)(nil)

func (r *rvtCQ) at(slot uint32) []byte {
	off := rvtEntries + wcBytes*int(min(slot, r.slots-1))
	return r.b[off : off+wcBytes : off+wcBytes]
}

func (r *rvtCQ) Slots() uint32               { return r.slots }
func (r *rvtCQ) Put(slot uint32, wc *cq.WC)  { putWC(r.at(slot), wc) }
func (r *rvtCQ) Peek(slot uint32, wc *cq.WC) { getWC(r.at(slot), wc) }
func (r *rvtCQ) StoreHead(slot uint32)       { storeWord(r.b, rvtHeadOff, slot) }
func (r *rvtCQ) LoadTail() uint32            { return loadWord(r.b, rvtTailOff) }

// rvtRQ is a struct rvt_rwq.
type rvtRQ struct {
	b      []byte
	slots  uint32
	tail   uint32
	maxSGE int
}

var _ recvRing = (*rvtRQ)(nil)

func (r *rvtRQ) stride() int { return rvtRWQESGE + sgeBytes*r.maxSGE }

func (r *rvtRQ) at(i uint32) []byte {
	off := rvtEntries + r.stride()*int(i)
	return r.b[off : off+r.stride() : off+r.stride()]
}

// head is the program's index; a hostile one counts as 0, as in rdmavt.
func (r *rvtRQ) head() uint32 {
	if h := loadWord(r.b, rvtHeadOff); h < r.slots {
		return h
	}
	return 0
}

func (r *rvtRQ) next(i uint32) uint32 {
	if i++; i >= r.slots {
		return 0
	}
	return i
}

func (r *rvtRQ) Len() int {
	n := int(r.head()) - int(r.tail)
	if n < 0 {
		n += int(r.slots)
	}
	return n
}

func (r *rvtRQ) Cap() int { return int(r.slots) - 1 }

// Take implements swqe.RecvQueue.
func (r *rvtRQ) Take(e *swqe.RWQE) (ok, bad bool) {
	if r.head() == r.tail {
		return false, false
	}
	b := r.at(r.tail)
	e.WRID = native.Uint64(b)
	e.SGL, bad = takeSGL(e.SGL[:0], b[rvtRWQESGE:], uint32(b[rvtRWQENum]), r.maxSGE)
	r.tail = r.next(r.tail)
	storeWord(r.b, rvtTailOff, r.tail)
	return true, bad
}

// Peek implements strict.Peeker.
func (r *rvtRQ) Peek(i int, e *swqe.RWQE) bool {
	b := r.at((r.tail + uint32(i)) % r.slots)
	e.WRID = native.Uint64(b)
	var bad bool
	e.SGL, bad = takeSGL(e.SGL[:0], b[rvtRWQESGE:], uint32(b[rvtRWQENum]), r.maxSGE)
	return !bad
}

func (r *rvtRQ) drop() {
	r.tail = r.head()
	storeWord(r.b, rvtTailOff, r.tail)
}

func (r *rvtRQ) put(e *swqe.RWQE) bool {
	head := r.head()
	if r.next(head) == r.tail || len(e.SGL) > r.maxSGE {
		return false
	}
	b := r.at(head)
	native.PutUint64(b, e.WRID)
	b[rvtRWQENum] = uint8(len(e.SGL))
	for i, s := range e.SGL {
		putSGE(b[rvtRWQESGE+i*sgeBytes:], s)
	}
	storeWord(r.b, rvtHeadOff, r.next(head))
	return true
}

func (r *rvtRQ) moveTo(dst recvRing) { moveRing(r, dst) }
