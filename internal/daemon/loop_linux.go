package daemon

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/vtime"
)

// loop is the thread that drives nodes of a daemon: it waits for their sockets, timers and
// doorbells, all with one system call, and does what there is to do until nothing is left.
// A message between two nodes of one loop costs one change of process: the one that the
// sender's doorbell makes.
//
// While it works the doorbell words of the contexts that have rung stay set, so that their
// programs ring no more: it looks at their rings in every round. Before it sleeps it clears
// the words, and looks once more.
type loop struct {
	poller
	done chan struct{}

	mu    sync.Mutex // guards both below
	next  int32
	heard map[int32]*listened

	// The thread's own.
	nodes []*driven // all that were ever due, to find the next deadline
	ready []*driven // to be given a turn
	spare []*driven // storage of ready
	armed []*driven // have contexts whose words are set
	pace  pace
}

// listened is what a tag of the epoll descriptor stands for: a port, or a doorbell.
type listened struct {
	n    *driven
	bell *attached // nil: the node's port
}

// watched is a port that a loop can wait for. See udp.Port.
type watched interface {
	fabric.Port
	fabric.Waiter
	Watch(epoll int, tag int32) error
	Heard()
	Pending() bool
}

// driven is a node as its loop sees it. Only the loop's thread uses it.
type driven struct {
	node *node.Node
	port watched
	tag  int32

	work   node.Work
	queued bool // in ready
	listed bool // in nodes
	armed  bool // in armed
	due    vtime.Time
	rang   []*attached // with their words set, or about to be
	asleep bool        // the next look at rang is the last one: clear the words
	taken  int         // sends found in rings since the loop last asked
}

// maxArmed is how many objects a context may have whose rings are looked at in each round:
// a look costs one load for each queue pair.
const maxArmed = 1024

func newLoop() (*loop, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	l := &loop{poller: p, done: make(chan struct{}), heard: map[int32]*listened{}}
	go l.run()
	return l, nil
}

// close ends the thread. The nodes are closed already.
func (l *loop) close() {
	l.end()
	<-l.done
	l.free()
}

func (l *loop) listen(x *listened) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	l.heard[l.next] = x
	return l.next
}

func (l *loop) forget(tag int32) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.heard, tag)
}

// drive makes the loop drive a node. It ends when the node is closed.
func (l *loop) drive(n *driven) error {
	n.tag = l.listen(&listened{n: n})
	if err := n.port.Watch(l.epoll, n.tag); err != nil {
		l.forget(n.tag)
		return err
	}
	n.port.Wake() // the first turn
	return nil
}

// add listens to the eventfd of a context of the node.
func (l *loop) add(n *driven, a *attached) error {
	a.bellID = l.listen(&listened{n: n, bell: a})
	// It is never read: each write is an event.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: a.bellID}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, a.efd, &ev))
}

func (l *loop) remove(a *attached) {
	l.forget(a.bellID)
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, a.efd, nil)
}

func (l *loop) run() {
	defer close(l.done)
	runtime.LockOSThread()
	// Timers to the microsecond; the default is 50 us late.
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
	events := make([]unix.EpollEvent, 64)
	busy := false
	for {
		wait := time.Duration(0)
		paced := !busy && l.pace.hold(l.armed)
		switch {
		case busy:
		case paced:
			wait = l.idle()
			if wait == forever || wait > paceFor {
				wait = paceFor
			}
		case l.settle():
			wait = l.idle()
		}
		k, err := epollWait(l.epoll, events, wait)
		if err != nil || !l.note(events[:k]) {
			return
		}
		l.expire()
		busy = l.round()
		if paced {
			l.pace.judge(l.armed)
		}
	}
}

