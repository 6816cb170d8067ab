package verbs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// The tests in this file are cases that users of other adapters met and reported in
// public; spec/FIELD-REPORTS.md has the list.

// field report disni-rxe-freeze: event-driven, with receives that come too late.
func TestFieldLateReceives(t *testing.T) {
	rounds := 500
	if testing.Short() {
		rounds = 50
	}
	a, b := openSwitch(t)
	ha, hb := newHost(t, a), newHost(t, b)
	qa, qb := ha.qp(ib.QPTypeRC, nil), hb.qp(ib.QPTypeRC, nil)
	p := &strictPair{T: t}
	quick := func(c *ConnParams) { c.MinRNRTimer = 1 }
	p.connect(qa, qb, quick)
	p.connect(qb, qa, quick)
	ctx := within(t)
	next := func(h *host) WC {
		wc := make([]WC, 1)
		for {
			if n, err := h.cq.Poll(wc); n == 1 {
				require.NoError(t, err)
				return wc[0]
			}
			require.NoError(t, h.cq.ReqNotify(false))
			if n, _ := h.cq.Poll(wc); n == 1 {
				return wc[0]
			}
			_, err := h.ch.Get(ctx)
			require.NoError(t, err)
			require.NoError(t, h.cq.AckEvents(1))
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range uint64(rounds) {
		for _, d := range []struct {
			from, to *host
			tx, rx   *QP
		}{{ha, hb, qa, qb}, {hb, ha, qb, qa}} {
			require.NoError(t, d.tx.PostSend(SendWR{WRID: i, Opcode: ib.WRSend, SGL: d.from.sgl(0, 8)}))
			for range rng.IntN(4) {
				b.Progress()
				a.Progress()
			}
			require.NoError(t, d.rx.PostRecv(RecvWR{WRID: i, SGL: d.to.sgl(64, 8)}))
			for _, h := range []*host{d.to, d.from} {
				wc := next(h)
				require.Equal(t, ib.WCSuccess, wc.Status)
				require.Equal(t, i, wc.WRID)
			}
		}
	}
	require.NotZero(t, a.Counters().Device.RcvdRNRNAK, "no receive was late")
}

// field report fetchadd-nak: each cause by itself, and the explanation names it.
func TestFieldFetchAdd(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*ConnParams)
		access ib.Access
		off    int
		status ib.WCStatus // 0: the post is refused
		says   string
	}{
		{"all right", nil, allAccess, 0, ib.WCSuccess, ""},
		{"region", nil, ib.AccessLocalWrite, 0, ib.WCRemAccessErr, "the rkey does not give the right to this operation (0x20e)"},
		{"queue pair", func(p *ConnParams) { p.Access = ib.AccessRemoteWrite }, allAccess, 0, ib.WCRemInvReqErr, "the QP's access flags do not allow this remote operation (0x205)"},
		{"depth", func(p *ConnParams) { p.MaxDestRdAtomic = 0 }, allAccess, 0, ib.WCRemInvReqErr, "The queue pair's max_dest_rd_atomic is 0."},
		{"alignment", nil, allAccess, 4, 0xff, "the remote address of an atomic must be a multiple of 8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			da, db := openSwitch(t)
			a, b := newHost(t, da), newHost(t, db)
			qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
			p := &strictPair{T: t}
			p.connect(qa, qb, c.change)
			p.connect(qb, qa, c.change)
			m, err := b.pd.RegMR(make([]byte, 64), c.access)
			require.NoError(t, err)
			err = qa.PostSend(SendWR{WRID: 1, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sgl(0, 8), RemoteAddr: m.Addr(c.off), RKey: m.RKey(), CompareAdd: 1})
			if c.status == 0xff {
				require.ErrorIs(t, err, ib.EINVAL)
				require.Contains(t, ExplainError(err), c.says)
				return
			}
			require.NoError(t, err)
			wc := a.wait(1)[0]
			require.Equal(t, c.status, wc.Status)
			require.Contains(t, qa.Explain(wc), c.says)
		})
	}
}

