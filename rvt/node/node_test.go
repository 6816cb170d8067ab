package node

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

const bufBase = 0x10000

// end is a node with what a test program needs of it.
type end struct {
	t   testing.TB
	n   *Node
	gid ib.GID
	pd  *rvt.PD
	cq  *cq.CQ
	mr  *rvt.MR
	buf []byte
	wc  [64]cq.WC
}

// options of newEnd.
type options struct {
	cfg  Config
	wrap func(fabric.Port) fabric.Port
	mem  func([]byte) mr.Memory

	judge func(vtime.Time, qp.Plea) qp.Verdict
}

func newEnd(t testing.TB, sw *Switch, last byte, o options) *end {
	e := &end{t: t, gid: ib.GIDFromIPv4(10, 0, 0, last), buf: make([]byte, 1<<20)}
	p, err := sw.Port(e.gid, ib.MTU4096)
	require.NoError(t, err)
	port := fabric.Port(p)
	if o.wrap != nil {
		port = o.wrap(port)
	}
	dc := rvt.DefaultConfig("rvt0", e.gid)
	dc.Judge = o.judge
	dev, err := rvt.New(dc)
	require.NoError(t, err)
	e.n, err = New(dev, port, o.cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = e.n.Close() })
	mem := mr.Memory(mr.NewSlice(bufBase, e.buf))
	if o.mem != nil {
		mem = o.mem(e.buf)
	}
	e.do(func(d *rvt.Device, _ vtime.Time) {
		e.pd, err = d.AllocPD()
		require.NoError(t, err)
		e.cq, err = d.CreateCQ(1024, nil)
		require.NoError(t, err)
		e.mr, err = d.RegMR(e.pd, mem, bufBase, uint64(len(e.buf)), bufBase, ib.AccessLocalWrite|ib.AccessRemoteMask)
		require.NoError(t, err)
	})
	return e
}

func (e *end) do(f func(d *rvt.Device, now vtime.Time)) { require.NoError(e.t, e.n.Do(f)) }

func (e *end) qp() (q *qp.QP) {
	e.do(func(d *rvt.Device, _ vtime.Time) {
		var err error
		q, err = d.CreateQP(e.pd, &qp.InitAttr{SendCQ: e.cq, RecvCQ: e.cq, Type: ib.QPTypeRC, SQSigAll: true,
			Cap: qp.Cap{MaxSendWR: 512, MaxRecvWR: 512, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}})
		require.NoError(e.t, err)
	})
	return q
}

func (e *end) connect(q *qp.QP, peer ib.GID, dest ib.QPN) {
	a := qp.Attr{PortNum: 1, AccessFlags: ib.AccessRemoteMask, AV: ib.AV{DGID: peer, IsGlobal: true, PortNum: 1}, PathMTU: ib.MTU1024,
		DestQPN: dest, MaxDestRdAtomic: 4, MaxRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 3, RNRRetry: 7}
	for _, step := range []struct {
		to   ib.QPState
		mask ib.AttrMask
	}{
		{ib.StateInit, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags},
		{ib.StateRTR, ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer},
		{ib.StateRTS, ib.AttrSQPSN | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic},
	} {
		a.State = step.to
		e.do(func(d *rvt.Device, now vtime.Time) {
			require.NoError(e.t, d.ModifyQP(now, q, &a, step.mask|ib.AttrState))
		})
	}
}

func pair(t testing.TB, o options) (a, b *end, qa, qb *qp.QP) {
	sw := NewSwitch(o.cfg.Now)
	a, b = newEnd(t, sw, 1, o), newEnd(t, sw, 2, o)
	qa, qb = a.qp(), b.qp()
	a.connect(qa, b.gid, qb.QPN)
	b.connect(qb, a.gid, qa.QPN)
	return a, b, qa, qb
}

func (e *end) sge(off, n int) []mr.SGE {
	return []mr.SGE{{Addr: bufBase + uint64(off), Length: uint32(n), LKey: e.mr.LKey}}
}

func (e *end) send(q *qp.QP, wrs ...swqe.SendWR) {
	e.do(func(d *rvt.Device, _ vtime.Time) {
		_, err := d.PostSend(q, wrs)
		require.NoError(e.t, err)
	})
}

func (e *end) recv(q *qp.QP, wrs ...swqe.RecvWR) {
	e.do(func(d *rvt.Device, _ vtime.Time) {
		_, err := d.PostRecv(q, wrs)
		require.NoError(e.t, err)
	})
}

