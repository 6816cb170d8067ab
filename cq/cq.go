// Package cq owns completion queues: the ring that completions land in, its arm and
// notify rules, and what happens when it is full.
//
// A queue has two sides. The device is the producer: it stages completions with
// [CQ.Enter] while it works through a burst of packets, and shows them to the
// consumer with [CQ.Publish] once the memory they report has been written. The
// program is the consumer: [CQ.Poll] needs no lock of the device's, only that one
// consumer at a time polls. Where the entries live is behind the [Ring] interface, so
// the same queue can fill a ring that a C process maps.
package cq

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// WC (struct ibv_wc) is a work completion. If Status is not SUCCESS, only WRID,
// Status, QPN and VendorErr mean anything (ibv_poll_cq(3)).
type WC struct {
	WRID      uint64
	Status    ib.WCStatus
	Opcode    ib.WCOpcode
	VendorErr ib.Cause // vendor_err
	// ByteLen is the bytes transferred; a UD receive counts the 40 bytes of GRH too.
	ByteLen uint32
	// Imm is the immediate value if WITH_IMM is set. The C API shows it in network
	// byte order; here it is the number whose big-endian bytes were on the wire.
	Imm uint32
	// InvRKey is the invalidated rkey if WITH_INV is set; never together with Imm.
	InvRKey      ib.RKey
	QPN          ib.QPN // qp_num
	SrcQP        ib.QPN
	Flags        ib.WCFlags
	PKeyIndex    uint16
	SLID         uint16
	SL           uint8 // of a datagram, ib.WCSLIPv4 or ib.WCSLIPv6 where the profile says so
	DLIDPathBits uint8
	PortNum      uint8
}

// Ring is where completion entries live. Index runs over cqe+1 slots; head is where
// the producer writes next, tail where the consumer reads next, empty when equal.
type Ring interface {
	// Slots returns the number of slots, capacity plus one.
	Slots() uint32
	// Put writes an entry into a slot that the consumer cannot see yet.
	Put(slot uint32, wc *WC)
	// StoreHead publishes the producer index (release).
	StoreHead(slot uint32)
	// LoadTail reads the consumer index (acquire). It may be any value if the ring is
	// shared with a program; the queue clamps it.
	LoadTail() uint32
}

// Consumer is the other side of a Ring, for rings that this process polls itself.
type Consumer interface {
	// Take copies entries from tail on, at most len(dst), and advances the tail.
	Take(dst []WC) int
}

// Notify (rvt_cq notify) is what a completion queue is armed for.
type Notify uint8

const (
	NotifyNone      Notify = iota // not armed
	NotifySolicited               // IB_CQ_SOLICITED: solicited receives and errors
	NotifyNext                    // IB_CQ_NEXT_COMP: any completion
)

// CQ (kernel: rvt_cq) is a completion queue. The producer methods belong to the owner
// of the device.
type CQ struct {
	// Handle is the owner's number for the queue, for messages and events.
	Handle uint32
	// Context is whatever the creator wants back with an event (cq_context).
	Context any
	// Poison fills what is undefined in failed completions with a pattern, so that
	// programs which look at it are found out. Set it before the first completion.
	Poison bool
	// Vary, if not nil, decides where the API leaves the order open. For neighbours of
	// different QPs, of which the first is the n-th from the end of the queue (the last
	// has number 1), it says whether they change places. Set it before the first
	// completion.
	Vary func(n int) bool

	ring   Ring
	cqe    uint32
	head   uint32 // next slot to fill, not yet shown to the consumer
	staged []entry

	notify    Notify // notify
	triggered uint64 // triggered: notifications raised so far
	full      bool   // cq_full: an entry was lost; see Enter
	sticky    bool
	dirty     bool
	held      bool // see HoldBack
	lose      bool // see LoseNext
	users     int
	retired   bool
}

type entry struct {
	wc        WC
	solicited bool
}

// New returns a queue that holds exactly cqe completions in ring, or in a ring of its
// own if ring is nil. sticky says whether a queue that overflowed refuses all later
// completions (rdmavt, IBTA) or only those that do not fit (rxe).
func New(cqe uint32, ring Ring, sticky bool) *CQ {
	if ring == nil {
		ring = NewRing(cqe)
	}
	return &CQ{ring: ring, cqe: cqe, sticky: sticky}
}

