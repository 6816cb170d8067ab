package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
	"github.com/rvtsim/rvtsim/workload"
)

// Config describes a world.
type Config struct {
	// Seed is mixed into the seeds of the network and of every device.
	Seed    uint64
	Network mem.Config
	// EmitBatch is how many packets a device emits at a time; 0 means 64. It changes
	// how QPs of one device share the wire, not what they achieve.
	EmitBatch int
	// Digest says what the digest covers.
	Digest DigestMode
	// Check looks at every queue pair after each event of its node (slow).
	Check bool
	// OnPacket, if not nil, sees every packet that a device takes or drops. The frame
	// is valid during the call.
	OnPacket func(now vtime.Time, n *Node, f *mem.Frame, r wire.DropReason)
}

const (
	defaultEmitBatch = 64
	// maxRounds bounds how often a node's applications and its device take turns at
	// one instant. Unreliable senders without a rate would go on for ever; they are
	// let on after stallStep, as if the adapter needed that time.
	maxRounds = 64
	stallStep = time.Microsecond
	// MaxNodes bounds a world.
	MaxNodes = 1 << 20
)

// App is a program on a node, a pointer to something. Step does what there is to do and returns whether it
// did anything; it is called after each event of the node. Deadline says when it
// wants to be called though nothing happens.
type App interface {
	Step(now vtime.Time) bool
	Deadline() vtime.Time
}

// EventSink is an App that is told the asynchronous events and notifications of those
// objects whose Context it is.
type EventSink interface{ OnEvent(ev rvt.Event) }

// EventDriven is an App that may ask to be stepped only after one of its events, at
// its deadline, and after [World.Touch].
type EventDriven interface{ EventDriven() bool }

// CompletionDriven is an App that may ask to be stepped, though it polls, only when there
// is something to poll in a completion queue whose Context it is, after one of its events,
// at its deadline, after [World.Touch], and as long as it does something.
type CompletionDriven interface{ CompletionDriven() bool }

// Node is one device in a world. What each event needs comes first.
type Node struct {
	Dev *rvt.Device
	// Index is the node's place in the network and in World.Nodes.
	Index   mem.NodeIndex
	dead    bool
	wakeAt  vtime.Time // key in World.timers: may be early, never late
	heapPos int        // -1 if absent
	due     int        // of polled, how many are to be stepped
	eager   int        // of polled, how many are stepped on every event
	polled  []*appSlot // not EventDriven, in the order they came
	ready   []*appSlot // of the others, those to be stepped
	driven  []*appSlot // all of the others

	Name    string
	slots   map[App]*appSlot // all; looked up only
	watched []*qp.QP
	// Events counts the asynchronous events that belong to no application.
	Events [ib.EventWQFatal + 1]uint64
	past   qp.Counters // of devices before a restart
	// generation counts restarts.
	generation int
	lost       uint64 // packets that came after its death
	badICRC    uint64
}

// appSlot is an application with what the node remembers of it.
type appSlot struct {
	app    App
	sink   EventSink // nil if it takes no events
	node   *Node
	queued bool       // in Node.ready
	gone   bool       // its node was restarted
	events bool       // EventDriven: stepped only when ready
	eager  bool       // stepped on every event
	due    bool       // polled and to be stepped
	wakeAt vtime.Time // earliest call scheduled for its deadline
}

// World is a set of nodes, a network, and a clock. See the package documentation.
type World struct {
	cfg    Config
	net    *mem.Network
	now    vtime.Time
	nodes  []*Node
	timers nodeHeap
	calls  callHeap
	digest Digest
	stats  Stats
	// failure is the first rule that was broken, with Config.Check.
	failure error

	burst   []*mem.Frame // what a node is given at once
	out     rvt.Outbox
	gather  mr.Batch
	buf     []byte
	events  [64]rvt.Event
	room    qp.Room
	scratch workload.Scratch
}

// Stats counts what a world did.
type Stats struct {
	Events   uint64 // arrivals, timers and calls
	Arrivals uint64
	Timers   uint64
	Calls    uint64
	Stalls   uint64 // times that maxRounds was reached
}

