//go:build linux

package uverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
)

// pair is two programs with a connected QP each: on one device or on two.
type pair struct {
	w      *net
	a, b   *prog
	ca, cb *progCQ
	qa, qb *progQP
}

func newPair(t testing.TB, devices int, typ ib.QPType, edit func(*rvt.Config)) *pair {
	w := newNet(t, devices, ABIRXE, edit)
	x := &pair{w: w, a: newProg(t, w.hosts[0]), b: newProg(t, w.hosts[devices-1])}
	x.ca, x.cb = x.a.createCQ(64, -1), x.b.createCQ(64, -1)
	x.qa, x.qb = x.a.createQP(typ, x.ca, x.ca, 0), x.b.createQP(typ, x.cb, x.cb, 0)
	x.qa.connect(x.b.h.gid, x.qb.qpn)
	x.qb.connect(x.a.h.gid, x.qa.qpn)
	return x
}

// leave destroys what newPair and newProg made, in the order of a well-behaved
// program.
func (p *prog) leave(t testing.TB, qps []*progQP, cqs []*progCQ) {
	var ev eventsResp
	for _, q := range qps {
		p.ok(cmdDestroyQP, destroyObject{respAddr, q.handle, 0}, 4, &ev)
		require.Zero(t, ev.EventsReported)
	}
	for _, c := range cqs {
		var r destroyCQResp
		p.ok(cmdDestroyCQ, destroyObject{respAddr, c.handle, 0}, 8, &r)
		require.Zero(t, r)
	}
	p.ok(cmdDeregMR, handleOnly{p.mr.MRHandle}, 0, nil)
	p.ok(cmdDeallocPD, handleOnly{p.pd}, 0, nil)
	require.Zero(t, p.c.Objects())
	require.Empty(t, p.rings.areas)
}

// TestPingPong is the life of ibv_rc_pingpong.
func TestPingPong(t *testing.T) {
	for _, devices := range []int{1, 2} {
		x := newPair(t, devices, ib.QPTypeRC, nil)
		require.EqualValues(t, 127, x.ca.cqe)
		require.Equal(t, qpCaps{15, 15, 4, 4, 64}, x.qa.cap)
		const size = 4096
		for i := range size {
			x.a.buf[i] = byte(i * 31)
		}
		for round := range 100 {
			x.qb.recv(1, x.qb.sge(0, size))
			x.qa.wqe(2, ib.WRSend, ib.SendSignaled, x.qa.sge(0, size))
			require.Zero(t, x.qa.post())
			x.w.settle()
			wa, wb := x.ca.poll(), x.cb.poll()
			require.Len(t, wa, 1, "round %d", round)
			require.Len(t, wb, 1)
			require.Equal(t, ib.WCSuccess, wa[0].Status)
			require.Equal(t, uint64(2), wa[0].WRID)
			require.Equal(t, ib.WCRecv, wb[0].Opcode)
			require.EqualValues(t, size, wb[0].ByteLen)
			require.EqualValues(t, x.qb.qpn, wb[0].QPN)
			require.Equal(t, x.a.buf[:size], x.b.buf[:size])
			require.Equal(t, x.qa.sq.prod(), x.qa.sq.cons(), "the send's slot is free again")
			x.qa, x.qb, x.ca, x.cb, x.a, x.b = x.qb, x.qa, x.cb, x.ca, x.b, x.a
		}
		var q queryQPResp
		x.a.ok(cmdQueryQP, queryQP{respAddr, x.qa.handle, 1}, 128, &q)
		require.EqualValues(t, ib.StateRTS, q.QPState)
		require.EqualValues(t, x.qb.qpn, q.DestQPNum)
		require.Equal(t, x.b.h.gid, ib.GID(q.Dest.DGID))
		x.a.leave(t, []*progQP{x.qa}, []*progCQ{x.ca})
		x.b.leave(t, []*progQP{x.qb}, []*progCQ{x.cb})
	}
}

