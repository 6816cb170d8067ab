package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

func rxeHost(t *testing.T, n byte) *host {
	return newHost(t, n, func(c *Config) { c.Profile, c.Driver, c.MTU = qp.ProfileRXE, qp.DriverRXE, ib.MTU1024 })
}

func TestDriverSizes(t *testing.T) {
	h := rxeHost(t, 1)
	for asked, want := range map[int]int{1: 1, 2: 3, 3: 3, 64: 127, 127: 127, 128: 255} {
		c, err := h.d.CreateCQ(asked, nil)
		require.NoError(t, err)
		require.Equal(t, want, c.CQE(), "asked for %d", asked)
	}
	c, err := h.d.CreateCQ(5, cq.NewRing(5))
	require.NoError(t, err)
	require.Equal(t, 5, c.CQE(), "a ring of the program's own has its size")
	require.NoError(t, h.d.ResizeCQ(c, 200, nil))
	require.Equal(t, 255, c.CQE())

	q, err := h.d.CreateQP(h.pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: ib.QPTypeRC, Cap: qp.Cap{MaxSendWR: 5, MaxRecvWR: 7, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInlineData: 10}})
	require.NoError(t, err)
	require.Equal(t, qp.Cap{MaxSendWR: 5, MaxRecvWR: 7, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInlineData: 48}, q.Cap)
	require.Equal(t, 8, q.RingSize())

	s, err := h.d.CreateSRQ(h.pd, SRQAttr{MaxWR: 8, MaxSGE: 1}, nil)
	require.NoError(t, err)
	require.Equal(t, 15, h.d.QuerySRQ(s).MaxWR)
	size := 20
	require.NoError(t, h.d.ModifySRQ(s, &size, nil))
	require.Equal(t, 31, h.d.QuerySRQ(s).MaxWR)

	exact := newHost(t, 2, nil)
	c, err = exact.d.CreateCQ(64, nil)
	require.NoError(t, err)
	require.Equal(t, 64, c.CQE(), "without a driver the sizes are exact")
}

func TestDriverQueueHoldsWhatItAccepts(t *testing.T) {
	a, b := rxeHost(t, 1), rxeHost(t, 2)
	qa, qb := a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	wr := swqe.SendWR{Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}
	for i := range 31 {
		wr.WRID = uint64(i)
		n, err := a.d.PostSend(qa, []swqe.SendWR{wr})
		require.NoError(t, err)
		require.Equal(t, 1, n)
	}
	_, err := a.d.PostSend(qa, []swqe.SendWR{wr})
	require.ErrorIs(t, err, ib.ENOMEM)
	settle(0, a, b)
	wcs := a.poll()
	require.Len(t, wcs, 31)
	for i, wc := range wcs {
		require.Equal(t, uint64(i), wc.WRID)
		require.Equal(t, ib.WCSuccess, wc.Status)
	}
}

func TestDriverKeys(t *testing.T) {
	h := rxeHost(t, 1)
	for acc, remote := range map[ib.Access]bool{ib.AccessLocalWrite: false, ib.AccessRemoteRead: true} {
		m, err := h.d.RegMR(h.pd, mr.NewSlice(bufBase, h.buf), bufBase, 4096, bufBase, acc)
		require.NoError(t, err)
		require.Equal(t, remote, m.RKey != 0, "%v", acc)
		require.NoError(t, h.d.DeregMR(0, m))
	}
}

// A late check of local entries: the packets before the bad one are out, and an atomic
// whose result cannot be stored has been carried out.
func TestDriverLateLocalCheck(t *testing.T) {
	a, b := rxeHost(t, 1), rxeHost(t, 2)
	qa, qb := a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	ro, err := a.d.RegMR(a.pd, mr.NewSlice(bufBase, a.buf), bufBase, 4096, bufBase, 0)
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{
		{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey},
		{WRID: 2, Opcode: ib.WRAtomicFetchAndAdd, SGL: []mr.SGE{{Addr: bufBase, Length: 8, LKey: ro.LKey}}, CompareAdd: 5, RemoteAddr: bufBase, RKey: b.mr.RKey},
	})
	require.NoError(t, err)
	settle(0, a, b)
	wcs := a.poll()
	require.Len(t, wcs, 2)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.Equal(t, ib.WCLocProtErr, wcs[1].Status)
	require.Equal(t, ib.CauseLKeyAccess, wcs[1].VendorErr)
	require.Equal(t, byte(5), b.buf[0])
}

func TestDriverUnchecked(t *testing.T) {
	const initMask = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags
	const rtrMask = ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	for _, lax := range []bool{true, false} {
		h := newHost(t, 1, func(c *Config) {
			c.MTU = ib.MTU1024
			if lax {
				c.Driver = qp.DriverRXE
			}
		})
		inInit := func(pkey uint16) (*qp.QP, error) {
			q := h.qp(ib.QPTypeRC)
			return q, h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateInit, PortNum: 1, PKeyIndex: pkey}, initMask)
		}
		_, err := inInit(500)
		require.Equal(t, lax, err == nil, "pkey_index: %v", err)
		for _, a := range []qp.Attr{{PathMTU: ib.MTU4096, MaxDestRdAtomic: 1}, {PathMTU: ib.MTU1024, MaxDestRdAtomic: 200}} {
			q, err := inInit(0)
			require.NoError(t, err)
			a.State, a.AV, a.DestQPN = ib.StateRTR, ib.AV{DGID: h.gid, IsGlobal: true, PortNum: 1}, 5
			err = h.d.ModifyQP(0, q, &a, rtrMask)
			require.Equal(t, lax, err == nil, "%v: %v", a.PathMTU, err)
		}
	}
}

func TestDriverRDMAVT(t *testing.T) {
	edit := func(c *Config) { c.Profile, c.Driver, c.MTU = qp.ProfileRDMAVT, qp.DriverRDMAVT, ib.MTU1024 }
	a, b := newHost(t, 1, edit), newHost(t, 2, edit)
	qa, qb := a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)

	// The local address of an atomic is looked at, the remote one is the peer's business.
	_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(4, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}})
	require.ErrorIs(t, err, ib.EINVAL)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 2, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(0, 8), RemoteAddr: bufBase + 4, RKey: b.mr.RKey}})
	require.NoError(t, err)
	settle(0, a, b)
	require.Equal(t, ib.WCRemInvReqErr, a.poll()[0].Status)

	// A path MTU above the port's is accepted, and cut.
	q := a.qp(ib.QPTypeUC)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateInit, PortNum: 1}, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateRTR, AV: ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1}, PathMTU: ib.MTU4096, DestQPN: 5},
		ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN))
	require.Equal(t, ib.MTU1024, a.d.QueryQP(q).PathMTU)
}

// A receive completion that is lost takes a responder of driver rxe to ERR; the message
// before it is acknowledged, it is not.
func TestDriverRecvOverflow(t *testing.T) {
	a, b := rxeHost(t, 1), rxeHost(t, 2)
	qa, qb := smallPair(t, a, b)
	for range 2 {
		_, err := b.d.PostRecv(qb, []swqe.RecvWR{{SGL: b.sge(0, 64)}})
		require.NoError(t, err)
	}
	wr := swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 8)}
	_, err := a.d.PostSend(qa, []swqe.SendWR{wr, wr})
	require.NoError(t, err)
	settle(0, a, b)
	require.Equal(t, ib.StateErr, qb.State)
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.Equal(t, 1, qa.Outstanding())
}
