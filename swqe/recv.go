package swqe

import (
	"fmt"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

// RWQE (kernel: rvt_rwqe) is a receive taken from a queue. The holder owns SGL and
// reuses its storage.
type RWQE struct {
	WRID uint64
	SGL  []mr.SGE
}

// Len returns the bytes that the receive has room for.
func (e *RWQE) Len() uint64 { return Sum(e.SGL) }

// RecvQueue is where a QP takes receives from: a ring of this package, or one in
// memory shared with a program, whose contents may be anything.
type RecvQueue interface {
	// Take removes the oldest receive into e, reusing its storage; false if the queue
	// is empty. An entry with more SGEs than the queue allows comes out with Bad true.
	Take(e *RWQE) (ok, bad bool)
	// Len returns how many receives wait.
	Len() int
	// Cap returns how many can wait.
	Cap() int
}

// RQ (kernel: rvt_rq) is a receive queue in this process's memory: max_wr+1 slots,
// empty when head equals tail.
type RQ struct {
	head, tail int
	maxWR      int
	maxSGE     int
	slots      []RWQE // allocated on first use
}

var _ RecvQueue = (*RQ)(nil)

// NewRQ returns a queue for maxWR receives of at most maxSGE entries each.
func NewRQ(maxWR, maxSGE int) *RQ { return &RQ{maxWR: maxWR, maxSGE: maxSGE} }

// Cap implements RecvQueue.
func (q *RQ) Cap() int { return q.maxWR }

// MaxSGE returns the most scatter entries of one receive.
func (q *RQ) MaxSGE() int { return q.maxSGE }

// Len implements RecvQueue. It is computed from the indices each time; the kernel's
// cached count was the source of two bugs.
func (q *RQ) Len() int {
	n := q.head - q.tail
	if n < 0 {
		n += q.maxWR + 1
	}
	return n
}

func (q *RQ) next(i int) int {
	if i++; i > q.maxWR {
		return 0
	}
	return i
}

// Post appends a receive, copying it. EINVAL for too many SGEs, ENOMEM if full. object
// is named in errors only.
func (q *RQ) Post(verb string, object fmt.Stringer, wr *RecvWR) error {
	if len(wr.SGL) > q.maxSGE {
		return ib.NewVerbError(ib.EINVAL, verb, object.String(), "wr "+strconv.FormatUint(wr.WRID, 10)+" has "+strconv.Itoa(len(wr.SGL))+" scatter entries, the queue allows "+strconv.Itoa(q.maxSGE))
	}
	next := q.next(q.head)
	if next == q.tail {
		return ib.NewVerbError(ib.ENOMEM, verb, object.String(), "the receive queue is full: "+strconv.Itoa(q.maxWR)+" receives are posted")
	}
	if q.slots == nil {
		q.slots = make([]RWQE, q.maxWR+1)
		sges := make([]mr.SGE, q.maxWR+1) // one for each: few have more, and these lie together
		for i := range q.slots {
			q.slots[i].SGL = sges[i : i : i+1]
		}
	}
	s := &q.slots[q.head]
	s.WRID = wr.WRID
	s.SGL = append(s.SGL[:0], wr.SGL...)
	q.head = next
	return nil
}

// Take implements RecvQueue.
func (q *RQ) Take(e *RWQE) (ok, bad bool) {
	if q.head == q.tail {
		return false, false
	}
	s := &q.slots[q.tail]
	e.WRID = s.WRID
	e.SGL = append(e.SGL[:0], s.SGL...)
	q.tail = q.next(q.tail)
	return true, false
}

// Drop removes every receive without a trace, as a transition to RESET does.
func (q *RQ) Drop() { q.tail = q.head }

// Resize moves the receives to a queue of maxWR; EINVAL if more are posted.
func (q *RQ) Resize(maxWR int) error {
	n := q.Len()
	if n > maxWR {
		return ib.NewVerbError(ib.EINVAL, "modify_srq", "", strconv.Itoa(n)+" receives are posted, more than the new size "+strconv.Itoa(maxWR))
	}
	slots := make([]RWQE, maxWR+1)
	for i := 0; i < n; i++ {
		slots[i] = q.slots[q.tail]
		q.tail = q.next(q.tail)
	}
	q.slots, q.maxWR, q.tail, q.head = slots, maxWR, 0, n
	return nil
}

// SRQ (kernel: rvt_srq) is a receive queue that several QPs share.
type SRQ struct {
	Handle  uint32
	Context any
	PD      mr.PD
	RQ      RecvQueue
	Limit   int // srq_limit: raise SRQ_LIMIT_REACHED when fewer wait; 0 is disarmed
	users   int
	retired bool
}

// Hold counts a QP that uses the queue.
func (s *SRQ) Hold() { s.users++ }

// Release undoes one Hold.
func (s *SRQ) Release() { s.users-- }

// Retire marks the queue as destroyed; false if it was already.
func (s *SRQ) Retire() bool {
	was := s.retired
	s.retired = true
	return !was
}

// Busy reports whether a QP uses the queue.
func (s *SRQ) Busy() bool { return s.users > 0 }

func (s *SRQ) String() string { return "srq " + strconv.Itoa(int(s.Handle)) }

// CheckLimit (kernel: part of rvt_get_rwqe) disarms the limit and returns true if
// fewer receives wait than it says: one event for each time it is set.
func (s *SRQ) CheckLimit() bool {
	if s.Limit > 0 && s.RQ.Len() < s.Limit {
		s.Limit = 0
		return true
	}
	return false
}
