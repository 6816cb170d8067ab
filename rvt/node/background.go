package node

import (
	"math"
	"runtime"
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// How long the background goroutine keeps away from the port while a program polls.
const (
	minNap = 50 * time.Microsecond
	maxNap = time.Millisecond
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
	n            *Node
	polls, parks uint64        // as last seen
	nap          time.Duration // length of the last nap, 0 while it drives
	timer        *time.Timer
}

func (n *Node) run() {
	defer close(n.done)
	b := &background{n: n, timer: time.NewTimer(0)}
	defer b.timer.Stop()
	for !n.stopped.Load() {
		if b.othersDrive() {
			b.nap = min(max(2*b.nap, minNap), maxNap)
			b.sleep(b.nap, true)
			continue
		}
		b.nap = 0
		d := n.backgroundPass()
		// Who waits for what the pass brought runs first, on this processor: otherwise
		// it would have to be stolen from under a thread that is about to block.
		runtime.Gosched()
		if d > 0 {
			b.wait(d)
		}
	}
}

// fewPolls is how many polls between two looks do not count yet. A program that sleeps
// in its channel polls once or twice when it wakes up, and will sleep again at once.
const fewPolls = 3

// othersDrive reports whether somebody has polled since it was last asked and nobody
// has said that he stops.
func (b *background) othersDrive() bool {
	polls, parks := b.n.polls.Load(), b.n.parks.Load()
	few := uint64(fewPolls)
	if b.nap > 0 {
		few = 0
	}
	driven := polls-b.polls > few && parks == b.parks
	b.polls, b.parks = polls, parks
	return driven
}

// backgroundPass makes a pass. It returns how long to wait for the port, 0 if there is
// more to do at once. From here on until the wait ends, whoever finds work
// for the background goroutine wakes it.
func (n *Node) backgroundPass() time.Duration {
	n.mu.Lock()
	defer n.answer()
	defer n.mu.Unlock()
	n.sleeping = false
	n.stats.BackgroundPasses++
	if n.pass() || n.stopped.Load() || n.loop.len() > 0 {
		return 0
	}
	n.sleeping = true
	n.stats.Waits++
	n.sleepUntil = n.deadline()
	d := forever
	if n.sleepUntil != vtime.Never {
		d = n.sleepUntil.Sub(n.now())
	}
	if n.txHead < len(n.tx) {
		d = min(d, blockedWait)
	}
	// A deadline that has passed is a timer that came due since the pass, or a
	// decorator that cannot write just now. Neither is urgent enough to spin.
	return max(d, leastWait)
}

// wait sleeps in the port. A port that cannot wait is looked at now and then.
func (b *background) wait(d time.Duration) {
	n := b.n
	if n.wait != nil {
		err := n.wait.Wait(d)
		if err == nil {
			return
		}
		if n.stopped.Load() {
			return
		}
		// A decorator over a port that cannot wait, or a failed port: the next pass
		// will tell. Meanwhile this must not spin.
	}
	n.mu.Lock()
	n.sleeping = false
	n.mu.Unlock()
	b.sleep(min(d, maxNap), false)
}

// sleep lets d pass, less if the node is closed or, in a nap, if somebody parks.
func (b *background) sleep(d time.Duration, nap bool) {
	n := b.n
	if nap {
		n.naps.Add(1)
		n.napping.Store(true)
		defer n.napping.Store(false)
		if n.parks.Load() != b.parks { // after napping was set: Park looks in the other order
			return
		}
	}
	b.timer.Reset(d)
	select {
	case <-b.timer.C:
	case <-n.kick:
	case <-n.quit:
	}
}
