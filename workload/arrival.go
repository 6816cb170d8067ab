package workload

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
)

// arrival is a message as its receiver sees it.
type arrival struct {
	wc   *cq.WC
	size int    // bytes, without the network header of UD
	buf  []byte // the message, nil if it went to remote memory
}

// identify finds out which message arrived. On RC it is the next one. On UC and UD
// some may be missing, so the message itself must tell.
func (e *Endpoint) identify(c *conn, in *arrival) (message, bool) {
	r := &c.recv
	if e.Spec.reliable() {
		if r.complete {
			e.violate(c, "a message of %d bytes arrived after the last one", in.size)
			return message{}, false
		}
		m := r.want
		r.advance(m.index + 1)
		return m, true
	}
	i, ok := e.guess(r, in)
	if !ok {
		if e.Spec.Verify {
			e.violate(c, "a message of %d bytes arrived that was never sent", in.size)
		}
		return message{}, false
	}
	switch {
	case !r.complete && i >= r.want.index:
		e.stats.Missed += r.skip(i)
		r.advance(i + 1)
	case e.Spec.Disorder:
		e.stats.Disordered++
	default:
		e.violate(c, "message %d arrived again, or after a later one", i)
	}
	return r.script.at(i), true
}

// skip counts the messages from the one wanted up to i, exclusive.
func (r *receiver) skip(i uint64) (n uint64) {
	for m, ok := r.want, true; ok && m.index < i; m, ok = r.script.next(m.index + 1) {
		n++
	}
	return n
}

// maxGuess bounds the search for a message that does not name itself.
const maxGuess = 1 << 12

// guess returns the index of a message on UC or UD: from its immediate data, from its
// first eight bytes, or the first one that would fit.
func (e *Endpoint) guess(r *receiver, in *arrival) (uint64, bool) {
	sc := &r.script
	if in.wc.Flags&ib.WCFlagWithImm != 0 {
		low := in.wc.Imm ^ uint32(sc.content)
		base := r.want.index
		i := base + uint64(int64(int32(low-uint32(base))))
		return i, sc.fits(i, in)
	}
	if len(in.buf) >= 8 && e.Spec.Verify {
		i := binary.LittleEndian.Uint64(in.buf) ^ sc.content
		return i, sc.fits(i, in)
	}
	from := uint64(0)
	if !e.Spec.Disorder {
		from = r.want.index
	}
	for i := from; i < from+maxGuess; i++ {
		if sc.fits(i, in) && (!e.Spec.Verify || sc.pattern(i).mismatch(in.buf, 0) < 0) {
			return i, true
		}
	}
	return 0, false
}

// fits reports whether message i looks like what arrived.
func (sc *script) fits(i uint64, in *arrival) bool {
	if n := sc.spec.Count; n > 0 && i >= n {
		return false
	}
	m := sc.at(i)
	return m.takesReceive() && m.size == in.size && m.hasImm() == (in.wc.Flags&ib.WCFlagWithImm != 0) && m.writes() == (in.wc.Opcode == ib.WCRecvRDMAWithImm)
}

// checkArrival compares a message with what was sent.
func (e *Endpoint) checkArrival(c *conn, m *message, in *arrival) {
	wc := in.wc
	want := ib.WCRecv
	if m.writes() {
		want = ib.WCRecvRDMAWithImm
	}
	if wc.Opcode != want || in.size != m.size {
		e.violate(c, "message %d (%v of %d bytes) arrived as %v of %d bytes", m.index, m.op, m.size, wc.Opcode, in.size)
		return
	}
	if imm := wc.Flags&ib.WCFlagWithImm != 0; imm != m.hasImm() || imm && wc.Imm != c.recv.script.imm(m.index) {
		e.violate(c, "message %d (%v) arrived with flags %v and immediate data %#x", m.index, m.op, wc.Flags, wc.Imm)
	}
	if inv := wc.Flags&ib.WCFlagWithInv != 0; inv != (m.op == ib.WRSendWithInv) {
		e.violate(c, "message %d (%v) arrived with flags %v", m.index, m.op, wc.Flags)
	}
	if !e.Spec.Verify {
		return
	}
	if !m.writes() {
		if i := c.recv.script.pattern(m.index).mismatch(in.buf, 0); i >= 0 {
			e.violate(c, "message %d (%v of %d bytes): byte %d is %#x", m.index, m.op, m.size, i, in.buf[i])
		}
		return
	}
	e.checkWritten(c, m)
}

// checkWritten looks at the memory that a WRITE with immediate data filled. Later
// WRITEs may have changed it already.
func (e *Endpoint) checkWritten(c *conn, m *message) {
	if e.Spec.Disorder && !e.Spec.reliable() {
		return // an older message may have come late
	}
	depth := uint64(e.Spec.Depth)
	at := e.lay.writeSlot(c.i*e.Spec.Depth + int(m.index%depth))
	end := e.Spec.Count
	if end == 0 {
		end = m.index + 4*depth
	}
	buf := e.buf[at : at+m.size]
	if i := c.recv.script.unexplained(buf, m.index, depth, end); i >= 0 {
		e.violate(c, "message %d (%v of %d bytes) was announced, but byte %d is %#x", m.index, m.op, m.size, i, buf[i])
	}
}
