package cq

import "sync/atomic"

// native is the ring of a queue that a Go program polls: laid out as rdmavt lays it
// out (cqe+1 slots, head and tail indices). The producer fills slots and releases the
// head; the consumer acquires the head, copies, and releases the tail. Each side owns
// its slots between those two points, so no lock is needed.
type native struct {
	head atomic.Uint32
	_    [60]byte // head and tail belong to different CPUs
	tail atomic.Uint32
	_    [60]byte
	wc   []WC
}

var (
	_ Ring     = (*native)(nil)
	_ Consumer = (*native)(nil)
)

// NewRing returns a ring in this process's memory for cqe completions.
func NewRing(cqe uint32) Ring { return &native{wc: make([]WC, cqe+1)} }

func (r *native) Slots() uint32            { return uint32(len(r.wc)) }
func (r *native) Put(slot uint32, wc *WC)  { r.wc[slot] = *wc }
func (r *native) Peek(slot uint32, wc *WC) { *wc = r.wc[slot] }
func (r *native) StoreHead(slot uint32)    { r.head.Store(slot) }
func (r *native) LoadTail() uint32         { return r.tail.Load() }

// Take implements Consumer.
func (r *native) Take(dst []WC) int {
	head, tail := r.head.Load(), r.tail.Load()
	n := 0
	for n < len(dst) && tail != head {
		dst[n] = r.wc[tail]
		n++
		if tail++; int(tail) == len(r.wc) {
			tail = 0
		}
	}
	if n > 0 {
		r.tail.Store(tail)
	}
	return n
}
