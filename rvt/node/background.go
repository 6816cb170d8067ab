package node

import (
	"math"
	"runtime"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/vtime"
)

// How long the background goroutine keeps away from the port while a program polls.
const (
	minNap = 50 * time.Microsecond
	// silence is how long ago the last poll was if a program polls no more, or only now and
	// then while it waits elsewhere, for a byte in its memory to change say.
	silence = 50 * time.Microsecond
	maxNap  = time.Millisecond
	// blockedWait is the longest wait while packets wait for room, should the port
	// not tell when there is some.
	blockedWait = time.Millisecond
	// leastWait keeps a deadline in the past from spinning.
	leastWait = 5 * time.Microsecond
	// forever is a wait that only a packet or a Wake ends.
	forever = time.Duration(math.MaxInt64)
)

// background is the state of the goroutine that drives when nobody else does.
type background struct {
	n       *Node
	nap     fabric.Napper // nil if the port cannot
	watch   watch
	napped  time.Duration // length of the last nap, 0 while it drives
	timer   *time.Timer
	linger  linger
	told    uint64 // Node.told when it was last looked at
	silence time.Duration
	courtesy
}

func (n *Node) run() {
	defer close(n.done)
	b := &background{n: n, timer: time.NewTimer(0), linger: newLinger(n.cfg.Linger),
		silence: silence * time.Duration(max(n.cfg.Pace, 1))}
	b.nap, _ = n.port.(fabric.Napper)
	defer b.timer.Stop()
	for !n.stopped.Load() {
		if b.othersDrive() {
			b.takeNap()
			continue
		}
		b.napped = 0
		p := b.pass()
		now := n.now()
		stays := p.held || b.linger.passed(now, p.received > 0)
		if told := n.told.Load(); told != b.told {
			b.told, stays = told, false
			b.linger.leave(now)
		}
		if !b.lets(now, p.received+p.sent) {
			continue
		}
		if stays {
			// Without sched_yield: it would give a whole slice, some milliseconds, to any
			// thread that only computes. Who sleeps instead runs as soon as he is woken.
			continue
		}
		// Who waits for what the pass brought runs first, on this processor: otherwise
		// it would have to be stolen from under a thread that is about to block.
		runtime.Gosched()
		if p.wait > 0 {
			b.wait(p.wait)
		}
	}
}

// courtesy decides when the background goroutine asks others whether they want to run.
type courtesy struct{ asked vtime.Time }

const (
	// streaming is how many packets of a pass show that there are more at once. yieldEvery is
	// how often others are then asked whether they want to run, which costs as much as some
	// packets.
	streaming  = 4
	yieldEvery = 50 * time.Microsecond
)

// lets reports whether others are asked after a pass that ended now.
func (c *courtesy) lets(now vtime.Time, moved uint64) bool {
	if moved >= streaming && now.Sub(c.asked) < yieldEvery {
		return false
	}
	c.asked = now
	return true
}

// fewPolls is how many polls and posts between two looks do not count yet. A program that
// sleeps in its channel polls once or twice when it wakes up, and will sleep again at once.
const fewPolls = 3

// othersDrive reports whether somebody has polled since it was last asked and nobody
// has said that he stops.
func (b *background) othersDrive() bool {
	now := uses{b.n.polls.Load(), b.n.posts.Load(), b.n.parks.Load()}
	if b.napped > 0 {
		return b.watch.driven(now, 0, false) && b.n.usedWithin(b.silence)
	}
	return b.watch.driven(now, fewPolls, b.linger.lasts())
}

// uses counts what others have done.
type uses struct{ polls, posts, parks uint64 }

// watch is what others had done when the background goroutine last took note of it.
type watch struct{ uses }

// driven reports whether there were more than a few polls and posts since, and no park. While
// it lingers the background goroutine looks so often that hardly one fits in between: there
// they add up, until there is a park.
func (w *watch) driven(now uses, few uint64, lingers bool) bool {
	parked := now.parks != w.parks
	driven := now.polls-w.polls+now.posts-w.posts > few && !parked
	if few > 0 && now.polls == w.polls {
		driven = false // posts alone drive nothing, except for a while, between polls
	}
	if driven || parked || !lingers {
		w.uses = now
	}
	return driven
}

