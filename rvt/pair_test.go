package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// host is one device with what a test program needs of it.
type host struct {
	t    testing.TB
	d    *Device
	gid  ib.GID
	pd   *PD
	cq   *cq.CQ
	buf  []byte
	mr   *MR
	out  Outbox
	pkts []frame
}

type frame struct {
	path wire.Path
	pkt  wire.Packet
}

const bufBase = 0x10000

func newHost(t testing.TB, n byte, edit func(*Config)) *host {
	gid := ib.GIDFromIPv4(10, 0, 0, n)
	cfg := DefaultConfig("rvt0", gid)
	if edit != nil {
		edit(&cfg)
	}
	d, err := New(cfg)
	require.NoError(t, err)
	h := &host{t: t, d: d, gid: gid, buf: make([]byte, 1<<20)}
	h.pd, err = d.AllocPD()
	require.NoError(t, err)
	h.cq, err = d.CreateCQ(1024, nil)
	require.NoError(t, err)
	h.mr, err = d.RegMR(h.pd, mr.NewSlice(bufBase, h.buf), bufBase, uint64(len(h.buf)), bufBase,
		ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind)
	require.NoError(t, err)
	return h
}

func (h *host) qp(t ib.QPType) *qp.QP {
	q, err := h.d.CreateQP(h.pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: t, SQSigAll: true,
		Cap: qp.Cap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}})
	require.NoError(h.t, err)
	return q
}

func (h *host) connect(q *qp.QP, peer *host, dest ib.QPN) {
	a := qp.Attr{State: ib.StateInit, PortNum: 1, AccessFlags: ib.AccessRemoteMask, QKey: 0x1111}
	m := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort
	if q.Type == ib.QPTypeUD {
		m |= ib.AttrQKey
	} else {
		m |= ib.AttrAccessFlags
	}
	require.NoError(h.t, h.d.ModifyQP(0, q, &a, m))
	a.State = ib.StateRTR
	m = ib.AttrState
	a.AV = ib.AV{DGID: peer.gid, IsGlobal: true, PortNum: 1, HopLimit: 64}
	a.PathMTU, a.DestQPN, a.RQPSN = ib.MTU1024, dest, 100
	a.MaxDestRdAtomic, a.MinRNRTimer = 4, 12
	if q.Type != ib.QPTypeUD {
		m |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	}
	if q.Type == ib.QPTypeRC {
		m |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	}
	require.NoError(h.t, h.d.ModifyQP(0, q, &a, m))
	a.State, a.SQPSN, a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = ib.StateRTS, 100, 14, 3, 3, 4
	m = ib.AttrState | ib.AttrSQPSN
	if q.Type == ib.QPTypeRC {
		m |= ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
	}
	require.NoError(h.t, h.d.ModifyQP(0, q, &a, m))
}

// emit takes everything the device wants to send.
func (h *host) emit(now vtime.Time) []frame {
	h.pkts = h.pkts[:0]
	for more := true; more; {
		h.out.Reset()
		more = h.d.Emit(now, &h.out, 16)
		var b mr.Batch
		for i := range h.out.Packets {
			p := &h.out.Packets[i]
			buf := make([]byte, p.Len)
			h.out.Gather(&b, i, buf)
			p.Pkt.Payload = buf
			h.pkts = append(h.pkts, frame{p.Path, p.Pkt})
		}
		require.Empty(h.t, b.Read())
		h.d.Commit(now)
	}
	return h.pkts
}

func (h *host) receive(now vtime.Time, fs []frame) {
	for i := range fs {
		h.d.Receive(now, &fs[i].path, &fs[i].pkt)
	}
	h.d.Commit(now)
}

// settle exchanges packets until both sides are quiet, without letting time pass.
func settle(now vtime.Time, a, b *host) {
	for {
		fa := append([]frame(nil), a.emit(now)...)
		fb := append([]frame(nil), b.emit(now)...)
		if len(fa)+len(fb) == 0 {
			return
		}
		b.receive(now, fa)
		a.receive(now, fb)
	}
}

func (h *host) poll() []cq.WC {
	wcs := make([]cq.WC, 64)
	return wcs[:h.cq.Poll(wcs)]
}

func (h *host) sge(off, n int) []mr.SGE {
	return []mr.SGE{{Addr: bufBase + uint64(off), Length: uint32(n), LKey: h.mr.LKey}}
}

func rcPair(t testing.TB, edit func(*Config)) (a, b *host, qa, qb *qp.QP) {
	a, b = newHost(t, 1, edit), newHost(t, 2, edit)
	qa, qb = a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	return a, b, qa, qb
}