// TestOperations posts every operation in one batch through the ring.
func TestOperations(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	copy(x.a.buf, "the quick brown fox jumps over the lazy dog")
	remote := progBase + uint64(8192)
	rdma := func(b []byte, addr uint64) {
		native.PutUint64(b[sendAddr:], addr)
		native.PutUint32(b[sendRKey:], x.b.mr.RKey)
	}
	for i := range 4 {
		x.qb.recv(uint64(100+i), x.qb.sge(64<<10+i*1024, 512), x.qb.sge(128<<10+i*1024, 512))
	}
	rdma(x.qa.wqe(1, ib.WRRDMAWrite, ib.SendSignaled, x.qa.sge(0, 20), x.qa.sge(20, 23)), remote)
	x.qa.sq.advance()
	rdma(x.qa.wqe(2, ib.WRRDMARead, ib.SendSignaled, x.qa.sge(4096, 43)), remote)
	x.qa.sq.advance()
	b := x.qa.wqe(3, ib.WRRDMAWriteWithImm, 0, x.qa.sge(0, 0))
	rdma(b, remote)
	be.PutUint32(b[sendImm:], 0xcafebabe)
	x.qa.sq.advance()
	b = x.qa.wqe(4, ib.WRAtomicFetchAndAdd, ib.SendSignaled|ib.SendFence, x.qa.sge(16384, 8))
	native.PutUint64(b[sendAddr:], remote+4096)
	native.PutUint32(b[sendAtRKey:], x.b.mr.RKey)
	native.PutUint64(b[sendCompare:], 5)
	x.qa.sq.advance()
	b = x.qa.wqe(5, ib.WRSendWithImm, ib.SendSignaled|ib.SendInline)
	copy(b[rxeSendData:], "inline")
	native.PutUint32(b[rxeSendLen:], 6)
	be.PutUint32(b[sendImm:], 0x01020304)
	require.Zero(t, x.qa.post())
	clear(b[rxeSendData : rxeSendData+6]) // it was copied at the doorbell
	x.w.settle()

	var ids []uint64
	for _, w := range x.ca.poll() {
		require.Equal(t, ib.WCSuccess, w.Status, "wr %d: %v", w.WRID, w.VendorErr)
		ids = append(ids, w.WRID)
	}
	require.Equal(t, []uint64{1, 2, 4, 5}, ids)
	require.Equal(t, x.a.buf[:43], x.b.buf[8192:8192+43])
	require.Equal(t, x.a.buf[:43], x.a.buf[4096:4096+43])
	require.EqualValues(t, 5, x.b.buf[8192+4096])
	wb := x.cb.poll()
	require.Len(t, wb, 2)
	require.Equal(t, ib.WCRecvRDMAWithImm, wb[0].Opcode)
	require.EqualValues(t, 0xcafebabe, wb[0].Imm)
	require.Equal(t, "inline", string(x.b.buf[64<<10+1024:64<<10+1030]))
	require.Equal(t, ib.WCFlagWithImm, wb[1].Flags&ib.WCFlagWithImm)
	require.Equal(t, x.qa.sq.prod(), x.qa.sq.cons(), "unsignaled ones retire too")
}

// TestQueueFull posts until the ring is full, while nothing is answered.
func TestQueueFull(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	x.w.lost = true
	n := 0
	for ; !x.qa.sq.full(); n++ {
		x.qa.wqe(uint64(n), ib.WRRDMAWrite, ib.SendSignaled, x.qa.sge(0, 8))
		require.Zero(t, x.qa.post())
	}
	require.Equal(t, 15, n)
	x.w.settle()
	x.w.advance()
	w := x.ca.poll()
	require.Len(t, w, n)
	require.Equal(t, ib.WCRetryExcErr, w[0].Status)
	require.Equal(t, ib.WCWRFlushErr, w[n-1].Status)
	require.Equal(t, x.qa.sq.prod(), x.qa.sq.cons())
}

