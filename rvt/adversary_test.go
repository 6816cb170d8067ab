package rvt

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Each test here was a finding of a review: a sequence of packets and calls that led
// the engine astray. The names say what must hold.

// firstPSN is the PSN of the first packet in both directions (see host.connect).
const firstPSN ib.PSN = 100

// clone copies frames: emit reuses its buffer.
func clone(fs []frame) []frame { return append([]frame(nil), fs...) }

// post posts send WRs and fails the test if any is refused.
func (h *host) post(q *qp.QP, wrs ...swqe.SendWR) {
	h.t.Helper()
	n, err := h.d.PostSend(q, wrs)
	require.NoError(h.t, err)
	require.Equal(h.t, len(wrs), n)
}

// recv posts a receive of n bytes at off.
func (h *host) recv(q *qp.QP, id uint64, off, n int) {
	h.t.Helper()
	_, err := h.d.PostRecv(q, []swqe.RecvWR{{WRID: id, SGL: h.sge(off, n)}})
	require.NoError(h.t, err)
}

// respond makes a response packet from peer to q.
func (h *host) respond(q *qp.QP, peer *host, op ib.Opcode, psn ib.PSN, syn ib.Syndrome, payload int) frame {
	return frame{wire.Path{Src: peer.gid, Dst: h.gid, HopLimit: 64}, wire.Packet{
		Opcode: op, PKey: ib.PKeyDefault, DestQP: q.QPN, PSN: psn, AETH: wire.AETH{Syndrome: syn, MSN: 1},
		Payload: make([]byte, payload),
	}}
}

// ackNone is a positive acknowledgement without credits.
const ackNone = ib.SyndromeACK | ib.Syndrome(ib.CreditInvalid)

// connectMTU is connect with another path MTU.
func (h *host) connectMTU(q *qp.QP, peer *host, dest ib.QPN, mtu ib.MTU) {
	h.connect(q, peer, dest)
	q.Attr.PathMTU = mtu // before anything was sent
}

func withProfile(p qp.Profile) func(*Config) { return func(c *Config) { c.Profile = p } }

// expire lets the earliest timer of h run and returns its time.
func (h *host) expire() vtime.Time {
	h.t.Helper()
	at := h.d.Deadline()
	require.NotEqual(h.t, vtime.Never, at, "no timer runs")
	h.d.Expire(at)
	h.d.Commit(at)
	return at
}

func TestRepeatedReadResponseCarriesMSN(t *testing.T) {
	// With end-to-end credits a requester that learns no new MSN may wait for ever.
	a, b, qa, qb := rcPair(t, withProfile(qp.ProfileRDMAVT))
	b.recv(qb, 1, 0, 64)
	a.post(qa,
		swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 8)},
		swqe.SendWR{WRID: 2, Opcode: ib.WRRDMARead, SGL: a.sge(64, 8), RemoteAddr: bufBase, RKey: b.mr.RKey},
		swqe.SendWR{WRID: 3, Opcode: ib.WRSend, SGL: a.sge(0, 8)})
	req := clone(a.emit(0))
	require.Len(t, req, 2, "the second SEND has no credit yet")
	b.receive(0, req[:1])
	a.receive(0, clone(b.emit(0)))
	b.receive(0, req[1:])
	require.Len(t, b.emit(0), 1) // the READ's response is lost
	now := a.expire()
	b.receive(now, clone(a.emit(now)))
	again := clone(b.emit(now))
	require.Len(t, again, 1)
	require.Equal(t, ib.MSN(2), again[0].pkt.AETH.MSN)
	a.receive(now, again)
	require.Len(t, a.emit(now), 1, "the third WR may go: two messages are complete")
}

func TestLateResponseAfterRewindKeepsReadsCounted(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	b.recv(qb, 1, 0, 64)
	read := func(id uint64) swqe.SendWR {
		return swqe.SendWR{WRID: id, Opcode: ib.WRRDMARead, SGL: a.sge(1<<16, 4096), RemoteAddr: bufBase, RKey: b.mr.RKey}
	}
	a.post(qa, read(1), read(2), swqe.SendWR{WRID: 3, Opcode: ib.WRSend, Flags: ib.SendFence, SGL: a.sge(0, 8)})
	b.receive(0, clone(a.emit(0)))
	resp := clone(b.emit(0))
	require.Len(t, resp, 8)
	now := a.expire() // the answers are slow
	a.emit(now)
	a.receive(now, resp[:5])
	require.Equal(t, 1, qa.SNumRdAtomic, "the second READ is partly answered, so it is open")
	for _, f := range clone(a.emit(now)) {
		require.NotEqual(t, ib.OpSendOnly, f.pkt.Opcode, "a fenced SEND overtook a READ")
	}
}