// CQE returns the capacity (ibcq.cqe).
func (c *CQ) CQE() int { return int(c.cqe) }

// Ring returns the current ring.
func (c *CQ) Ring() Ring { return c.ring }

// Overflowed (cq_full) reports whether a completion was ever lost.
func (c *CQ) Overflowed() bool { return c.full }

// Notify returns what the queue is armed for.
func (c *CQ) Notify() Notify { return c.notify }

// Triggered returns how many notifications the queue has raised.
func (c *CQ) Triggered() uint64 { return c.triggered }

// Hold and Release count the QPs and SRQs that use the queue; Busy tells if any does.
func (c *CQ) Hold() { c.users++ }

// Release undoes one Hold.
func (c *CQ) Release() { c.users-- }

// Retire marks the queue as destroyed; false if it was already.
func (c *CQ) Retire() bool {
	was := c.retired
	c.retired = true
	return !was
}

// Busy reports whether a QP uses the queue, so that it cannot be destroyed.
func (c *CQ) Busy() bool { return c.users > 0 }

// String names the queue in messages.
func (c *CQ) String() string { return "cq " + strconv.Itoa(int(c.Handle)) }

func (c *CQ) advance(i uint32) uint32 {
	if i >= c.cqe {
		return 0
	}
	return i + 1
}

// tail reads the consumer index and clamps a hostile one, as rdmavt does.
func (c *CQ) tail() uint32 { return min(c.ring.LoadTail(), c.cqe) }

// Len returns the completions that are in the queue, staged ones included.
func (c *CQ) Len() int {
	n := int(c.head) - int(c.tail())
	if n < 0 {
		n += int(c.cqe) + 1
	}
	return n
}

// Enter (kernel: rvt_cq_enter) stages a completion. solicited says whether it counts
// for a queue armed for solicited completions; every error does. It returns false if
// the queue is full, or was before and stays so: the entry is lost, and the caller
// raises CQ_ERR (each time) and takes the QP to ERR as its profile says.
func (c *CQ) Enter(wc *WC, solicited bool) bool {
	next := c.advance(c.head)
	// What is staged cannot have been taken, whatever a shared tail says.
	if c.lose || next == c.tail() || len(c.staged) >= int(c.cqe) || c.full && c.sticky {
		c.full, c.lose = true, false
		return false
	}
	c.staged = append(c.staged, entry{wc: *wc, solicited: solicited})
	c.head = next
	return true
}

// LoseNext makes the next completion find the queue full, as if the program had not
// polled for too long. It is for fault injection.
func (c *CQ) LoseNext() { c.lose = true }

// HoldBack keeps staged completions from the consumer until it is called with false;
// the owner publishes then. It is for fault injection: a device that is slow to report.
func (c *CQ) HoldBack(on bool) { c.held = on }

// HeldBack reports whether completions are kept back.
func (c *CQ) HeldBack() bool { return c.held }

// Dirty reports whether staged completions wait for Publish.
func (c *CQ) Dirty() bool { return len(c.staged) > 0 }

// MarkDirty returns true the first time it is called since the last Publish, so that
// the owner can keep a list of queues to publish without duplicates.
func (c *CQ) MarkDirty() bool {
	if c.dirty {
		return false
	}
	c.dirty = true
	return true
}

// Amend lets f change the staged completions of a QP before they are shown, when the
// memory that they report could not be written after all.
func (c *CQ) Amend(qpn ib.QPN, f func(*WC)) {
	for i := range c.staged {
		if c.staged[i].wc.QPN == qpn {
			f(&c.staged[i].wc)
		}
	}
}

// Publish shows the staged completions to the consumer and reports whether the queue
// was armed for one of them: the caller then delivers one event. The queue is
// disarmed by that (one event for each arm).
func (c *CQ) Publish() (fire bool) {
	c.dirty = false
	if len(c.staged) == 0 {
		return false
	}
	slot := c.slotBack(len(c.staged))
	if c.Vary != nil {
		c.shuffle()
	}
	for i := range c.staged {
		e := &c.staged[i]
		if c.Poison && e.wc.Status != ib.WCSuccess {
			e.wc.poison()
		}
		c.ring.Put(slot, &e.wc)
		slot = c.advance(slot)
		if c.notify == NotifyNext || c.notify == NotifySolicited && (e.solicited || e.wc.Status != ib.WCSuccess) {
			c.notify = NotifyNone
			c.triggered++
			fire = true
		}
	}
	c.staged = c.staged[:0]
	c.ring.StoreHead(c.head)
	return fire
}

