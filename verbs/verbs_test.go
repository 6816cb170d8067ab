package verbs

import (
	"context"
	"encoding/binary"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
)

func TestEveryOperation(t *testing.T) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			a, b, qa, qb := pair(t, n, ib.QPTypeRC)
			for i := range a.mr.Bytes() {
				a.mr.Bytes()[i] = byte(i * 7)
			}
			require.NoError(t, qb.PostRecv(RecvWR{WRID: 50, SGL: b.sgl(1<<19, 1<<18)}, RecvWR{WRID: 51}, RecvWR{WRID: 52, SGL: b.sgl(0, 64)}))
			to, counter := b.mr.Addr(4096), b.mr.Addr(1024)
			require.NoError(t, qa.PostSend(
				SendWR{WRID: 1, Opcode: ib.WRSend, SGL: []SGE{a.mr.SGE(0, 70_001), a.mr.SGE(100_000, 5)}},
				SendWR{WRID: 2, Opcode: ib.WRRDMAWrite, SGL: a.sgl(1, 50_000), RemoteAddr: to, RKey: b.mr.RKey()},
				SendWR{WRID: 3, Opcode: ib.WRRDMAWriteWithImm, Imm: 77, RemoteAddr: to, RKey: b.mr.RKey()},
				SendWR{WRID: 4, Opcode: ib.WRRDMARead, SGL: a.sgl(1<<19, 50_000), RemoteAddr: to, RKey: b.mr.RKey()},
				SendWR{WRID: 5, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sgl(1<<18, 8), CompareAdd: 5, RemoteAddr: counter, RKey: b.mr.RKey()},
				SendWR{WRID: 6, Opcode: ib.WRAtomicCmpAndSwp, SGL: a.sgl(1<<18+8, 8), CompareAdd: 5, Swap: 9, RemoteAddr: counter, RKey: b.mr.RKey()},
				SendWR{WRID: 7, Opcode: ib.WRSendWithImm, Flags: ib.SendInline | ib.SendFence, Inline: []byte("hello"), Imm: 3},
			))
			for i, wc := range a.ok(7) {
				require.Equal(t, uint64(i+1), wc.WRID)
			}
			got := b.ok(3)
			require.Equal(t, uint32(70_006), got[0].ByteLen)
			require.Equal(t, ib.WCRecvRDMAWithImm, got[1].Opcode)
			require.Equal(t, uint32(77), got[1].Imm)
			require.Equal(t, a.mr.Bytes()[:70_001], b.mr.Bytes()[1<<19:1<<19+70_001])
			require.Equal(t, a.mr.Bytes()[1:50_001], a.mr.Bytes()[1<<19:1<<19+50_000])
			require.Equal(t, uint64(9), binary.NativeEndian.Uint64(b.mr.Bytes()[1024:]))
			require.Equal(t, uint64(5), binary.NativeEndian.Uint64(a.mr.Bytes()[1<<18+8:]))
			require.Equal(t, "hello", string(b.mr.Bytes()[:5]))
		})
	}
}

func TestUnreliableTransports(t *testing.T) {
	for _, n := range networks {
		for _, typ := range []ib.QPType{ib.QPTypeUC, ib.QPTypeUD} {
			t.Run(n.name+"/"+typ.String(), func(t *testing.T) {
				a, b, qa, qb := pair(t, n, typ)
				copy(a.mr.Bytes(), "datagram")
				require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, 4096)}))
				wr := SendWR{Opcode: ib.WRSend, SGL: a.sgl(0, 8)}
				off := 0
				if typ == ib.QPTypeUD {
					ah, err := a.pd.CreateAH(AV{DGID: b.d.GID(), IsGlobal: true, PortNum: 1})
					require.NoError(t, err)
					wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, qb.QPN(), 0x11111111
					defer func() { require.NoError(t, ah.Destroy()) }()
					off = ib.GRHBytes
				}
				require.NoError(t, qa.PostSend(wr))
				a.ok(1)
				require.Equal(t, uint32(8+off), b.ok(1)[0].ByteLen)
				require.Equal(t, "datagram", string(b.mr.Bytes()[off:off+8]))
			})
		}
	}
}

