package mem

import "github.com/rvtsim/rvtsim/vtime"

// event is a packet's place in the time line: a small handle, so that sifting moves
// 24 bytes and not a packet.
type event struct {
	at   vtime.Time
	seq  uint64 // order of sending; makes the order total and equal times FIFO
	slot uint32
}

func (a *event) before(b *event) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// eventHeap is a 4-ary min-heap on (at, seq). Four children share a cache line or
// two, which makes it shallower and faster than a binary heap; and it is typed,
// because container/heap would box each element.
type eventHeap []event

const arity = 4

func (h *eventHeap) push(e event) {
	s := append(*h, e)
	i := len(s) - 1
	for i > 0 {
		up := (i - 1) / arity
		if !e.before(&s[up]) {
			break
		}
		s[i] = s[up]
		i = up
	}
	s[i] = e
	*h = s
}

// pop removes the first event. The heap must not be empty.
func (h *eventHeap) pop() event {
	s := *h
	first := s[0]
	last := s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return first
	}
	i := 0
	for {
		child := arity*i + 1
		if child >= len(s) {
			break
		}
		least := child
		for c := child + 1; c < min(child+arity, len(s)); c++ {
			if s[c].before(&s[least]) {
				least = c
			}
		}
		if !s[least].before(&last) {
			break
		}
		s[i] = s[least]
		i = least
	}
	s[i] = last
	return first
}
