package verbs

import (
	"context"
	"strconv"
	"sync"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// groupPort is a port that receives multicast.
type groupPort interface {
	JoinGroup(ib.GID) error
	LeaveGroup(ib.GID) error
}

// Device (struct ibv_context) is an open device.
type Device struct {
	name   string
	gids   []ib.GID
	node   *node.Node
	strict *strictHost // nil: no checks

	// Under the node's lock.
	pds, cqs, channels int
	closing            bool // Close has found no objects: none may be made any more
	live               map[*CompChannel]struct{}
	send               []swqe.SendWR // what a post passes on, reused
	recv               []swqe.RecvWR
	sges               []mr.SGE
	inline             []byte

	async eventQueue[*AsyncEvent]

	groupMu sync.Mutex // taken before the node's lock
	groups  map[ib.GID]int
	joiner  groupPort // nil if the port receives no multicast

	neighbours fabric.Neighbours // nil if the port does not know who is there
	lanes      *lanes            // nil without Config.Memory
}

// maxAsyncEvents bounds the asynchronous events that wait for AsyncEvent. More are
// lost and counted: a queue that overflows raises an event for each lost completion.
const maxAsyncEvents = 4096

func newDevice(cfg *Config, port fabric.Port) (*Device, error) {
	dc, err := cfg.device(port)
	if err != nil {
		return nil, err
	}
	checks := newStrict(cfg, &dc)
	dc.Judge = node.Judge
	core, err := rvt.New(dc)
	if err != nil {
		return nil, err
	}
	checks.track(core)
	d := &Device{name: cfg.Name, gids: core.GIDs(), async: newEventQueue[*AsyncEvent](maxAsyncEvents), groups: map[ib.GID]int{}, live: map[*CompChannel]struct{}{}, strict: checks}
	d.joiner, _ = port.(groupPort)
	d.neighbours, _ = port.(fabric.Neighbours)
	if cfg.Memory {
		if d.lanes, port, err = openLanes(port, cfg.Address); err != nil {
			return nil, err
		}
	}
	if cfg.Capture != nil {
		port = fabric.NewTap(port, cfg.Capture, true, node.Now)
	}
	if d.node, err = node.New(core, port, node.Config{Events: d.events, AckDelay: node.AckDelay, Pace: node.Pace()}); err != nil {
		d.lanes.leave()
		d.lanes.release()
		return nil, err
	}
	joinNeighbours(d)
	return d, nil
}

// Name returns the device's name.
func (d *Device) Name() string { return d.name }

// GID returns the device's own address, the first of its GID table.
func (d *Device) GID() GID { return d.gids[0] }

// Node returns the host of the device, for observers and for programs that drive the
// core themselves.
func (d *Device) Node() *node.Node { return d.node }

// Counters returns what device, port and host have counted so far.
func (d *Device) Counters() node.Counters { return d.node.Counters() }

// Progress drives the device once, as CQ.Poll on an empty queue does. A program that
// polls memory rather than a queue calls it in its loop. It never blocks.
func (d *Device) Progress() { d.node.Progress() }

// gone is the error of calls on a device that is closed or has failed.
func (d *Device) gone(verb string) error {
	reason := "the device is closed"
	if err := d.node.Err(); err != nil && err != node.ErrClosed {
		reason = "the device failed: " + err.Error()
	}
	return ib.NewVerbError(ib.ENODEV, verb, d.name, reason)
}

// do runs f as the owner of the device and sends what came of it.
func (d *Device) do(verb string, f func(dev *rvt.Device, now vtime.Time) error) error {
	dev, err := d.node.Begin()
	if err != nil {
		return d.gone(verb)
	}
	defer d.node.End(node.SendNow)
	if d.closing {
		return ib.NewVerbError(ib.ENODEV, verb, d.name, "the device is being closed")
	}
	return f(dev, d.node.Now())
}

// events takes what the device reports. The node calls it with its lock held.
func (d *Device) events(evs []rvt.Event) {
	for i := range evs {
		e := &evs[i]
		if e.Comp {
			if c := e.CQ.Context.(*CQ); c.ch != nil {
				c.ch.queue.push(c)
			}
			continue
		}
		a := &AsyncEvent{Type: e.Type, dev: d, PortNum: 1}
		switch {
		case e.QP != nil:
			a.QP, _ = e.QP.Context.(*QP)
		case e.CQ != nil:
			a.CQ, _ = e.CQ.Context.(*CQ)
		case e.SRQ != nil:
			a.SRQ, _ = e.SRQ.Context.(*SRQ)
		}
		d.async.push(a)
		if e.Type == ib.EventDeviceFatal {
			d.closeQueues(ib.NewVerbError(ib.ENODEV, "get_event", d.name, "the device failed"))
		}
	}
}

// closeQueues ends every wait. The owner calls it.
func (d *Device) closeQueues(err error) {
	for ch := range d.live {
		ch.queue.close(err)
	}
	d.async.close(err)
}

// Close (ibv_close_device) closes the device. EBUSY while protection domains,
// completion queues or channels exist: destroy objects in the reverse order of their
// creation, or use Shutdown. Closing twice is no error.
func (d *Device) Close() error {
	if _, err := d.node.Begin(); err != nil {
		return d.Shutdown()
	}
	pds, cqs, channels := d.pds, d.cqs, d.channels
	if pds+cqs+channels > 0 {
		d.node.End(node.SendLater)
		return ib.NewVerbError(ib.EBUSY, "close_device", d.name, "still open: "+strconv.Itoa(pds)+" protection domains, "+strconv.Itoa(cqs)+" completion queues, "+strconv.Itoa(channels)+" channels")
	}
	d.closing = true
	d.node.End(node.SendNow)
	return d.Shutdown()
}

// Shutdown takes the device away, whatever still uses it: peers see silence, blocked
// calls return, and every later call fails with ENODEV. Completions that were there
// before can still be polled.
func (d *Device) Shutdown() error {
	leaveNeighbours(d)
	d.lanes.leave()
	err := d.node.Close()
	d.lanes.release()
	// The node runs no more, so nobody else uses what its lock guards but calls that
	// fail at Begin.
	d.groupMu.Lock()
	defer d.groupMu.Unlock()
	d.closeQueues(ib.NewVerbError(ib.ENODEV, "get_event", d.name, "the device is closed"))
	return err
}

// AsyncEvent (struct ibv_async_event) is an asynchronous event.
type AsyncEvent struct {
	Type ib.EventType
	// What it is about; at most one of them.
	CQ  *CQ
	QP  *QP
	SRQ *SRQ
	// PortNum is the port of a port event.
	PortNum int

	dev   *Device
	acked sync.Once
}

// acks is where the event's object counts its open events, nil for the device's.
func (e *AsyncEvent) acks() *ackCount {
	switch {
	case e.CQ != nil:
		return &e.CQ.async
	case e.QP != nil:
		return &e.QP.async
	case e.SRQ != nil:
		return &e.SRQ.async
	}
	return nil
}

// Ack (ibv_ack_async_event) says that the program is done with the event. Destroying
// the object that it is about waits for that. Acknowledging twice does nothing.
func (e *AsyncEvent) Ack() {
	e.acked.Do(func() {
		if a := e.acks(); a != nil {
			_ = a.ack("ack_async_event", e.dev.name, 1) // one for each delivery, so it cannot fail
		}
	})
}

func (e *AsyncEvent) String() string {
	switch {
	case e.CQ != nil:
		return e.Type.String() + " of " + e.CQ.String()
	case e.QP != nil:
		return e.Type.String() + " of " + e.QP.String()
	case e.SRQ != nil:
		return e.Type.String() + " of " + e.SRQ.String()
	}
	return e.Type.String() + " of " + e.dev.name
}

// AsyncEvent (ibv_get_async_event) waits for an asynchronous event. Acknowledge it. It
// fails with the context's error, or with ENODEV when the device is closed.
func (d *Device) AsyncEvent(ctx context.Context) (*AsyncEvent, error) {
	return d.async.take(ctx, func(e *AsyncEvent) {
		if a := e.acks(); a != nil {
			a.add()
		}
	}, d.node.Park)
}

// AsyncEventsLost returns how many asynchronous events were lost because too many
// waited.
func (d *Device) AsyncEventsLost() uint64 {
	d.async.mu.Lock()
	defer d.async.mu.Unlock()
	return d.async.lost
}
