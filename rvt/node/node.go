package node

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// Node hosts a device in real time. All methods are safe for concurrent use.
type Node struct {
	cfg  Config
	now  func() vtime.Time
	port fabric.Port
	wait fabric.Waiter // nil if the port cannot wait

	// Watched by the background goroutine, written by others without the mutex.
	polls   atomic.Uint64 // Progress calls
	posts   atomic.Uint64 // End calls that left something to send
	parks   atomic.Uint64 // Park calls
	naps    atomic.Uint64
	told    atomic.Uint64 // times that threads of the program were woken up
	bed     bed           // where polls in vain sleep
	stopped atomic.Bool
	bell    *Bell
	kick    chan struct{} // ends a nap
	quit    chan struct{} // closed by Close
	done    chan struct{} // closed when the background goroutine has ended

	mu  sync.Mutex // owns everything below, and the port
	dev *rvt.Device

	closed bool
	err    error // why the port failed, nil while it works

	// The background goroutine waits in the port until sleepUntil. Whoever gives the
	// device something earlier to do resets sleeping and wakes it.
	sleeping   bool
	sleepUntil vtime.Time
	received   uint64 // packets from the port, so far
	sent       uint64 // packets to it
	deferred   int    // posts since the last pass that nobody has sent yet

	rx       []fabric.Datagram
	out      rvt.Outbox
	gather   mr.Batch
	arena    []byte            // frames of one batch, back to back
	tx       []fabric.Datagram // what was built; tx[txHead:] still has to go
	txHead   int
	wrote    bool   // the port has taken frames since the Turn began
	blocked  bool   // the port or the loopback queue took less than it was offered
	budget   budget // of what is built
	rxBudget budget // of what is received
	loop     loopback
	events   []rvt.Event
	stats    Stats

	crowd    crowd
	stirred  bool       // a pass has found something to do since the mutex was taken
	hold     hold       // of acknowledgements
	passedAt vtime.Time // when the last pass began
	polledAt vtime.Time // when the last pass began that a poll made
	postedAt vtime.Time // when a post last sent something

	undrained  int        // passes in a row that left timers alone; see mayExpire
	graceUntil vtime.Time // when late timers run at last; 0: none is late
}

// New makes a node of a device and a port and starts to drive it. Device and port
// belong to the node from now on; Close closes the port.
func New(dev *rvt.Device, port fabric.Port, cfg Config) (*Node, error) {
	if err := check(dev, port); err != nil {
		return nil, err
	}
	size := max(port.BatchSize(), 1)
	pace := time.Duration(max(cfg.Pace, 1))
	cfg.Linger *= pace
	n := &Node{
		cfg: cfg, now: cfg.Now, port: port, dev: dev, bell: cfg.Bell,
		kick: make(chan struct{}, 1), quit: make(chan struct{}), done: make(chan struct{}),
		rx: make([]fabric.Datagram, size), tx: make([]fabric.Datagram, 0, size+rvt.EmitSlack),
		arena:  make([]byte, 0, (size+rvt.EmitSlack)*frameBytes(dev.Config().MTU)),
		budget: newBudget(size), rxBudget: newBudget(size), events: make([]rvt.Event, eventBatch), hold: newHold(cfg.AckDelay, cfg.Pace), crowd: newCrowd(cfg.Pace),
	}
	if n.now == nil {
		n.now = Now
	}
	if n.bell == nil {
		n.bell = &Bell{}
	}
	n.wait, _ = port.(fabric.Waiter)
	dev.SetAhead(fabric.AheadOf(port))
	if !cfg.Manual {
		go n.run()
	}
	return n, nil
}

// Port returns the node's port. Only its LocalGID, MTU and BatchSize may be used, and
// what its implementation allows beside its owner.
func (n *Node) Port() fabric.Port { return n.port }

// Now reads the node's clock.
func (n *Node) Now() vtime.Time { return n.now() }

// Done is closed when the node was closed or has failed, and its background goroutine, if
// it has one, has ended.
func (n *Node) Done() <-chan struct{} { return n.done }

