package model

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/ib"
)

// The reference: what two devices must do, told in the plainest way. There are no
// packets, no time and no windows. Each half of a connection is a queue of operations;
// the oldest one is carried out at once and as a whole, or it waits for a receive, or
// it fails.

// region is registered memory: what a key gives access to. A dead key has no length.
type region struct {
	from, to int
	access   ib.Access
}

// piece is an SGE: n bytes at offset off of its side's memory, through a region.
type piece struct {
	off, n int
	key    int
}

func total(ps []piece) (n int) {
	for _, p := range ps {
		n += p.n
	}
	return n
}

type sendOp struct {
	id        uint64
	op        ib.WROpcode
	flags     ib.SendFlags
	local     []piece
	inline    []byte
	imm       uint32
	remote    int // offset in the peer's memory
	rkey      int // region of the peer
	add, swap uint64
}

func (o *sendOp) size() int {
	if o.flags&ib.SendInline != 0 {
		return len(o.inline)
	}
	return total(o.local)
}

func (o *sendOp) takesReceive() bool {
	return o.op == ib.WRSend || o.op == ib.WRSendWithImm || o.op == ib.WRRDMAWriteWithImm
}

func (o *sendOp) isAtomic() bool {
	return o.op == ib.WRAtomicCmpAndSwp || o.op == ib.WRAtomicFetchAndAdd
}

// fetches: the operation brings something back, so it writes its local memory.
func (o *sendOp) fetches() bool { return o.op == ib.WRRDMARead || o.isAtomic() }

type recvOp struct {
	id    uint64
	local []piece
}

// completion is what a program may rely on: of a failed one only ID and Status.
type completion struct {
	ID     uint64
	Status ib.WCStatus
	Opcode ib.WCOpcode
	Len    uint32
	Flags  ib.WCFlags
	Imm    uint32
}

// side is one node: its memory and regions.
type side struct {
	mem     []byte
	unknown []bool // bytes that a failed or waiting operation may have touched
	regions []region
}

func (s *side) allows(p piece, a ib.Access) bool {
	r := s.regions[p.key]
	return p.n == 0 || p.off >= r.from && p.off+p.n <= r.to && r.access&a == a
}

func (s *side) allowsAll(ps []piece, a ib.Access) bool {
	for _, p := range ps {
		if !s.allows(p, a) {
			return false
		}
	}
	return true
}

func (s *side) gather(ps []piece) (b []byte) {
	for _, p := range ps {
		b = append(b, s.mem[p.off:p.off+p.n]...)
	}
	return b
}

func (s *side) store(off int, b []byte) {
	copy(s.mem[off:], b)
	s.mark(off, len(b), false)
}

func (s *side) scatter(ps []piece, b []byte) {
	for _, p := range ps {
		n := min(p.n, len(b))
		s.store(p.off, b[:n])
		b = b[n:]
	}
}

func (s *side) mark(off, n int, unknown bool) {
	for i := max(off, 0); i < min(off+n, len(s.mem)); i++ {
		s.unknown[i] = unknown
	}
}

func (s *side) forget(ps []piece) {
	for _, p := range ps {
		s.mark(p.off, p.n, true)
	}
}

// half is one QP.
type half struct {
	side       *side
	peer       *half
	rules      *rules
	state      ib.QPState
	sigAll     bool
	rnrForever bool
	access     ib.Access
	sends      []sendOp
	recvs      *[]recvOp
	shared     bool // recvs belong to an SRQ
	sendWCs    []completion
	recvWCs    []completion
}

// rules are the points where the profiles differ.
type rules struct {
	badLKey, tooSmall, badRecvLKey ib.WCStatus
	tooSmallPeer                   ib.WCStatus // at the sender of what was too long
	lkeyAtPost                     bool        // a bad lkey refuses the call
	errRecvFlushes                 bool        // receives posted in ERR complete
	resetKeepsRQ                   bool
	badOpcodeAtPost, inlineRead    bool // EINVAL for what the transport lacks; for INLINE with READ
}