// TestDatagram sends to a UD QP through an address handle, destroyed right after.
func TestDatagram(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeUD, nil)
	var ah struct{ Handle, Num, Reserved uint32 }
	x.a.ok(cmdCreateAH, createAH{Response: respAddr, PDHandle: x.a.pd, Attr: ahAttr{GRH: globalRoute{DGID: x.b.h.gid, HopLimit: 64}, IsGlobal: 1, PortNum: 1}}, 12, &ah)
	require.NotZero(t, ah.Num)
	send := func(id uint64, num uint32) []byte {
		b := x.qa.wqe(id, ib.WRSend, ib.SendSignaled, x.qa.sge(0, 100))
		native.PutUint32(b[sendQPN:], x.qb.qpn)
		native.PutUint32(b[sendQKey:], 0x11111111)
		native.PutUint32(b[sendAHNum:], num)
		x.qa.sq.advance()
		return b
	}
	for i := range 3 {
		x.qb.recv(uint64(i), x.qb.sge(0, 140))
	}
	copy(x.a.buf, "datagram")
	send(1, ah.Num)
	// The handle goes before the doorbell comes: what is in the ring was posted.
	x.a.ok(cmdDestroyAH, handleOnly{ah.Handle}, 0, nil)
	// An old provider puts the address vector into the entry.
	b := send(2, 0)
	b[sendAV+avPort] = 1
	copy(b[sendAV+avDGID:], x.b.h.gid[:])
	b[sendAV+avHop] = 64
	require.Zero(t, x.qa.doorbell())
	x.w.settle()
	require.Len(t, x.ca.poll(), 2)
	w := x.cb.poll()
	require.Len(t, w, 2)
	require.EqualValues(t, 140, w[0].ByteLen)
	require.EqualValues(t, x.qa.qpn, w[0].SrcQP)
	require.Equal(t, "datagram", string(x.b.buf[40:48]))
	// The number of a handle that is gone is refused, and takes nothing along.
	send(3, ah.Num)
	require.Equal(t, ib.EINVAL, x.qa.doorbell())
	require.Equal(t, x.qa.sq.prod(), x.qa.sq.cons())
	require.Equal(t, ib.ENOENT, x.a.errno(cmdDestroyAH, handleOnly{ah.Handle}, 0))
}

// TestMulticast attaches, sends to the group, detaches.
func TestMulticast(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeUD, nil)
	gid := ib.GIDFromIPv4(239, 1, 2, 3)
	att := mcastCmd{GID: gid, QPHandle: x.qb.handle, MLID: 0xc000}
	x.b.ok(cmdAttachMcast, att, 0, nil)
	x.b.ok(cmdAttachMcast, att, 0, nil)
	require.Equal(t, ib.EBUSY, x.b.errno(cmdDestroyQP, destroyObject{respAddr, x.qb.handle, 0}, 4))
	var ah struct{ Handle, Num, Reserved uint32 }
	x.a.ok(cmdCreateAH, createAH{Response: respAddr, PDHandle: x.a.pd, Attr: ahAttr{GRH: globalRoute{DGID: gid}, IsGlobal: 1, PortNum: 1}}, 12, &ah)
	x.qb.recv(1, x.qb.sge(0, 2048))
	b := x.qa.wqe(1, ib.WRSend, ib.SendSignaled, x.qa.sge(0, 100))
	native.PutUint32(b[sendQPN:], uint32(ib.QPNMulticast))
	native.PutUint32(b[sendQKey:], 0x11111111)
	native.PutUint32(b[sendAHNum:], ah.Num)
	require.Zero(t, x.qa.post())
	x.w.settle()
	require.Len(t, x.cb.poll(), 1)
	x.b.ok(cmdDetachMcast, att, 0, nil)
	require.Equal(t, ib.EINVAL, x.b.errno(cmdDetachMcast, att, 0))
}