// usedWithin reports whether somebody is driving, or has polled or posted at most d ago and
// polled not much longer ago: who posts many messages polls in between. It does not wait for
// whoever is driving: Go would hand the node over in the end, and a program that polls would
// find it taken.
func (n *Node) usedWithin(d time.Duration) bool {
	if !n.mu.TryLock() {
		return true
	}
	defer n.unlock()
	now := n.now()
	return now.Sub(max(n.polledAt, n.postedAt)) <= d && now.Sub(n.polledAt) <= postsOnly*d
}

// postsOnly times silence is how long a program that posts may go without a poll.
const postsOnly = 20

// passage is what came of a pass of the background goroutine.
type passage struct {
	received, sent uint64        // packets
	held           bool          // others wait for room in the port, which soon has some
	wait           time.Duration // how long to wait for the port, 0 if there is more to do at once
}

// pass makes a pass. From here on until the wait ends, whoever finds work for the background
// goroutine wakes it; not if it stays, for then it looks again by itself.
func (b *background) pass() (p passage) {
	n := b.n
	n.mu.Lock()
	defer n.answer()
	defer n.giveUp()
	n.sleeping = false
	n.stats.BackgroundPasses++
	p.received, p.sent = n.received, n.sent
	worked, stays := n.pass(), b.linger.lasts()
	p.received, p.sent = n.received-p.received, n.sent-p.sent
	waiting := n.txHead < len(n.tx)
	p.held = waiting && b.linger.awaits(n.now(), p.sent > 0)
	if worked || stays || p.held || n.stopped.Load() || n.loop.len() > 0 {
		return p
	}
	n.sleeping = true
	n.stats.Waits++
	n.sleepUntil = n.deadline()
	p.wait = forever
	if n.sleepUntil != vtime.Never {
		p.wait = n.sleepUntil.Sub(n.now())
	}
	if waiting {
		p.wait = min(p.wait, blockedWait)
	}
	// A deadline that has passed is a timer that came due since the pass, or a
	// decorator that cannot write just now. Neither is urgent enough to spin.
	p.wait = max(p.wait, leastWait)
	return p
}

// wait sleeps in the port. A port that cannot wait is looked at now and then.
func (b *background) wait(d time.Duration) {
	n := b.n
	if n.wait != nil {
		err := n.wait.Wait(d)
		if err == nil || n.stopped.Load() {
			return
		}
		// A decorator over a port that cannot wait, or a failed port: the next pass
		// will tell. Meanwhile this must not spin.
	}
	n.awake()
	b.sleep(min(d, maxNap))
}

// awake says that the background goroutine does not wait in the port.
func (n *Node) awake() {
	n.mu.Lock()
	n.sleeping = false
	n.unlock()
}

// takeNap keeps away from the port, less long if somebody parks.
func (b *background) takeNap() {
	n := b.n
	if b.napped == 0 {
		n.awake()
	}
	b.napped = min(max(2*b.napped, minNap), maxNap)
	b.linger.napped()
	n.naps.Add(1)
	n.bell.Napping.Store(1)
	defer n.bell.Napping.Store(0)
	if n.parks.Load() != b.watch.parks { // after napping was set: Park looks in the other order
		return
	}
	if b.nap == nil || b.nap.Nap(b.napped) != nil {
		b.sleep(b.napped)
	}
}

// endNap ends a nap that is under way.
func (n *Node) endNap() {
	if n.bell.Napping.Load() == 0 {
		return
	}
	select {
	case n.kick <- struct{}{}:
	default:
	}
	if n.wait != nil {
		n.wait.Wake()
	}
}

// sleep lets d pass, less if the node is closed or a nap is to end.
func (b *background) sleep(d time.Duration) {
	b.timer.Reset(d)
	select {
	case <-b.timer.C:
	case <-b.n.kick:
	case <-b.n.quit:
	}
}