func TestSQEIsLeftWithNothingPosted(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeUC), b.qp(ib.QPTypeUC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	b.recv(qb, 1, 0, 8192)
	bad := a.sge(0, 3000)
	bad[0].LKey++
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: bad})
	require.Empty(t, a.emit(0))
	require.Equal(t, ib.StateSQE, qa.State)
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	copy(a.buf, "after")
	a.post(qa, swqe.SendWR{WRID: 2, Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("after")})
	settle(0, a, b)
	require.Equal(t, "after", string(b.buf[:5]))
}

func TestSQEFlushesWhatWasQueuedBeforeRTS(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeUC), b.qp(ib.QPTypeUC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	b.recv(qb, 1, 0, 8192)
	bad := a.sge(0, 3000)
	bad[0].LKey++
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: bad})
	require.Empty(t, a.emit(0))
	a.post(qa, swqe.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.sge(0, 8)})
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	require.Empty(t, a.emit(0))
	wcs := a.poll()
	require.Len(t, wcs, 2)
	require.Equal(t, ib.WCWRFlushErr, wcs[1].Status)
}

func TestNAKInsideReadDoesNotSkipItsData(t *testing.T) {
	for _, syn := range []ib.Syndrome{ib.NAKPSNSequence, ib.SyndromeRNR | 1} {
		a, b, qa, _ := rcPair(t, nil)
		a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.sge(1<<16, 4096), RemoteAddr: bufBase, RKey: b.mr.RKey})
		require.Len(t, a.emit(0), 1)
		a.receive(0, []frame{a.respond(qa, b, ib.OpAcknowledge, firstPSN+2, syn, 0)})
		require.Equal(t, firstPSN-1, qa.SLastPSN, "%v: no response packet came", syn)
	}
}

func TestRepeatedReadOfGoneMemoryIsDropped(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.sge(1<<16, 64), RemoteAddr: bufBase, RKey: b.mr.RKey})
	req := clone(a.emit(0))
	b.receive(0, req)
	a.receive(0, clone(b.emit(0)))
	require.Equal(t, ib.WCSuccess, a.poll()[0].Status)
	require.NoError(t, b.d.DeregMR(0, b.mr))
	require.Equal(t, ib.StateRTS, qb.State)
	b.receive(0, req) // the network delivers it once more
	require.Empty(t, b.emit(0))
	require.Equal(t, ib.StateRTS, qb.State, "a late duplicate must not end the connection")
}

// faulty is memory whose writes to one address fail.
type faulty struct {
	*mr.Slice
	at uint64
}

func (m *faulty) WriteV(ops []mr.Op) (int, error) {
	for i := range ops {
		if ops[i].Addr == m.at {
			n, _ := m.Slice.WriteV(ops[:i])
			return n, mr.ErrFault
		}
	}
	return m.Slice.WriteV(ops)
}

func TestMemoryFaultDoesNotAcknowledgeLostData(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	mem := &faulty{mr.NewSlice(bufBase, b.buf), bufBase + 4096}
	m, err := b.d.RegMR(b.pd, mem, bufBase, uint64(len(b.buf)), bufBase, ib.AccessLocalWrite|ib.AccessRemoteMask)
	require.NoError(t, err)
	for i := range 4 {
		a.post(qa, swqe.SendWR{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: bufBase + uint64(i)*2048, RKey: m.RKey})
	}
	req := clone(a.emit(0))
	b.receive(0, req[:1])
	a.receive(0, clone(b.emit(0)))
	b.receive(0, req[1:3]) // the third packet faults; the fourth is on its way
	require.Equal(t, ib.StateErr, qb.State)
	a.receive(0, clone(b.emit(0)))
	a.emit(0)
	wcs := a.poll()
	require.Len(t, wcs, 4)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.NotEqual(t, ib.WCSuccess, wcs[2].Status, "its data never reached memory")
	require.True(t, slices.ContainsFunc(wcs, func(w cq.WC) bool { return w.Status == ib.WCRemOpErr }))
}

func TestReadOfMaxMessageAtMTU256(t *testing.T) {
	// 2^23 packets: half the PSN space. Signed PSN arithmetic cannot span it.
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
	a.connectMTU(qa, b, qb.QPN, ib.MTU256)
	b.connectMTU(qb, a, qa.QPN, ib.MTU256)
	m, err := a.d.RegMR(a.pd, &endless{}, 0, ib.MaxMsgBytes, 0, ib.AccessLocalWrite|ib.AccessRemoteMask)
	require.NoError(t, err)
	sgl := []mr.SGE{{Addr: 0, Length: ib.MaxMsgBytes, LKey: m.LKey}}
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: sgl, RKey: 1},
		swqe.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.sge(0, 8)})
	require.Len(t, a.emit(0), 1, "the window is more than full")
	require.NotEqual(t, vtime.Never, qa.STimerAt)
	a.receive(0, []frame{a.respond(qa, b, ib.OpReadRespFirst, firstPSN, ackNone, 256)})
	require.Equal(t, firstPSN, qa.SLastPSN)
	require.Empty(t, a.emit(0))
	// Pretend that all but the last packet came.
	last := firstPSN.Add(1<<23 - 1)
	qa.SLastPSN = last.Add(-1)
	a.receive(0, []frame{a.respond(qa, b, ib.OpReadRespLast, last, ackNone, 256)})
	require.Equal(t, ib.WCSuccess, a.poll()[0].Status)
	require.Len(t, a.emit(0), 1)
}

