package rvt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

func (h *host) write(q *qp.QP, id uint64, rkey ib.RKey) {
	h.post(q, swqe.SendWR{WRID: id, Opcode: ib.WRRDMAWrite, SGL: h.sge(0, 8), RemoteAddr: bufBase, RKey: rkey})
}

func TestTimerFiresAtItsInstant(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	a.write(qa, 1, b.mr.RKey)
	require.Len(t, a.emit(1000), 1)
	at := a.d.Deadline()
	require.Equal(t, vtime.Time(1000).Add(4096*time.Nanosecond<<14), at)
	a.d.Expire(at - 1)
	require.Empty(t, a.emit(at-1), "nothing at t-1")
	a.d.Expire(at)
	require.Len(t, a.emit(at), 1, "a packet at t")
	require.EqualValues(t, 1, qa.NTimeouts)
}

func TestRetryCountIsNumberOfRetransmissions(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil) // retry_cnt 3
	a.write(qa, 1, b.mr.RKey)
	sent := len(a.emit(0))
	var now vtime.Time
	for a.d.Deadline() != vtime.Never {
		now = a.expire()
		sent += len(a.emit(now))
	}
	require.Equal(t, 1+3, sent)
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCRetryExcErr, wcs[0].Status)
	require.Equal(t, now, vtime.Time(0).Add(4*4096*time.Nanosecond<<14))
	require.Equal(t, ib.StateErr, qa.State)
}

func TestRNRWaitLongerThanTimeoutIsNoTimeout(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	qb.Attr.MinRNRTimer = 0 // 655 ms, ten times the ACK timeout
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 8)})
	settle(0, a, b)
	due := vtime.Time(655360 * time.Microsecond)
	require.Equal(t, due, qa.Deadline())
	require.Less(t, a.expire(), due, "the device may wake early")
	require.Empty(t, a.emit(due-1))
	b.recv(qb, 1, 0, 64)
	a.d.Expire(due)
	settle(due, a, b)
	require.Equal(t, ib.WCSuccess, a.poll()[0].Status)
	require.Zero(t, qa.NTimeouts)
}

func TestHeapOfManyTimers(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	const n = 200
	want := map[ib.QPN]vtime.Time{}
	var qs []*qp.QP
	for i := range n {
		q := a.qp(ib.QPTypeRC)
		a.connect(q, b, 0x99)
		q.Attr.Timeout = uint8(1 + i*7%20)
		a.write(q, 1, b.mr.RKey)
		now := vtime.Time(i * 1000)
		require.Len(t, a.emit(now), 1)
		want[q.QPN] = q.STimerAt
		qs = append(qs, q)
	}
	for i := 0; i < n; i += 3 { // destroyed with a timer pending
		require.NoError(t, a.d.DestroyQP(0, qs[i]))
		delete(want, qs[i].QPN)
	}
	last := vtime.Time(0)
	for len(want) > 0 {
		at := a.d.Deadline()
		require.GreaterOrEqual(t, at, last)
		last = at
		a.d.Expire(at)
		for _, q := range qs {
			due, ok := want[q.QPN]
			if !ok {
				continue
			}
			require.Equal(t, due <= at, q.NTimeouts > 0, "qp %v", q)
			if q.NTimeouts > 0 {
				delete(want, q.QPN)
				require.NoError(t, a.d.ModifyQP(at, q, &qp.Attr{State: ib.StateReset}, ib.AttrState))
			}
		}
	}
}

func TestQPsTakeTurns(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	var qs []*qp.QP
	for range 3 {
		q := a.qp(ib.QPTypeRC)
		a.connect(q, b, 0x99)
		a.post(q, swqe.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 100<<10), RemoteAddr: bufBase, RKey: b.mr.RKey})
		qs = append(qs, q)
	}
	var out Outbox
	require.True(t, a.d.Emit(0, &out, 3*emitQuantum))
	require.Len(t, out.Packets, 3*emitQuantum)
	for i := range out.Packets {
		require.Equal(t, qs[i/emitQuantum].QPN, out.Packets[i].QPN)
	}
	// One in the middle goes; the others keep their order.
	require.NoError(t, a.d.DestroyQP(0, qs[1]))
	out.Reset()
	require.True(t, a.d.Emit(0, &out, 2*emitQuantum))
	require.Equal(t, qs[0].QPN, out.Packets[0].QPN)
	require.Equal(t, qs[2].QPN, out.Packets[emitQuantum].QPN)
	require.NoError(t, a.d.DestroyQP(0, qs[2])) // the tail
	require.NoError(t, a.d.DestroyQP(0, qs[0])) // the head
	require.False(t, a.d.Pending())
	require.Equal(t, vtime.Never, a.d.Deadline())
}

