package mem

import "github.com/rvtsim/rvtsim/vtime"

// schedule orders the packets in flight on (at, seq). Each place they travel to, a node or
// a port of a switch, has a queue of its own, and a heap holds the places by their first
// packet. So what arrives at one node lies together: a burst costs one step in a heap
// as long as there are places, however many packets are under way. Ports, whose packets
// come in the order they were sent unless something goes wrong, make for short queues.
type schedule struct {
	places []eventHeap
	pos    []int32 // of a place in heads; -1 if nothing is on its way to it
	heads  []head
	count  int
}

// head is the first packet on its way to a place.
type head struct {
	at    vtime.Time
	seq   uint64
	place int32
}

func (a *head) before(b *head) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// noPlace is no place.
const noPlace int32 = -1

// addPlace returns a new place.
func (s *schedule) addPlace() int32 {
	s.places = append(s.places, nil)
	s.pos = append(s.pos, -1)
	return int32(len(s.places) - 1)
}

// first is the place whose turn it is; nil if nothing is in flight.
func (s *schedule) first() *head {
	if len(s.heads) == 0 {
		return nil
	}
	return &s.heads[0]
}

func (s *schedule) push(place int32, e event) {
	q := &s.places[place]
	q.push(e)
	s.count++
	if (*q)[0].seq != e.seq {
		return // something comes before it
	}
	i := s.pos[place]
	if i < 0 {
		i = int32(len(s.heads))
		s.heads = append(s.heads, head{})
	}
	s.up(int(i), head{e.at, e.seq, place})
}

// pop takes the first packet of a place out. The caller calls settle when it has taken
// as many as it wants.
func (s *schedule) pop(place int32) event {
	s.count--
	return s.places[place].pop()
}

// settle puts a place where its first packet belongs, after pop.
func (s *schedule) settle(place int32) {
	i := int(s.pos[place])
	if q := s.places[place]; len(q) > 0 {
		s.down(i, head{q[0].at, q[0].seq, place}) // it can only have become later
		return
	}
	s.pos[place] = -1
	last := s.heads[len(s.heads)-1]
	s.heads = s.heads[:len(s.heads)-1]
	if i == len(s.heads) {
		return
	}
	if s.down(i, last) == i {
		s.up(i, last)
	}
}

// up and down put h in at position i or where it belongs from there.
func (s *schedule) up(i int, h head) {
	for i > 0 {
		p := (i - 1) / arity
		if !h.before(&s.heads[p]) {
			break
		}
		s.heads[i] = s.heads[p]
		s.pos[s.heads[i].place] = int32(i)
		i = p
	}
	s.heads[i] = h
	s.pos[h.place] = int32(i)
}

func (s *schedule) down(i int, h head) int {
	for {
		c := arity*i + 1
		if c >= len(s.heads) {
			break
		}
		least := c
		for k := c + 1; k < min(c+arity, len(s.heads)); k++ {
			if s.heads[k].before(&s.heads[least]) {
				least = k
			}
		}
		if !s.heads[least].before(&h) {
			break
		}
		s.heads[i] = s.heads[least]
		s.pos[s.heads[i].place] = int32(i)
		i = least
	}
	s.heads[i] = h
	s.pos[h.place] = int32(i)
	return i
}
