package conform

import (
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// memBase is the address of the program's memory.
const memBase = 0x10000000

// flight is how long a packet travels. Queue pairs of one device talk through the wire
// like any others.
const flight = 2 * time.Microsecond

// device is a [DUT] that runs this module's engine in virtual time.
type device struct {
	dev  *rvt.Device
	gid  ib.GID
	now  vtime.Time
	wire []inFlight // in the order of arrival, since all take equally long
	out  rvt.Outbox
	mem  *mr.Slice
	ev   []Event
	comp map[*cq.CQ]int

	pds  map[string]*rvt.PD
	mrs  map[string]*rvt.MR
	mws  map[string]*mr.Window
	cqs  map[string]*cq.CQ
	srqs map[string]*swqe.SRQ
	ahs  map[string]*swqe.AH
	qps  map[string]*qp.QP
	// names finds the case's name of an object.
	names map[any]string
}

type inFlight struct {
	at   vtime.Time
	path wire.Path
	pkt  wire.Packet
}

var (
	_ DUT     = (*device)(nil)
	_ Network = (*device)(nil)
)

// NewDevice returns a device of a profile in virtual time: one port at 10.77.0.1, MTU
// 1024, and the limits of the reference device.
func NewDevice(prof qp.Profile) (DUT, error) { return newDevice(prof, qp.DriverByName(prof.Name)) }

func newDevice(prof qp.Profile, drv qp.Driver) (DUT, error) {
	gid := ib.GIDFromIPv4(10, 77, 0, 1)
	cfg := rvt.DefaultConfig("dut", gid)
	cfg.Profile = prof
	cfg.Driver = drv
	cfg.MTU = ib.MTU1024
	cfg.Limits.MaxCQE = 32767
	cfg.Limits.MaxInline = 480
	dev, err := rvt.New(cfg)
	if err != nil {
		return nil, err
	}
	return &device{dev: dev, gid: gid, mem: mr.NewSlice(memBase, make([]byte, memBytes)), comp: map[*cq.CQ]int{},
		pds: map[string]*rvt.PD{}, mrs: map[string]*rvt.MR{}, mws: map[string]*mr.Window{}, cqs: map[string]*cq.CQ{}, srqs: map[string]*swqe.SRQ{},
		ahs: map[string]*swqe.AH{}, qps: map[string]*qp.QP{}, names: map[any]string{}}, nil
}

func (d *device) Close() {}

func (d *device) Memory() (uint64, int) { return memBase, len(d.mem.Buf) }

func (d *device) Peek(off uint64, n int) []byte { return slices.Clone(d.mem.Buf[off : off+uint64(n)]) }

func (d *device) Poke(off uint64, b []byte) { copy(d.mem.Buf[off:], b) }

func (d *device) Address() ib.GID { return d.gid }

func (d *device) Err() error { return nil }

// pump carries out what is due now: it takes what the device sends and collects events.
func (d *device) pump() {
	for more := true; more; {
		d.out.Reset()
		more = d.dev.Emit(d.now, &d.out, 64)
		var b mr.Batch
		for i := range d.out.Packets {
			p := &d.out.Packets[i]
			payload := make([]byte, p.Len)
			d.out.Gather(&b, i, payload)
			for _, f := range b.Read() {
				d.dev.GatherFault(&d.out, &f)
			}
			if p.Withheld {
				continue
			}
			p.Pkt.Payload = payload
			d.wire = append(d.wire, inFlight{d.now.Add(flight), p.Path, p.Pkt})
		}
		d.dev.Commit(d.now)
	}
	d.collect()
}

func (d *device) collect() {
	var evs [16]rvt.Event
	for n := d.dev.PollEvents(evs[:]); n > 0; n = d.dev.PollEvents(evs[:]) {
		for _, e := range evs[:n] {
			switch {
			case e.Comp:
				d.comp[e.CQ]++
			case e.QP != nil:
				d.ev = append(d.ev, Event{e.Type, d.names[e.QP]})
			case e.CQ != nil:
				d.ev = append(d.ev, Event{e.Type, d.names[e.CQ]})
			case e.SRQ != nil:
				d.ev = append(d.ev, Event{e.Type, d.names[e.SRQ]})
			default:
				d.ev = append(d.ev, Event{Type: e.Type})
			}
		}
	}
}

// Wait moves the clock to the next arrival or timer, at most d on.
func (d *device) Wait(limit time.Duration) time.Duration {
	d.pump()
	start, end := d.now, d.now.Add(limit)
	next := min(end, d.dev.Deadline())
	if len(d.wire) > 0 {
		next = min(next, d.wire[0].at)
	}
	d.now = max(next, d.now)
	n := 0
	for ; n < len(d.wire) && d.wire[n].at <= d.now; n++ {
		d.dev.Receive(d.now, &d.wire[n].path, &d.wire[n].pkt)
	}
	d.dev.Expire(d.now)
	d.dev.Commit(d.now)
	d.wire = slices.Delete(d.wire, 0, n)
	d.pump()
	return d.now.Sub(start)
}

// Inject lets a packet arrive from the queue pair's peer.
func (d *device) Inject(name string, p *RawPacket) {
	q := d.qps[name]
	if q == nil {
		return
	}
	d.wire = append(d.wire, inFlight{d.now.Add(flight), wire.Path{Src: d.gid, Dst: d.gid, HopLimit: 64}, p.packet(q.QPN)})
}

// SetPort takes the port down or up.
func (d *device) SetPort(up bool) { d.dev.SetPort(up) }

// Poll takes a completion.
func (d *device) Poll(name string) (WC, bool) {
	var w [1]cq.WC
	c := d.cqs[name]
	if c == nil || d.dev.PollCQ(c, w[:]) == 0 {
		return WC{}, false
	}
	return WC{w[0].WRID, w[0].Status, w[0].Opcode, uint32(w[0].VendorErr), w[0].ByteLen, w[0].Imm, w[0].QPN, w[0].SrcQP, w[0].Flags}, true
}

// ReqNotify arms a queue.
func (d *device) ReqNotify(name string, solicitedOnly bool) ib.Errno {
	c := d.cqs[name]
	if c == nil {
		return ib.EINVAL
	}
	d.dev.ReqNotify(c, solicitedOnly)
	return 0
}

// CQEvents collects the completion events of a queue.
func (d *device) CQEvents(name string) int {
	d.pump()
	c := d.cqs[name]
	n := d.comp[c]
	delete(d.comp, c)
	return n
}

// AsyncEvent takes an asynchronous event.
func (d *device) AsyncEvent() (Event, bool) {
	d.pump()
	if len(d.ev) == 0 {
		return Event{}, false
	}
	e := d.ev[0]
	d.ev = d.ev[1:]
	return e, true
}