// TestWindow binds a type 2 window, writes through it, invalidates it by SEND_WITH_INV.
func TestWindow(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	var mw allocMWResp
	x.b.ok(cmdAllocMW, allocMW{Response: respAddr, PDHandle: x.b.pd, MWType: 2}, 8, &mw)
	newKey := mw.RKey + 1
	b := x.qb.wqe(1, ib.WRBindMW, ib.SendSignaled)
	native.PutUint64(b[sendMWAddr:], progBase+4096)
	native.PutUint64(b[sendMWLen:], 4096)
	native.PutUint32(b[sendMRLKey:], x.b.mr.LKey)
	native.PutUint32(b[sendMWRKey:], mw.RKey)
	native.PutUint32(b[sendNewRKey:], newKey)
	native.PutUint32(b[sendMWAcc:], uint32(ib.AccessRemoteWrite))
	require.Zero(t, x.qb.post())
	x.w.settle()
	w := x.cb.poll()
	require.Len(t, w, 1)
	require.Equal(t, ib.WCSuccess, w[0].Status)
	require.Equal(t, ib.WCBindMW, w[0].Opcode)
	require.Equal(t, ib.EBUSY, x.b.errno(cmdDeregMR, handleOnly{x.b.mr.MRHandle}, 0))

	copy(x.a.buf, "window")
	b = x.qa.wqe(2, ib.WRRDMAWrite, ib.SendSignaled, x.qa.sge(0, 6))
	native.PutUint64(b[sendAddr:], progBase+4096)
	native.PutUint32(b[sendRKey:], newKey)
	x.qa.sq.advance()
	x.qb.recv(5, x.qb.sge(0, 64))
	b = x.qa.wqe(3, ib.WRSendWithInv, ib.SendSignaled, x.qa.sge(0, 6))
	native.PutUint32(b[sendImm:], newKey)
	require.Zero(t, x.qa.post())
	x.w.settle()
	require.Equal(t, "window", string(x.b.buf[4096:4102]))
	require.Len(t, x.ca.poll(), 2)
	w = x.cb.poll()
	require.Len(t, w, 1)
	require.Equal(t, ib.WCFlags(8), w[0].Flags&8, "WITH_INV has the user's value")
	require.EqualValues(t, newKey, w[0].InvRKey)
	x.b.ok(cmdDeallocMW, handleOnly{mw.MWHandle}, 0, nil)
	require.Equal(t, ib.ENOENT, x.b.errno(cmdDeallocMW, handleOnly{mw.MWHandle}, 0))
}

// TestRereg moves a region to another place and domain.
func TestRereg(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	pd2 := p.handle(cmdAllocPD, respOnly{respAddr}, 4)
	var r reregMRResp
	p.ok(cmdReregMR, reregMR{respAddr, p.mr.MRHandle, reregPD | reregTranslation, progBase + 4096, 100, progBase + 4096, pd2, 0}, 8, &r)
	require.Equal(t, p.mr.LKey, r.LKey)
	require.Equal(t, ib.EBUSY, p.errno(cmdDeallocPD, handleOnly{pd2}, 0))
	p.ok(cmdDeallocPD, handleOnly{p.pd}, 0, nil)
	require.Equal(t, ib.EINVAL, p.errno(cmdReregMR, reregMR{respAddr, p.mr.MRHandle, 8, 0, 0, 0, 0, 0}, 8))
	require.Equal(t, ib.EFAULT, p.errno(cmdReregMR, reregMR{respAddr, p.mr.MRHandle, reregTranslation, 0x1000, 100, 0x1000, 0, 0}, 8))
	p.ok(cmdDeregMR, handleOnly{p.mr.MRHandle}, 0, nil)
	p.ok(cmdDeallocPD, handleOnly{pd2}, 0, nil)
}