func (e *end) write(id uint64, to *end, n int) swqe.SendWR {
	return swqe.SendWR{WRID: id, Opcode: ib.WRRDMAWrite, SGL: e.sge(0, n), RemoteAddr: bufBase, RKey: to.mr.RKey}
}

func (e *end) poll() []cq.WC { return e.wc[:e.cq.Poll(e.wc[:])] }

// settle drives manual nodes until none has anything to do.
func settle(ends ...*end) {
	for worked := true; worked; {
		worked = false
		for _, e := range ends {
			worked = e.n.Progress() || worked
		}
	}
}

var manual = options{cfg: Config{Manual: true}}

func TestManualPair(t *testing.T) {
	a, b, qa, qb := pair(t, manual)
	for i := range a.buf {
		a.buf[i] = byte(i * 31)
	}
	b.recv(qb, swqe.RecvWR{WRID: 7, SGL: b.sge(1<<19, 1<<18)})
	a.send(qa,
		swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(3, 200_001)},
		swqe.SendWR{WRID: 2, Opcode: ib.WRRDMARead, SGL: a.sge(1<<19, 5000), RemoteAddr: bufBase + 1<<19, RKey: b.mr.RKey},
		swqe.SendWR{WRID: 3, Opcode: ib.WRRDMAWrite, Flags: ib.SendInline, Inline: []byte("inline"), RemoteAddr: bufBase, RKey: b.mr.RKey})
	settle(a, b)
	for i, wc := range a.poll() {
		require.Equal(t, uint64(i+1), wc.WRID)
		require.Equal(t, ib.WCSuccess, wc.Status)
	}
	got := b.poll()
	require.Len(t, got, 1)
	require.Equal(t, uint32(200_001), got[0].ByteLen)
	require.Equal(t, a.buf[3:200_004], b.buf[1<<19:1<<19+200_001])
	require.Equal(t, b.buf[1<<19:1<<19+5000], a.buf[1<<19:1<<19+5000])
	require.Equal(t, "inline", string(b.buf[:6]))
	require.Zero(t, b.n.Counters().Port.RxBadICRC)
}

// TestNoAllocation drives a message of several packets and its ACK through two nodes.
func TestNoAllocation(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	a, b, qa, qb := pair(t, manual)
	sgl, rsgl := a.sge(0, 10_000), b.sge(1<<19, 16384)
	send := []swqe.SendWR{{Opcode: ib.WRSend, SGL: sgl}, a.write(1, b, 9000), {Opcode: ib.WRRDMARead, SGL: sgl, RemoteAddr: bufBase, RKey: b.mr.RKey}}
	recv := []swqe.RecvWR{{SGL: rsgl}}
	got := 0
	turn := func() {
		d, _ := b.n.Begin()
		_, _ = d.PostRecv(qb, recv)
		b.n.End(SendLater)
		d, _ = a.n.Begin()
		_, _ = d.PostSend(qa, send)
		a.n.End(SendNow)
		for worked := true; worked; {
			worked = a.n.Progress()
			worked = b.n.Progress() || worked
		}
		got += a.cq.Poll(a.wc[:]) + b.cq.Poll(b.wc[:])
	}
	for range 6000 { // every slot of every ring has been used
		turn()
	}
	got = 0
	require.Zero(t, testing.AllocsPerRun(200, turn))
	require.Equal(t, 201*4, got)
}

func TestLoopback(t *testing.T) {
	sw := NewSwitch(nil)
	a := newEnd(t, sw, 1, manual)
	q1, q2 := a.qp(), a.qp()
	a.connect(q1, a.gid, q2.QPN)
	a.connect(q2, a.gid, q1.QPN)
	for i := range a.buf[:1<<19] {
		a.buf[i] = byte(i * 7)
	}
	// More packets than the loopback queue holds, in both directions.
	a.recv(q2, swqe.RecvWR{SGL: a.sge(1<<19, 1<<19)})
	const n = 400_000
	a.send(q1, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, n)},
		swqe.SendWR{WRID: 2, Opcode: ib.WRRDMARead, SGL: a.sge(0, n), RemoteAddr: bufBase + 1<<19, RKey: a.mr.RKey})
	settle(a)
	wc := a.poll()
	require.Len(t, wc, 3)
	for _, c := range wc {
		require.Equal(t, ib.WCSuccess, c.Status)
	}
	require.Equal(t, a.buf[:n], a.buf[1<<19:1<<19+n])
	c := a.n.Counters()
	require.Zero(t, c.Port.TxPackets, "nothing for the node itself goes through the port")
	require.Greater(t, c.Node.Loopback, uint64(n/1024))
	require.Zero(t, c.Device.RetransPackets)
}