func TestPostStopsAtTheFirstBad(t *testing.T) {
	a, b, qa, qb := pair(t, networks[0], ib.QPTypeRC)
	good := SendWR{Opcode: ib.WRRDMAWrite, SGL: a.sgl(0, 8), RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()}
	bad := good
	bad.SGL = make([]SGE, 5)
	var wrs []SendWR
	for range 70 { // more than one chunk
		wrs = append(wrs, good)
	}
	err := qa.PostSend(append(wrs, bad, good)...)
	var badWR *BadWR
	require.ErrorAs(t, err, &badWR)
	require.Equal(t, 70, badWR.Index)
	require.ErrorIs(t, err, ib.EINVAL)
	var v *VerbError
	require.ErrorAs(t, err, &v)
	require.Equal(t, "post_send", v.Verb)
	a.ok(70)

	err = qb.PostRecv(RecvWR{}, RecvWR{SGL: make([]SGE, 5)}, RecvWR{})
	require.ErrorAs(t, err, &badWR)
	require.Equal(t, 1, badWR.Index)
	fresh := a.qp(ib.QPTypeRC, nil)
	require.ErrorIs(t, fresh.PostSend(good), ib.EINVAL)
	require.ErrorIs(t, fresh.PostSend(), ib.EINVAL)
	require.ErrorIs(t, fresh.PostRecv(RecvWR{}), ib.EINVAL)
	require.NoError(t, qa.PostSend())
	require.ErrorIs(t, qa.PostSend(SendWR{Opcode: ib.WRBindMW}), ib.EINVAL)
}

// TestOrderOfDestruction takes everything apart from the wrong end first.
func TestOrderOfDestruction(t *testing.T) {
	ctx := context.Background()
	d, _ := openSwitch(t)
	h := newHost(t, d)
	srq, err := h.pd.CreateSRQ(SRQAttr{MaxWR: 4, MaxSGE: 1})
	require.NoError(t, err)
	q := h.qp(ib.QPTypeRC, srq)
	mw, err := h.pd.AllocMW(ib.MWType2)
	require.NoError(t, err)
	ah, err := h.pd.CreateAH(AV{DGID: d.GID(), IsGlobal: true, PortNum: 1})
	require.NoError(t, err)
	require.ErrorIs(t, q.PostRecv(RecvWR{}), ib.EINVAL, "the QP has an SRQ")
	for _, step := range []struct {
		name string
		do   func() error
		last bool
	}{
		{"device", d.Close, false}, {"pd", h.pd.Dealloc, false}, {"channel", h.ch.Destroy, false},
		{"cq", func() error { return h.cq.Destroy(ctx) }, false}, {"srq", func() error { return srq.Destroy(ctx) }, false},
		{"qp", func() error { return q.Destroy(ctx) }, true}, {"srq", func() error { return srq.Destroy(ctx) }, true},
		{"cq", func() error { return h.cq.Destroy(ctx) }, true}, {"channel", h.ch.Destroy, true},
		{"pd", h.pd.Dealloc, false}, {"mr", h.mr.Dereg, true}, {"mw", mw.Dealloc, true}, {"ah", ah.Destroy, true},
		{"pd", h.pd.Dealloc, true},
	} {
		if !step.last {
			require.ErrorIs(t, step.do(), ib.EBUSY, step.name)
			continue
		}
		require.NoError(t, step.do(), step.name)
		require.ErrorIs(t, step.do(), ib.EINVAL, step.name+" a second time")
	}
	require.ErrorIs(t, q.PostSend(SendWR{}), ib.EINVAL)
	require.ErrorIs(t, q.Modify(&QPAttr{}, 0), ib.EINVAL)
	_, err = h.cq.Poll(make([]WC, 1))
	require.ErrorIs(t, err, ib.EINVAL)
	require.ErrorIs(t, h.cq.ReqNotify(false), ib.EINVAL)
	require.ErrorIs(t, h.cq.Resize(5), ib.EINVAL)
	_, err = d.CreateCQ(1, h.ch)
	require.ErrorIs(t, err, ib.EINVAL)
	require.NoError(t, d.Close())
	require.NoError(t, d.Close())
	_, err = d.AllocPD()
	require.ErrorIs(t, err, ib.ENODEV)
}