// field report justitia-gid
func TestFieldRTRWithoutGRH(t *testing.T) {
	d, _ := openSwitch(t)
	q := newHost(t, d).qp(ib.QPTypeRC, nil)
	p := DefaultConnParams(d.GID(), 5)
	require.NoError(t, q.ToInit(p))
	p.Dest.IsGlobal = false
	err := q.ToRTR(p)
	require.ErrorIs(t, err, ib.EINVAL)
	require.Contains(t, ExplainError(err), "The port is Ethernet: set ah_attr.is_global = 1 and fill grh.dgid, grh.sgid_index")
	a, err := q.Query()
	require.NoError(t, err)
	require.Equal(t, ib.StateInit, a.State)
}

// field report mooncake-reset-reset
func TestFieldResetTwice(t *testing.T) {
	d, _ := openSwitch(t)
	q := newHost(t, d).qp(ib.QPTypeRC, nil)
	for range 2 {
		require.NoError(t, q.Modify(&QPAttr{State: ib.StateReset}, ib.AttrState))
	}
	require.NoError(t, q.ToInit(DefaultConnParams(d.GID(), 5)))
}

// field report perftest-ud-srq: 40 bytes more than the message, no more, no less.
func TestFieldUDRoomForHeader(t *testing.T) {
	const n = 64
	for _, shared := range []bool{false, true} {
		for _, room := range []int{n + 39, n + 40, n + 41} {
			da, db := openSwitch(t)
			a, b := newHost(t, da), newHost(t, db)
			var srq *SRQ
			if shared {
				var err error
				srq, err = b.pd.CreateSRQ(SRQAttr{MaxWR: 4, MaxSGE: 1})
				require.NoError(t, err)
			}
			qa, qb := a.qp(ib.QPTypeUD, nil), b.qp(ib.QPTypeUD, srq)
			require.NoError(t, Connect(qa, qb))
			ah, err := a.pd.CreateAH(AV{DGID: db.GID(), IsGlobal: true, PortNum: 1, HopLimit: 64})
			require.NoError(t, err)
			post := func(id uint64, room int) {
				wr := RecvWR{WRID: id, SGL: b.sgl(0, room)}
				if shared {
					require.NoError(t, srq.PostRecv(wr))
				} else {
					require.NoError(t, qb.PostRecv(wr))
				}
			}
			send := func(n int) {
				require.NoError(t, qa.PostSend(SendWR{Opcode: ib.WRSend, SGL: a.sgl(0, n), AH: ah, RemoteQPN: qb.QPN(), RemoteQKey: 0x11111111}))
				a.ok(1)
			}
			after := room
			b.mr.Bytes()[after] = 0xee
			post(1, room)
			send(n)
			switch {
			case room >= n+40:
			case shared: // another QP may need the receive: it comes back (UD-09)
				require.Equal(t, ib.WCRemAbortErr, b.wait(1)[0].Status)
				post(2, room)
				send(n - 1)
			default:
				send(n - 1) // the first one is dropped, its receive serves this one
			}
			wc := b.ok(1)[0]
			require.Equal(t, uint32(min(n+40, room)), wc.ByteLen)
			require.NotZero(t, wc.Flags&ib.WCFlagGRH)
			require.Equal(t, byte(0xee), b.mr.Bytes()[after])
		}
	}
}

// field report rxe-inline-32bit: lengths that wrap to a small number in 32 bits.
func TestFieldLengthsDoNotWrap(t *testing.T) {
	a, _, qa, _ := pair(t, networks[0], ib.QPTypeRC)
	wr := SendWR{WRID: 5, Opcode: ib.WRSend, SGL: []SGE{{Addr: 1, Length: 1 << 31, LKey: 1}, {Addr: 1, Length: 1 << 31, LKey: 1}, {Addr: 1, Length: 16, LKey: 1}}}
	var bad *BadWR
	require.ErrorAs(t, qa.PostSend(SendWR{WRID: 4, Opcode: ib.WRSend, Flags: ib.SendInline}, wr), &bad)
	require.Equal(t, 1, bad.Index)
	require.ErrorIs(t, bad, ib.EINVAL)
	st, err := qa.Query()
	require.NoError(t, err)
	require.Equal(t, ib.StateRTS, st.State)
	require.NotNil(t, a)
}

