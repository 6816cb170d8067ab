package workload

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// sender is the posting side of one QP.
type sender struct {
	script script
	ledger
	slots  []posted // by index modulo depth
	paceAt vtime.Time
	listed bool // in Endpoint.ready
	ended  bool // all is posted and retired

	// What atomics on this QP's own word leave behind, if all that are posted are
	// executed, and the sums of those that completed.
	atomic      uint64
	sharedAdded uint64
	sharedSeen  uint64
	sharedAny   bool
	lastWrite   uint64 // index after that of the last WRITE posted; 0: none
	invalidates uint64 // SEND_WITH_INVs posted
}

// posted is what is remembered of an outstanding work request.
type posted struct {
	message
	at     vtime.Time
	source readSource
	off    int    // READ: offset in its source
	write  uint64 // READ of what WRITE number write left
	old    uint64 // atomic: the value that it must find
	shared bool   // atomic on the word that all QPs share
}

// readSource says where a READ reads.
type readSource uint8

const (
	fromReadZone readSource = iota
	fromWriteSlot
)

func newSender(s *Spec, dir direction, qp int, active bool) sender {
	snd := sender{script: newScript(s, dir, qp)}
	if active {
		snd.slots = make([]posted, s.Depth)
		snd.listed = true
	}
	return snd
}

func (s *sender) slot(i uint64) *posted { return &s.slots[i%uint64(len(s.slots))] }

// post posts on every QP that has room, work, and leave of its rate. It returns
// whether it posted anything.
func (e *Endpoint) post(now vtime.Time) (progress bool) {
	if now < e.startAt || len(e.ready) == 0 {
		return false
	}
	e.wakeAt = vtime.Never
	kept := e.ready[:0]
	for _, i := range e.ready {
		c := e.qps[i]
		n, again := e.postQP(now, c)
		progress = progress || n > 0
		if again {
			kept = append(kept, i)
			e.wakeAt = vtime.Min(e.wakeAt, c.send.paceAt)
			continue
		}
		c.send.listed = false
		e.checkEnded(c)
	}
	e.ready = kept
	return progress
}

// postQP posts on one QP until its send queue is full. again says that its rate, and
// not a completion to come, decides when it goes on.
func (e *Endpoint) postQP(now vtime.Time, c *conn) (n int, again bool) {
	s := &c.send
	for e.err == nil && !c.down {
		room := min(e.Spec.Depth-int(s.posted-s.retired), e.Spec.batch())
		var before sender
		if c.refusals > 0 {
			room = min(room, 1) // so that what is refused can be taken back
			before = *s
		}
		e.tmp.wrs, e.tmp.sges = e.tmp.wrs[:0], e.tmp.sges[:0]
		for len(e.tmp.wrs) < room && e.more(s) && s.posted < e.allowed && now >= s.paceAt {
			e.build(now, c)
		}
		if len(e.tmp.wrs) == 0 {
			return n, room > 0 && e.more(s) && s.posted < e.allowed
		}
		done, err := e.dev.PostSend(c.q, e.tmp.wrs)
		n += done
		e.stats.Posted += uint64(done)
		if done < len(e.tmp.wrs) {
			// What was not taken was never posted.
			s.posted -= uint64(len(e.tmp.wrs) - done)
			if e.refused(c, err) {
				*s = before
				s.paceAt = now.Add(postAgain)
				return n, true
			}
			if c.q.State == ib.StateRTS || c.q.State == ib.StateSQD {
				e.fail(err)
			} else {
				c.down = true
			}
		}
	}
	return n, false
}

// postAgain is how long an endpoint waits after a post that was refused for now.
const postAgain = time.Microsecond

// more reports whether the script goes on.
func (e *Endpoint) more(s *sender) bool {
	if e.Spec.Count > 0 {
		return s.posted < e.Spec.Count
	}
	return !e.stopped || s.posted > 0 && !e.Spec.signaled(s.posted-1)
}

// build appends the next work request of c to e.tmp.wrs and accounts for it.
func (e *Endpoint) build(now vtime.Time, c *conn) {
	s := &c.send
	m := s.script.at(s.posted)
	p := s.slot(m.index)
	*p = posted{message: m, at: now}
	slot := c.i*e.Spec.Depth + int(m.index%uint64(e.Spec.Depth))
	at := e.lay.sendSlot(slot)
	buf := e.buf[at : at+m.size]
	wr := swqe.SendWR{WRID: uint64(c.i)<<48 | m.index, Opcode: m.op, Flags: e.flags(&m)}
	if m.hasImm() {
		wr.Imm = s.script.imm(m.index)
	}
	if e.Spec.Verify && !m.par.Has(swqe.OpLocalWrite) {
		s.script.pattern(m.index).fill(buf)
	}
	if m.par.Has(swqe.OpRDMA) {
		e.aim(c, p, &wr, slot)
	}
	switch {
	case m.op == ib.WRSendWithInv:
		w := uint64(e.Spec.windows())
		first := c.peer.Windows[s.invalidates%w]
		wr.InvRKey = first&^0xff | (first+ib.RKey(s.invalidates/w))&0xff
		s.invalidates++
	case e.Spec.Transport == ib.QPTypeUD:
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = c.ah, c.peer.QPN, qkey
	}
	if wr.Flags&ib.SendInline != 0 {
		wr.Inline = buf
	} else {
		wr.SGL = e.pieces(&e.tmp.sges, localBase+uint64(at), m.size, e.local.LKey, m.par.Has(swqe.OpAtomic), m.draw)
	}
	e.tmp.wrs = append(e.tmp.wrs, wr)
	s.posted++
	if r := e.Spec.RateBitsPerSecond; r > 0 {
		gap := float64(m.size) * 8 * float64(time.Second) / float64(r)
		s.pace(now, time.Duration(gap), e.CatchUp)
	}
}