var ruleSets = map[string]*rules{
	"ibta": {badLKey: ib.WCLocProtErr, tooSmall: ib.WCLocLenErr, badRecvLKey: ib.WCLocProtErr, tooSmallPeer: ib.WCRemInvReqErr,
		errRecvFlushes: true, badOpcodeAtPost: true, inlineRead: true},
	"rdmavt": {tooSmall: ib.WCLocQPOpErr, badRecvLKey: ib.WCLocProtErr, tooSmallPeer: ib.WCRemInvReqErr,
		lkeyAtPost: true, errRecvFlushes: true, resetKeepsRQ: true, badOpcodeAtPost: true, inlineRead: true},
	"rxe": {badLKey: ib.WCLocQPOpErr, tooSmall: ib.WCLocQPOpErr, badRecvLKey: ib.WCLocQPOpErr, tooSmallPeer: ib.WCRemOpErr},
}

func (h *half) receives() bool {
	return h.state == ib.StateRTR || h.state == ib.StateRTS || h.state == ib.StateSQD
}

func (h *half) postSend(o sendOp) {
	h.sends = append(h.sends, o)
	if h.state == ib.StateErr {
		h.flushSends()
	}
}

func (h *half) postRecv(o recvOp) {
	if h.state == ib.StateErr && !h.shared && h.rules.errRecvFlushes {
		h.recvWCs = append(h.recvWCs, completion{ID: o.id, Status: ib.WCWRFlushErr})
		return
	}
	*h.recvs = append(*h.recvs, o)
}

// run carries out everything that can be.
func run(halves []*half) {
	for again := true; again; {
		again = false
		for _, h := range halves {
			for h.state == ib.StateRTS && len(h.sends) > 0 && h.execute(&h.sends[0]) {
				again = true
			}
		}
	}
}

// execute carries out the oldest operation. It returns false if that has to wait.
func (h *half) execute(o *sendOp) bool {
	need := ib.Access(0)
	if o.fetches() {
		need = ib.AccessLocalWrite
	}
	if o.flags&ib.SendInline == 0 && !h.side.allowsAll(o.local, need) {
		return h.fail(h.rules.badLKey)
	}
	p := h.peer
	if !p.receives() {
		return h.fail(ib.WCRetryExcErr)
	}
	if status := h.refusal(o); status != ib.WCSuccess {
		h.fail(status)
		p.toErr()
		return true
	}
	var r recvOp
	if o.takesReceive() {
		if len(*p.recvs) == 0 {
			if o.op == ib.WRRDMAWriteWithImm {
				p.side.mark(o.remote, o.size(), true) // all but the last packet may be there
			}
			return !h.rnrForever && h.fail(ib.WCRNRRetryExcErr)
		}
		r = (*p.recvs)[0]
		*p.recvs = (*p.recvs)[1:]
	}
	h.exchange(o, &r)
	return true
}

// refusal is how the peer refuses what a key or a QP does not allow.
func (h *half) refusal(o *sendOp) ib.WCStatus {
	var right ib.Access
	n := o.size()
	switch {
	case o.op == ib.WRRDMAWrite || o.op == ib.WRRDMAWriteWithImm:
		right = ib.AccessRemoteWrite
	case o.op == ib.WRRDMARead:
		right = ib.AccessRemoteRead
	case o.isAtomic():
		right, n = ib.AccessRemoteAtomic, 8
	default:
		return ib.WCSuccess
	}
	if h.peer.access&right == 0 {
		return ib.WCRemInvReqErr
	}
	if !h.peer.side.allows(piece{o.remote, n, o.rkey}, right) {
		return ib.WCRemAccessErr
	}
	return ib.WCSuccess
}

