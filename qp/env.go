package qp

import (
	"slices"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Room is where a burst of packets keeps what has to wait for its end. It is empty between
// bursts, so devices of which only one works at a time may share it: then it stays in the
// cache.
type Room struct {
	Scatter mr.Batch // writes to memory
	segs    []mr.Seg
	scratch []byte // small values on their way to memory; see Flush
}

// Env is what the queue pairs of one device share. The device owns it. What each packet
// needs comes first, so that it lies together.
type Env struct {
	*Room
	Prof *Profile
	Keys *mr.Table
	// Now is the instant of the input that is being processed; the owner sets it. Only
	// records of what happened use it.
	Now vtime.Time
	// Congestion is the congestion control of the device; nil without.
	Congestion *dcqcn.Params
	// Observer is told what becomes of work requests; nil in ordinary use.
	Observer Observer
	MTU      ib.MTU // active_mtu
	tell     bool   // keep shown
	// Poison fills the undefined half of the network header that datagram receives store
	// over IPv4; completion queues poison completions themselves.
	Poison bool

	dirty  []*cq.CQ // queues with staged completions
	events []Event
	shown  []*cq.CQ   // queues with completions that Publish showed, if somebody asks
	Faults []mr.Fault // of writes that had to be done in the middle of a burst

	// Sources has the addresses that packets are sent from: those of the port's GID table,
	// and at an entry that became empty while it was in use, what was there before.
	Sources []ib.GID
	Ctr     Counters

	GIDs   []ib.GID // the port's GID table
	Drv    Driver
	Limits Limits // what may be asked for
	// Judge is asked about a peer that does not answer; nil: it has failed. See [Plea].
	Judge func(now vtime.Time, p Plea) Verdict
}

// scratchBytes is the size of a chunk of scratch space.
const scratchBytes = 1024

// scratch8 returns 8 bytes that stay untouched until the next Flush.
func (e *Env) scratch8() []byte { return e.scratchBuf(8) }

// scratchGRH returns room for a network header until the next Flush.
func (e *Env) scratchGRH() []byte { return e.scratchBuf(ib.GRHBytes) }

func (e *Env) scratchBuf(size int) []byte {
	n := len(e.scratch)
	if n+size > cap(e.scratch) {
		e.scratch = make([]byte, 0, scratchBytes) // the full one lives on in the batch
		n = 0
	}
	e.scratch = e.scratch[:n+size]
	return e.scratch[n : n+size : n+size]
}

// Flush carries out the memory writes of the burst, in order. It returns the copies
// that failed; the owner tells the QPs (see [QP.MemoryFault]).
func (e *Env) Flush() []mr.Fault {
	if e.Scatter.Len() == 0 {
		return nil
	}
	f := e.Scatter.Write()
	e.scratch = e.scratch[:0]
	return f
}

// flushFor carries out pending writes before something reads memory. Faults are kept
// for the owner's next Flush.
func (e *Env) flushFor() {
	if e.Scatter.Len() > 0 {
		e.Faults = append(e.Faults, e.Scatter.Write()...)
		e.scratch = e.scratch[:0]
	}
}

// Limits are the device's capabilities (struct ibv_device_attr) that a QP checks.
type Limits struct {
	MaxQPWR       int // max_qp_wr
	MaxSGE        int // max_sge
	MaxInline     int // largest max_inline_data
	MaxQPRdAtom   int // max_qp_rd_atom: as responder
	MaxQPInitRdAt int // max_qp_init_rd_atom: as requester
	MaxMsgBytes   uint64
	// WindowPackets is the most PSNs a QP may have unacknowledged on the wire.
	WindowPackets int
}

// Event is an asynchronous event (struct ibv_async_event), or, with Comp set, the
// notification of an armed completion queue.
type Event struct {
	Type ib.EventType
	Comp bool
	QP   *QP
	CQ   *cq.CQ
	SRQ  *swqe.SRQ
}

// Raise queues an asynchronous event for the program.
func (e *Env) Raise(ev Event) {
	e.events = append(e.events, ev)
	e.Ctr.AsyncEvents++
}

// PollEvents moves queued events to dst and returns their number.
func (e *Env) PollEvents(dst []Event) int {
	n := copy(dst, e.events)
	rest := copy(e.events, e.events[n:])
	clear(e.events[rest:])
	e.events = e.events[:rest]
	return n
}

// Forget removes queued events of an object that is being destroyed.
func (e *Env) Forget(match func(*Event) bool) {
	kept := e.events[:0]
	for i := range e.events {
		if !match(&e.events[i]) {
			kept = append(kept, e.events[i])
		}
	}
	clear(e.events[len(kept):])
	e.events = kept
}

// HasEvents reports whether PollEvents would return any.
func (e *Env) HasEvents() bool { return len(e.events) > 0 }

// enter puts a completion into a queue (kernel: rvt_send_cq, rvt_recv_cq without the
// QP's part).
func (e *Env) enter(c *cq.CQ, wc *cq.WC, solicited bool) bool {
	if !c.Enter(wc, solicited) {
		e.Ctr.CQOverflow++
		e.Raise(Event{Type: ib.EventCQErr, CQ: c})
		return false
	}
	e.Ctr.Completions++
	if c.MarkDirty() {
		e.dirty = append(e.dirty, c)
	}
	return true
}

// Publish shows every staged completion to the programs.
func (e *Env) Publish() {
	kept := e.dirty[:0]
	for i, c := range e.dirty {
		e.dirty[i] = nil
		if c.HeldBack() {
			kept = append(kept, c)
			continue
		}
		if e.tell {
			e.shown = append(e.shown, c)
		}
		if c.Publish() {
			e.events = append(e.events, Event{Comp: true, CQ: c})
		}
	}
	e.dirty = kept
}

// Shown returns the queues whose completions were shown since the last call, in order; a
// queue may be there twice. From the first call on they are kept. The slice is valid until
// the next input.
func (e *Env) Shown() []*cq.CQ {
	e.tell = true
	s := e.shown
	e.shown = e.shown[:0]
	return s
}

// Unstage forgets the staged completions of a queue that is destroyed.
func (e *Env) Unstage(c *cq.CQ) {
	e.dirty = slices.DeleteFunc(e.dirty, func(d *cq.CQ) bool { return d == c })
}

// Staged reports whether Publish has something to do.
func (e *Env) Staged() bool { return len(e.dirty) > 0 }

// Counters count what a device did. Names follow the counters that rxe shows in
// sysfs where it has them.
//
// Those that count in ordinary traffic come first.
type Counters struct {
	SentPackets, SentBytes         uint64 // sent_pkts; payload bytes
	RcvdPackets, RcvdBytes         uint64 // rcvd_pkts
	AckDeferred                    uint64 // ack_deferred: ACKs merged into a later one
	Completions                    uint64
	SendsPosted, RecvsPosted       uint64
	MessagesSent, MessagesReceived uint64
	DuplicateRequest               uint64 // duplicate_request
	OutOfSeqRequest                uint64 // out_of_seq_request
	RcvdRNRNAK                     uint64 // rcvd_rnr_err
	SentRNRNAK                     uint64 // send_rnr_err
	RcvdSeqNAK                     uint64 // rcvd_seq_err
	SentNAK                        uint64 // NAKs sent, sequence errors included
	RetryTimeout                   uint64 // ACK timeouts
	TimeoutNanos, RNRNanos         uint64 // time spent waiting for ACK timeouts and because of RNR NAKs, over all QPs
	RetransPackets                 uint64 // packets sent again
	RetryExceeded                  uint64 // retry_exceeded_err
	RetrySpared                    uint64 // times that the host gave a QP its retries anew; see Verdict
	RNRRetryExceeded               uint64 // retry_rnr_exceeded_err
	LostResponse                   uint64 // READ or atomic responses found missing
	SendErrors                     uint64 // send_err: local errors of send WQEs
	CQOverflow                     uint64
	AsyncEvents                    uint64
	MemoryFaults                   uint64
	ECNMarked                      uint64 // np_ecn_marked_roce_packets: marked data received (with congestion control)
	SentCNP, HandledCNP            uint64 // np_cnp_sent, rp_cnp_handled
	Dropped                        [wire.NumDropReasons]uint64
}

// Add adds the counts of o.
func (c *Counters) Add(o *Counters) {
	c.SentPackets += o.SentPackets
	c.SentBytes += o.SentBytes
	c.RcvdPackets += o.RcvdPackets
	c.RcvdBytes += o.RcvdBytes
	c.DuplicateRequest += o.DuplicateRequest
	c.OutOfSeqRequest += o.OutOfSeqRequest
	c.RcvdRNRNAK += o.RcvdRNRNAK
	c.SentRNRNAK += o.SentRNRNAK
	c.RcvdSeqNAK += o.RcvdSeqNAK
	c.SentNAK += o.SentNAK
	c.AckDeferred += o.AckDeferred
	c.RetryTimeout += o.RetryTimeout
	c.TimeoutNanos += o.TimeoutNanos
	c.RNRNanos += o.RNRNanos
	c.RetransPackets += o.RetransPackets
	c.RetryExceeded += o.RetryExceeded
	c.RNRRetryExceeded += o.RNRRetryExceeded
	c.RetrySpared += o.RetrySpared
	c.LostResponse += o.LostResponse
	c.SendErrors += o.SendErrors
	c.Completions += o.Completions
	c.CQOverflow += o.CQOverflow
	c.AsyncEvents += o.AsyncEvents
	c.SendsPosted += o.SendsPosted
	c.RecvsPosted += o.RecvsPosted
	c.MessagesSent += o.MessagesSent
	c.MessagesReceived += o.MessagesReceived
	c.MemoryFaults += o.MemoryFaults
	c.ECNMarked += o.ECNMarked
	c.SentCNP += o.SentCNP
	c.HandledCNP += o.HandledCNP
	for i, n := range o.Dropped {
		c.Dropped[i] += n
	}
}

// Drop counts a packet that is dropped and why.
func (c *Counters) Drop(r wire.DropReason) { c.Dropped[r]++ }

// TxPacket is a packet to send: its headers, and its payload as segments of
// registered memory (or inline in Pkt.Payload when there are none).
type TxPacket struct {
	Path wire.Path
	Pkt  wire.Packet
	QPN  ib.QPN // the sender, for faults and traces
	Len  int    // payload bytes
	// SegOff and SegLen select the payload in Outbox.Segs.
	SegOff, SegLen int
	Withheld       bool // the packet must not be sent: see [Outbox.Withhold]
}

// IsAck reports whether the packet is a positive acknowledgement.
func (p *TxPacket) IsAck() bool {
	return p.Pkt.Opcode == ib.OpAcknowledge && p.Pkt.AETH.Syndrome.Kind() == ib.SyndromeACK
}

// Outbox collects packets to send. The caller owns and reuses it; Reset keeps the
// capacity.
type Outbox struct {
	Packets []TxPacket
	Segs    []mr.Seg
}

// Reset empties the outbox.
func (o *Outbox) Reset() {
	if len(o.Segs) == 1 {
		o.Segs[0] = mr.Seg{}
	} else {
		clear(o.Segs)
	}
	o.Packets, o.Segs = o.Packets[:0], o.Segs[:0]
}

// add appends a packet and returns it; all fields are zero.
func (o *Outbox) add() *TxPacket {
	if len(o.Packets) < cap(o.Packets) {
		o.Packets = o.Packets[:len(o.Packets)+1]
		p := &o.Packets[len(o.Packets)-1]
		*p = TxPacket{}
		return p
	}
	o.Packets = append(o.Packets, TxPacket{})
	return &o.Packets[len(o.Packets)-1]
}

// undo takes back the packet that add returned last, and its segments.
func (o *Outbox) undo(segs int) {
	o.Packets = o.Packets[:len(o.Packets)-1]
	o.Segs = o.Segs[:segs]
}

// Gather adds the copies that fetch packet i's payload into dst, which has room for
// Len bytes, to b. An inline payload is copied at once. The tag of a fault is i.
func (o *Outbox) Gather(b *mr.Batch, i int, dst []byte) {
	p := &o.Packets[i]
	if p.SegLen == 0 {
		copy(dst, p.Pkt.Payload)
		return
	}
	b.Spread(o.Segs[p.SegOff:p.SegOff+p.SegLen], dst[:p.Len], uint32(i))
}

// Direct returns where packet i's payload is in this process, if it is there and in one piece.
func (o *Outbox) Direct(i int) (addr uint64, ok bool) {
	p := &o.Packets[i]
	if p.SegLen != 1 {
		return 0, false
	}
	s := &o.Segs[p.SegOff]
	return s.Addr, int(s.Len) == p.Len && s.Direct()
}

// Withhold marks the packets that must not be sent when the payload of packet i cannot be
// fetched: of READ responses those from i on, since what was asked for before can be answered;
// of requests, which fail together (see [QP.GatherFault]), all of the QP. It returns the first
// one, nil if all had been withheld before.
func (o *Outbox) Withhold(i int) (first *TxPacket) {
	bad := &o.Packets[i]
	for k := range o.Packets {
		p := &o.Packets[k]
		if p.Withheld || p.QPN != bad.QPN || p.SegLen == 0 || p.answers() != bad.answers() || k < i && p.answers() {
			continue
		}
		p.Withheld = true
		if first == nil {
			first = p
		}
	}
	return first
}

// answers reports whether the packet is a response.
func (p *TxPacket) answers() bool { return wire.Info(p.Pkt.Opcode).Mask&wire.Response != 0 }