func TestQPNsComeAgainLate(t *testing.T) {
	h := newHost(t, 1, func(c *Config) { c.FirstQPN, c.LastQPN = 0x20, 0x23 })
	var qs []*qp.QP
	for i := range 4 {
		qs = append(qs, h.qp(ib.QPTypeRC))
		require.EqualValues(t, 0x20+i, qs[i].QPN)
	}
	_, err := h.d.CreateQP(h.pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: ib.QPTypeRC})
	require.ErrorIs(t, err, ib.ENOMEM)
	require.NoError(t, h.d.DestroyQP(0, qs[2]))
	require.NoError(t, h.d.DestroyQP(0, qs[0]))
	require.EqualValues(t, 0x20, h.qp(ib.QPTypeRC).QPN)
	require.NoError(t, h.d.DestroyQP(0, h.d.QP(0x20)))
	require.EqualValues(t, 0x22, h.qp(ib.QPTypeRC).QPN, "the number just freed is not used at once")
	require.ErrorIs(t, h.d.DestroyQP(0, qs[0]), ib.EINVAL)
}

func TestPSNsWrap(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	for _, q := range []*qp.QP{qa, qb} {
		h, peer := a, b
		if q == qb {
			h, peer = b, a
		}
		require.NoError(t, h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateReset}, ib.AttrState))
		h.connect(q, peer, map[*qp.QP]*qp.QP{qa: qb, qb: qa}[q].QPN)
		q.SNextPSN, q.SPSN, q.SLastPSN, q.SSendingHPSN, q.RPSN = 0xfffffd, 0xfffffd, 0xfffffc, 0xfffffc, 0xfffffd
	}
	for i := range 8 {
		b.recv(qb, uint64(i), 1<<19, 8192)
	}
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 2500)},
		swqe.SendWR{WRID: 2, Opcode: ib.WRRDMARead, SGL: a.sge(1<<18, 2500), RemoteAddr: bufBase, RKey: b.mr.RKey},
		swqe.SendWR{WRID: 3, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey})
	settle(0, a, b)
	for i, wc := range a.poll() {
		require.Equal(t, ib.WCSuccess, wc.Status)
		require.EqualValues(t, i+1, wc.WRID)
	}
	require.EqualValues(t, 4, qa.SPSN)
	require.Equal(t, qa.SNextPSN, qb.RPSN)
}

func TestFullSendQueue(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	wrs := make([]swqe.SendWR, 20)
	for i := range wrs {
		wrs[i] = swqe.SendWR{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}
	}
	n, err := a.d.PostSend(qa, wrs)
	require.ErrorIs(t, err, ib.ENOMEM)
	require.Equal(t, 16, n, "max_send_wr exactly; n is the index of bad_wr")
	require.Zero(t, qa.SAvail)
	settle(0, a, b)
	require.Zero(t, qa.SAvail, "a lower bound, looked at again when it is used up")
	n, err = a.d.PostSend(qa, wrs[:16])
	require.NoError(t, err)
	require.Equal(t, 16, n, "slots free when a WR is retired, not when it is polled")
	a.poll()
}

func TestPostInEachState(t *testing.T) {
	want := map[ib.QPState][2]bool{ib.StateReset: {}, ib.StateInit: {false, true}, ib.StateRTR: {false, true}, ib.StateRTS: {true, true}, ib.StateSQD: {true, true}, ib.StateErr: {true, true}}
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	q := a.qp(ib.QPTypeRC)
	check := func(s ib.QPState) {
		require.Equal(t, s, q.State)
		_, serr := a.d.PostSend(q, []swqe.SendWR{{WRID: 1, Opcode: ib.WRSend}})
		_, rerr := a.d.PostRecv(q, []swqe.RecvWR{{WRID: 2}})
		require.Equal(t, want[s][0], serr == nil, "send in %v: %v", s, serr)
		require.Equal(t, want[s][1], rerr == nil, "receive in %v: %v", s, rerr)
	}
	check(ib.StateReset)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateInit, PortNum: 1}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	check(ib.StateInit)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateReset}, ib.AttrState))
	a.connect(q, b, 0x99)
	check(ib.StateRTS)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	check(ib.StateSQD)
	require.Empty(t, a.emit(0), "in SQD nothing new is started")
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	check(ib.StateErr)
	a.emit(0)
	var sends, recvs int
	for _, wc := range a.poll() {
		require.Equal(t, ib.WCWRFlushErr, wc.Status)
		if wc.WRID == 1 {
			sends++
		} else {
			recvs++
		}
	}
	require.Equal(t, 3, sends, "every accepted send completes once")
	require.Equal(t, 3, recvs, "and every receive since the last RESET")
}