// field reports rxe-inline-resid, rxe-inline-list-len
func TestFieldInlineSizes(t *testing.T) {
	const most = 64 // of host.qp
	_, b, qa, qb := pair(t, networks[0], ib.QPTypeRC)
	for _, n := range []int{0, 1, 32, most - 1, most, most + 1} {
		data := bytes.Repeat([]byte{byte(n)}, n)
		wr := SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: data}
		if n > most {
			require.ErrorIs(t, qa.PostSend(wr), ib.EINVAL)
			continue
		}
		require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, most)}))
		require.NoError(t, qa.PostSend(wr))
		require.Equal(t, uint32(n), b.ok(1)[0].ByteLen)
		require.Equal(t, data, b.mr.Bytes()[:n])
	}
}

// field report rxe-sge-list-len: unequal entries, one of them empty.
func TestFieldGatherLengths(t *testing.T) {
	a, b, qa, qb := pair(t, networks[0], ib.QPTypeRC)
	for i := range 8192 {
		a.mr.Bytes()[i] = byte(i % 251)
	}
	var sgl []SGE
	var want []byte
	for i, n := range []int{1, 0, 100, 4000} {
		sgl = append(sgl, a.mr.SGE(i*1000, n))
		want = append(want, a.mr.Bytes()[i*1000:][:n]...)
	}
	require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, 5000)}))
	require.NoError(t, qa.PostSend(SendWR{Opcode: ib.WRSend, SGL: sgl}))
	require.Equal(t, uint32(4101), b.ok(1)[0].ByteLen)
	require.Equal(t, want, b.mr.Bytes()[:4101])
	a.ok(1)
}

// field report rxe-mtu-frag: every path MTU, and lengths around it.
func TestFieldLengthsAroundMTU(t *testing.T) {
	da, db := openSwitch(t)
	a, b := newHost(t, da), newHost(t, db)
	for _, mtu := range []ib.MTU{ib.MTU256, ib.MTU512, ib.MTU1024, ib.MTU2048, ib.MTU4096} {
		qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
		p := &strictPair{T: t}
		set := func(c *ConnParams) { c.PathMTU = mtu }
		p.connect(qa, qb, set)
		p.connect(qb, qa, set)
		m := mtu.Bytes()
		for _, n := range []int{0, 1, m - 1, m, m + 1, 2*m - 1, 2 * m, 2*m + 1} {
			for _, op := range []ib.WROpcode{ib.WRSend, ib.WRRDMAWrite, ib.WRRDMARead} {
				from, to := a, b
				if op == ib.WRRDMARead {
					from, to = b, a
				}
				for i := range n {
					from.mr.Bytes()[i] = byte(i*7 + n)
				}
				clear(to.mr.Bytes()[:n+1])
				require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, n)}))
				require.NoError(t, qa.PostSend(SendWR{Opcode: op, SGL: a.sgl(0, n), RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()}))
				a.ok(1)
				if op == ib.WRSend {
					require.Equal(t, uint32(n), b.ok(1)[0].ByteLen)
				}
				require.True(t, bytes.Equal(from.mr.Bytes()[:n], to.mr.Bytes()[:n]), "%v of %d bytes at MTU %v", op, n, mtu)
				require.Zero(t, to.mr.Bytes()[n])
			}
			require.NoError(t, qb.Modify(&QPAttr{State: ib.StateReset}, ib.AttrState)) // drops the receives that are left
			require.NoError(t, qa.Modify(&QPAttr{State: ib.StateReset}, ib.AttrState))
			p.connect(qa, qb, set)
			p.connect(qb, qa, set)
		}
	}
}

// field report perftest-outreads: the limit of the own device decides, not the peer's.
func TestFieldReadDepthOfTheOwnDevice(t *testing.T) {
	d, _ := openSwitch(t)
	q := newHost(t, d).qp(ib.QPTypeRC, nil)
	dev, err := d.QueryDevice()
	require.NoError(t, err)
	p := DefaultConnParams(d.GID(), 5)
	require.NoError(t, q.ToInit(p))
	require.NoError(t, q.ToRTR(p))
	p.MaxRdAtomic = uint8(dev.Limits.MaxQPInitRdAtom) + 1
	err = q.ToRTS(p)
	require.ErrorIs(t, err, ib.EINVAL)
	require.Contains(t, ExplainError(err), "Use the smaller of the device's own limit and what the peer accepts")
	p.MaxRdAtomic--
	require.NoError(t, q.ToRTS(p))
}