// pace sets when the next work request may be posted: gap after this one, which is posted now.
// Of a delay up to catchUp is made up for.
func (s *sender) pace(now vtime.Time, gap, catchUp time.Duration) {
	due := max(s.paceAt, now.Add(-catchUp))
	if s.posted == 1 {
		due = now // nothing is late before the first
	}
	s.paceAt = due.Add(gap)
}

func (e *Endpoint) flags(m *message) (f ib.SendFlags) {
	s := &e.Spec
	if s.signaled(m.index) {
		f |= ib.SendSignaled
	}
	if s.Solicited && m.par.Has(swqe.OpSolicit) {
		f |= ib.SendSolicited
	}
	if s.Fence {
		f |= ib.SendFence
	}
	if s.Inline && m.par.Has(swqe.OpInline) && m.size <= e.dev.Config().Limits.MaxInline {
		f |= ib.SendInline
	}
	return f
}

// aim chooses the remote address of a one-sided operation, and what it must find.
func (e *Endpoint) aim(c *conn, p *posted, wr *swqe.SendWR, slot int) {
	s, l := &c.send, &e.peer
	wr.RKey = e.peerInfo.RKey
	switch {
	case p.par.Has(swqe.OpAtomic):
		e.aimAtomic(c, p, wr)
	case p.op == ib.WRRDMARead:
		wr.RemoteAddr = l.remote(e.aimRead(c, p))
	default:
		wr.RemoteAddr = l.remote(l.writeSlot(slot))
		s.lastWrite = p.index + 1
	}
	switch e.Spec.RKey {
	case RKeyGood:
	case RKeyBad:
		wr.RKey ^= 0x00ff00
	case RKeyNoAccess:
		wr.RKey = e.peerInfo.NoAccessRKey
	case RKeyOutOfRange:
		wr.RemoteAddr = (remoteIOVA + e.peerInfo.RemoteBytes + 7) &^ 7
	}
}

// aimRead lets half of the READs look at what the last WRITE of their QP left, and the
// others at memory that never changes. It returns the offset in the peer's memory.
func (e *Endpoint) aimRead(c *conn, p *posted) int {
	s, l := &c.send, &e.peer
	if w := s.lastWrite; w > 0 && p.draw&1 == 1 {
		if m := s.script.at(w - 1); m.size >= p.size {
			p.source, p.write = fromWriteSlot, w-1
			return l.writeSlot(c.i*e.Spec.Depth + int((w-1)%uint64(e.Spec.Depth)))
		}
	}
	p.source, p.off = fromReadZone, int(p.draw>>8)%gapBytes
	return l.readAt + p.off
}

// aimAtomic lets a quarter of the FETCH_ADDs work on the word that all QPs share, and
// an eighth of the CMP_SWPs compare with a value that is not there.
func (e *Endpoint) aimAtomic(c *conn, p *posted, wr *swqe.SendWR) {
	s, l := &c.send, &e.peer
	word := c.i
	switch {
	case p.op == ib.WRAtomicFetchAndAdd:
		wr.CompareAdd = s.script.add(p.index)
		if p.draw&3 == 3 {
			p.shared, word = true, e.Spec.QPs
			break
		}
		p.old = s.atomic
		s.atomic += wr.CompareAdd
	default:
		p.old = s.atomic
		wr.CompareAdd, wr.Swap = s.atomic, s.script.swap(p.index)
		if p.draw&7 == 7 {
			wr.CompareAdd = ^s.atomic
		} else {
			s.atomic = wr.Swap
		}
	}
	wr.RemoteAddr = l.remote(l.atomicWord(word))
}

// pieces appends a scatter/gather list over n bytes at addr to list and returns it.
// Where the cuts are is drawn; whole keeps one piece.
func (e *Endpoint) pieces(list *[]mr.SGE, addr uint64, n int, key ib.LKey, whole bool, draw uint64) []mr.SGE {
	start := len(*list)
	if count := e.Spec.sges(); count > 1 && !whole {
		for i := 1; i < count && n > 0; i++ {
			draw = mix(draw, uint64(i))
			cut := int(draw % uint64(n+1))
			*list = append(*list, mr.SGE{Addr: addr, Length: uint32(cut), LKey: key})
			addr += uint64(cut)
			n -= cut
		}
	}
	*list = append(*list, mr.SGE{Addr: addr, Length: uint32(n), LKey: key})
	return (*list)[start:len(*list):len(*list)]
}