func TestBusyObjects(t *testing.T) {
	h := newHost(t, 1, nil)
	srq, err := h.d.CreateSRQ(h.pd, SRQAttr{MaxWR: 4, MaxSGE: 1}, nil)
	require.NoError(t, err)
	q, err := h.d.CreateQP(h.pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, SRQ: srq, Type: ib.QPTypeRC, Cap: qp.Cap{MaxSendWR: 1}})
	require.NoError(t, err)
	ah, err := h.d.CreateAH(h.pd, ib.AV{DGID: h.gid, IsGlobal: true, PortNum: 1, HopLimit: 64})
	require.NoError(t, err)
	w, err := h.d.AllocMW(h.pd, ib.MWType2)
	require.NoError(t, err)
	refused := func(err error, why string) {
		t.Helper()
		require.ErrorIs(t, err, ib.EBUSY)
		require.ErrorContains(t, err, why)
	}
	refused(h.d.DestroyCQ(h.cq), ": in use by "+q.String()+" (")
	refused(h.d.DestroySRQ(srq), ": in use by "+q.String()+" (")
	refused(h.d.DeallocPD(h.pd), ": in use by 1 shared receive queue, 1 address handle, "+q.String()+", mw "+w.RKey.String()+", mr "+h.mr.LKey.String()+" (")
	require.NoError(t, h.d.DestroyAH(ah))
	require.NoError(t, h.d.DeallocMW(w))
	require.NoError(t, h.d.DestroyQP(0, q))
	require.NoError(t, h.d.DestroySRQ(srq))
	require.NoError(t, h.d.DestroyCQ(h.cq))
	refused(h.d.DeallocPD(h.pd), ": in use by mr "+h.mr.LKey.String()+" (")
	require.NoError(t, h.d.DeregMR(0, h.mr))
	require.NoError(t, h.d.DeallocPD(h.pd))
	require.ErrorIs(t, h.d.DeallocPD(h.pd), ib.EINVAL)
}

func TestSendCQOverflowInTheMiddleOfAnAck(t *testing.T) {
	for _, prof := range fuzzProfiles {
		a, b := newHost(t, 1, withProfile(prof)), newHost(t, 2, withProfile(prof))
		small, err := a.d.CreateCQ(2, nil)
		require.NoError(t, err)
		qa, err := a.d.CreateQP(a.pd, &qp.InitAttr{SendCQ: small, RecvCQ: a.cq, Type: ib.QPTypeRC, SQSigAll: true, Cap: qp.Cap{MaxSendWR: 8, MaxSendSGE: 1}})
		require.NoError(t, err)
		qb := b.qp(ib.QPTypeRC)
		a.connect(qa, b, qb.QPN)
		b.connect(qb, a, qa.QPN)
		for i := range uint64(5) {
			a.write(qa, i, b.mr.RKey)
		}
		settle(0, a, b)
		require.True(t, small.Overflowed())
		wcs := make([]cq.WC, 8)
		require.Equal(t, 2, small.Poll(wcs))
		require.EqualValues(t, 1, wcs[1].WRID)
		require.Equal(t, prof.CQErrorKillsQP, qa.State == ib.StateErr)
		require.Equal(t, qa.SHead, qa.SLast, "everything is retired")
		var cqErr int
		ev := make([]Event, 16)
		for _, e := range ev[:a.d.PollEvents(ev)] {
			if e.Type == ib.EventCQErr && !e.Comp {
				cqErr++
			}
		}
		require.Equal(t, 3, cqErr, "one event for each completion lost")
	}
}

func TestDeregisterWhileReadIsAnswered(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.sge(0, 60000), RemoteAddr: bufBase, RKey: b.mr.RKey})
	b.receive(0, clone(a.emit(0)))
	var out Outbox
	require.True(t, b.d.Emit(0, &out, 4))
	require.NoError(t, b.d.DeregMR(0, b.mr))
	require.Equal(t, ib.StateErr, qb.State)
	out.Reset()
	b.d.Emit(0, &out, 100)
	require.Empty(t, out.Packets, "memory that is gone is not read")
}

func TestMemoryFaultAmendsStagedSuccess(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	mem := &faulty{mr.NewSlice(bufBase, b.buf), bufBase + 512}
	m, err := b.d.RegMR(b.pd, mem, bufBase, 1024, bufBase, ib.AccessLocalWrite)
	require.NoError(t, err)
	_, err = b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 7, SGL: []mr.SGE{{Addr: bufBase + 512, Length: 64, LKey: m.LKey}}}, {WRID: 8, SGL: []mr.SGE{{Addr: bufBase, Length: 64, LKey: m.LKey}}}})
	require.NoError(t, err)
	a.post(qa, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 8)})
	b.receive(0, clone(a.emit(0)))
	wcs := b.poll()
	require.Len(t, wcs, 2)
	require.Equal(t, ib.WCLocProtErr, wcs[0].Status)
	require.Equal(t, ib.CauseMemoryFault, wcs[0].VendorErr)
	require.EqualValues(t, 7, wcs[0].WRID)
	require.Equal(t, ib.WCWRFlushErr, wcs[1].Status)
	require.EqualValues(t, 1, b.d.Counters().MemoryFaults)
	a.receive(0, clone(b.emit(0)))
	require.Equal(t, ib.WCRemOpErr, a.poll()[0].Status)
}