// narrow is a port that takes only a few packets at a time.
type narrow struct {
	fabric.Port
	room  int
	wrote int
}

func (p *narrow) WriteBatch(src []fabric.Datagram) (int, error) {
	if p.wrote++; p.wrote%2 == 0 {
		return 0, nil
	}
	return p.Port.WriteBatch(src[:min(p.room, len(src))])
}

func TestBackpressureLosesNothing(t *testing.T) {
	o := manual
	var now vtime.Time
	o.cfg.Now = func() vtime.Time { now = now.Add(time.Microsecond); return now } // whatever the machine does
	o.wrap = func(p fabric.Port) fabric.Port { return &narrow{Port: p, room: 3} }
	a, b, qa, _ := pair(t, o)
	for i := range a.buf {
		a.buf[i] = byte(i * 13)
	}
	a.send(qa, a.write(1, b, 300_000))
	for range 1000 {
		a.n.Progress()
		b.n.Progress()
	}
	wc := a.poll()
	require.Len(t, wc, 1)
	require.Equal(t, ib.WCSuccess, wc[0].Status)
	require.Equal(t, a.buf[:300_000], b.buf[:300_000])
	c := a.n.Counters()
	require.NotZero(t, c.Node.Backpressure)
	require.Zero(t, c.Device.RetransPackets)
	require.Zero(t, b.n.Counters().Device.OutOfSeqRequest)
}

// faulty is memory whose second half cannot be read.
type faulty struct{ *mr.Slice }

func (f faulty) ReadV(ops []mr.Op) (int, error) {
	for i, op := range ops {
		if op.Addr >= bufBase+1<<19 {
			return i, mr.ErrFault
		}
		if _, err := f.Slice.ReadV(ops[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(ops), nil
}

func TestGatherFault(t *testing.T) {
	o := manual
	o.mem = func(b []byte) mr.Memory { return &faulty{mr.NewSlice(bufBase, b)} }
	a, b, qa, _ := pair(t, o)
	bad := a.write(1, b, 5000)
	bad.SGL = a.sge(1<<19-2048, 5000)
	a.send(qa, bad)
	settle(a, b)
	require.Equal(t, ib.StateErr, qa.State)
	require.NotZero(t, a.n.Counters().Node.GatherFaults)
	require.Zero(t, a.n.Counters().Port.TxPackets, "no packet of the QP may leave without its payload")
	wc := a.poll()
	require.Len(t, wc, 1)
	require.NotEqual(t, ib.WCSuccess, wc[0].Status)
}

// here is memory of this process, of which the second half is gone; distant is a port that
// fetches from it.
type here struct{ *mr.Slice }

func (here) Direct() bool { return true }

type distant struct {
	fabric.Port
	buf     []byte
	fetched int
}

func (*distant) Fetches() bool { return true }

func (p *distant) WriteBatch(src []fabric.Datagram) (int, error) {
	for i := range src {
		d := &src[i]
		if d.FarLen > 0 {
			if at := d.Far - bufBase; at < 1<<19 {
				copy(d.Buf[len(d.Buf)-wire.ICRCBytes-d.FarLen:], p.buf[at:][:d.FarLen])
				p.fetched++
			} else {
				n, _ := p.Port.WriteBatch(src[:i])
				return n, fabric.ErrFar
			}
		}
	}
	return p.Port.WriteBatch(src)
}

// TestPortFetches: what the port can fetch itself is left to it. Of a message whose memory is
// gone in the middle the peer sees no end, and its queue pair lives.
func TestPortFetches(t *testing.T) {
	var far *distant
	o := manual
	o.wrap = func(p fabric.Port) fabric.Port {
		if far == nil {
			far = &distant{Port: p}
			return far
		}
		return p
	}
	o.mem = func(b []byte) mr.Memory {
		if far.buf == nil {
			far.buf = b
			return &here{mr.NewSlice(bufBase, b)}
		}
		return mr.NewSlice(bufBase, b)
	}
	a, b, qa, qb := pair(t, o)
	for i := range a.buf {
		a.buf[i] = byte(i * 7)
	}
	a.send(qa, a.write(1, b, 40<<10))
	settle(a, b)
	require.Equal(t, 40, far.fetched)
	require.Equal(t, a.buf[:40<<10], b.buf[:40<<10])
	require.Equal(t, ib.WCSuccess, a.poll()[0].Status)

	bad := a.write(2, b, 8<<10)
	bad.SGL = a.sge(1<<19-4<<10, 8<<10)
	a.send(qa, bad)
	settle(a, b)
	require.Equal(t, 44, far.fetched)
	require.Equal(t, ib.StateErr, qa.State)
	require.Equal(t, ib.StateRTS, qb.State)
	wc := a.poll()
	require.Len(t, wc, 1)
	require.Equal(t, ib.WCLocProtErr, wc[0].Status)
	require.NotZero(t, a.n.Counters().Node.GatherFaults)
}

// TestGatherFaultOfReads: the memory behind the second of three READs is gone. The first is
// answered, the second is refused, and the peer is told which.
// req: RC-NAK-08
func TestGatherFaultOfReads(t *testing.T) {
	o := manual
	o.mem = func(b []byte) mr.Memory { return &faulty{mr.NewSlice(bufBase, b)} }
	a, b, qa, _ := pair(t, o)
	b.buf[100] = 77
	for i, at := range []uint64{100, 1 << 19, 200} {
		wr := a.write(uint64(i+1), b, 1)
		wr.Opcode, wr.RemoteAddr = ib.WRRDMARead, bufBase+at
		a.send(qa, wr)
	}
	settle(a, b)
	var got []string
	for _, wc := range a.poll() {
		got = append(got, fmt.Sprintf("%d %v", wc.WRID, wc.Status))
	}
	require.Equal(t, []string{"1 SUCCESS", "2 REM_OP_ERR", "3 WR_FLUSH_ERR"}, got)
	require.Equal(t, byte(77), a.buf[0])
}

func TestNewRefuses(t *testing.T) {
	sw := NewSwitch(nil)
	p, err := sw.Port(ib.GIDFromIPv4(10, 0, 0, 1), ib.MTU1024)
	require.NoError(t, err)
	dev, err := rvt.New(rvt.DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, 2)))
	require.NoError(t, err)
	_, err = New(dev, p, Config{})
	require.ErrorContains(t, err, "GID table")
	dev, err = rvt.New(rvt.DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, 1)))
	require.NoError(t, err)
	_, err = New(dev, p, Config{})
	require.ErrorContains(t, err, "MTU")
	_, err = New(nil, p, Config{})
	require.Error(t, err)
	_, err = sw.Port(p.LocalGID(), ib.MTU1024)
	require.ErrorContains(t, err, "in use")
}