// TestExtended creates a QP and a CQ by the extended commands.
func TestExtended(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	rep := p.write(commandEx(cmdQueryDevice, exQueryDevice{}, 304, 0))
	require.Zero(t, rep.Errno)
	require.Len(t, rep.Out, 304)
	require.EqualValues(t, 304, native.Uint32(rep.Out[180:]))
	rep = p.write(commandEx(cmdQueryDevice, exQueryDevice{}, 184, 0))
	require.EqualValues(t, 184, native.Uint32(rep.Out[180:]))
	rep = p.write(commandEx(cmdCreateCQ, exCreateCQ{UserHandle: 1, CQE: 10, CompChannel: -1}, 16, 16))
	require.Zero(t, rep.Errno)
	require.Len(t, rep.Out, 32)
	h := native.Uint32(rep.Out)
	require.EqualValues(t, 15, native.Uint32(rep.Out[4:]))
	require.NotNil(t, p.rings.areas[native.Uint64(rep.Out[16:])])
	rep = p.write(commandEx(cmdCreateQP, exCreateQP{Body: qpBody{PDHandle: p.pd, SendCQHandle: h, RecvCQHandle: h, Cap: qpCaps{1, 1, 1, 1, 0}, QPType: 2}}, 40, 32))
	require.Zero(t, rep.Errno)
	require.Len(t, rep.Out, 72)
	for _, off := range []int{40, 56} {
		require.Len(t, p.rings.areas[native.Uint64(rep.Out[off:])], int(native.Uint32(rep.Out[off+8:])))
	}
	require.Equal(t, ib.EOPNOTSUPP, p.write(commandEx(cmdCreateCQ, exCreateCQ{CQE: 1, CompChannel: -1, Flags: 1}, 16, 16)).Errno)
	require.Equal(t, ib.EOPNOTSUPP, p.write(commandEx(50, exQueryDevice{}, 8, 0)).Errno)
	require.Equal(t, ib.EOPNOTSUPP, p.write(commandEx(cmdQueryDevice, [2]exQueryDevice{{}, {1, 0}}, 304, 0)).Errno)
}

// TestRefused posts what cannot be posted: by a doorbell that waits for the answer,
// and by one that does not.
func TestRefused(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	x.qa.wqe(1, ib.WRRDMAWrite, ib.SendSignaled, x.qa.sge(0, 8))
	x.qa.sq.advance()
	x.qa.wqe(2, ib.WROpcode(13), ib.SendSignaled) // no such operation
	x.qa.sq.advance()
	x.qa.wqe(3, ib.WRRDMAWrite, ib.SendSignaled, x.qa.sge(0, 8))
	require.Equal(t, ib.EINVAL, x.qa.post())
	require.EqualValues(t, 1, x.qa.sq.prod(), "the bad one and those behind it were not posted")
	x.qa.wqe(4, ib.WROpcode(13), ib.SendSignaled)
	x.qa.sq.advance()
	x.a.c.Doorbell(x.qa.handle)
	require.EqualValues(t, 2, x.qa.sq.prod())
	x.w.settle()
	w := x.ca.poll()
	require.Len(t, w, 2)
	require.Equal(t, ib.WCRemAccessErr, w[0].Status, "rkey 0")
	require.Equal(t, ib.WCWRFlushErr, w[1].Status)
	require.Equal(t, uint64(4), w[1].WRID)
	require.Equal(t, x.qa.sq.prod(), x.qa.sq.cons())
	// A receive posted in ERR is flushed with the next command of the QP.
	x.qa.recv(9, x.qa.sge(0, 8))
	require.Zero(t, x.qa.doorbell())
	w = x.ca.poll()
	require.Len(t, w, 1)
	require.Equal(t, ib.WCWRFlushErr, w[0].Status)
}

// TestGateKnowsWhoIsBusy follows what a program's side is told about a queue pair: only while
// sends are under way may it let others wait.
func TestGateKnowsWhoIsBusy(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	gate, h := x.a.rings, x.qa.handle
	post := func() {
		x.qa.wqe(1, ib.WRSend, ib.SendSignaled, x.qa.sge(0, 8))
		x.qa.sq.advance()
		x.a.c.Doorbell(h)
	}
	require.True(t, gate.postable[h])
	require.False(t, gate.busy[h])
	x.qb.recv(1, x.qb.sge(0, 8))
	post()
	require.True(t, gate.busy[h])
	x.w.settle()
	require.Len(t, x.ca.poll(), 1)
	require.False(t, gate.busy[h])
	post()
	require.True(t, gate.busy[h])
	require.Zero(t, x.qa.modify(modifyQP{QPState: uint8(ib.StateReset)}, ib.AttrState))
	require.False(t, gate.postable[h])
	require.False(t, gate.busy[h])
}

// TestManyQueuePairsDoNotWait: what many queue pairs post would have to be looked for in all of them.
func TestManyQueuePairsDoNotWait(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	for range mostScanned {
		x.a.createQP(ib.QPTypeRC, x.ca, x.ca, 0)
	}
	x.qb.recv(1, x.qb.sge(0, 8))
	x.qa.wqe(1, ib.WRSend, ib.SendSignaled, x.qa.sge(0, 8))
	x.qa.sq.advance()
	x.a.c.Doorbell(x.qa.handle)
	require.False(t, x.a.rings.busy[x.qa.handle])
}

