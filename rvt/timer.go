package rvt

import (
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// timerHeap orders QPs by deadline, then QPN. An entry may be early: when it comes up
// the QP's own deadline is looked at again. So disarming a timer and arming it for
// later costs nothing here, and no timer can fire after it was stopped.
type timerHeap []*qp.QP

func (h timerHeap) less(i, j int) bool {
	a, b := h[i], h[j]
	if a.HeapAt != b.HeapAt {
		return a.HeapAt < b.HeapAt
	}
	return a.QPN < b.QPN
}

func (h timerHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].HeapPos, h[j].HeapPos = i, j
}

func (h timerHeap) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if !h.less(i, p) {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h timerHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h.less(c+1, c) {
			c++
		}
		if !h.less(c, i) {
			return
		}
		h.swap(i, c)
		i = c
	}
}

func (h *timerHeap) push(q *qp.QP) {
	q.HeapPos = len(*h)
	*h = append(*h, q)
	h.up(q.HeapPos)
}

func (h *timerHeap) remove(i int) {
	old := *h
	last := len(old) - 1
	old.swap(i, last)
	old[last].HeapPos = -1
	old[last] = nil
	*h = old[:last]
	if i < last {
		h.down(i)
		h.up(i)
	}
}

// retime makes sure that the heap wakes q no later than its deadline.
func (d *Device) retime(q *qp.QP) {
	at := q.Deadline()
	switch {
	case at == vtime.Never || q.Destroy:
	case q.HeapPos < 0:
		q.HeapAt = at
		d.timers.push(q)
	case at < q.HeapAt:
		q.HeapAt = at
		d.timers.up(q.HeapPos)
	}
}

// Deadline returns when Expire is due: vtime.Never if no timer runs. It may be early,
// never late.
func (d *Device) Deadline() vtime.Time {
	if len(d.timers) == 0 {
		return vtime.Never
	}
	return d.timers[0].HeapAt
}

// Expire runs the timers that are due at now.
func (d *Device) Expire(now vtime.Time) {
	d.env.Now = now
	for len(d.timers) > 0 && d.timers[0].HeapAt <= now {
		q := d.timers[0]
		if q.Deadline() <= now {
			q.Expire(now)
			d.link(q)
		}
		if at := q.Deadline(); at == vtime.Never {
			d.timers.remove(0)
		} else {
			q.HeapAt = max(at, q.HeapAt)
			if q.HeapAt <= now {
				q.HeapAt = at // more than one timer was due
			}
			d.timers.down(0)
		}
	}
}