// New creates a world without nodes. The error lists what is wrong with the network's
// configuration.
func New(cfg Config) (*World, error) {
	if err := cfg.Network.Validate(); err != nil {
		return nil, err
	}
	if cfg.EmitBatch < 0 {
		return nil, fmt.Errorf("sim: emit batch is %d, want 0 or more", cfg.EmitBatch)
	}
	if cfg.EmitBatch == 0 {
		cfg.EmitBatch = defaultEmitBatch
	}
	cfg.Network.Seed = fabric.Mix(cfg.Seed, cfg.Network.Seed)
	w := &World{cfg: cfg, net: mem.New(cfg.Network), buf: make([]byte, ib.MTU4096.Bytes())}
	w.digest.mode = cfg.Digest
	return w, nil
}

// AddNode creates a device and attaches it to the network under all of its GIDs.
func (w *World) AddNode(cfg rvt.Config) (*Node, error) {
	if len(w.nodes) >= MaxNodes {
		return nil, fmt.Errorf("sim: a world has at most %d nodes", MaxNodes)
	}
	cfg.Seed = fabric.Mix(w.cfg.Seed, cfg.Seed+uint64(len(w.nodes)))
	if cfg.Room == nil {
		cfg.Room = &w.room
	}
	dev, err := rvt.New(cfg)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, g := range dev.GIDs() {
		if at := w.net.NodeOf(g); at != mem.NoNode {
			errs = append(errs, fmt.Errorf("sim: node %q: address %v belongs to node %q", cfg.Name, g, w.nodes[at].Name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	n := &Node{Dev: dev, Name: cfg.Name, Index: w.net.Attach(dev.GIDs()[0]), wakeAt: vtime.Never, heapPos: -1}
	if n.Index == mem.NoNode {
		return nil, fmt.Errorf("sim: node %q: %v cannot be a node's address", cfg.Name, dev.GIDs()[0])
	}
	for _, g := range dev.GIDs()[1:] {
		if err := w.net.AddAddress(n.Index, g); err != nil {
			return nil, err
		}
	}
	w.nodes = append(w.nodes, n)
	return n, nil
}

// AddApp lets a program run on a node. It is stepped for the first time at once.
func (w *World) AddApp(n *Node, a App) {
	s := &appSlot{app: a, node: n, events: eventDriven(a), wakeAt: vtime.Never}
	if ea, ok := a.(EventSink); ok {
		s.sink = ea
	}
	if n.slots == nil {
		n.slots = make(map[App]*appSlot)
	}
	n.slots[a] = s
	if s.events {
		n.wake(s)
		n.driven = append(n.driven, s)
	} else {
		c, ok := a.(CompletionDriven)
		if s.eager = !ok || !c.CompletionDriven(); s.eager {
			n.eager++
		}
		n.polled = append(n.polled, s)
		n.wake(s)
	}
	if q, ok := a.(interface{ QPs() []*qp.QP }); ok {
		n.watched = append(n.watched, q.QPs()...)
	}
	w.settle(n)
}

// eventDriven reports whether an application asked to be stepped on events only.
func eventDriven(a App) bool {
	e, ok := a.(EventDriven)
	return ok && e.EventDriven()
}

// Now returns the present instant.
func (w *World) Now() vtime.Time { return w.now }

// Network returns the network, for faults and counters.
func (w *World) Network() *mem.Network { return w.net }

// Nodes returns the nodes in the order they were added. Do not modify it.
func (w *World) Nodes() []*Node { return w.nodes }

// Stats returns the counters.
func (w *World) Stats() Stats { return w.stats }

// Err returns the first broken rule that Config.Check found.
func (w *World) Err() error { return w.failure }

// NextAt is when the next event happens; vtime.Never if there is none.
func (w *World) NextAt() vtime.Time {
	at := w.net.NextAt()
	if len(w.timers) > 0 {
		at = vtime.Min(at, w.timers[0].wakeAt)
	}
	return vtime.Min(at, w.calls.next())
}

// Step lets the events of one kind at the next instant happen. It returns false if
// there are none.
func (w *World) Step() bool {
	at := w.NextAt()
	if at == vtime.Never {
		return false
	}
	w.now = max(w.now, at)
	switch {
	case w.calls.next() <= at:
		w.call()
	case w.net.NextAt() <= at:
		w.deliver()
	default:
		w.expire()
	}
	return true
}

// Run lets everything up to and including the instant until happen, and sets the
// clock to it. It returns early if Config.Check finds a broken rule.
func (w *World) Run(until vtime.Time) {
	for w.NextAt() <= until && w.failure == nil && w.Step() {
	}
	if until != vtime.Never {
		w.now = max(w.now, until)
	}
}

// RunUntil runs until done holds, nothing is left to happen, or the next event is
// after limit. It returns whether done holds. done is asked after each step, so it
// should be cheap.
func (w *World) RunUntil(limit vtime.Time, done func() bool) bool {
	for !done() {
		if w.failure != nil || w.NextAt() > limit || !w.Step() {
			return done()
		}
	}
	return true
}

// call runs one scheduled call.
func (w *World) call() {
	c := w.calls.pop()
	w.stats.Events++
	w.stats.Calls++
	if c.app != nil {
		if c.app.wakeAt == c.at {
			c.app.wakeAt = vtime.Never
		}
		if !c.app.gone {
			c.app.node.wake(c.app)
			c.app.node.wakeExpired(c.at)
			w.settle(c.app.node)
		}
		return
	}
	c.f(w.now)
}

// deliver takes all packets that have arrived and gives each node its own as a burst.
func (w *World) deliver() {
	mark := w.net.Mark()
	for {
		burst := w.net.Burst(w.now, mark, w.burst[:0])
		if w.burst = burst; len(burst) == 0 {
			return
		}
		w.stats.Events += uint64(len(burst))
		w.stats.Arrivals += uint64(len(burst))
		n := w.nodes[burst[0].To]
		w.receive(n, burst)
		w.settle(n)
	}
}

// receive lets a device take its burst. The frames go back once it has committed.
func (w *World) receive(n *Node, burst []*mem.Frame) {
	for _, f := range burst {
		r := wire.DropNone
		switch {
		case n.dead:
			n.lost++
			r = wire.DropPortDown
		case f.CorruptICRC:
			n.badICRC++
			n.Dev.Drop(wire.DropBadICRC)
			r = wire.DropBadICRC
		default:
			r = n.Dev.Receive(w.now, &f.Path, &f.Packet)
		}
		w.digest.packet(w.now, n.Index, f, r)
		if w.cfg.OnPacket != nil {
			w.cfg.OnPacket(w.now, n, f, r)
		}
	}
	n.Dev.Commit(w.now)
	for _, f := range burst {
		w.net.Release(f)
	}
}

// expire runs the timers of the node whose turn it is. The heap's key may be early;
// then nothing happens but that it is corrected.
func (w *World) expire() {
	n := w.timers[0]
	if at := n.Dev.Deadline(); n.dead || at > w.now {
		if n.dead {
			at = vtime.Never
		}
		w.timers.move(n, at)
		return
	}
	w.stats.Events++
	w.stats.Timers++
	n.Dev.Expire(w.now)
	n.Dev.Commit(w.now)
	w.settle(n)
}

// Touch lets a node act on what the caller did to its device or applications.
func (w *World) Touch(n *Node) {
	for _, s := range n.driven {
		n.wake(s)
	}
	for _, s := range n.polled {
		n.wake(s)
	}
	w.settle(n)
}

// wake has an application stepped soon.
func (n *Node) wake(s *appSlot) {
	switch {
	case s.events && !s.queued:
		s.queued = true
		n.ready = append(n.ready, s)
	case !s.events && !s.due:
		s.due = true
		n.due++
	}
}

// wakeExpired has the polling programs stepped whose deadline has come, so that those which
// wait for the same instant act together, before their device sends.
func (n *Node) wakeExpired(now vtime.Time) {
	if n.eager == len(n.polled) {
		return
	}
	for _, s := range n.polled {
		if s.wakeAt <= now {
			n.wake(s)
		}
	}
}