// Progress makes one pass: it reads what has arrived, runs timers that are due, and
// sends what there is to send. It reports whether it did anything. If somebody else is
// driving it returns false at once. It does not allocate, and blocks no longer than
// Config.Doze.
func (n *Node) Progress() (worked bool) {
	n.polls.Add(1)
	if !n.mu.TryLock() {
		return false
	}
	worked = n.pass()
	n.polledAt = n.passedAt
	dozes, was := n.dozes(worked)
	n.unlock()
	if dozes {
		n.doze(was)
	}
	return worked
}

// Park says that the caller, who may have been polling, is about to block until an
// event comes. It makes a last pass if nobody else is driving, and hands the driving
// over to the background goroutine. Look for the event again after Park.
func (n *Node) Park() {
	if n.mu.TryLock() {
		n.pass()
		n.letGo()
		n.unlock()
	}
	n.handOver()
}

// handOver has the background goroutine drive.
func (n *Node) handOver() {
	n.parks.Add(1)
	n.endNap()
}

// Do runs f as the owner of the device and then sends what came of it. f must not keep
// d, block, or call the node. It returns ErrClosed, or why the port failed, without
// running f if the node no longer works.
func (n *Node) Do(f func(d *rvt.Device, now vtime.Time)) error {
	d, err := n.Begin()
	if err != nil {
		return err
	}
	defer n.End(SendNow)
	f(d, n.now())
	return nil
}

// Ring says that there is work in rings that Config.Doorbells knows of. If somebody
// else owns the device he sees to it before he is done, so Ring never waits.
func (n *Node) Ring() {
	n.bell.Rung.Store(1)
	n.answer()
}

// answer makes the pass that a Ring asked for, unless somebody else is driving: he
// comes here after he has let go.
func (n *Node) answer() {
	for n.bell.Rung.Load() != 0 && !n.stopped.Load() && n.mu.TryLock() {
		n.pass()
		n.release()
	}
}

// Heard takes what a Ring told of, without a pass. It reports whether there was one. The owner
// calls it, who should End with SendNow then.
func (n *Node) Heard() bool {
	if n.bell.Rung.Load() == 0 || n.bell.Rung.Swap(0) == 0 || n.cfg.Doorbells == nil {
		return false
	}
	n.cfg.Doorbells(n.dev)
	return true
}

// Urgency says what End does about packets that wait to be sent.
type Urgency uint8

const (
	// SendLater leaves them to the next pass. After some such calls they are sent
	// all the same.
	SendLater Urgency = iota
	// SendNow sends them before End returns, as far as one pass goes.
	SendNow
)

// Begin makes the caller the owner of the device, until it calls End from the same
// goroutine; see Do. It is Do without a function, for calls that must not allocate.
// On an error there is nothing to End.
func (n *Node) Begin() (*rvt.Device, error) {
	d, err := n.BeginPost()
	if err == nil {
		n.letGo() // the QP may be about to go
	}
	return d, err
}

// BeginPost is Begin for callers who only post.
func (n *Node) BeginPost() (*rvt.Device, error) {
	n.mu.Lock()
	if n.closed || n.err != nil {
		err := n.err
		n.mu.Unlock()
		if err == nil {
			err = ErrClosed
		}
		return nil, err
	}
	return n.dev, nil
}

// TryBegin is Begin for those who must not wait: it returns nil if somebody else is
// driving, or if the node does not work any more. [Node.Ring] leaves the work to him.
func (n *Node) TryBegin() *rvt.Device {
	if !n.mu.TryLock() {
		return nil
	}
	if n.closed || n.err != nil {
		n.mu.Unlock()
		return nil
	}
	return n.dev
}

// End gives the device back.
func (n *Node) End(u Urgency) {
	if n.dev.Pending() {
		n.posts.Add(1)
		if n.deferred++; u == SendNow || n.deferred >= deferLimit {
			now := n.now()
			n.postedAt = now
			n.hold.posted(now)
			n.emit(now)
			n.deferred = 0
		}
	}
	n.dispatch()
	n.unlock()
}

