package spec

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// wireState is the network of a scenario: every packet takes the same time, and
// nothing happens to it that the script did not ask for.
type wireState struct {
	latency time.Duration
	// batch is how many packets that arrive at one device at the same instant it takes
	// as one burst, that is before it may answer.
	batch   int
	flights []*flight // by arrival, then seq
	seq     uint64
	faults  []*fault
	held    *flight // by swap, until the next packet of its sender
}

// flight is a packet on its way.
type flight struct {
	at       vtime.Time
	seq      uint64
	from, to *node
	path     wire.Path
	raw      []byte // BTH to pad
	damaged  bool   // the ICRC does not match
	text     string
}

// fault is what drop, dup, swap, delay and corrupt leave behind.
type fault struct {
	action string
	skip   int // matching packets to let pass first
	count  int // matching packets to act on after that
	op     string
	psn    int64 // -1 for any
	from   *node
	by     time.Duration
}

func (f *fault) matches(n *node, p *wire.Packet) bool {
	if f.count == 0 || f.from != nil && f.from != n || f.psn >= 0 && ib.PSN(f.psn) != p.PSN {
		return false
	}
	if f.op != "" && wire.Info(p.Opcode).Name != f.op {
		return false
	}
	if f.skip > 0 {
		f.skip--
		return false
	}
	f.count--
	return true
}

// emit runs a device's send engine and puts what it sends on the wire: at most budget
// packets, everything if budget is 0.
func (in *Interp) emit(n *node, budget int) {
	const quantum = 16
	for more := true; more; {
		step := quantum
		if budget > 0 {
			step = min(quantum, budget)
		}
		n.out.Reset()
		more = n.dev.Emit(in.now, &n.out, step)
		in.send(n)
		n.dev.Commit(in.now)
		in.collect(n)
		if budget > 0 {
			if budget -= len(n.out.Packets); budget <= 0 {
				return
			}
		}
		if in.steps += len(n.out.Packets); in.steps > maxSteps {
			return
		}
	}
}

// send fetches the payloads of the outbox and launches the packets.
func (in *Interp) send(n *node) {
	o := &n.out
	for i := range o.Packets {
		buf := make([]byte, o.Packets[i].Len)
		o.Gather(&n.gather, i, buf)
		o.Packets[i].Pkt.Payload = buf
	}
	for _, f := range n.gather.Read() {
		n.dev.GatherFault(o, &f)
	}
	for i := range o.Packets {
		if !o.Packets[i].Withheld {
			in.launch(n, &o.Packets[i])
		}
	}
}

// launch puts one packet on the wire after the faults have had their say.
func (in *Interp) launch(n *node, p *qp.TxPacket) {
	f := &flight{from: n, path: p.Path, raw: wire.AppendPacket(nil, &p.Pkt), text: p.Pkt.String(), at: in.now.Add(in.wire.latency)}
	held := in.wire.held
	action, note, copies := "", "", 1
	for _, r := range in.wire.faults {
		if !r.matches(n, &p.Pkt) {
			continue
		}
		action, note = r.action, " ["+r.action+"]"
		switch r.action {
		case "dup":
			copies = 2
		case "delay":
			f.at = f.at.Add(r.by)
			note = " [delay " + span(r.by) + "]"
		case "corrupt":
			f.damaged = true
		}
		break
	}
	to := in.destinations(f.path.Dst)
	in.tracef("%s>%s %s%s", n.name, names(to), f.text, note)
	switch {
	case action == "drop":
		return
	case action == "swap" && held == nil:
		in.wire.held = f
		return
	}
	for range copies {
		in.schedule(f, to)
	}
	if held != nil && held.from == n {
		in.wire.held = nil
		in.schedule(held, in.destinations(held.path.Dst))
	}
}

// releaseHeld lets a packet go that waited for another one to overtake it.
func (in *Interp) releaseHeld() {
	if h := in.wire.held; h != nil {
		in.wire.held = nil
		in.schedule(h, in.destinations(h.path.Dst))
	}
}

// destinations are the devices that a packet reaches: every one for multicast.
func (in *Interp) destinations(dst ib.GID) []*node {
	if dst.IsMulticast() {
		return in.nodes
	}
	for _, n := range in.nodes {
		if n.gid == dst {
			return []*node{n}
		}
	}
	return nil
}

