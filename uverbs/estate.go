package uverbs

import (
	"cmp"
	"maps"
	"os"
	"slices"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
)

// Heir is a [RingMemory] whose host prepares for its own death: somebody else learns
// where the rings of a context's queues are, and when the host is gone tells the program
// by [Estate.Settle]. The device's owner calls it.
type Heir interface {
	// Bequeath says that the object of this handle was made, or has got another ring.
	Bequeath(handle uint32, b Bequest)
	// Withdraw says that the object is gone.
	Withdraw(handle uint32)
	// BequeathEvents says that w is the write end of a file of asynchronous events. It
	// is valid during the call.
	BequeathEvents(w *os.File)
}

// Bequest is what there is to know about a completion queue, or a queue pair.
type Bequest struct {
	CQ Span `json:"cq,omitzero"` // of a completion queue

	QPN    uint32 `json:"qpn,omitempty"`     // 0: it is a completion queue
	SendCQ uint32 `json:"send_cq,omitempty"` // handles
	RecvCQ uint32 `json:"recv_cq,omitempty"`
	SQ     Span   `json:"sq,omitzero"` // a journal if sends come inside the write()
	RQ     Span   `json:"rq,omitzero"` // empty with a shared receive queue
}

// Span is a ring in the memory that a context shares with its program.
type Span struct {
	Offset uint64 `json:"offset"`
	Size   int    `json:"size"`
	Slots  int    `json:"slots"`
	Stride int    `json:"stride"` // bytes from one entry to the next
}

// Estate is what a context leaves behind.
type Estate struct {
	ABI     string             // of the device
	Objects map[uint32]Bequest // by handle
}

// Settle tells the program that its device is gone, in the place where it looks: every
// work request that is in a ring of a queue pair completes with WR_FLUSH_ERR, sends
// before receives, in order. A queue that gets no such completion gets one with FATAL_ERR
// and the number of a queue pair that reports to it, so that whoever polls it learns of
// it. A full queue takes what fits, its last completion if need be. at returns the memory
// of a ring, nil if it cannot be had. Nobody else may write to the rings, except for the
// program.
func (e *Estate) Settle(at func(offset uint64, size int) []byte) {
	queues := map[uint32]*lastCQ{}
	handles := slices.Sorted(maps.Keys(e.Objects))
	for _, h := range handles {
		if b := e.Objects[h]; b.QPN == 0 {
			if mem := at(b.CQ.Offset, b.CQ.Size); mem != nil {
				queues[h] = e.openCQ(mem, &b.CQ)
			}
		}
	}
	for _, h := range handles {
		b := e.Objects[h]
		if b.QPN == 0 {
			continue
		}
		for _, half := range []struct {
			ring *Span
			cq   *lastCQ
		}{{&b.SQ, queues[b.SendCQ]}, {&b.RQ, queues[b.RecvCQ]}} {
			if half.cq == nil {
				continue
			}
			half.cq.qpn = cmp.Or(half.cq.qpn, b.QPN)
			if half.ring.Size == 0 {
				continue
			}
			if mem := at(half.ring.Offset, half.ring.Size); mem != nil {
				e.flush(mem, half.ring, b.QPN, half.cq)
			}
		}
	}
	for _, q := range queues {
		q.finish()
	}
}

// flush completes what is outstanding in a send or receive ring. Entries of both, in both
// ABIs, begin with their wr_id.
func (e *Estate) flush(mem []byte, s *Span, qpn uint32, to *lastCQ) {
	first, end, base := loadWord(mem, rxeConsOff), loadWord(mem, rxeProdOff), rxeHeader
	if e.ABI == ABIRVT {
		first, end, base = loadWord(mem, rvtTailOff), loadWord(mem, rvtHeadOff), rvtEntries
	}
	slots := uint32(s.Slots)
	for i, last := first%slots, end%slots; i != last; i = (i + 1) % slots {
		wc := cq.WC{WRID: native.Uint64(mem[base+int(i)*s.Stride:]), Status: ib.WCWRFlushErr, QPN: ib.QPN(qpn)}
		if !to.enter(&wc) {
			return
		}
	}
}

// lastCQ enters the last completions into a queue.
type lastCQ struct {
	ring    cq.Ring
	head    uint32 // where the next completion goes
	slots   uint32
	entered bool
	qpn     uint32 // of a queue pair that reports here
}

func (e *Estate) openCQ(mem []byte, s *Span) *lastCQ {
	q := &lastCQ{slots: uint32(s.Slots)}
	if e.ABI == ABIRVT {
		r := &rvtCQ{b: mem, slots: q.slots}
		q.ring, q.head = r, loadWord(mem, rvtHeadOff)%q.slots
	} else {
		r := &rxeCQ{rxeQueue{b: mem, mask: q.slots - 1, elem: rxeElem(wcBytes)}}
		q.ring, q.head = r, r.q.producer()
	}
	return q
}

// enter adds a completion; false if there is no room.
func (q *lastCQ) enter(wc *cq.WC) bool {
	next := (q.head + 1) % q.slots
	if next == q.ring.LoadTail()%q.slots {
		return false
	}
	q.ring.Put(q.head, wc)
	q.head, q.entered = next, true
	q.ring.StoreHead(q.head)
	return true
}

// finish makes sure that there is something to be found.
func (q *lastCQ) finish() {
	wc := cq.WC{Status: ib.WCFatalErr, QPN: ib.QPN(q.qpn)}
	if !q.entered && !q.enter(&wc) {
		q.ring.Put((q.head+q.slots-1)%q.slots, &wc)
	}
}

// FatalEvent is the record of DEVICE_FATAL in a file of asynchronous events.
func FatalEvent() []byte { return encode(&asyncEventDesc{EventType: uint32(ib.EventDeviceFatal)}) }

// bequeath tells the host's heir, if it has one, of a completion queue's ring.
func (o *cqObj) bequeath() {
	h, ok := o.ctx.mem.(Heir)
	if !ok || o.ring.size == 0 {
		return
	}
	s := Span{Offset: o.ring.offset, Size: o.ring.size, Slots: o.cq.CQE() + 1, Stride: wcBytes}
	if o.ctx.dev.abi.hasSQ() {
		s.Stride = 1 << rxeElem(wcBytes)
	}
	h.Bequeath(o.handle, Bequest{CQ: s})
}

// bequeath tells the host's heir, if it has one, of a queue pair's rings.
func (o *qpObj) bequeath(sendCQ, recvCQ uint32) {
	h, ok := o.ctx.mem.(Heir)
	if !ok {
		return
	}
	b := Bequest{QPN: uint32(o.q.QPN), SendCQ: sendCQ, RecvCQ: recvCQ}
	if o.sq != nil {
		b.SQ = Span{Offset: o.sqRing.offset, Size: o.sqRing.size, Slots: int(o.sq.q.mask) + 1, Stride: 1 << o.sq.q.elem}
	}
	if o.journal != nil {
		b.SQ = o.journal.span(o.sqRing)
	}
	switch r := o.rq.(type) {
	case *rxeRQ:
		b.RQ = Span{Offset: o.rqRing.offset, Size: o.rqRing.size, Slots: int(r.q.mask) + 1, Stride: 1 << r.q.elem}
	case *rvtRQ:
		b.RQ = Span{Offset: o.rqRing.offset, Size: o.rqRing.size, Slots: int(r.slots), Stride: r.stride()}
	}
	h.Bequeath(o.handle, b)
}

// withdraw tells the host's heir that an object is gone.
func (c *Context) withdraw(handle uint32) {
	if h, ok := c.mem.(Heir); ok {
		h.Withdraw(handle)
	}
}