// TestStates checks the post in each state and that RESET empties the rings.
func TestStates(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	c := p.createCQ(16, -1)
	q := p.createQP(ib.QPTypeRC, c, c, 0)
	require.Zero(t, loadWord(q.sq.b, SQPostableOffset))
	q.wqe(1, ib.WRSend, ib.SendSignaled, q.sge(0, 8))
	require.Equal(t, ib.EINVAL, q.post())
	require.EqualValues(t, 0, q.sq.prod(), "nothing was posted")
	q.connect(p.h.gid, q.qpn)
	require.EqualValues(t, 1, loadWord(q.sq.b, SQPostableOffset))
	require.Equal(t, ib.EINVAL, q.modify(modifyQP{QPState: 99}, ib.AttrState))
	for range 3 {
		q.recv(5, q.sge(0, 8))
	}
	w.lost = true
	q.wqe(1, ib.WRSend, ib.SendSignaled, q.sge(0, 8))
	require.Zero(t, q.post())
	w.settle()
	require.Zero(t, q.modify(modifyQP{QPState: uint8(ib.StateReset)}, ib.AttrState))
	require.Equal(t, q.sq.prod(), q.sq.cons())
	require.Equal(t, q.rq.prod(), q.rq.cons())
	require.Zero(t, loadWord(q.sq.b, SQPostableOffset))
	require.Empty(t, c.poll())
	w.lost = false
	q.connect(p.h.gid, q.qpn)
	q.recv(6, q.sge(100, 8))
	q.wqe(7, ib.WRSend, ib.SendSignaled, q.sge(0, 8))
	require.Zero(t, q.post())
	w.settle()
	require.Len(t, c.poll(), 2)
}

// TestDeath closes a context with everything in use; the peer finds out.
func TestDeath(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	x.qb.recv(1, x.qb.sge(0, 8))
	x.qa.wqe(1, ib.WRSend, ib.SendSignaled, x.qa.sge(0, 8))
	require.Zero(t, x.qa.post())
	x.b.c.Close()
	require.Empty(t, x.b.rings.areas)
	require.Empty(t, x.b.h.d.QPs())
	require.Zero(t, x.b.h.d.Keys().Len())
	x.w.settle()
	x.w.advance()
	w := x.ca.poll()
	require.Len(t, w, 1)
	require.Equal(t, ib.WCRetryExcErr, w[0].Status)
	require.Equal(t, ib.EINVAL, x.b.errno(cmdAllocPD, respOnly{respAddr}, 4))
	x.b.c.Close()
}

// TestMemoryGone lets the memory behind a region vanish.
func TestMemoryGone(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	x.b.mem.Buf = nil
	b := x.qa.wqe(1, ib.WRRDMAWrite, ib.SendSignaled, x.qa.sge(0, 8))
	native.PutUint64(b[sendAddr:], progBase)
	native.PutUint32(b[sendRKey:], x.b.mr.RKey)
	require.Zero(t, x.qa.post())
	x.w.settle()
	w := x.ca.poll()
	require.Len(t, w, 1)
	require.Equal(t, ib.WCRemOpErr, w[0].Status)
}

// TestHistoryOfDestroyed: whoever keeps a QP to explain what became of it does not look
// at its ring once that is gone.
func TestHistoryOfDestroyed(t *testing.T) {
	x := newPair(t, 1, ib.QPTypeRC, nil)
	q := x.b.h.d.QP(ib.QPN(x.qb.qpn))
	x.qb.recv(1, x.qb.sge(0, 64))
	require.Equal(t, 1, q.History().Receives)
	var ev eventsResp
	x.b.ok(cmdDestroyQP, destroyObject{respAddr, x.qb.handle, 0}, 4, &ev)
	x.qb.recv(2, x.qb.sge(0, 64)) // a program may still write to its mapping
	require.Zero(t, q.History().Receives)
}