// shuffle uses what order is free: completions of one QP keep theirs.
func (c *CQ) shuffle() {
	for i := 1; i < len(c.staged); i++ {
		a, b := &c.staged[i-1], &c.staged[i]
		if a.wc.QPN != b.wc.QPN && c.Vary(len(c.staged)-i+1) {
			*a, *b = *b, *a
		}
	}
}

// poison fills the fields that mean nothing in a failed completion. The opcode is none
// that exists, and says neither send nor receive reliably.
func (wc *WC) poison() {
	wc.Opcode, wc.Flags = PoisonOpcode, PoisonFlags
	wc.ByteLen, wc.Imm, wc.SrcQP = PoisonWord, PoisonWord, PoisonWord&ib.QPNMask
	wc.InvRKey = PoisonWord
	wc.PKeyIndex, wc.SLID = PoisonWord&0xffff, PoisonWord&0xffff
	wc.SL, wc.DLIDPathBits, wc.PortNum = PoisonWord&0xff, PoisonWord&0xff, PoisonWord&0xff
}

// What undefined fields hold if a queue is set to poison them.
const (
	PoisonWord   = 0xbadc0de5
	PoisonOpcode = ib.WCOpcode(0x6d)
	PoisonFlags  = ib.WCFlags(0xe5)
)

// slotBack returns the slot n before head.
func (c *CQ) slotBack(n int) uint32 {
	i := int(c.head) - n
	if i < 0 {
		i += int(c.cqe) + 1
	}
	return uint32(i)
}

// ReqNotify (kernel: rvt_req_notify_cq) arms the queue for one event. A stronger
// request is never weakened: NEXT_COMP stays until it fires. Completions that are
// there already raise nothing; missed tells that there are some (what
// IB_CQ_REPORT_MISSED_EVENTS reports).
func (c *CQ) ReqNotify(solicitedOnly bool) (missed bool) {
	if !solicitedOnly {
		c.notify = NotifyNext
	} else if c.notify == NotifyNone {
		c.notify = NotifySolicited
	}
	return c.Len() > 0
}

// Poll (ibv_poll_cq) removes up to len(dst) completions in order and returns their
// number. It must not run concurrently with another Poll of the same queue or with
// Resize; the producer may work at the same time.
//
// A ring that lives elsewhere (in a C program) is polled there; Poll returns 0.
func (c *CQ) Poll(dst []WC) int {
	if r, ok := c.ring.(Consumer); ok {
		return r.Take(dst)
	}
	return 0
}

// Resize (kernel: rvt_resize_cq) moves the completions to a ring of cqe entries, or
// to ring if that is not nil. EINVAL if more completions wait than fit. The arm state
// and an overflow stay as they were. No Poll may run meanwhile.
func (c *CQ) Resize(cqe uint32, ring Ring) error {
	tail, shown := c.tail(), c.slotBack(len(c.staged)) // once: the consumer may be hostile
	waiting := int(shown) - int(tail)
	if waiting < 0 {
		waiting += int(c.cqe) + 1
	}
	if n := waiting + len(c.staged); n > int(cqe) {
		return ib.NewVerbError(ib.EINVAL, "resize_cq", c.String(), strconv.Itoa(n)+" completions wait, more than the "+strconv.Itoa(int(cqe))+" asked for")
	}
	if ring == nil {
		ring = NewRing(cqe)
	}
	old, ok := c.ring.(interface{ Peek(slot uint32, wc *WC) })
	if !ok {
		return ib.NewVerbError(ib.EOPNOTSUPP, "resize_cq", c.String(), "its ring cannot be read back")
	}
	var wc WC
	n := uint32(0)
	for i := tail; i != shown; i = c.advance(i) {
		old.Peek(i, &wc)
		ring.Put(n, &wc)
		n++
	}
	c.ring, c.cqe = ring, cqe
	c.head = n + uint32(len(c.staged))
	ring.StoreHead(n)
	return nil
}