// note queues the nodes that something has happened to; false if it was the end.
func (l *loop) note(events []unix.EpollEvent) bool {
	if len(events) == 0 {
		return true
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range events {
		tag := events[i].Fd
		if tag == 0 {
			return false
		}
		x := l.heard[tag]
		if x == nil {
			continue
		}
		if x.bell == nil {
			x.n.port.Heard()
			l.queue(x.n, node.Work{Packets: true})
			continue
		}
		l.pace.rang(x.n)
		l.queue(x.n, node.Work{Doorbells: true})
		if !slices.Contains(x.n.rang, x.bell) {
			x.n.rang = append(x.n.rang, x.bell)
		}
	}
	return true
}

func (l *loop) queue(n *driven, w node.Work) {
	n.work.Packets = n.work.Packets || w.Packets
	n.work.Doorbells = n.work.Doorbells || w.Doorbells
	if !n.queued {
		n.queued = true
		l.ready = append(l.ready, n)
	}
}

// round gives every node a turn that has a reason for one. It reports whether another
// round may find more without anything new from outside.
func (l *loop) round() (busy bool) {
	for _, n := range l.armed {
		l.queue(n, node.Work{Doorbells: true})
	}
	turn := l.ready
	l.ready = l.spare[:0]
	for _, n := range turn {
		busy = l.turn(n) || busy
	}
	l.spare = turn
	return busy || len(l.ready) > 0
}

// turn gives a node its turn. It reports whether packets went out, maybe to one of ours.
func (l *loop) turn(n *driven) (sent bool) {
	w := n.work
	n.work, n.queued = node.Work{}, false
	sent, n.due = n.node.Turn(w)
	if n.due == 0 || n.port.Pending() {
		l.queue(n, node.Work{Packets: n.port.Pending()})
	}
	if n.due != vtime.Never && !n.listed {
		n.listed = true
		l.nodes = append(l.nodes, n)
	}
	if len(n.rang) > 0 && !n.armed {
		n.armed = true
		l.armed = append(l.armed, n)
	}
	return sent
}

// settle clears the words of the contexts that have rung and looks at their rings for the
// last time. It reports whether there is nothing to do.
func (l *loop) settle() bool {
	idle := true
	for _, n := range l.armed {
		n.asleep = true
		n.work.Doorbells = true
		sent := l.turn(n)
		n.asleep = false
		n.armed, n.rang = false, n.rang[:0]
		idle = idle && !sent
	}
	l.armed = l.armed[:0]
	return idle && len(l.ready) == 0
}

// answer takes what the programs have posted that have rung. The owner of the device
// calls it; he also owns attached.open, so the memory is there. It implements
// node.Config.Doorbells.
func (n *driven) answer(d *rvt.Device) {
	keep := n.rang[:0]
	for _, a := range n.rang {
		if !a.open {
			continue
		}
		if arm := !n.asleep && a.ctx.Objects() <= maxArmed; arm {
			keep = append(keep, a)
		} else {
			// Before the look: what is posted after it rings again.
			a.rings.bell().Store(0)
		}
		n.taken += a.ctx.Scan(d)
	}
	clear(n.rang[len(keep):])
	n.rang = keep
}

// idle is how long the thread may sleep.
func (l *loop) idle() time.Duration {
	due := vtime.Never
	k := 0
	for _, n := range l.nodes {
		if n.listed = n.due != vtime.Never; !n.listed {
			continue
		}
		l.nodes[k] = n
		k++
		due = vtime.Min(due, n.due)
	}
	clear(l.nodes[k:])
	l.nodes = l.nodes[:k]
	if due == vtime.Never {
		return forever
	}
	return max(due.Sub(node.Now()), 0)
}

// expire queues the nodes that have waited long enough.
func (l *loop) expire() {
	if len(l.nodes) == 0 {
		return
	}
	now := node.Now()
	for _, n := range l.nodes {
		if n.due <= now {
			l.queue(n, node.Work{})
		}
	}
}

// forever is a wait that only an event ends.
const forever = time.Duration(-1)

// epollWait waits for events. A wait that can block goes through Syscall, which tells Go's
// scheduler; a mere look does not need to.
func epollWait(fd int, events []unix.EpollEvent, d time.Duration) (int, error) {
	ts := unix.NsecToTimespec(int64(d))
	at := &ts
	if d == forever {
		at = nil
	}
	var n uintptr
	var e syscall.Errno
	if d == 0 {
		n, _, e = unix.RawSyscall6(unix.SYS_EPOLL_PWAIT2, uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(at)), 0, 0)
	} else {
		n, _, e = unix.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), uintptr(unsafe.Pointer(at)), 0, 0)
	}
	switch e {
	case 0:
		return int(n), nil
	case unix.EINTR:
		return 0, nil
	case unix.ENOSYS:
		return oldEpollWait(fd, events, d)
	}
	return 0, os.NewSyscallError("epoll_pwait2", e)
}

// oldEpollWait is for Linux before 5.11: it waits to the millisecond, and rather too long.
func oldEpollWait(fd int, events []unix.EpollEvent, d time.Duration) (int, error) {
	ms := -1
	if d != forever {
		ms = int((d + time.Millisecond - 1) / time.Millisecond)
	}
	n, err := unix.EpollWait(fd, events, ms)
	if err == unix.EINTR {
		return 0, nil
	}
	return max(n, 0), os.NewSyscallError("epoll_wait", err)
}
