package sim

import "github.com/rvtsim/rvtsim/vtime"

// nodeHeap is an indexed binary heap of nodes on (wakeAt, Index). Only nodes that have
// a deadline are in it.
type nodeHeap []*Node

func (a *Node) before(b *Node) bool {
	return a.wakeAt < b.wakeAt || a.wakeAt == b.wakeAt && a.Index < b.Index
}

// move puts n where the instant at belongs; vtime.Never takes it out.
func (h *nodeHeap) move(n *Node, at vtime.Time) {
	n.wakeAt = at
	switch {
	case at == vtime.Never && n.heapPos < 0:
	case at == vtime.Never:
		h.remove(n)
	case n.heapPos < 0:
		n.heapPos = len(*h)
		*h = append(*h, n)
		h.up(n)
	default:
		h.down(n)
		h.up(n)
	}
}

func (h *nodeHeap) remove(n *Node) {
	s := *h
	i, last := n.heapPos, len(s)-1
	moved := s[last]
	s[i], moved.heapPos = moved, i
	s[last] = nil
	*h = s[:last]
	n.heapPos = -1
	if moved != n {
		h.down(moved)
		h.up(moved)
	}
}

func (h nodeHeap) up(n *Node) {
	i := n.heapPos
	for i > 0 {
		p := (i - 1) / 2
		if !n.before(h[p]) {
			break
		}
		h[i] = h[p]
		h[i].heapPos = i
		i = p
	}
	h[i], n.heapPos = n, i
}

func (h nodeHeap) down(n *Node) {
	i := n.heapPos
	for {
		c := 2*i + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && h[c+1].before(h[c]) {
			c++
		}
		if !h[c].before(n) {
			break
		}
		h[i] = h[c]
		h[i].heapPos = i
		i = c
	}
	h[i], n.heapPos = n, i
}

// call is something to do at an instant: a function, or an application whose deadline
// comes.
type call struct {
	at  vtime.Time
	seq uint64
	f   func(now vtime.Time)
	app *appSlot
}

// callHeap is a binary heap on (at, seq).
type callHeap struct {
	list []call
	seq  uint64
}

func (h *callHeap) len() int { return len(h.list) }

// next is the instant of the first call, vtime.Never if there is none.
func (h *callHeap) next() vtime.Time {
	if len(h.list) == 0 {
		return vtime.Never
	}
	return h.list[0].at
}

func (h *callHeap) before(i, j int) bool {
	a, b := &h.list[i], &h.list[j]
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

func (h *callHeap) push(c call) {
	c.seq = h.seq
	h.seq++
	h.list = append(h.list, c)
	for i := len(h.list) - 1; i > 0; {
		p := (i - 1) / 2
		if !h.before(i, p) {
			break
		}
		h.list[i], h.list[p] = h.list[p], h.list[i]
		i = p
	}
}

func (h *callHeap) pop() call {
	top := h.list[0]
	last := len(h.list) - 1
	h.list[0] = h.list[last]
	h.list[last] = call{}
	h.list = h.list[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return top
		}
		if c+1 < last && h.before(c+1, c) {
			c++
		}
		if !h.before(c, i) {
			return top
		}
		h.list[i], h.list[c] = h.list[c], h.list[i]
		i = c
	}
}