// exchange moves the bytes of an operation that nothing stands in the way of any more,
// except that its receive may not do.
func (h *half) exchange(o *sendOp, r *recvOp) {
	p := h.peer
	data := o.inline
	if o.flags&ib.SendInline == 0 {
		data = h.side.gather(o.local)
	}
	got := completion{ID: r.id, Opcode: ib.WCRecv, Len: uint32(len(data))}
	if o.op == ib.WRSendWithImm || o.op == ib.WRRDMAWriteWithImm {
		got.Flags, got.Imm = ib.WCFlagWithImm, o.imm
	}
	mine := completion{Opcode: ib.WCSend}
	switch {
	case o.op == ib.WRSend || o.op == ib.WRSendWithImm:
		if !p.side.allowsAll(r.local, ib.AccessLocalWrite) {
			h.refuseReceive(r, p.rules.badRecvLKey, ib.WCRemOpErr)
			return
		}
		if len(data) > total(r.local) {
			h.refuseReceive(r, p.rules.tooSmall, p.rules.tooSmallPeer)
			return
		}
		p.side.scatter(r.local, data)
	case o.op == ib.WRRDMARead:
		mine.Opcode, mine.Len = ib.WCRDMARead, uint32(len(data))
		h.side.scatter(o.local, p.side.mem[o.remote:o.remote+len(data)])
	case o.isAtomic():
		mine.Opcode, mine.Len = atomicOpcode(o.op), 8
		h.side.scatter(o.local, p.side.atomic(o))
	default:
		mine.Opcode = ib.WCRDMAWrite
		got.Opcode = ib.WCRecvRDMAWithImm
		p.side.store(o.remote, data)
	}
	if o.takesReceive() {
		p.recvWCs = append(p.recvWCs, got)
	}
	if h.sigAll || o.flags&ib.SendSignaled != 0 {
		mine.ID = o.id
		h.sendWCs = append(h.sendWCs, mine)
	}
	h.sends = h.sends[1:]
}

func atomicOpcode(op ib.WROpcode) ib.WCOpcode {
	if op == ib.WRAtomicCmpAndSwp {
		return ib.WCCompSwap
	}
	return ib.WCFetchAdd
}

// atomic changes 8 bytes and returns what they were.
func (s *side) atomic(o *sendOp) []byte {
	old := append([]byte(nil), s.mem[o.remote:o.remote+8]...)
	v := binary.LittleEndian.Uint64(old)
	switch {
	case o.op == ib.WRAtomicFetchAndAdd:
		v += o.add
	case v == o.add:
		v = o.swap
	}
	s.store(o.remote, binary.LittleEndian.AppendUint64(nil, v))
	return old
}

// refuseReceive fails a SEND because of the receive that it met.
func (h *half) refuseReceive(r *recvOp, status, peer ib.WCStatus) {
	h.peer.side.forget(r.local)
	h.peer.recvWCs = append(h.peer.recvWCs, completion{ID: r.id, Status: status})
	h.fail(peer)
	h.peer.toErr()
}

// fail completes the oldest operation with a status and flushes what is behind it.
func (h *half) fail(status ib.WCStatus) bool {
	h.sendWCs = append(h.sendWCs, completion{ID: h.sends[0].id, Status: status})
	h.sends = h.sends[1:]
	h.toErr()
	return true
}

// toErr flushes sends and receives. Those of an SRQ stay.
func (h *half) toErr() {
	if h.state == ib.StateErr {
		return
	}
	h.state = ib.StateErr
	h.flushSends()
	if h.shared {
		return
	}
	for _, r := range *h.recvs {
		h.recvWCs = append(h.recvWCs, completion{ID: r.id, Status: ib.WCWRFlushErr})
	}
	*h.recvs = nil
}

func (h *half) flushSends() {
	for _, o := range h.sends {
		h.sendWCs = append(h.sendWCs, completion{ID: o.id, Status: ib.WCWRFlushErr})
	}
	h.sends = nil
}

// reset forgets everything without a word.
func (h *half) reset() {
	h.sends = nil
	if !h.shared && !h.rules.resetKeepsRQ {
		*h.recvs = nil
	}
	h.state = ib.StateRTS
}
