package workload

import (
	"encoding/binary"
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// VerifyPair compares the two ends of a flow after its traffic and returns what does
// not fit, besides what the endpoints noticed themselves. The caller owns both
// devices, and nothing is in flight between them.
func VerifyPair(client, server *Endpoint) []string {
	out := append(append([]string(nil), client.unsure.list...), server.unsure.list...)
	for _, e := range []*Endpoint{client, server} {
		if n := e.unsure.total - len(e.unsure.list); n > 0 {
			out = append(out, fmt.Sprintf("%s: %d more", e.Name(), n))
		}
	}
	v := verifier{}
	v.oneWay(client, server)
	if client.Spec.Bidirectional {
		v.oneWay(server, client)
	}
	v.containment(client)
	v.containment(server)
	v.queues(client)
	v.queues(server)
	return append(out, v.out...)
}

type verifier struct{ out []string }

func (v *verifier) add(e *Endpoint, c *conn, format string, args ...any) {
	name := e.Name()
	if c != nil {
		name += " qp " + c.q.QPN.String()
	}
	if len(v.out) < maxViolations {
		v.out = append(v.out, name+": "+fmt.Sprintf(format, args...))
	}
}

// oneWay checks what went from one end to the other.
func (v *verifier) oneWay(from, to *Endpoint) {
	shared, exact := uint64(0), true
	for i, c := range from.qps {
		d := to.qps[i]
		clean := !c.down && !d.down && c.send.outstanding() == 0 && from.err == nil
		if clean && from.Spec.reliable() {
			v.received(from, c, to, d)
			v.written(from, c, to)
			v.atomics(from, c, to)
		}
		exact = exact && clean
		shared += c.send.sharedAdded
	}
	if exact && from.Spec.any(swqe.OpAtomic) && from.Spec.reliable() {
		if got := binary.LittleEndian.Uint64(to.buf[to.lay.atomicWord(from.Spec.QPs):]); got != shared {
			v.add(to, nil, "the shared atomic word is %#x, the FETCH_ADDs that completed make %#x", got, shared)
		}
	}
}

// received compares the numbers of messages.
func (v *verifier) received(from *Endpoint, c *conn, to *Endpoint, d *conn) {
	if to.paused {
		return
	}
	want := uint64(0)
	for i := range c.send.posted {
		if m := c.send.script.at(i); m.takesReceive() {
			want++
		}
	}
	if msn := ib.MSN(c.send.posted) & ib.PSNMask; d.q.RMSN != msn {
		v.add(to, d, "has MSN %d after %d messages", d.q.RMSN, c.send.posted)
	}
	if d.recv.got != want {
		v.add(to, d, "received %d messages, the peer sent %d", d.recv.got, want)
	}
}

// written compares each write slot with what all WRITEs to it leave: the last one, and
// behind its end what longer ones before it wrote.
func (v *verifier) written(from *Endpoint, c *conn, to *Endpoint) {
	if to.lay.writeSlots == 0 || !from.Spec.Verify {
		return
	}
	depth := uint64(from.Spec.Depth)
	for k := range min(depth, c.send.posted) {
		at := to.lay.writeSlot(c.i*from.Spec.Depth + int(k))
		slot := to.buf[at : at+to.lay.writeMax-gapBytes/2-8]
		last := c.send.posted - 1
		v.slot(to, c, slot, last-(last-k)%depth, depth)
	}
}

// slot checks one write slot. i is the last message that may have been written to it,
// every depth-th before it the others.
func (v *verifier) slot(to *Endpoint, c *conn, slot []byte, i, depth uint64) {
	covered := 0
	for {
		if m := c.send.script.at(i); m.writes() && m.size > covered {
			if x := c.send.script.pattern(i).mismatch(slot[covered:m.size], covered); x >= 0 {
				v.add(to, nil, "memory of qp %v: byte %d of what WRITE %d left is %#x", c.q.QPN, covered+x, i, slot[covered+x])
				return
			}
			covered = m.size
		}
		if i < depth {
			break
		}
		i -= depth
	}
	if x := untouched(slot[covered:]); x >= 0 {
		v.add(to, nil, "memory of qp %v: byte %d of the slot of WRITE %d changed, no WRITE reaches that far", c.q.QPN, covered+x, i)
	}
}

// atomics compares a QP's own word with the sequence of its atomics.
func (v *verifier) atomics(from *Endpoint, c *conn, to *Endpoint) {
	if !from.Spec.any(swqe.OpAtomic) {
		return
	}
	if got := binary.LittleEndian.Uint64(to.buf[to.lay.atomicWord(c.i):]); got != c.send.atomic {
		v.add(to, nil, "the atomic word of qp %v is %#x, want %#x", c.q.QPN, got, c.send.atomic)
	}
}

// containment checks that nothing was written where nothing may be.
func (v *verifier) containment(e *Endpoint) {
	if !e.Spec.Verify || e.buf == nil {
		return
	}
	l := &e.lay
	at := 0
	gap := func(until int) {
		if x := untouched(e.buf[at:until]); x >= 0 {
			v.add(e, nil, "byte %d of memory was written, which belongs to nothing", at+x)
		}
	}
	used := func(off, n int) {
		gap(off)
		at = off + n
	}
	for i := range l.sendSlots {
		used(l.sendSlot(i), max(e.Spec.Sizes.Longest(), atomicBytes))
	}
	for i := range l.recvSlots {
		used(l.recvSlot(i), l.recvBytes)
	}
	if l.atomicAt > 0 {
		used(l.atomicAt, (e.Spec.QPs+1)*atomicBytes)
	}
	for i := range l.writeSlots {
		used(l.writeSlot(i), max(e.Spec.Sizes.Longest(), atomicBytes))
	}
	if l.readBytes > 0 {
		used(l.readAt, l.readBytes)
		if x := readZonePattern(e.Spec.Seed, e.out).mismatch(e.buf[l.readAt:l.readAt+l.readBytes], 0); x >= 0 {
			v.add(e, nil, "byte %d of memory that is only read has changed", x)
		}
	}
	gap(len(e.buf))
}

// queues checks that the device holds back nothing.
func (v *verifier) queues(e *Endpoint) {
	v.shared(e)
	for _, c := range e.qps {
		if c.q.State != ib.StateErr {
			continue
		}
		if n := c.send.outstanding(); n > 0 {
			v.add(e, c, "%d work requests were never reported, and the QP is in ERR", n)
		}
		if n := c.recv.ring.outstanding(); n > 0 && !e.paused {
			v.add(e, c, "%d receives were never reported, and the QP is in ERR", n)
		}
	}
}

// shared checks that each receive of a shared queue is waiting, in use by a message, or was
// reported.
func (v *verifier) shared(e *Endpoint) {
	if e.srq == nil || e.paused || e.rcq.Overflowed() || e.rcq.Len() > 0 {
		return
	}
	held := 0
	for _, c := range e.qps {
		if c.q.RFlags&(qp.RWRIDValid|qp.RRewindSGE) != 0 {
			held++
		}
	}
	if n, most := e.srqRing.outstanding(), e.srq.RQ.Len()+held; n != most {
		v.add(e, nil, "%d receives of the shared queue were not reported, and %d wait or are in use", n, most)
	}
}
