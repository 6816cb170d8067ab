//go:build linux

package uverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
)

// rvtSend builds a struct ib_uverbs_send_wr.
func rvtSend(id uint64, op ib.WROpcode, flags ib.SendFlags, nsge int, addr uint64, rkey uint32) []byte {
	b := make([]byte, sendWRBytes)
	native.PutUint64(b, id)
	native.PutUint32(b[8:], uint32(nsge))
	native.PutUint32(b[12:], uint32(op))
	native.PutUint32(b[16:], uint32(flags))
	native.PutUint64(b[24:], addr)
	native.PutUint32(b[32:], rkey)
	return b
}

// TestRVTPersonality is the life of a program on libhfi1verbs: exact sizes, offsets
// only, sends inside the write().
func TestRVTPersonality(t *testing.T) {
	w := newNet(t, 1, ABIRVT, func(c *rvt.Config) { c.Profile = qp.ProfileRDMAVT })
	p := newProg(t, w.hosts[0])
	var cqr struct {
		Base   createCQResp
		Offset uint64
	}
	p.ok(cmdCreateCQ, createCQ{Response: respAddr, CQE: 5, CompChannel: -1}, 16, &cqr)
	require.EqualValues(t, 5, cqr.Base.CQE)
	ring := p.rings.areas[cqr.Offset]
	var qr struct {
		Base   createQPResp
		Offset uint64
	}
	b := qpBody{PDHandle: p.pd, SendCQHandle: cqr.Base.CQHandle, RecvCQHandle: cqr.Base.CQHandle, Cap: qpCaps{3, 3, 2, 2, 32}, QPType: 2}
	p.ok(cmdCreateQP, createQP{respAddr, b}, 40, &qr)
	require.Equal(t, b.Cap, qr.Base.Cap)
	rq := p.rings.areas[qr.Offset]
	q := &progQP{p: p, handle: qr.Base.QPHandle, qpn: qr.Base.QPN, typ: ib.QPTypeRC}
	q.connect(p.h.gid, q.qpn)

	recv := func(slot int, id uint64, off int) {
		e := rq[rvtEntries+slot*(rvtRWQESGE+2*sgeBytes):]
		native.PutUint64(e, id)
		e[rvtRWQENum] = 1
		putSGE(e[rvtRWQESGE:], q.sge(off, 64))
		storeWord(rq, rvtHeadOff, uint32((slot+1)%4))
	}
	post := func(n, nsge uint32, tail ...[]byte) Reply {
		var all []byte
		for _, x := range tail {
			all = append(all, x...)
		}
		return p.write(command(cmdPostSend, postWR{respAddr, q.handle, n, nsge, sendWRBytes}, 4, all...))
	}
	sge := func(off, n int) []byte {
		e := make([]byte, sgeBytes)
		putSGE(e, q.sge(off, n))
		return e
	}
	copy(p.buf[4096:], "hello, world")
	tail := uint32(0)
	for round := range 6 {
		recv(round%4, uint64(round), 64*round)
		inline := make([]byte, sgeBytes)
		putSGE(inline, mr.SGE{Addr: progBase + 4096, Length: 12, LKey: 0xbad}) // inline needs no key
		rep := post(2, 2, rvtSend(50, ib.WRSend, ib.SendSignaled|ib.SendInline, 1, 0, 0),
			rvtSend(51, ib.WRRDMAWrite, ib.SendSignaled, 1, progBase+8192, p.mr.RKey), inline, sge(4096, 5))
		require.Zero(t, rep.Errno)
		require.Zero(t, native.Uint32(rep.Out))
		w.settle()
		require.Equal(t, "hello, world", string(p.buf[64*round:64*round+12]))
		var got []cq.WC
		for ; tail != loadWord(ring, rvtHeadOff); tail = (tail + 1) % 6 {
			var wc cq.WC
			getWC(ring[rvtEntries+wcBytes*int(tail):], &wc)
			require.Equal(t, ib.WCSuccess, wc.Status)
			got = append(got, wc)
		}
		storeWord(ring, rvtTailOff, tail)
		require.Len(t, got, 3)
	}
	require.Equal(t, "hello", string(p.buf[8192:8197]))

	// bad_wr counts from 1.
	rep := post(2, 2, rvtSend(1, ib.WRRDMAWrite, 0, 1, progBase, p.mr.RKey), rvtSend(2, ib.WRRDMAWrite, 0, 1, progBase, p.mr.RKey), sge(0, 8), make([]byte, 16))
	require.Zero(t, rep.Errno, "an SGE of no length needs no key")
	w.settle()
	bad := make([]byte, sgeBytes)
	putSGE(bad, mr.SGE{Addr: progBase, Length: 4, LKey: 0xbad})
	rep = post(2, 2, rvtSend(1, ib.WRRDMAWrite, 0, 1, progBase, p.mr.RKey), rvtSend(2, ib.WRRDMAWrite, 0, 1, progBase, p.mr.RKey), sge(0, 8), bad)
	require.Equal(t, ib.EINVAL, rep.Errno)
	require.EqualValues(t, 2, native.Uint32(rep.Out))
	for _, rep := range []Reply{
		post(2, 1, rvtSend(1, ib.WRRDMAWrite, 0, 1, progBase, p.mr.RKey), rvtSend(2, ib.WRRDMAWrite, 0, 1, progBase, p.mr.RKey), sge(0, 8)),
		post(2, 0, rvtSend(1, ib.WRRDMAWrite, 0, 0, progBase, p.mr.RKey)),
		post(1, 0, rvtSend(1, ib.WRLocalInv, 0, 0, progBase, p.mr.RKey)),
		post(1, 1<<30, rvtSend(1, ib.WRSend, 0, 1<<30, 0, 0)),
	} {
		require.Equal(t, ib.EINVAL, rep.Errno)
	}
	require.Equal(t, ib.EOPNOTSUPP, p.errno(cmdAllocMW, allocMW{Response: respAddr, PDHandle: p.pd, MWType: 1}, 8))
	require.Equal(t, ib.EINVAL, p.errno(cmdPollCQ, pollCQ{respAddr, cqr.Base.CQHandle, 4}, 8+4*wcBytes), "the program polls the ring itself")
}