func names(to []*node) string {
	if len(to) == 0 {
		return "nobody"
	}
	s := ""
	for _, n := range to {
		s += n.name
	}
	return s
}

// schedule adds a copy of f for each destination.
func (in *Interp) schedule(f *flight, to []*node) {
	for _, n := range to {
		c := *f
		c.to = n
		in.wire.seq++
		c.seq = in.wire.seq
		i, _ := slices.BinarySearchFunc(in.wire.flights, &c, func(a, b *flight) int {
			if a.at != b.at {
				return int(min(max(a.at-b.at, -1), 1))
			}
			return int(int64(a.seq) - int64(b.seq))
		})
		in.wire.flights = slices.Insert(in.wire.flights, i, &c)
	}
}

// receive gives a packet to its device.
func (in *Interp) receive(f *flight) wire.DropReason {
	var pkt wire.Packet
	r := wire.Decode(f.raw, &pkt)
	switch {
	case f.damaged:
		r = wire.DropBadICRC
		f.to.dev.Drop(r)
	case r != wire.DropNone:
		f.to.dev.Drop(r)
	default:
		r = f.to.dev.Receive(in.now, &f.path, &pkt)
	}
	switch r {
	case wire.DropNone:
	case wire.DropDuplicate: // it may be answered all the same
		in.tracef("%s sees a duplicate: %s psn=%d", f.to.name, opName(pkt.Opcode), pkt.PSN)
	default:
		in.tracef("%s drops %s psn=%d: %s", f.to.name, opName(pkt.Opcode), pkt.PSN, r)
	}
	return r
}

func opName(op ib.Opcode) string {
	if i := wire.Info(op); i != nil {
		return i.Name
	}
	return fmt.Sprintf("OPCODE_0x%x", uint8(op))
}

// next is the instant of the next arrival or timer. It asks the queue pairs, not the
// devices: a device may want to be woken early.
func (in *Interp) next() vtime.Time {
	t := vtime.Never
	if len(in.wire.flights) > 0 {
		t = in.wire.flights[0].at
	}
	for _, q := range in.qps {
		t = vtime.Min(t, q.qp.Deadline())
	}
	return max(t, in.now)
}

// burst delivers what arrives now, at most limit packets to each device, and commits.
func (in *Interp) burst(limit int) {
	for _, n := range in.nodes {
		got := 0
		for i := 0; i < len(in.wire.flights) && in.wire.flights[i].at <= in.now; {
			f := in.wire.flights[i]
			if f.to != n || got == limit {
				i++
				continue
			}
			in.wire.flights = slices.Delete(in.wire.flights, i, i+1)
			in.receive(f)
			got++
			in.steps++
		}
		if got > 0 {
			in.commit(n)
		}
	}
}

func (in *Interp) commit(n *node) {
	n.dev.Commit(in.now)
	in.collect(n)
}

// expire runs the timers that are due. It is an error of the device if its own
// deadline is later than that of one of its queue pairs.
func (in *Interp) expire() error {
	for _, q := range in.qps {
		if at := q.qp.Deadline(); at <= in.now && q.node.dev.Deadline() > at {
			return fmt.Errorf("device %s wants to be woken at %s, but a timer of qp %s is due at %s", q.node.name, q.node.dev.Deadline(), q.name, at)
		}
	}
	for _, n := range in.nodes {
		if n.dev.Deadline() <= in.now {
			n.dev.Expire(in.now)
			in.commit(n)
			in.steps++
		}
	}
	return nil
}

func (in *Interp) emitAll() {
	for _, n := range in.nodes {
		in.emit(n, 0)
	}
	in.releaseHeld()
}

var errSteps = errors.New("the world did not come to rest within " + fmt.Sprint(maxSteps) + " steps: a packet loop, or a retry without end (give run a limit: for=10ms)")

// runUntil works through arrivals and timers up to and including t, and reports
// whether nothing is left to happen.
func (in *Interp) runUntil(t vtime.Time) (quiet bool, err error) {
	in.emitAll()
	for {
		if in.steps > maxSteps {
			return false, errSteps
		}
		at := in.next()
		if at == vtime.Never || at > t {
			return at == vtime.Never, nil
		}
		in.now = at
		if len(in.wire.flights) > 0 && in.wire.flights[0].at <= at {
			in.burst(in.wire.batch)
		} else if err := in.expire(); err != nil {
			return false, err
		}
		in.emitAll()
	}
}
