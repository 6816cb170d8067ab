package rvt

import (
	"errors"
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// VerbError is the error of a refused call.
type VerbError = ib.VerbError

// Event is an asynchronous event or a CQ notification.
type Event = qp.Event

// Outbox collects packets to send.
type Outbox = qp.Outbox

// Device (kernel: rvt_dev_info) is one adapter with one port. What each packet needs comes
// first.
type Device struct {
	portUp bool
	recent *qp.QP // whose packet came last, if it is in qps
	// Run queue of QPs that may have something to send, first in, first out.
	runHead, runTail *qp.QP
	timers           timerHeap
	qps              map[ib.QPN]*qp.QP
	env              qp.Env

	cfg     Config
	pds     map[mr.PD]*PD
	nextPD  mr.PD
	nextQPN ib.QPN
	handles uint32
	cqs     int
	srqs    int
	mrs     []*MR // live regions, for the search when one is deregistered
	mcast   map[ib.GID][]*qp.QP
	ahs     map[uint8]int // live address handles by the GID index that they name
}

// PD (kernel: rvt_pd) is a protection domain. A QP, SRQ, region or window that belongs
// to it keeps it in use.
type PD struct {
	ID        mr.PD
	users     int // of all kinds
	srqs, ahs int // of those
}

func (p *PD) String() string { return "pd " + strconv.Itoa(int(p.ID)) }

// MR is a registered memory region with the domain that holds it.
type MR struct {
	*mr.Region
	pd    *PD
	index int
}

// New creates a device with its port up.
func New(cfg Config) (*Device, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Device{cfg: cfg, pds: map[mr.PD]*PD{}, qps: map[ib.QPN]*qp.QP{}, mcast: map[ib.GID][]*qp.QP{}, ahs: map[uint8]int{}, portUp: true}
	keys := mr.NewTable(cfg.Limits.MaxMR, uint32(cfg.Seed))
	keys.Reuse = cfg.ReuseKey
	keys.DistinctKeys = cfg.DistinctKeys
	keys.InvalidateAny = cfg.Profile.InvalidateAny
	keys.RemoteRKeyOnly = cfg.Driver.RemoteRKeyOnly
	l := cfg.Limits
	room := cfg.Room
	if room == nil {
		room = new(qp.Room)
	}
	d.env = qp.Env{
		Observer: cfg.Observer, Judge: cfg.Judge, Poison: cfg.Poison, Congestion: cfg.Congestion,
		Prof: d.cfg.Profile.Shared(), Drv: cfg.Driver, Keys: keys, Room: room, GIDs: slices.Clone(cfg.GIDs), Sources: slices.Clone(cfg.GIDs), MTU: cfg.MTU,
		Limits: qp.Limits{MaxQPWR: l.MaxQPWR, MaxSGE: l.MaxSGE, MaxInline: l.MaxInline, MaxQPRdAtom: l.MaxQPRdAtom, MaxQPInitRdAt: l.MaxQPInitRdAtom, MaxMsgBytes: l.MaxMsgBytes, WindowPackets: l.WindowPackets},
	}
	if d.nextQPN = cfg.StartQPN; d.nextQPN == 0 {
		d.nextQPN, _ = d.cfg.QPNRange()
	}
	if g := cfg.Guard; g != nil {
		g.Attach(keys)
		d.env.Observer = g
	}
	return d, nil
}

// Config returns the configuration of the device.
func (d *Device) Config() *Config { return &d.cfg }

// Counters returns the device's counters. They may be read by the owner at any time.
func (d *Device) Counters() *qp.Counters { return &d.env.Ctr }

// Keys returns the key table, for tests and replays.
func (d *Device) Keys() *mr.Table { return d.env.Keys }

// SetAhead says where payload is that a later burst brings, for Commit to ask the processor for;
// see [mr.Batch]. Devices that share their room share it, too.
func (d *Device) SetAhead(f func(n int) []byte) { d.env.Scatter.Ahead = f }

// Receive takes a packet that arrived over path. The payload must stay untouched until
// Commit. What is wrong with a packet is counted, never returned as an error; the drop
// reason is for traces.
func (d *Device) Receive(now vtime.Time, path *wire.Path, pkt *wire.Packet) wire.DropReason {
	d.env.Now = now
	d.env.Ctr.RcvdPackets++
	r := d.receive(now, path, pkt)
	if r != wire.DropNone {
		d.env.Ctr.Drop(r)
	}
	return r
}

func (d *Device) receive(now vtime.Time, path *wire.Path, pkt *wire.Packet) wire.DropReason {
	switch {
	case !d.portUp:
		return wire.DropPortDown
	case wire.Info(pkt.Opcode) == nil || pkt.Opcode == ib.OpcodeCNP && d.cfg.Congestion == nil:
		return wire.DropUnknownOpcode
	case pkt.DestQP == ib.QPNMulticast && pkt.Opcode != ib.OpcodeCNP:
		return d.receiveMulticast(now, path, pkt)
	}
	q := d.recent
	if q == nil || q.QPN != pkt.DestQP {
		if q = d.qps[pkt.DestQP]; q == nil {
			return wire.DropNoQP
		}
		d.recent = q
	}
	if pkt.Opcode == ib.OpcodeCNP {
		return q.ReceiveCNP(now, path, pkt)
	}
	r := q.Receive(now, path, pkt)
	d.touch(q)
	return r
}

// receiveMulticast gives every attached QP its own copy, with its own checks.
func (d *Device) receiveMulticast(now vtime.Time, path *wire.Path, pkt *wire.Packet) wire.DropReason {
	members := d.mcast[path.Dst]
	if len(members) == 0 {
		return wire.DropNotMember
	}
	for _, q := range members {
		if r := q.Receive(now, path, pkt); r != wire.DropNone {
			d.env.Ctr.Drop(r)
		}
		d.touch(q)
	}
	return wire.DropNone
}

// Drop counts a packet that the owner dropped before it came here: a bad ICRC, an
// undecodable packet.
func (d *Device) Drop(r wire.DropReason) { d.env.Ctr.Drop(r) }

// Emit appends up to budget packets to out and reports whether more are waiting. QPs
// take turns, a quantum of packets each, so that trains of one flow stay together.
func (d *Device) Emit(now vtime.Time, out *Outbox, budget int) (more bool) {
	return d.emit(now, out, budget, 0)
}

// EmitTrains is Emit for a port that sends trains: up to EmitSlack packets more than budget
// end a message of which there is no more left. See [qp.QP.Left].
func (d *Device) EmitTrains(now vtime.Time, out *Outbox, budget int) (more bool) {
	return d.emit(now, out, budget, EmitSlack)
}

func (d *Device) emit(now vtime.Time, out *Outbox, budget, slack int) (more bool) {
	d.flush(now)
	start := len(out.Packets)
	for budget > 0 && d.runHead != nil {
		q := d.runHead
		d.unlink()
		quantum := min(emitQuantum, budget)
		sent := 0
		for sent < quantum && q.Emit(now, out) {
			sent++
		}
		budget -= sent
		if budget == 0 && slack > 0 {
			d.finish(now, out, q, slack)
		}
		d.retime(q)
		if sent == quantum {
			d.link(q)
		}
	}
	if !d.portUp {
		for range out.Packets[start:] {
			d.env.Ctr.Drop(wire.DropPortDown)
		}
		out.Packets = out.Packets[:start]
	}
	return d.runHead != nil
}

// finish lets a QP send the rest of its message if that is no more than slack packets.
func (d *Device) finish(now vtime.Time, out *Outbox, q *qp.QP, slack int) {
	left := q.Left()
	if left > slack {
		return
	}
	for left > 0 && q.Emit(now, out) {
		left--
	}
}

// emitQuantum is how many packets a QP may send before it is another's turn: as many
// as fit a segmentation offload train.
const emitQuantum = 16

// EmitSlack is by how many packets EmitTrains may exceed its budget.
const EmitSlack = 2

// Commit carries out the memory writes of the burst and then shows the completions
// that were staged. It must follow every burst of Receive and Expire, and every Emit
// once the payload of its packets has been fetched.
func (d *Device) Commit(now vtime.Time) {
	d.flush(now)
	d.env.Publish()
}

func (d *Device) flush(now vtime.Time) {
	d.env.Now = now
	faults := d.env.Flush()
	if len(faults) == 0 && len(d.env.Faults) == 0 {
		return
	}
	for _, f := range append(d.env.Faults, faults...) {
		d.fault(&f)
	}
	d.env.Faults = d.env.Faults[:0]
}

// GatherFault tells the device that the payload of a packet of o could not be fetched. f.Tag is
// its place. It marks the packets of o that must not be sent for that reason.
func (d *Device) GatherFault(o *Outbox, f *mr.Fault) {
	qpn := o.Packets[f.Tag].QPN
	first := o.Withhold(int(f.Tag))
	q := d.qps[qpn]
	switch {
	case q == nil:
	case errors.Is(f.Err, mr.ErrGone):
		d.fault(&mr.Fault{Tag: uint32(qpn), Err: f.Err})
	case first != nil: // else it knows already
		q.GatherFault(first, &o.Packets[f.Tag])
		d.touch(q)
	}
}

// fault tells a QP that a copy for it failed.
func (d *Device) fault(f *mr.Fault) {
	q := d.qps[ib.QPN(f.Tag)]
	if q == nil {
		return
	}
	if errors.Is(f.Err, mr.ErrGone) {
		q.MemoryGone()
	} else {
		q.MemoryFault()
	}
	d.touch(q)
}

// PollEvents moves events to dst and returns their number.
func (d *Device) PollEvents(dst []Event) int { return d.env.PollEvents(dst) }

// Shown returns the completion queues that got something to poll since the last call; see
// [qp.Env.Shown]. It is for owners that step programs only when there is a reason.
func (d *Device) Shown() []*cq.CQ { return d.env.Shown() }

// HasEvents reports whether PollEvents would return any.
func (d *Device) HasEvents() bool { return d.env.HasEvents() }

// Pending reports whether Emit has something to do.
func (d *Device) Pending() bool { return d.runHead != nil }

// unhurriedQPs is how many QPs AcksOnly looks at: with more of them at work there is
// enough to send together anyway.
const unhurriedQPs = 4

// AcksOnly reports whether Emit would send positive acknowledgements of a few QPs and
// nothing else. A host may then wait for a moment with Emit; see [qp.QP.Unhurried].
func (d *Device) AcksOnly() bool {
	any := false
	q := d.runHead
	for range unhurriedQPs {
		if q == nil {
			return any
		}
		acks, only := q.Unhurried()
		if !only {
			return false
		}
		any = any || acks
		q = q.Next
	}
	return false
}

// touch puts a QP into the run queue and notes its deadline after an input.
func (d *Device) touch(q *qp.QP) {
	d.link(q)
	d.retime(q)
}

func (d *Device) link(q *qp.QP) {
	if q.Queued || q.Destroy {
		return
	}
	q.Queued = true
	q.Next = nil
	if d.runTail == nil {
		d.runHead = q
	} else {
		d.runTail.Next = q
	}
	d.runTail = q
}

// unlink removes the head of the run queue.
func (d *Device) unlink() {
	q := d.runHead
	d.runHead = q.Next
	if d.runHead == nil {
		d.runTail = nil
	}
	q.Next = nil
	q.Queued = false
}

// dequeue takes a QP out of the run queue wherever it stands.
func (d *Device) dequeue(q *qp.QP) {
	if !q.Queued {
		return
	}
	var prev *qp.QP
	for p := d.runHead; p != q; p = p.Next {
		prev = p
	}
	if prev == nil {
		d.runHead = q.Next
	} else {
		prev.Next = q.Next
	}
	if d.runTail == q {
		d.runTail = prev
	}
	q.Next, q.Queued = nil, false
}

// PollCQ moves completions to dst (ibv_poll_cq). It needs no ownership of the device.
func (d *Device) PollCQ(c *cq.CQ, dst []cq.WC) int { return c.Poll(dst) }

// PostSend (ibv_post_send) posts send work requests; n is the number posted, the
// index of bad_wr.
func (d *Device) PostSend(q *qp.QP, wrs []swqe.SendWR) (n int, err error) {
	if d.cfg.Guard != nil {
		n, err = d.guardedPostSend(q, wrs)
	} else {
		n, err = q.PostSend(wrs)
	}
	if n > 0 {
		d.link(q)
		if s := q.TakeNextStatus(); s != ib.WCSuccess {
			d.InjectStatus(d.env.Now, q, s)
		}
	}
	return n, err
}

// PostRecv (ibv_post_recv) posts receives; n is the number posted.
func (d *Device) PostRecv(q *qp.QP, wrs []swqe.RecvWR) (n int, err error) {
	if d.cfg.Guard != nil {
		n, err = d.guardRecvs(q, nil, wrs, func() (int, error) { return q.PostRecv(wrs) })
	} else {
		n, err = q.PostRecv(wrs)
	}
	d.env.Publish()
	return n, err
}
