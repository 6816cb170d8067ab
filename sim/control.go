package sim

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
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