// TestUnmapped is a provider that maps nothing and works its queues by commands.
func TestUnmapped(t *testing.T) {
	w := newNet(t, 1, ABIRVT, nil)
	p := newProg(t, w.hosts[0])
	var cqr createCQResp
	p.ok(cmdCreateCQ, createCQ{Response: respAddr, CQE: 5, CompChannel: -1}, 8, &cqr)
	var srq createSRQResp
	p.ok(cmdCreateSRQ, createSRQ{respAddr, 0, p.pd, 4, 1, 0}, 16, &srq)
	b := qpBody{PDHandle: p.pd, SendCQHandle: cqr.CQHandle, RecvCQHandle: cqr.CQHandle, Cap: qpCaps{3, 3, 2, 2, 0}, QPType: 2}
	var qs [2]createQPResp
	p.ok(cmdCreateQP, createQP{respAddr, b}, 32, &qs[0])
	b.IsSRQ, b.SRQHandle = 1, srq.SRQHandle
	p.ok(cmdCreateQP, createQP{respAddr, b}, 32, &qs[1])
	require.Empty(t, p.rings.areas)
	for i := range qs {
		q := &progQP{p: p, handle: qs[i].QPHandle, typ: ib.QPTypeRC}
		q.connect(p.h.gid, qs[1-i].QPN)
	}
	wr := native.AppendUint64(nil, 77)
	wr = native.AppendUint64(wr, 0)
	native.PutUint32(wr[8:], 1)
	sge := make([]byte, sgeBytes)
	putSGE(sge, (&progQP{p: p}).sge(0, 64))
	wr = append(wr, sge...)
	var r postResp
	p.ok(cmdPostRecv, postWR{respAddr, qs[0].QPHandle, 1, 1, recvWRBytes}, 4, &r, wr...)
	p.ok(cmdPostSRQRecv, postWR{respAddr, srq.SRQHandle, 1, 1, recvWRBytes}, 4, &r, wr...)
	require.Equal(t, ib.EINVAL, p.errno(cmdPostRecv, postWR{respAddr, qs[1].QPHandle, 1, 1, recvWRBytes}, 4, wr...))
	for i := range qs {
		p.ok(cmdPostSend, postWR{respAddr, qs[i].QPHandle, 1, 1, sendWRBytes}, 4, &r, append(rvtSend(9, ib.WRSend, ib.SendSignaled, 1, 0, 0), sge...)...)
	}
	w.settle()
	rep := p.write(command(cmdPollCQ, pollCQ{respAddr, cqr.CQHandle, 16}, 8+3*wcBytes))
	require.Zero(t, rep.Errno)
	require.EqualValues(t, 3, native.Uint32(rep.Out), "as many as there is room for")
	require.Len(t, rep.Out, 8+3*wcBytes)
	rep = p.write(command(cmdPollCQ, pollCQ{respAddr, cqr.CQHandle, 16}, 8+16*wcBytes))
	require.EqualValues(t, 1, native.Uint32(rep.Out))
	p.ok(cmdModifySRQ, modifySRQ{srq.SRQHandle, srqMaxWR | srqLimit, 8, 2}, 0, nil)
	p.ok(cmdResizeCQ, resizeCQ{respAddr, cqr.CQHandle, 50}, 8, &resizeCQResp{})
}