func TestClosedNode(t *testing.T) {
	a, _, _, _ := pair(t, manual)
	require.NoError(t, a.n.Err())
	require.NoError(t, a.n.Close())
	require.NoError(t, a.n.Close())
	require.ErrorIs(t, a.n.Err(), ErrClosed)
	require.ErrorIs(t, a.n.Do(func(*rvt.Device, vtime.Time) { t.Error("ran") }), ErrClosed)
	require.False(t, a.n.Progress())
	a.n.Park()
	_ = a.n.Counters()
}

// broken is a port that fails from some moment on.
type broken struct {
	*SwitchPort
	err error
}

func (p *broken) ReadBatch(dst []fabric.Datagram) (int, error) {
	if p.err != nil {
		return 0, p.err
	}
	return p.SwitchPort.ReadBatch(dst)
}

func TestPortFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var port *broken
		var events []rvt.Event
		o := options{wrap: func(p fabric.Port) fabric.Port {
			port = &broken{SwitchPort: p.(*SwitchPort)}
			return port
		}}
		o.cfg.Now = bubbleClock()
		o.cfg.Events = func(e []rvt.Event) { events = append(events, e...) }
		a := newEnd(t, NewSwitch(o.cfg.Now), 1, o)
		synctest.Wait()
		boom := errors.New("boom")
		a.do(func(*rvt.Device, vtime.Time) { port.err = boom })
		a.n.Progress()
		require.ErrorIs(t, a.n.Err(), boom)
		require.ErrorIs(t, a.n.Do(func(*rvt.Device, vtime.Time) {}), boom)
		synctest.Wait() // the background goroutine has ended
		<-a.n.done
		require.Equal(t, []rvt.Event{{Type: ib.EventDeviceFatal}}, events)
		require.NoError(t, a.n.Close())
	})
}

// bubbleClock is a clock of the fake time of a synctest bubble.
func bubbleClock() func() vtime.Time {
	start := time.Now()
	return func() vtime.Time { return vtime.Time(time.Since(start)) }
}
