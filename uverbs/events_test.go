//go:build linux

package uverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func (p *prog) reqNotify(c *progCQ, solicited uint32) {
	p.t.Helper()
	p.ok(cmdReqNotifyCQ, reqNotifyCQ{c.handle, solicited}, 0, nil)
}

func (p *prog) destroyCQ(c *progCQ) destroyCQResp {
	p.t.Helper()
	var r destroyCQResp
	p.ok(cmdDestroyCQ, destroyObject{respAddr, c.handle, 0}, 8, &r)
	return r
}

// selfSend lets a QP that is connected to itself complete n sends on its CQ.
func selfSend(t *testing.T, w *net, q *progQP, flags ib.SendFlags) {
	q.recv(1, q.sge(0, 64))
	q.wqe(2, ib.WRSend, flags, q.sge(64, 64))
	require.Zero(t, q.post())
	w.settle()
}

func TestCompletionEvents(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	ch := p.channel()
	require.Equal(t, ebadf, p.errno(cmdCreateCQ, createCQ{Response: respAddr, CQE: 4, CompChannel: 78}, 24))
	c := p.createCQ(64, 77)
	q := p.createQP(ib.QPTypeRC, c, c, 0)
	q.connect(p.h.gid, q.qpn)

	selfSend(t, w, q, ib.SendSignaled)
	require.Empty(t, readEvents(t, ch, 8), "not armed")
	p.reqNotify(c, 0)
	require.Empty(t, readEvents(t, ch, 8), "what was there already raises nothing")
	selfSend(t, w, q, ib.SendSignaled)
	ev := readEvents(t, ch, 8)
	require.Len(t, ev, 1, "one for each arm")
	require.Equal(t, c.user, native.Uint64(ev[0]))
	p.reqNotify(c, 1)
	selfSend(t, w, q, ib.SendSignaled)
	require.Empty(t, readEvents(t, ch, 8), "not solicited")
	selfSend(t, w, q, ib.SendSignaled|ib.SendSolicited)
	require.Len(t, readEvents(t, ch, 8), 1)

	// Two more that nobody reads: the destroy must not count them.
	for range 2 {
		p.reqNotify(c, 0)
		selfSend(t, w, q, 0)
	}
	p.ok(cmdDestroyQP, destroyObject{respAddr, q.handle, 0}, 4, &eventsResp{})
	require.Equal(t, destroyCQResp{CompEventsReported: 2}, p.destroyCQ(c))
	require.Empty(t, readEvents(t, ch, 8), "they are gone from the pipe")
}

// TestForgetKeepsOthers destroys one of two queues that report to one channel.
func TestForgetKeepsOthers(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	ch := p.channel()
	c1, c2 := p.createCQ(64, 77), p.createCQ(64, 77)
	q1, q2 := p.createQP(ib.QPTypeRC, c1, c1, 0), p.createQP(ib.QPTypeRC, c2, c2, 0)
	q1.connect(p.h.gid, q1.qpn)
	q2.connect(p.h.gid, q2.qpn)
	for range 3 {
		p.reqNotify(c1, 0)
		selfSend(t, w, q1, 0)
		p.reqNotify(c2, 0)
		selfSend(t, w, q2, 0)
	}
	p.ok(cmdDestroyQP, destroyObject{respAddr, q1.handle, 0}, 4, &eventsResp{})
	require.Zero(t, p.destroyCQ(c1).CompEventsReported)
	ev := readEvents(t, ch, 8)
	require.Len(t, ev, 3)
	for _, e := range ev {
		require.Equal(t, c2.user, native.Uint64(e))
	}
	p.ok(cmdDestroyQP, destroyObject{respAddr, q2.handle, 0}, 4, &eventsResp{})
	require.EqualValues(t, 3, p.destroyCQ(c2).CompEventsReported)
}

