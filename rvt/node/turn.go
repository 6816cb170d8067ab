package node

import (
	"github.com/rvtsim/rvtsim/vtime"
)

// Work says what there is reason to look at. Timers and packets that wait to be sent are
// looked at in any case.
type Work struct {
	Packets   bool // the port may have some
	Doorbells bool // Config.Doorbells may find something
}

// Turn is for a loop that drives several Manual nodes and sleeps for all of them. It makes
// one pass, which may wait for that of a caller of Do or Begin. sent tells that packets
// went to the port. due is when the next Turn is needed even if nothing happens, as an
// instant of the node's clock: one in the past if there is more to do at once, Never if the
// node has nothing to wait for, or works no more. Until the next Turn, whoever gives the
// device something to do that is earlier calls the port's Wake.
func (n *Node) Turn(w Work) (sent bool, due vtime.Time) {
	n.mu.Lock()
	defer n.answer()
	defer n.mu.Unlock()
	n.sleeping, n.wrote = false, false
	if n.stopped.Load() {
		return false, vtime.Never
	}
	n.do(w)
	n.sleeping, n.sleepUntil = true, n.deadline()
	switch {
	case n.stopped.Load():
		return n.wrote, vtime.Never
	case n.loop.len() > 0 || n.dev.Pending() && !n.blocked && !n.hold.active():
		return n.wrote, 0
	case n.txHead < len(n.tx):
		return n.wrote, vtime.Min(n.sleepUntil, n.now().Add(blockedWait))
	case n.sleepUntil == vtime.Never:
		return n.wrote, vtime.Never
	}
	// As for the background goroutine: one that has passed is not urgent enough to spin.
	return n.wrote, max(n.sleepUntil, n.now().Add(leastWait))
}
