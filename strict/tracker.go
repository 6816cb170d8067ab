package strict

import (
	"fmt"
	"hash/crc32"
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// Checks switches the parts of strict mode on, each by itself.
type Checks struct {
	Poison      bool // undefined fields of failed completions hold a pattern
	Slots       bool // a send queue slot is free when a completion at or behind it was polled, not when the peer acknowledged
	Freedom     bool // order across queue pairs, batches of polls and QPNs vary with the seed
	SendQueue   bool // STRICT-SQ-*
	Buffers     bool // STRICT-BUF-*
	Receives    bool // STRICT-RECV-*
	Events      bool // STRICT-EV-*
	CQSize      bool // STRICT-CQ-*
	Connections bool // STRICT-CONN-*
	Memory      bool // STRICT-MEM-*, and rkeys that differ from lkeys
	Lifetime    bool // STRICT-QP-*
}

// Site is where in the program a call was made: return addresses, as runtime.Callers
// gives them. The tracker does not look into it.
type Site [16]uintptr

// Place is a site and what was done there.
type Place struct {
	What string
	Site Site
}

// Report is one case of misuse.
type Report struct {
	Code   *Code
	Object string // "qp 0x11"
	// Subject is the object: a *qp.QP, *cq.CQ or *swqe.SRQ, or nil if it is none of these.
	Subject any
	Text    string  // what happened, with the state of the objects
	Places  []Place // the calls involved
}

// String is the report in one line, without what the sites are.
func (r Report) String() string {
	s := r.Code.ID + ": " + r.Object + ": " + r.Code.Title
	if r.Text != "" {
		s += ": " + r.Text
	}
	return s
}

// Tracker follows the work of one device. It is not safe for concurrent use: the host
// locks around it.
type Tracker struct {
	checks Checks
	keys   *mr.Table
	report func(Report)

	qps  map[*qp.QP]*qpState
	live []*qpState // the same, in the order of creation
	srqs map[*swqe.SRQ]*recvQueue
	cqs  map[*cq.CQ]*cqState
	busy []busyMemory // of posted receives, by address
	said map[said]bool
	past []Mark // of queues that are gone, the latest first
}

type said struct {
	code   *Code
	object string
}

// NewTracker makes a tracker. keys resolves the memory of sends; report takes what is
// found, at most one of a kind for each object.
func NewTracker(checks Checks, keys *mr.Table, report func(Report)) *Tracker {
	return &Tracker{checks: checks, keys: keys, report: report, qps: map[*qp.QP]*qpState{}, srqs: map[*swqe.SRQ]*recvQueue{}, cqs: map[*cq.CQ]*cqState{}, said: map[said]bool{}}
}

// name is an object that is known by its name only.
type name string

func (n name) String() string { return string(n) }

// say reports something once for each object.
func (t *Tracker) say(code *Code, object fmt.Stringer, text string, places ...Place) {
	k := said{code, object.String()}
	if t.said[k] {
		return
	}
	t.said[k] = true
	r := Report{Code: code, Object: k.object, Text: text, Places: places}
	if _, isName := object.(name); !isName {
		r.Subject = object
	}
	t.report(r)
}

// qpState is what the tracker knows about a queue pair.
type qpState struct {
	q     *qp.QP
	dead  bool
	sends []send // posted and not free, oldest first
	most  int    // of them at a time
	base  uint64 // number of sends[0], counted from the first post
	done  uint64 // sends before this one are carried out
	recv  recvQueue
}

// send is a work request from its post to the poll that frees its slot.
type send struct {
	wrID     uint64
	opcode   ib.WROpcode
	signaled bool
	finished bool
	site     Site
	lkeys    []ib.LKey
	segs     []mr.Seg // memory that must not change, nil if it may
	sum      uint32
	excused  bool // the device itself wrote to the memory
}

func (s *send) place() Place {
	return Place{fmt.Sprintf("post_send of wr %d (%v)", s.wrID, s.opcode), s.site}
}

// recvQueue holds the receives of a queue pair or of a shared queue.
type recvQueue struct {
	posted []recv
	ring   Peeker // nil: posts are told
	seen   int    // of those that wait in the ring, how many are in posted
	q      *qp.QP
	s      *swqe.SRQ // whose it is, with a ring
}

type recv struct {
	wrID  uint64
	site  Site
	lkeys []ib.LKey
	cq    *cqState // where it will complete, nil for a shared queue
}

func (r *recv) place() Place { return Place{fmt.Sprintf("post_recv of wr %d", r.wrID), r.site} }

// cqState mirrors a completion queue: its unpolled completions, in order.
type cqState struct {
	c       *cq.CQ
	items   []item
	most    int // completions in it at a time
	expect  int // posted work that will put a completion here
	arm     Place
	missed  int // completions that waited when it was armed and still do: none of them sends an event
	channel bool
	armed   bool   // at any time
	tail    uint32 // consumer index of the ring when a Guard looked last
	late    int    // how often in a row it was found overdue
	polls   uint64 // completions taken out
	lately  uint64 // polls when a Guard looked last
}

type item struct {
	st   *qpState
	recv bool
	seq  uint64 // send: its number
}

func (t *Tracker) qp(q *qp.QP) *qpState {
	st := t.qps[q]
	if st == nil {
		st = &qpState{q: q}
		t.qps[q] = st
		t.live = append(t.live, st)
	}
	return st
}

func (t *Tracker) cq(c *cq.CQ) *cqState {
	cs := t.cqs[c]
	if cs == nil {
		cs = &cqState{c: c}
		t.cqs[c] = cs
	}
	return cs
}

// size is how many sends may be posted.
func (st *qpState) size() int { return st.q.RingSize() - 1 }

func (st *qpState) next() uint64 { return st.base + uint64(len(st.sends)) }

// Room returns how many sends may be posted, and why it is not more.
func (t *Tracker) Room(q *qp.QP, site Site) (n int, why string) {
	if !t.checks.Slots {
		return q.RingSize() - 1, ""
	}
	st := t.qp(q)
	if n = st.size() - len(st.sends); n > 0 {
		return n, ""
	}
	return 0, t.full(st, site)
}

// count writes a number and what there is so much of.
func count(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + more
}

// full says why the send queue is full, and reports it if the program can do something
// about it.
func (t *Tracker) full(st *qpState, site Site) string {
	signaled, waiting, finished := 0, 0, 0
	var last *send
	for i := range st.sends {
		s := &st.sends[i]
		if s.signaled {
			signaled++
			last = s
			if s.finished {
				waiting++
			}
		}
		if s.finished {
			finished++
		}
	}
	text := fmt.Sprintf("%d of %d slots hold work whose completion was not polled, nor a later one; %d of them are carried out, %d signaled", len(st.sends), st.size(), finished, signaled)
	if last != nil {
		text += fmt.Sprintf(" (the last one is wr %d)", last.wrID)
	}
	if waiting > 0 {
		text += "; " + count(waiting, "completion waits", "completions wait") + " in the queue to be polled"
		if t.checks.SendQueue {
			t.say(&SQNotPolled, st.q, text, Place{"post_send", site})
		}
	}
	return "the send queue is full: " + text
}

// PostSend is told of a send that was accepted.
func (t *Tracker) PostSend(q *qp.QP, wr *swqe.SendWR, site Site) {
	st := t.qp(q)
	s := send{wrID: wr.WRID, opcode: wr.Opcode, site: site, signaled: q.SFlags&qp.SSignalReqWR == 0 || wr.Flags&ib.SendSignaled != 0}
	inline := wr.Flags&ib.SendInline != 0
	if !inline {
		for _, e := range wr.SGL {
			s.lkeys = append(s.lkeys, e.LKey)
		}
	}
	if op := swqe.Params(wr.Opcode); t.checks.Buffers && !inline && op != nil && !op.Has(swqe.OpRdAtomic) && !op.Has(swqe.OpLocal) {
		segs, c := t.keys.Resolve(nil, q.PD, wr.SGL, 0, swqe.Sum(wr.SGL), 0)
		if sum, ok := checksum(segs); c == ib.CauseNone && ok {
			s.segs, s.sum = segs, sum
		}
	}
	if s.signaled {
		t.expect(t.cq(q.SendCQ), s.place())
	}
	st.sends = append(st.sends, s)
	st.most = max(st.most, len(st.sends))
	if n := len(st.sends); n >= st.size() && t.checks.SendQueue && !slices.ContainsFunc(st.sends, func(s send) bool { return s.signaled }) {
		t.say(&SQNeverFrees, q, fmt.Sprintf("%d unsignaled work requests fill the send queue of %d, and none is signaled: no completion will ever free a slot", n, st.size()), s.place())
	}
	// Without Slots the device lets a program go on; do not remember for ever.
	if !t.checks.Slots && len(st.sends) > 2*st.size() && st.sends[0].finished {
		st.free(st.base)
	}
}

// checksum reads memory. It fails if that is not there.
func checksum(segs []mr.Seg) (uint32, bool) {
	sum := uint32(0)
	for _, s := range segs {
		buf := make([]byte, s.Len)
		if _, err := s.Mem.ReadV([]mr.Op{{Addr: s.Addr, Buf: buf}}); err != nil {
			return 0, false
		}
		sum = crc32.Update(sum, crc32.IEEETable, buf)
	}
	return sum, true
}

// expect counts work that will complete into a queue, and compares with its size.
func (t *Tracker) expect(cs *cqState, p Place) {
	cs.expect++
	if n := cs.expect + len(cs.items); n > cs.c.CQE() && t.checks.CQSize {
		t.say(&CQTooSmall, cs.c, fmt.Sprintf("its size is %d; %d completions are unpolled and %d more can come from what is posted", cs.c.CQE(), len(cs.items), cs.expect), p)
	}
}

// free gives back the slots up to and including number seq.
func (st *qpState) free(seq uint64) {
	if seq < st.base {
		return
	}
	n := min(int(seq-st.base)+1, len(st.sends))
	st.sends = slices.Delete(st.sends, 0, n)
	st.base += uint64(n)
	st.done = max(st.done, st.base)
}

// Posted is where the send of q was posted that is next to be carried out.
func (t *Tracker) Posted(q *qp.QP) Site {
	if st := t.qps[q]; st != nil && st.done >= st.base && st.done < st.next() {
		return st.sends[st.done-st.base].site
	}
	return Site{}
}

// SendDone implements qp.Observer.
func (t *Tracker) SendDone(q *qp.QP, w *swqe.SWQE, status ib.WCStatus, entered bool) {
	st := t.qp(q)
	if st.done < st.base || st.done >= st.next() {
		return // posted before the tracker was there
	}
	s := &st.sends[st.done-st.base]
	s.finished = true
	cs := t.cq(q.SendCQ)
	if s.signaled {
		cs.expect--
	}
	if entered {
		cs.enter(item{st: st, seq: st.done})
	}
	st.done++
	if s.segs != nil && !s.excused && status == ib.WCSuccess {
		if sum, ok := checksum(s.segs); ok && sum != s.sum {
			t.say(&BufferChanged, q, fmt.Sprintf("the buffer of wr %d (%v of %d bytes) is not what it was when it was posted", s.wrID, s.opcode, w.Length), s.place())
		}
	}
	s.segs = nil
}

// Polled is told that the n oldest completions of a queue were polled.
func (t *Tracker) Polled(c *cq.CQ, n int) {
	cs := t.cq(c)
	n = min(n, len(cs.items))
	cs.missed = max(cs.missed-n, 0)
	cs.polls += uint64(n)
	for _, it := range cs.items[:n] {
		if it.st.dead {
			if t.checks.Lifetime {
				t.say(&DeadQP, it.st.q, "its completions came out of "+c.String()+" after it was destroyed")
			}
			continue
		}
		if !it.recv {
			it.st.free(it.seq)
		}
	}
	cs.items = slices.Delete(cs.items, 0, n)
}

// Reset is told that a queue pair went to RESET: what was posted is gone. keepRecvs says
// that its receives are not.
func (t *Tracker) Reset(q *qp.QP, keepRecvs bool) {
	st := t.qp(q)
	for i := range st.sends {
		if s := &st.sends[i]; s.signaled && !s.finished {
			t.cq(q.SendCQ).expect--
		}
	}
	st.base += uint64(len(st.sends))
	st.done, st.sends = st.base, nil
	if !keepRecvs {
		st.recv.seen = 0
		t.dropRecvs(&st.recv, len(st.recv.posted))
	}
}

// DestroyQP is told that a queue pair is gone.
func (t *Tracker) DestroyQP(q *qp.QP) {
	st := t.qp(q)
	t.retire(st.mark())
	t.Reset(q, false)
	st.dead = true
	delete(t.qps, q)
	t.live = slices.DeleteFunc(t.live, func(o *qpState) bool { return o == st })
}