// TestAsyncEvents overflows a CQ, and checks the counts and the port's events.
func TestAsyncEvents(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	small, c := p.createCQ(1, -1), p.createCQ(64, -1)
	q := p.createQP(ib.QPTypeRC, small, c, 0)
	q.connect(p.h.gid, q.qpn)
	for range 2 {
		selfSend(t, w, q, ib.SendSignaled)
	}
	ev := readEvents(t, p.async, 16)
	require.NotEmpty(t, ev)
	require.Equal(t, small.user, native.Uint64(ev[0]))
	require.EqualValues(t, ib.EventCQErr, native.Uint32(ev[0][8:]))
	p.h.d.SetPort(false)
	p.h.events()
	ev2 := readEvents(t, p.async, 16)
	require.Len(t, ev2, 1)
	require.EqualValues(t, 1, native.Uint64(ev2[0]))
	require.EqualValues(t, ib.EventPortErr, native.Uint32(ev2[0][8:]))
	var port queryPortResp
	p.ok(cmdQueryPort, queryPort{Response: respAddr, PortNum: 1}, 40, &port)
	require.EqualValues(t, portDown, port.State)
	p.ok(cmdDestroyQP, destroyObject{respAddr, q.handle, 0}, 4, &eventsResp{})
	require.EqualValues(t, len(ev), p.destroyCQ(small).AsyncEventsReported)
	p.h.dev.Fatal()
	ev = readEvents(t, p.async, 16)
	require.Len(t, ev, 1)
	require.EqualValues(t, ib.EventDeviceFatal, native.Uint32(ev[0][8:]))
}

// TestPipeFull writes more than a pipe holds; everything arrives, in order, as the
// program reads.
func TestPipeFull(t *testing.T) {
	ch, r, err := newChannel(8)
	require.NoError(t, err)
	defer r.Close()
	defer ch.close()
	const n = 20000
	var count uint32
	for i := range uint64(n) {
		ch.send(encode(compEventDesc{i}), &count)
	}
	ch.mu.Lock()
	require.NotEmpty(t, ch.queue)
	require.Less(t, count, uint32(n))
	ch.mu.Unlock()
	next := uint64(0)
	for next < n {
		b := make([]byte, 4096)
		m, err := r.Read(b)
		require.NoError(t, err)
		for b = b[:m]; len(b) >= 8; b = b[8:] {
			require.Equal(t, next, native.Uint64(b))
			next++
		}
	}
	ch.mu.Lock()
	defer ch.mu.Unlock()
	require.Empty(t, ch.queue)
	require.EqualValues(t, n, count)
}

// TestPipeForget removes an object's events from the pipe and from what waits behind it.
func TestPipeForget(t *testing.T) {
	ch, r, err := newChannel(8)
	require.NoError(t, err)
	defer r.Close()
	defer ch.close()
	var a, b uint32
	for i := range 10000 {
		ch.send(encode(compEventDesc{uint64(i%2) + 1}), []*uint32{&a, &b}[i%2])
	}
	require.Zero(t, ch.forget(1, &a))
	for range 5000 {
		rec := make([]byte, 8)
		_, err := r.Read(rec)
		require.NoError(t, err)
		require.EqualValues(t, 2, native.Uint64(rec))
	}
	require.EqualValues(t, 5000, ch.forget(2, &b))
}

// TestPipeBound drops what a program never reads, and survives its closing the pipe.
func TestPipeBound(t *testing.T) {
	ch, r, err := newChannel(8)
	require.NoError(t, err)
	for range maxQueued + 20000 {
		ch.send(encode(compEventDesc{1}), nil)
	}
	ch.mu.Lock()
	require.Len(t, ch.queue, maxQueued)
	require.NotZero(t, ch.dropped)
	ch.mu.Unlock()
	require.False(t, ch.abandoned())
	r.Close()
	require.True(t, ch.abandoned())
	ch.send(encode(compEventDesc{1}), nil)
	ch.close()
	ch.send(encode(compEventDesc{1}), nil)
	ch.close()
}

// TestChannelsAreFreed makes and leaves many channels.
func TestChannelsAreFreed(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	for range 50 {
		f := p.channel()
		c := p.createCQ(1, 77)
		p.destroyCQ(c)
		f.Close()
	}
	require.LessOrEqual(t, len(p.c.channels), 1)
}