// field report rxe-1000-connects: the last cycle is like the first, and nothing is left.
func TestFieldManyConnections(t *testing.T) {
	cycles := 1000
	if testing.Short() {
		cycles = 50
	}
	da, db := openSwitch(t)
	a, b := newHost(t, da), newHost(t, db)
	ctx := within(t)
	before := runtime.NumGoroutine()
	for i := range cycles {
		qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
		require.NoError(t, Connect(qa, qb), "cycle %d", i)
		m, err := b.pd.RegMR(make([]byte, 64), allAccess)
		require.NoError(t, err)
		require.NoError(t, qa.PostSend(SendWR{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: a.sgl(0, 64), RemoteAddr: m.Addr(0), RKey: m.RKey()}))
		require.Equal(t, uint64(i), a.ok(1)[0].WRID)
		require.NoError(t, qa.Destroy(ctx))
		require.NoError(t, qb.Destroy(ctx))
		require.NoError(t, m.Dereg())
	}
	require.LessOrEqual(t, runtime.NumGoroutine(), before)
	for _, h := range []*host{a, b} {
		require.NoError(t, h.mr.Dereg())
		require.NoError(t, h.cq.Destroy(ctx))
		require.NoError(t, h.ch.Destroy())
		require.NoError(t, h.pd.Dealloc(), "something is left")
		require.NoError(t, h.d.Close())
	}
}

// field report perftest-shared-cq: one completion queue for 1026 queue pairs has to be as large
// as what they can keep posted together; more than max_cqe is refused with advice.
func TestFieldManyQPsOneCQ(t *testing.T) {
	const n, depth = 1026, 2
	da, db := openSwitch(t)
	a, b := newHost(t, da), newHost(t, db)
	ctx := within(t)
	dev, err := da.QueryDevice()
	require.NoError(t, err)
	_, err = da.CreateCQ(dev.Limits.MaxCQE+1, nil)
	require.ErrorIs(t, err, ib.EINVAL)
	require.Contains(t, ExplainError(err), "use several")
	shared, err := da.CreateCQ(n*depth, nil)
	require.NoError(t, err)
	defer shared.Destroy(ctx)
	qps := make([]*QP, 0, n)
	for range n {
		qa, err := a.pd.CreateQP(QPInitAttr{Type: ib.QPTypeRC, SendCQ: shared, RecvCQ: shared, SQSigAll: true, Cap: QPCap{MaxSendWR: depth, MaxSendSGE: 1}})
		require.NoError(t, err)
		require.NoError(t, Connect(qa, b.qp(ib.QPTypeRC, nil)))
		qps = append(qps, qa)
	}
	for i := range n * depth {
		require.NoError(t, qps[i%n].PostSend(SendWR{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: a.sgl(0, 8), RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()}))
	}
	seen := make([]bool, n*depth)
	wcs := make([]WC, 64)
	for left := n * depth; left > 0; {
		k, err := shared.Poll(wcs)
		require.NoError(t, err)
		for _, wc := range wcs[:k] {
			require.Equal(t, ib.WCSuccess, wc.Status)
			require.False(t, seen[wc.WRID])
			seen[wc.WRID] = true
		}
		if left -= k; k == 0 {
			runtime.Gosched()
			require.NoError(t, ctx.Err())
		}
	}
	for _, q := range qps {
		require.NoError(t, q.Destroy(ctx))
	}
}

// TestExplainOutlivesDevices: explanations outlive devices.
func TestExplainOutlivesDevices(t *testing.T) {
	a, b, qa, qb := pair(t, networks[1], ib.QPTypeRC)
	require.NoError(t, qb.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	require.NoError(t, qa.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	require.NoError(t, qa.PostSend(SendWR{WRID: 3, Opcode: ib.WRSend, SGL: a.sgl(0, 8)}))
	wc := a.wait(1)[0]
	require.Contains(t, qa.Explain(wc), "modify_qp")
	h := qb.History()
	require.Equal(t, ib.StateErr, h.State)
	require.NoError(t, b.d.Shutdown())
	require.Contains(t, qa.Explain(wc), "modify_qp")
	require.NoError(t, a.d.Shutdown())
	require.Contains(t, qa.Explain(wc), fmt.Sprintf("wr 3 of qp %v failed with WR_FLUSH_ERR", qa.QPN()), "a closed device still tells")
}