func TestQueries(t *testing.T) {
	d, _ := openSwitch(t)
	a, err := d.QueryDevice()
	require.NoError(t, err)
	require.Equal(t, "ibta", a.Profile)
	require.Equal(t, 1, a.PhysPortCount)
	p, err := d.QueryPort(1)
	require.NoError(t, err)
	require.Equal(t, PortActive, p.State)
	require.Equal(t, ib.MTU4096, p.ActiveMTU)
	_, err = d.QueryPort(2)
	require.ErrorIs(t, err, ib.EINVAL)
	g, err := d.QueryGID(1, 0)
	require.NoError(t, err)
	require.Equal(t, d.GID(), g)
	_, err = d.QueryGID(1, 1)
	require.ErrorIs(t, err, ib.EINVAL)
	k, err := d.QueryPKey(1, 0)
	require.NoError(t, err)
	require.Equal(t, ib.PKeyDefault, k)
	_, err = d.QueryPKey(1, 1)
	require.ErrorIs(t, err, ib.EINVAL)
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(Config{})
	require.ErrorIs(t, err, ib.EINVAL)
	_, err = Open(Config{Address: "nonsense"})
	require.Error(t, err)
	openUDP(t)
	_, err = Open(Config{Address: loopback.Node(0, testPort)})
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, err = Open(Config{Address: loopback.Node(2, testPort), MTU: 9})
	require.Error(t, err)
	d, err := Open(Config{Address: loopback.Node(2, testPort)})
	require.NoError(t, err, "the failed Open has closed its socket")
	require.NoError(t, d.Close())
}

func TestModifyAndQuery(t *testing.T) {
	a, _, qa, _ := pair(t, networks[0], ib.QPTypeRC)
	before, err := qa.Query()
	require.NoError(t, err)
	require.Equal(t, ib.StateRTS, before.State)
	require.ErrorIs(t, qa.Modify(&QPAttr{State: ib.StateInit}, ib.AttrState), ib.EINVAL)
	after, err := qa.Query()
	require.NoError(t, err)
	require.Equal(t, before, after)
	require.NoError(t, qa.PostRecv(RecvWR{WRID: 1}, RecvWR{WRID: 2}))
	require.NoError(t, qa.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	for i, wc := range a.wait(2) {
		require.Equal(t, uint64(i+1), wc.WRID)
		require.Equal(t, ib.WCWRFlushErr, wc.Status)
	}
}

func TestMemoryWindows(t *testing.T) {
	for _, typ := range []ib.MWType{ib.MWType1, ib.MWType2} {
		a, b, qa, qb := pair(t, networks[0], ib.QPTypeRC)
		mw, err := b.pd.AllocMW(typ)
		require.NoError(t, err)
		old := mw.RKey()
		bind := BindInfo{MW: mw, RKey: IncRKey(old), MR: b.mr, Addr: b.mr.Addr(64), Length: 64, Access: ib.AccessRemoteWrite}
		if typ == ib.MWType1 {
			require.NoError(t, qb.BindMW(1, 0, bind))
			require.ErrorIs(t, qb.PostSend(SendWR{Opcode: ib.WRBindMW, Bind: &bind}), ib.EINVAL)
		} else {
			require.NoError(t, qb.PostSend(SendWR{Opcode: ib.WRBindMW, Bind: &bind}))
			require.ErrorIs(t, qb.BindMW(1, 0, bind), ib.EINVAL)
		}
		require.Equal(t, ib.WCBindMW, b.ok(1)[0].Opcode)
		require.Equal(t, IncRKey(old), mw.RKey())
		require.ErrorIs(t, b.mr.Dereg(), ib.EBUSY)
		copy(a.mr.Bytes(), "through the window")
		w := SendWR{Opcode: ib.WRRDMAWrite, SGL: a.sgl(0, 18), RemoteAddr: b.mr.Addr(64), RKey: mw.RKey()}
		require.NoError(t, qa.PostSend(w))
		a.ok(1)
		require.Equal(t, "through the window", string(b.mr.Bytes()[64:82]))
		w.RemoteAddr = b.mr.Addr(128)
		require.NoError(t, qa.PostSend(w))
		require.Equal(t, ib.WCRemAccessErr, a.wait(1)[0].Status)
	}
	require.Equal(t, ib.RKey(0x12345600), IncRKey(0x123456ff))
}

func TestMulticast(t *testing.T) {
	ctx := context.Background()
	a, b, qa, qb := pair(t, networks[0], ib.QPTypeUD)
	g := ib.GIDFromIPv4(224, 1, 2, 3)
	require.NoError(t, qb.AttachMcast(g))
	require.NoError(t, qb.AttachMcast(g))
	require.ErrorIs(t, qb.Destroy(ctx), ib.EBUSY)
	ah, err := a.pd.CreateAH(AV{DGID: g, IsGlobal: true, PortNum: 1})
	require.NoError(t, err)
	send := func() {
		require.NoError(t, qa.PostSend(SendWR{Opcode: ib.WRSend, SGL: a.sgl(0, 8), AH: ah, RemoteQPN: ib.QPNMulticast, RemoteQKey: 0x11111111}))
		a.ok(1)
	}
	require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, 100)}))
	send()
	require.Equal(t, qa.QPN(), b.ok(1)[0].SrcQP)
	require.NoError(t, qb.DetachMcast(g))
	require.ErrorIs(t, qb.DetachMcast(g), ib.EINVAL)
	send()
	require.Equal(t, uint64(1), a.d.Counters().Port.TxErrors, "nobody is in the group")
	require.NoError(t, qb.Destroy(ctx))
	require.ErrorIs(t, b.qp(ib.QPTypeRC, nil).AttachMcast(g), ib.EINVAL)
}

