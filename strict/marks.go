package strict

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rvtsim/rvtsim/cq"
)

// Mark is how full a queue ever was, of the slots that it has.
type Mark struct {
	Queue      string // "send queue of qp 0x11", "cq 3"
	Most, Size int
}

func (m Mark) String() string { return fmt.Sprintf("%s: %d of %d", m.Queue, m.Most, m.Size) }

// tight: a tenth more and the queue would have been too small.
func (m Mark) tight() bool { return m.Size > 1 && m.Most*10 >= m.Size*9 }

// maxPast bounds the marks that are kept of queues that are gone.
const maxPast = 32

// Tight returns the send and completion queues that were filled to nine tenths of their size
// or more, the latest of those that are gone first. That is no misuse: a program may fill its
// send queue on purpose. It is where the next work request, or the next completion, fails.
func (t *Tracker) Tight() []Mark {
	var list []Mark
	for _, st := range t.live {
		list = append(list, st.mark())
	}
	for _, cs := range t.cqs { //arch:sorted sorted below
		list = append(list, cs.mark())
	}
	list = slices.DeleteFunc(list, func(m Mark) bool { return !m.tight() })
	slices.SortFunc(list, func(a, b Mark) int { return strings.Compare(a.Queue, b.Queue) })
	return append(slices.Clone(t.past), list...)
}

func (st *qpState) mark() Mark { return Mark{"send queue of " + st.q.String(), st.most, st.size()} }

func (cs *cqState) mark() Mark { return Mark{cs.c.String(), cs.most, cs.c.CQE()} }

// retire keeps the mark of a queue that goes.
func (t *Tracker) retire(m Mark) {
	if !m.tight() {
		return
	}
	if len(t.past) == maxPast {
		t.past = t.past[:maxPast-1]
	}
	t.past = slices.Insert(t.past, 0, m)
}

// enter notes a completion that was put into a queue.
func (cs *cqState) enter(it item) {
	cs.items = append(cs.items, it)
	cs.most = max(cs.most, cs.c.Len()) // by the ring: polls may not have been noticed yet
}

// DestroyCQ is told that a completion queue is gone.
func (t *Tracker) DestroyCQ(c *cq.CQ) {
	if cs := t.cqs[c]; cs != nil {
		t.retire(cs.mark())
	}
	delete(t.cqs, c)
}