func TestSmallWindowAsksForAcks(t *testing.T) {
	for _, window := range []int{1, 2, 8, 31, 40} {
		a, b, qa, qb := rcPair(t, func(c *Config) { c.Limits.WindowPackets = window })
		b.recv(qb, 1, 0, 1<<17)
		a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 100*1024)})
		settle(0, a, b)
		require.Len(t, a.poll(), 1, "window %d: no time may have to pass", window)
		require.Zero(t, qa.NTimeouts)
	}
}

func TestAtomicReplayAfterPSNWrap(t *testing.T) {
	_, b, qa, qb := rcPair(t, nil)
	a := &host{gid: ib.GIDFromIPv4(10, 0, 0, 1)}
	add := b.respond(qb, a, ib.OpFetchAdd, firstPSN, 0, 0)
	add.pkt.AckReq = true
	add.pkt.AtomicETH = wire.AtomicETH{VA: bufBase, RKey: b.mr.RKey, SwapAdd: 5}
	_ = qa
	b.receive(0, []frame{add})
	require.Zero(t, b.emit(0)[0].pkt.AtomicAck)
	qb.RPSN = firstPSN // 2^24 packets later
	b.receive(0, []frame{add})
	require.EqualValues(t, 5, b.emit(0)[0].pkt.AtomicAck)
	b.receive(0, []frame{add})
	require.EqualValues(t, 5, b.emit(0)[0].pkt.AtomicAck, "the duplicate is of the second atomic")
	require.EqualValues(t, 10, b.buf[0])
}

func TestNewTimeoutStartsTimer(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	sqd := func(timeout uint8) {
		require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
		require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{Timeout: timeout}, ib.AttrTimeout))
		require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	}
	sqd(0)
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey})
	require.Len(t, a.emit(0), 1)
	require.Equal(t, vtime.Never, a.d.Deadline())
	sqd(14)
	require.NotEqual(t, vtime.Never, a.d.Deadline(), "work is unacknowledged, so the timer must run")
	require.Equal(t, 4096*time.Nanosecond<<14, time.Duration(a.d.Deadline()))
}

func TestAtomicAckNeedsAckSyndrome(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey})
	a.emit(0)
	a.receive(0, []frame{a.respond(qa, b, ib.OpAtomicAck, firstPSN, ib.NAKRemoteAccess, 0)})
	require.NotEqual(t, ib.WCSuccess, a.poll()[0].Status)
}

// endless is memory that is there at every address.
type endless struct{}

func (*endless) ReadV(ops []mr.Op) (int, error)                       { return len(ops), nil }
func (*endless) WriteV(ops []mr.Op) (int, error)                      { return len(ops), nil }
func (*endless) CompareSwap64(_, _, _ uint64) (old uint64, err error) { return 0, nil }
func (*endless) FetchAdd64(_, _ uint64) (old uint64, err error)       { return 0, nil }

// refilled is a receive queue that a program fills as fast as it is emptied.
type refilled struct{ taken int }

func (r *refilled) Take(*swqe.RWQE) (ok, bad bool) {
	r.taken++
	return r.taken < 1<<20, false
}
func (*refilled) Len() int { return 8 }
func (*refilled) Cap() int { return 8 }

func TestFlushOfSharedReceiveQueueEnds(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	rq := &refilled{}
	q, err := a.d.CreateQP(a.pd, &qp.InitAttr{SendCQ: a.cq, RecvCQ: a.cq, Type: ib.QPTypeRC, RQ: rq,
		Cap: qp.Cap{MaxSendWR: 4, MaxSendSGE: 1, MaxRecvWR: 8, MaxRecvSGE: 1}})
	require.NoError(t, err)
	a.connect(q, b, 0x99)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	require.LessOrEqual(t, rq.taken, 16)
}

// TestDestroyTwice: the second destroy is refused and counts nothing down.
func TestDestroyTwice(t *testing.T) {
	h := newHost(t, 1, nil)
	c, err := h.d.CreateCQ(4, nil)
	require.NoError(t, err)
	require.NoError(t, h.d.DestroyCQ(c))
	require.ErrorIs(t, h.d.DestroyCQ(c), ib.EINVAL)
	s, err := h.d.CreateSRQ(h.pd, SRQAttr{MaxWR: 4, MaxSGE: 1}, nil)
	require.NoError(t, err)
	require.NoError(t, h.d.DestroySRQ(s))
	require.ErrorIs(t, h.d.DestroySRQ(s), ib.EINVAL)
}
