package mem

// queue holds the packets on their way to one place, ordered on (at, seq). Nearly all come
// in that order and wait in a ring; the others wait in a heap. The first packet is the
// first of either.
type queue struct {
	ring     []event // as long as its capacity, which is a power of two or 0
	first, n uint32  // the entries in use
	others   *eventHeap
}

const leastRing = 4

func (q *queue) at(i uint32) *event { return &q.ring[(q.first+i)&uint32(len(q.ring)-1)] }

// push adds e and reports whether it is the first packet now.
func (q *queue) push(e event) (first bool) {
	if q.n > 0 && !e.before(q.at(q.n-1)) {
		q.append(e)
		return false
	}
	head := q.front()
	first = head == nil || e.before(head)
	if q.n == 0 {
		q.append(e)
		return first
	}
	if q.others == nil {
		q.others = new(eventHeap)
	}
	q.others.push(e)
	return first
}

// append puts e behind the ring's last.
func (q *queue) append(e event) {
	if int(q.n) == len(q.ring) {
		q.grow()
	}
	*q.at(q.n) = e
	q.n++
}

// grow doubles the ring. It never shrinks.
func (q *queue) grow() {
	ring := make([]event, max(2*len(q.ring), leastRing))
	for i := range q.n {
		ring[i] = *q.at(i)
	}
	q.ring, q.first = ring, 0
}

// front is the first packet, nil if there is none. It is valid until the next change.
func (q *queue) front() *event {
	var e *event
	if q.n > 0 {
		e = q.at(0)
	}
	if q.others != nil && len(*q.others) > 0 && (e == nil || (*q.others)[0].before(e)) {
		e = &(*q.others)[0]
	}
	return e
}

// pop removes the first packet. The queue must not be empty.
func (q *queue) pop() event {
	if q.others != nil && len(*q.others) > 0 && (q.n == 0 || (*q.others)[0].before(q.at(0))) {
		return q.others.pop()
	}
	e := *q.at(0)
	q.first++
	if q.n--; q.n == 0 {
		q.first = 0 // what was used last is in the cache
	}
	return e
}