func TestSRQ(t *testing.T) {
	for _, name := range []string{ABIRXE} {
		w := newNet(t, 1, name, nil)
		p := newProg(t, w.hosts[0])
		c := p.createCQ(64, -1)
		var r struct {
			Base   createSRQResp
			MI     mminfo
			Num, R uint32
		}
		p.ok(cmdCreateSRQ, createSRQ{respAddr, 0x5151, p.pd, 6, 2, 3}, 40, &r)
		require.EqualValues(t, 7, r.Base.MaxWR)
		srq, rq := r.Base.SRQHandle, p.mmap(r.MI)
		q1, q2 := p.createQP(ib.QPTypeRC, c, c, srq), p.createQP(ib.QPTypeRC, c, c, srq)
		q1.connect(p.h.gid, q2.qpn)
		q2.connect(p.h.gid, q1.qpn)
		require.Equal(t, ib.EBUSY, p.errno(cmdDestroySRQ, destroyObject{respAddr, srq, 0}, 4))
		for i := range 5 {
			putRecv(rq, uint64(10+i), q1.sge(i*64, 64))
		}
		p.ok(cmdModifySRQ, modifySRQ{srq, srqLimit, 0, 5}, 0, nil)
		var qs querySRQResp
		p.ok(cmdQuerySRQ, destroyObject{respAddr, srq, 0}, 16, &qs)
		require.Equal(t, querySRQResp{MaxWR: 7, MaxSGE: 2, SRQLimit: 5}, qs)
		send := func(q *progQP) {
			q.wqe(1, ib.WRSend, 0, q.sge(4096, 64))
			require.Zero(t, q.post())
			w.settle()
		}
		send(q1)
		ev := readEvents(t, p.async, 16)
		require.Len(t, ev, 1)
		require.EqualValues(t, 0x5151, native.Uint64(ev[0]))
		require.EqualValues(t, ib.EventSRQLimitReached, native.Uint32(ev[0][8:]))

		// Resize: the four receives that wait move to the new ring, in order.
		extra := native.AppendUint64(nil, 0xdead0000)
		require.Equal(t, ib.EINVAL, p.errno(cmdModifySRQ, modifySRQ{srq, srqMaxWR, 2, 0}, 0, extra...))
		require.Equal(t, ib.EINVAL, p.errno(cmdModifySRQ, modifySRQ{srq, srqMaxWR, 20, 0}, 0))
		require.Equal(t, ib.EINVAL, p.errno(cmdModifySRQ, modifySRQ{srq, 4, 20, 0}, 0, extra...))
		rep := p.write(command(cmdModifySRQ, modifySRQ{srq, srqMaxWR, 20, 0}, 0, extra...))
		require.Zero(t, rep.Errno)
		require.Len(t, rep.Writes, 1)
		require.EqualValues(t, 0xdead0000, rep.Writes[0].Addr)
		rq = p.mmap(mminfo{Offset: native.Uint64(rep.Writes[0].Data), Size: native.Uint32(rep.Writes[0].Data[8:])})
		require.EqualValues(t, 31, rq.mask())
		putRecv(rq, 20, q1.sge(0, 64))
		send(q2)
		for range 4 {
			send(q1)
		}
		var ids []uint64
		for _, wc := range c.poll() {
			ids = append(ids, wc.WRID)
		}
		require.Equal(t, []uint64{10, 11, 12, 13, 14, 20}, ids)
		for _, q := range []*progQP{q1, q2} {
			p.ok(cmdDestroyQP, destroyObject{respAddr, q.handle, 0}, 4, &eventsResp{})
		}
		var e eventsResp
		p.ok(cmdDestroySRQ, destroyObject{respAddr, srq, 0}, 4, &e)
		require.EqualValues(t, 1, e.EventsReported)
	}
}

func TestResizeCQ(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	c := p.createCQ(64, -1)
	q := p.createQP(ib.QPTypeRC, c, c, 0)
	q.connect(p.h.gid, q.qpn)
	for range 4 {
		selfSend(t, w, q, ib.SendSignaled)
	}
	resize := func(n uint32) (ib.Errno, resizeCQResp, mminfo) {
		rep := p.write(command(cmdResizeCQ, resizeCQ{respAddr, c.handle, n}, 24))
		if rep.Errno != 0 {
			return rep.Errno, resizeCQResp{}, mminfo{}
		}
		return 0, resizeCQResp{CQE: native.Uint32(rep.Out)}, mminfo{Offset: native.Uint64(rep.Out[8:]), Size: native.Uint32(rep.Out[16:])}
	}
	for _, n := range []uint32{2, 0, 1 << 30} {
		errno, _, _ := resize(n)
		require.Equal(t, ib.EINVAL, errno, "%d", n)
	}
	areas := len(p.rings.areas)
	errno, r, mi := resize(200)
	require.Zero(t, errno)
	require.EqualValues(t, 255, r.CQE)
	require.Len(t, p.rings.areas, areas)
	c.q = p.mmap(mi)
	require.Len(t, c.poll(), 8)
	selfSend(t, w, q, ib.SendSignaled)
	require.Len(t, c.poll(), 2)
}