// smallPair connects two hosts by RC; at b there is room for one completion of a receive.
func smallPair(t testing.TB, a, b *host) (qa, qb *qp.QP) {
	small, err := b.d.CreateCQ(1, nil)
	require.NoError(t, err)
	qa = a.qp(ib.QPTypeRC)
	qb, err = b.d.CreateQP(b.pd, &qp.InitAttr{SendCQ: b.cq, RecvCQ: small, Type: ib.QPTypeRC, Cap: qp.Cap{MaxRecvWR: 4, MaxRecvSGE: 1}})
	require.NoError(t, err)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	return qa, qb
}

func TestRCEveryOperation(t *testing.T) {
	for _, prof := range []qp.Profile{qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE} {
		t.Run(prof.Name, func(t *testing.T) {
			a, b, qa, qb := rcPair(t, func(c *Config) { c.Profile = prof })
			for i := range a.buf {
				a.buf[i] = byte(i * 7)
			}
			for i := range 3 {
				n, err := b.d.PostRecv(qb, []swqe.RecvWR{{WRID: uint64(100 + i), SGL: b.sge(1<<19, 8192)}})
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			remote := bufBase + uint64(4096)
			wrs := []swqe.SendWR{
				{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 5000)},
				{WRID: 2, Opcode: ib.WRRDMAWrite, SGL: a.sge(10, 3000), RemoteAddr: remote, RKey: b.mr.RKey},
				{WRID: 3, Opcode: ib.WRRDMAWriteWithImm, SGL: a.sge(10, 0), Imm: 7, RemoteAddr: remote, RKey: b.mr.RKey},
				{WRID: 4, Opcode: ib.WRRDMARead, SGL: a.sge(1<<19, 2600), RemoteAddr: remote, RKey: b.mr.RKey},
				{WRID: 5, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(1<<18, 8), CompareAdd: 5, RemoteAddr: remote + 8192, RKey: b.mr.RKey},
				{WRID: 6, Opcode: ib.WRAtomicCmpAndSwp, SGL: a.sge(1<<18+8, 8), CompareAdd: 5, Swap: 9, RemoteAddr: remote + 8192, RKey: b.mr.RKey},
				{WRID: 7, Opcode: ib.WRSendWithImm, Flags: ib.SendFence | ib.SendInline | ib.SendSolicited, Inline: []byte("hello"), Imm: 0xcafebabe},
			}
			n, err := a.d.PostSend(qa, wrs)
			require.NoError(t, err)
			require.Equal(t, len(wrs), n)
			settle(0, a, b)
			for i, wc := range a.poll() {
				require.Equal(t, uint64(i+1), wc.WRID)
				require.Equal(t, ib.WCSuccess, wc.Status, "wr %d: %v", wc.WRID, wc.VendorErr)
			}
			rw := b.poll()
			require.Len(t, rw, 3)
			require.Equal(t, uint32(5000), rw[0].ByteLen)
			require.Equal(t, ib.WCRecvRDMAWithImm, rw[1].Opcode)
			require.Equal(t, uint32(0xcafebabe), rw[2].Imm)
			require.Equal(t, "hello", string(b.buf[1<<19:1<<19+5]))
			require.Equal(t, a.buf[10:3010], b.buf[4096:4096+3000])
			require.Equal(t, a.buf[10:2610], a.buf[1<<19:1<<19+2600])
			require.Equal(t, byte(9), b.buf[4096+8192])
			require.Equal(t, byte(5), a.buf[1<<18+8])
			require.Equal(t, qa.SHead, qa.SLast)
			require.Equal(t, vtime.Never, qa.Deadline())
		})
	}
}

func TestUCAndUD(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	for _, typ := range []ib.QPType{ib.QPTypeUC, ib.QPTypeUD} {
		qa, qb := a.qp(typ), b.qp(typ)
		a.connect(qa, b, qb.QPN)
		b.connect(qb, a, qa.QPN)
		_, err := b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 9, SGL: b.sge(0, 8192)}})
		require.NoError(t, err)
		wr := swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 3000)}
		if typ == ib.QPTypeUD {
			wr.AH, err = a.d.CreateAH(a.pd, ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1})
			require.NoError(t, err)
			wr.RemoteQPN, wr.RemoteQKey = qb.QPN, 0x1111
		}
		_, err = a.d.PostSend(qa, []swqe.SendWR{wr})
		require.NoError(t, err)
		settle(0, a, b)
		require.Equal(t, ib.WCSuccess, a.poll()[0].Status)
		wc := b.poll()
		require.Len(t, wc, 1)
		if typ == ib.QPTypeUD {
			require.Equal(t, uint32(3040), wc[0].ByteLen)
			require.Equal(t, qa.QPN, wc[0].SrcQP)
		}
	}
}
