package mem

import "github.com/rvtsim/rvtsim/vtime"

// schedule orders the packets in flight on (at, seq). Each place they travel to, a node or
// a port of a switch, has a queue of its own, and a heap holds the places by their first
// packet. So what arrives at one node lies together: a burst costs one step in a heap
// as long as there are places, however many packets are under way.
type schedule struct {
	places []place
	heads  []head
	count  int
}

// place is where packets arrive.
type place struct {
	queue
	pos int32 // in heads; -1 if nothing is on its way to it
}

// head is the first packet on its way to a place. It names the frame, so that this can be
// read without the place, which in a large world is in no cache.
type head struct {
	at    vtime.Time
	seq   uint64
	place int32
	slot  uint32
}

func (a *head) before(b *head) bool {
	return a.at < b.at || a.at == b.at && a.seq < b.seq
}

// noPlace is no place.
const noPlace int32 = -1

// addPlace returns a new place.
func (s *schedule) addPlace() int32 {
	s.places = append(s.places, place{pos: -1})
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
	p := &s.places[place]
	s.count++
	if !p.push(e) {
		return // something comes before it
	}
	i := int(p.pos)
	if i < 0 {
		i = len(s.heads)
		s.heads = append(s.heads, head{})
	}
	s.up(i, head{e.at, e.seq, place, e.slot})
}

// pop takes the first packet of a place out. The caller calls settle when it has taken
// as many as it wants.
func (s *schedule) pop(place int32) event {
	s.count--
	return s.places[place].pop()
}

// settle puts a place where its first packet belongs, after pop.
func (s *schedule) settle(place int32) {
	p := &s.places[place]
	i := int(p.pos)
	if e := p.front(); e != nil {
		s.down(i, head{e.at, e.seq, place, e.slot}) // it can only have become later
		return
	}
	p.pos = -1
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
		s.places[s.heads[i].place].pos = int32(i)
		i = p
	}
	s.heads[i] = h
	s.places[h.place].pos = int32(i)
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
		s.places[s.heads[i].place].pos = int32(i)
		i = least
	}
	s.heads[i] = h
	s.places[h.place].pos = int32(i)
	return i
}