// TestShutdownEndsEveryWait relies on synctest.Test: it fails if a goroutine is left.
func TestShutdownEndsEveryWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, peer := openSwitch(t)
		h := newHost(t, d)
		errs := make(chan error, 10)
		for range 3 {
			go func() { _, err := h.ch.Get(t.Context()); errs <- err }()
			go func() { _, err := d.AsyncEvent(t.Context()); errs <- err }()
		}
		spinning := make(chan error)
		go func() {
			wc := make([]WC, 1)
			for {
				if _, err := h.cq.Poll(wc); err != nil {
					spinning <- err
					return
				}
			}
		}()
		require.NoError(t, d.Shutdown())
		for range 6 {
			require.ErrorIs(t, <-errs, ib.ENODEV)
		}
		require.ErrorIs(t, <-spinning, ib.ENODEV)
		_, err := h.ch.Get(t.Context())
		require.ErrorIs(t, err, ib.ENODEV)
		require.NoError(t, peer.Close())
	})
}

func TestDestroyedChannelEndsGet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, peer := openSwitch(t)
		ch, err := d.CreateCompChannel()
		require.NoError(t, err)
		got := make(chan error)
		go func() { _, err := ch.Get(t.Context()); got <- err }()
		synctest.Wait()
		require.NoError(t, ch.Destroy())
		require.ErrorIs(t, <-got, ib.EINVAL)
		require.NoError(t, errors.Join(d.Close(), peer.Close()))
	})
}

func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b, qa, qb := pair(t, networks[0], ib.QPTypeRC)
	wa, wb := make([]WC, 8), make([]WC, 8)
	failed := error(nil)
	turn := func() {
		err := qb.PostRecv(RecvWR{SGL: []SGE{b.mr.SGE(0, 8192)}})
		err = errors.Join(err, qa.PostSend(
			SendWR{Opcode: ib.WRSend, SGL: []SGE{a.mr.SGE(0, 5000)}},
			SendWR{Opcode: ib.WRRDMAWrite, Flags: ib.SendInline, Inline: []byte("inline"), RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()}))
		for sent, received := 0, 0; sent < 2 || received < 1; {
			n, e1 := a.cq.Poll(wa)
			m, e2 := b.cq.Poll(wb)
			sent, received = sent+n, received+m
			if err != nil || e1 != nil || e2 != nil {
				failed = errors.Join(err, e1, e2)
				return
			}
		}
	}
	for range 3000 { // every slot of every ring has been used
		turn()
	}
	require.Less(t, testing.AllocsPerRun(500, turn), 0.5)
	require.NoError(t, failed)
}
