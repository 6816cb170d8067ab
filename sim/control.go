package sim

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// At schedules a call. An instant that has passed means now. What the call does to a
// node must be followed by [World.Touch], or the node does not notice before its next
// event.
func (w *World) At(at vtime.Time, f func(now vtime.Time)) {
	w.calls.push(call{at: max(at, w.now), f: f})
}

// ModifyToError moves a QP of a node to ERR, as a program would.
func (w *World) ModifyToError(n *Node, q *qp.QP) error {
	err := n.Dev.ModifyQP(w.now, q, &qp.Attr{State: ib.StateErr}, ib.AttrState)
	w.Touch(n)
	return err
}

// SetPort takes the port of a node's device up or down. Down, it drops what arrives
// and what it would send.
func (w *World) SetPort(n *Node, up bool) {
	n.Dev.SetPort(up)
	w.Touch(n)
}

// Partition cuts both directions between two nodes, or heals them.
func (w *World) Partition(a, b *Node, cut bool) {
	if cut {
		w.net.Partition(a.Index, b.Index)
		w.net.Partition(b.Index, a.Index)
		return
	}
	w.net.HealPartition(a.Index, b.Index)
	w.net.HealPartition(b.Index, a.Index)
}

// Kill ends a node: its device and programs do nothing any more, and what is sent to
// it vanishes.
func (w *World) Kill(n *Node) {
	n.dead = true
	w.timers.move(n, vtime.Never)
}

// Restart brings a node that was killed back with an empty device: its objects and
// applications are gone, and what arrives for them meets no queue pair.
func (w *World) Restart(n *Node) error {
	cfg := *n.Dev.Config()
	n.generation++
	cfg.Seed = fabric.Mix(cfg.Seed, uint64(n.generation))
	// Numbers that its peers may still send to are not used again soon.
	cfg.FirstQPN = ib.QPN(restartQPN * (1 + n.generation%(int(ib.QPNMulticast)/restartQPN-1)))
	dev, err := rvt.New(cfg)
	if err != nil {
		return err
	}
	n.past.Add(n.Dev.Counters())
	for _, s := range n.slots { //arch:sorted each is marked
		s.gone = true
	}
	n.Dev, n.dead = dev, false
	n.polled, n.ready, n.driven, n.watched, n.slots = nil, nil, nil, nil, nil
	n.due, n.eager = 0, 0
	w.timers.move(n, vtime.Never)
	return nil
}

// restartQPN is how far the queue pair numbers of a restarted node lie from those before.
const restartQPN = 1 << 14

// Counters returns the counters of the node's device and of those before it.
func (n *Node) Counters() qp.Counters {
	c := n.past
	c.Add(n.Dev.Counters())
	return c
}

// Wake has an application stepped before its node comes to rest. It is for other
// applications of the node, while they are stepped.
func (w *World) Wake(n *Node, a App) {
	if s := n.slots[a]; s != nil {
		n.wake(s)
	}
}

// Dead reports whether the node was killed.
func (n *Node) Dead() bool { return n.dead }

// Modify moves a QP from one state to another that needs no attributes; it leaves a QP
// alone that is not in the first. It reports whether it did anything.
func (w *World) Modify(n *Node, q *qp.QP, from, to ib.QPState) bool {
	if q.State != from {
		return false
	}
	err := n.Dev.ModifyQP(w.now, q, &qp.Attr{State: to}, ib.AttrState)
	w.Touch(n)
	return err == nil
}