// deferLimit is how many posts may wait for a pass: enough to fill a segmentation
// offload train twice, few enough that the wire does not idle meanwhile.
const deferLimit = 32

// unlock gives up ownership, and sees to those who could not have it meanwhile.
func (n *Node) unlock() {
	n.release()
	n.answer()
}

// release gives up ownership, and wakes the background goroutine if it would sleep
// longer than the device can wait.
func (n *Node) release() {
	wake := n.sleeping && (n.dev.Pending() && !n.hold.active() || n.blocked || n.loop.len() > 0 || n.deadline() < n.sleepUntil)
	if wake {
		n.sleeping = false
		n.stats.Wakeups++
	}
	n.giveUp()
	if wake && n.wait != nil {
		n.wait.Wake()
	}
}

// giveUp unlocks the mutex, and wakes those who sleep for what was done under it.
func (n *Node) giveUp() {
	stirred := n.stirred && n.bed.sleepers.Load() > 0
	n.stirred = false
	n.mu.Unlock()
	if stirred {
		n.told.Add(1)
		n.bed.wake()
	}
}

// deadline is when a pass is due even if no packet arrives.
func (n *Node) deadline() vtime.Time {
	return vtime.Min(n.hold.until(), vtime.Min(n.dev.Deadline(), fabric.DeadlineOf(n.port)))
}

// eventBatch is how many events are handed on per call.
const eventBatch = 64

// dispatch hands the device's events on. The owner calls it, so that their order is
// that of the device; the receiver only queues them.
func (n *Node) dispatch() {
	if n.cfg.Events == nil || !n.dev.HasEvents() {
		return
	}
	for {
		k := n.dev.PollEvents(n.events)
		if k == 0 {
			return
		}
		if rest := n.notifyWatchers(n.events[:k]); len(rest) > 0 {
			n.told.Add(1)
			n.cfg.Events(rest)
		}
		clear(n.events[:k])
	}
}

// Watcher is a completion queue's Context that takes the queue's notifications itself:
// that of a service beside the program, whose events are none of the program's. Like
// Config.Events it is called with the node locked.
type Watcher interface {
	// Notified says that the armed queue has completions.
	Notified()
}

// notifyWatchers takes the events of services out of evs.
func (n *Node) notifyWatchers(evs []rvt.Event) []rvt.Event {
	rest := evs[:0]
	for i := range evs {
		if e := &evs[i]; e.CQ != nil {
			if w, ok := e.CQ.Context.(Watcher); ok {
				w.Notified()
				continue
			}
		}
		rest = append(rest, evs[i])
	}
	return rest
}

// Counters returns a snapshot.
func (n *Node) Counters() Counters {
	n.mu.Lock()
	c := Counters{Device: *n.dev.Counters(), Port: *n.port.Counters(), Node: n.stats}
	n.mu.Unlock()
	n.answer()
	c.Node.Naps = n.naps.Load()
	return c
}

// Err returns nil while the node works, ErrClosed after Close, or the error of the
// port that put an end to it.
func (n *Node) Err() error {
	if !n.stopped.Load() {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err != nil {
		return n.err
	}
	return ErrClosed
}

// fail ends the node because its port does not work any more. The owner calls it.
func (n *Node) fail(err error) {
	if n.err != nil || n.closed {
		return
	}
	n.err = err
	n.stopped.Store(true)
	n.dispatch()
	if n.cfg.Events != nil {
		n.cfg.Events([]rvt.Event{{Type: ib.EventDeviceFatal}})
	}
	if n.cfg.Manual {
		close(n.done)
	}
	if n.wait != nil {
		n.wait.Wake() // the background goroutine ends
	}
}

// Close stops the node and closes its port. It returns when the background goroutine
// has ended. Packets that were not sent are lost. Closing twice is no error.
func (n *Node) Close() error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		<-n.done
		return nil
	}
	n.closed = true
	n.stopped.Store(true)
	if n.cfg.Manual && n.err == nil {
		close(n.done)
	}
	n.mu.Unlock()
	close(n.quit)
	err := n.port.Close() // ends a Wait
	<-n.done
	return err
}
