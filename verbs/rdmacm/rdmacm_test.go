package rdmacm

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
)

func forNetworks(t *testing.T, f func(t *testing.T, p *pairOf)) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) { f(t, n.open(t)) })
	}
}

func TestSynchronousEndpoints(t *testing.T) {
	forNetworks(t, func(t *testing.T, p *pairOf) {
		ctx := within20(t)
		a, b := p.endpoints()
		require.Equal(t, a.LocalAddr(), b.RemoteAddr())
		require.Equal(t, a.RemoteAddr(), b.LocalAddr())
		require.Equal(t, Established, a.Event().Type)
		ma, err := a.RegMsgs([]byte("hello, peer"))
		require.NoError(t, err)
		mb, err := b.RegMsgs(make([]byte, 64))
		require.NoError(t, err)
		require.NoError(t, b.PostRecv(7, mb, 0, 64))
		require.NoError(t, a.PostSend(8, ma, 0, 11, ib.SendSignaled))
		wc, n, err := b.GetRecvComp(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, uint64(7), wc.WRID)
		require.Equal(t, "hello, peer", string(mb.Bytes()[:wc.ByteLen]))
		wc, n, err = a.GetSendComp(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, uint64(8), wc.WRID)

		secret, err := b.RegRead([]byte("read me!"))
		require.NoError(t, err)
		sink, err := a.RegRead(make([]byte, 8))
		require.NoError(t, err)
		require.NoError(t, a.PostRead(9, sink, 0, 8, ib.SendSignaled, secret.Addr(0), secret.RKey()))
		_, _, err = a.GetSendComp(ctx)
		require.NoError(t, err)
		require.Equal(t, "read me!", string(sink.Bytes()))
		board, err := b.RegWrite(make([]byte, 11))
		require.NoError(t, err)
		require.NoError(t, a.PostWrite(10, ma, 0, 11, ib.SendSignaled, board.Addr(0), board.RKey()))
		_, _, err = a.GetSendComp(ctx)
		require.NoError(t, err)
		require.NoError(t, b.PostRecv(11, mb, 0, 0)) // the message tells that the memory was written
		require.NoError(t, a.PostSendInline(12, nil, 0))
		_, _, err = b.GetRecvComp(ctx)
		require.NoError(t, err)
		require.Equal(t, "hello, peer", string(board.Bytes()))
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(a.PostSend(1, ma, 1, 11, 0)), "beyond the region")

		done := make(chan error)
		go func() { done <- b.Disconnect(ctx) }()
		require.NoError(t, a.Disconnect(ctx))
		require.NoError(t, <-done)
		for _, id := range []*ID{a, b} {
			require.NoError(t, id.DestroyEP(ctx))
		}
		require.NoError(t, p.a.Close(), "the connection manager does not keep the device open")
	})
}

// TestGetRecvComp goes through the man page of rdma_get_recv_comp.
func TestGetRecvComp(t *testing.T) {
	forNetworks(t, func(t *testing.T, p *pairOf) {
		ctx := within20(t)
		a, b := p.endpoints()
		mb, err := b.RegMsgs(make([]byte, 64))
		require.NoError(t, err)
		require.NoError(t, b.PostRecv(77, mb, 0, 8))

		// "blocks until a request completes": it is waiting when the message is sent.
		type result struct {
			wc  verbs.WC
			n   int
			err error
		}
		got := make(chan result)
		wait := func() {
			wc, n, err := b.GetRecvComp(ctx)
			got <- result{wc, n, err}
		}
		go wait()
		_, n, err := b.TryGetRecvComp()
		require.Equal(t, 0, n)
		require.ErrorIs(t, err, ib.EAGAIN)
		require.NoError(t, a.PostSendInline(1, []byte("12345678"), 0))
		r := <-got
		require.NoError(t, r.err)
		require.Equal(t, 1, r.n)
		require.Equal(t, ib.WCSuccess, r.wc.Status)
		require.Equal(t, uint64(77), r.wc.WRID, "wr_id is the context of the request")

		// Separate queues: the send of a, unsignaled, completes nowhere; that of b goes to
		// its send queue alone.
		require.NotSame(t, b.SendCQ(), b.RecvCQ())
		_, n, err = a.TryGetSendComp()
		require.Equal(t, 0, n)
		require.ErrorIs(t, err, ib.EAGAIN)

		// An error completion is a completion: a message that is too long.
		require.NoError(t, b.PostRecv(78, mb, 0, 4))
		require.NoError(t, b.PostRecv(79, mb, 0, 4))
		require.NoError(t, a.PostSendInline(2, []byte("12345678"), 0))
		wc, n, err := b.GetRecvComp(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, ib.WCLocLenErr, wc.Status)
		require.Equal(t, uint64(78), wc.WRID)
		wc, n, err = b.GetRecvComp(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, ib.WCWRFlushErr, wc.Status)
		wc, n, err = a.GetSendComp(ctx)
		require.NoError(t, err, "unsignaled, but failed")
		require.Equal(t, 1, n)
		require.Equal(t, ib.WCRemInvReqErr, wc.Status)
		require.Equal(t, uint64(2), wc.WRID)

		// The only addition: the context.
		_, n, err = b.GetRecvComp(over())
		require.Equal(t, 0, n)
		require.ErrorIs(t, err, context.Canceled)
		short, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, n, err = b.GetRecvComp(short)
		require.Equal(t, 0, n)
		require.ErrorIs(t, err, context.DeadlineExceeded)

		// Errors carry errno.
		go wait()
		require.NoError(t, p.b.Shutdown())
		r = <-got
		require.Equal(t, 0, r.n)
		require.ErrorIs(t, r.err, ib.ENODEV)
	})
}

// TestSharedCQ: ids that use the program's queues have no completions of their own to get.
func TestSharedCQ(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	cq, err := p.a.CreateCQ(8, nil)
	require.NoError(t, err)
	attr := small
	attr.SendCQ, attr.RecvCQ = cq, cq
	id, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, 9)}, nil, &attr)
	require.NoError(t, err)
	require.Nil(t, id.RecvCQ())
	_, n, err := id.GetRecvComp(ctx)
	require.Equal(t, 0, n)
	require.ErrorIs(t, err, ib.EINVAL)
	require.ErrorIs(t, id.CreateQP(nil, attr), ib.EINVAL, "a second QP")
	require.ErrorIs(t, id.Destroy(ctx), ib.EBUSY)
	require.NoError(t, id.DestroyEP(ctx))
	require.NoError(t, cq.Destroy(ctx), "the program's queue was left alone")
	_, n, err = id.GetSendComp(ctx)
	require.Equal(t, 0, n)
	require.ErrorIs(t, err, ib.EINVAL, "no QP")
}

// TestManyWaiters: several goroutines wait on one queue; each completion wakes one.
func TestManyWaiters(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	a, b := p.endpoints()
	mb, err := b.RegMsgs(make([]byte, 64))
	require.NoError(t, err)
	got := make(chan uint64, 8)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			wc, n, err := b.GetRecvComp(ctx)
			if err == nil && n == 1 {
				got <- wc.WRID
			}
		})
	}
	for i := range 8 {
		require.NoError(t, b.PostRecv(uint64(i), mb, 8*i, 8))
	}
	for range 8 {
		require.NoError(t, a.PostSendInline(1, []byte("x"), ib.SendSignaled))
		_, _, err := a.GetSendComp(ctx)
		require.NoError(t, err)
	}
	wg.Wait()
	seen := map[uint64]bool{}
	for range 8 {
		seen[<-got] = true
	}
	require.Len(t, seen, 8)
}

func TestAsynchronous(t *testing.T) {
	forNetworks(t, func(t *testing.T, p *pairOf) {
		ctx := within20(t)
		ca, cb := CreateEventChannel(), CreateEventChannel()
		l, err := CreateID(cb, p.b, TCP)
		require.NoError(t, err)
		require.NoError(t, l.BindAddr(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)))
		require.NoError(t, l.Listen(5))
		a, err := CreateID(ca, p.a, TCP)
		require.NoError(t, err)
		require.ErrorIs(t, a.Connect(ctx, nil), ib.EINVAL)
		require.NoError(t, a.ResolveAddr(ctx, netip.AddrPort{}, on(p.b, l.LocalAddr().Port()), time.Second))
		next(t, ca, AddrResolved).Ack()
		require.NoError(t, a.ResolveRoute(ctx, time.Second))
		next(t, ca, RouteResolved).Ack()
		require.NoError(t, a.CreateQP(nil, small))
		require.ErrorIs(t, a.Connect(ctx, &ConnParam{ResponderResources: 200}), ib.EINVAL, "more than the device has")
		require.NoError(t, a.Connect(ctx, &ConnParam{ResponderResources: 3, InitiatorDepth: 5, RetryCount: 7, RNRRetryCount: 7, Private: []byte("hi")}))
		e := next(t, cb, ConnectRequest)
		require.Same(t, l, e.Listener)
		b := e.ID
		require.Equal(t, [2]uint8{5, 3}, [2]uint8{e.Conn.ResponderResources, e.Conn.InitiatorDepth})
		require.Len(t, e.Conn.Private, 56)
		require.Equal(t, a.QP().QPN(), e.Conn.QPN)
		require.NoError(t, b.CreateQP(nil, small))
		require.NoError(t, b.Accept(ctx, &ConnParam{ResponderResources: MaxResources, InitiatorDepth: 1, RNRRetryCount: 6, Private: []byte("welcome")}))
		e.Ack()
		e = next(t, ca, Established)
		require.True(t, bytes.HasPrefix(e.Conn.Private, []byte("welcome")))
		require.Len(t, e.Conn.Private, 196)
		qa, err := a.QP().Query()
		require.NoError(t, err)
		require.Equal(t, ib.StateRTS, qa.State)
		require.Equal(t, [2]uint8{1, 5}, [2]uint8{qa.MaxDestRdAtomic, qa.MaxRdAtomic})
		require.Equal(t, uint8(6), qa.RNRRetry)
		e.Ack()
		next(t, cb, Established).Ack()
		qb, err := b.QP().Query()
		require.NoError(t, err)
		require.Equal(t, qa.SQPSN, qb.RQPSN)
		require.Equal(t, qb.SQPSN, qa.RQPSN)
		require.Equal(t, qa.AV.FlowLabel, qb.AV.FlowLabel)
		require.ErrorIs(t, a.Establish(), ib.EINVAL)

		require.NoError(t, a.Disconnect(ctx))
		next(t, cb, Disconnected).Ack()
		require.NoError(t, b.Disconnect(ctx))
		next(t, ca, Disconnected).Ack()
		next(t, ca, TimeWaitExit).Ack()
		next(t, cb, TimeWaitExit).Ack()
		require.ErrorIs(t, ca.Destroy(), ib.EBUSY)
		for _, id := range []*ID{a, b} {
			require.NoError(t, id.DestroyEP(ctx))
		}
		require.NoError(t, l.Destroy(ctx))
		for _, ch := range []*EventChannel{ca, cb} {
			require.NoError(t, ch.Destroy())
			_, err := ch.Get(ctx)
			require.ErrorIs(t, err, ib.EINVAL)
		}
	})
}

func TestReject(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	require.NoError(t, Start(p.b))
	_, err := connectTo(ctx, p, 9)
	var rej *RejectedError
	require.ErrorAs(t, err, &rej)
	require.ErrorIs(t, err, ib.ECONNREFUSED)
	require.Equal(t, cm.RejInvalidServiceID, rej.Reason)

	l, err := CreateEP(ctx, p.b, AddrInfo{Passive: true, Src: on(p.b, 9)}, nil, nil)
	require.NoError(t, err)
	require.NoError(t, l.Listen(0))
	type act func(*ID) error
	for _, c := range []struct {
		name    string
		act     act
		reason  Reason
		private []byte
	}{
		{"reject", func(id *ID) error { return id.Reject([]byte("go away")) }, cm.RejConsumerDefined, []byte("go away")},
		{"148 bytes", func(id *ID) error { return id.Reject(bytes.Repeat([]byte{7}, 148)) }, cm.RejConsumerDefined, bytes.Repeat([]byte{7}, 148)},
		{"ECE", (*ID).RejectECE, cm.RejVendorOption, nil},
		{"destroy", func(id *ID) error { return id.Destroy(ctx) }, cm.RejConsumerDefined, nil},
	} {
		done := make(chan error)
		go func() {
			id, err := l.GetRequest(ctx)
			if err == nil {
				err = errors.Join(c.act(id), id.Destroy(ctx))
			}
			done <- err
		}()
		a, err := connectTo(ctx, p, 9)
		require.NoError(t, <-done, c.name)
		require.ErrorAs(t, err, &rej, c.name)
		require.Equal(t, c.reason, rej.Reason, c.name)
		require.Len(t, rej.Private, 148)
		require.True(t, bytes.HasPrefix(rej.Private, c.private), c.name)
		state, err := a.QP().Query()
		require.NoError(t, err)
		require.Equal(t, ib.StateErr, state.State, "REJECTED takes the QP to ERR")
		require.NoError(t, a.DestroyEP(ctx))
	}
}

func connectTo(ctx context.Context, p *pairOf, port uint16) (*ID, error) {
	a, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, port)}, nil, &small)
	require.NoError(p.t, err)
	return a, a.Connect(ctx, nil)
}

// TestPrivateData: 0, 56, 92 and 196 bytes, as far as each message has room.
func TestPrivateData(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	l, err := CreateEP(ctx, p.b, AddrInfo{Passive: true, Src: on(p.b, 9)}, nil, &small)
	require.NoError(t, err)
	require.NoError(t, l.Listen(0))
	data := func(n int) []byte { return bytes.Repeat([]byte{0x5a}, n) }
	for _, c := range [][2]int{{0, 0}, {56, 92}, {1, 196}} {
		got := make(chan []byte, 1)
		go func() {
			b, err := l.GetRequest(ctx)
			if err != nil {
				return
			}
			got <- b.Event().Conn.Private
			_ = b.Accept(ctx, &ConnParam{Private: data(c[1])})
		}()
		a, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, 9)}, nil, &small)
		require.NoError(t, err)
		require.NoError(t, a.Connect(ctx, &ConnParam{Private: data(c[0])}))
		require.Equal(t, append(data(c[0]), make([]byte, 56-c[0])...), <-got)
		require.Equal(t, append(data(c[1]), make([]byte, 196-c[1])...), a.Event().Conn.Private)
		require.NoError(t, a.DestroyEP(ctx))
	}
	a, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, 9), Connect: data(30)}, nil, &small)
	require.NoError(t, err)
	require.ErrorIs(t, a.Connect(ctx, &ConnParam{Private: data(27)}), ib.EINVAL, "57 bytes with those of the endpoint")
	require.NoError(t, a.DestroyEP(ctx))
}

// TestLossOfEachMessage loses the first message of each kind.
func TestLossOfEachMessage(t *testing.T) {
	for attr := cm.AttrREQ; attr <= cm.AttrDREP; attr++ {
		if attr == cm.AttrMRA || attr == cm.AttrREJ {
			continue
		}
		t.Run(attr.String(), func(t *testing.T) {
			p := openSwitch(t).quick(7)
			var lost atomic.Bool // both devices ask
			p.drop.set(func(a cm.Attr) bool { return a == attr && lost.CompareAndSwap(false, true) })
			ctx := within20(t)
			a, b := p.endpoints()
			// Both ask at once. Then each has to agree to the other's request, which
			// destroying does.
			done := make(chan error)
			go func() { done <- errors.Join(b.Disconnect(ctx), b.DestroyEP(ctx)) }()
			require.NoError(t, errors.Join(a.Disconnect(ctx), a.DestroyEP(ctx)))
			require.NoError(t, <-done)
			require.True(t, lost.Load())
		})
	}
}

// TestPeerVanishes: the peer answers nothing from some message on.
func TestPeerVanishes(t *testing.T) {
	p := openSwitch(t).quick(2)
	ctx := within20(t)
	p.drop.set(func(cm.Attr) bool { return true })
	a, err := connectTo(ctx, p, 9)
	require.ErrorIs(t, err, ib.ETIMEDOUT)
	require.Equal(t, Unreachable, a.Event().Type)
	require.NoError(t, a.DestroyEP(ctx))
	p.drop.set(func(cm.Attr) bool { return false })
	a, b := p.endpoints()
	p.drop.set(func(cm.Attr) bool { return true })
	require.ErrorIs(t, a.Disconnect(ctx), ib.ETIMEDOUT)
	require.Equal(t, Disconnected, a.Event().Type)
	require.NoError(t, a.DestroyEP(ctx))
	require.NoError(t, p.a.Shutdown())
	require.ErrorIs(t, b.Disconnect(ctx), ib.ETIMEDOUT)
	require.NoError(t, b.DestroyEP(ctx))
}

func TestDeviceRemoval(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	ch := CreateEventChannel()
	id, err := CreateID(ch, p.a, TCP)
	require.NoError(t, err)
	require.NoError(t, id.BindAddr(on(p.a, 9)))
	require.NoError(t, id.Listen(0))
	require.NoError(t, p.a.Close())
	next(t, ch, DeviceRemoval).Ack()
	require.ErrorIs(t, id.Disconnect(ctx), ib.ENXIO)
	require.NoError(t, id.Destroy(ctx))
	require.NoError(t, ch.Destroy())
	_, err = CreateID(ch, p.a, TCP)
	require.ErrorIs(t, err, ib.ENODEV)
	_, err = CreateID(ch, nil, TCP)
	require.ErrorIs(t, err, ib.EINVAL)
}

// TestDestroyWaits: an id is not gone before its events are acknowledged.
func TestDestroyWaits(t *testing.T) {
	p := openSwitch(t)
	ch := CreateEventChannel()
	id, err := CreateID(ch, p.a, TCP)
	require.NoError(t, err)
	require.NoError(t, id.ResolveAddr(within20(t), netip.AddrPort{}, on(p.b, 1), time.Second))
	e := next(t, ch, AddrResolved)
	require.NoError(t, id.ResolveRoute(within20(t), time.Second)) // its event is never fetched
	var un *verbs.UnackedError
	require.ErrorAs(t, id.Destroy(over()), &un)
	require.Equal(t, 1, un.Events)
	done := make(chan error)
	go func() { done <- id.Destroy(within20(t)) }()
	e.Ack()
	e.Ack()
	require.NoError(t, <-done)
	_, err = ch.TryGet()
	require.ErrorIs(t, err, ib.EAGAIN, "events of a destroyed id are gone")
	require.NoError(t, ch.Destroy())
}

func TestDatagrams(t *testing.T) {
	forNetworks(t, func(t *testing.T, p *pairOf) {
		ctx := within20(t)
		cb := CreateEventChannel()
		l, err := CreateID(cb, p.b, UDP)
		require.NoError(t, err)
		require.NoError(t, l.BindAddr(on(p.b, 0)))
		require.NoError(t, l.Listen(0))
		a, err := CreateEP(ctx, p.a, AddrInfo{Space: UDP, Dst: l.LocalAddr()}, nil, &small)
		require.NoError(t, err)
		done := make(chan *ID, 1)
		go func() {
			e, err := cb.Get(ctx)
			if err != nil {
				return
			}
			if e.ID.CreateQP(nil, small) == nil && e.ID.Accept(ctx, &ConnParam{Private: []byte("qp inside")}) == nil {
				done <- e.ID
			}
			e.Ack()
		}()
		require.NoError(t, a.Connect(ctx, &ConnParam{Private: make([]byte, 180)}))
		e := a.Event()
		require.Equal(t, Established, e.Type)
		require.Len(t, e.Conn.Private, 136)
		b := <-done
		require.Equal(t, b.QP().QPN(), e.UD.QPN)
		ah, err := a.PD().CreateAH(e.UD.AV)
		require.NoError(t, err)
		mb, err := b.RegMsgs(make([]byte, 100))
		require.NoError(t, err)
		require.NoError(t, b.PostRecv(5, mb, 0, 100))
		ma, err := a.RegMsgs([]byte("datagram"))
		require.NoError(t, err)
		require.NoError(t, a.PostUDSend(6, ma, 0, 8, ib.SendSignaled, ah, e.UD.QPN))
		wc, _, err := b.GetRecvComp(ctx)
		require.NoError(t, err)
		require.Equal(t, "datagram", string(mb.Bytes()[40:wc.ByteLen]))
		_, err = cb.TryGet()
		require.ErrorIs(t, err, ib.EAGAIN, "no ESTABLISHED for the passive side")
	})
}

func TestMulticast(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	group := netip.MustParseAddr("239.1.1.1")
	open := func(d *verbs.Device) *ID {
		id, err := CreateID(nil, d, UDP)
		require.NoError(t, err)
		require.NoError(t, id.BindAddr(on(d, 0)))
		require.NoError(t, id.CreateQP(nil, small))
		return id
	}
	a, b := open(p.a), open(p.b)
	mb, err := b.RegMsgs(make([]byte, 100))
	require.NoError(t, err)
	require.NoError(t, b.PostRecv(1, mb, 0, 100))
	require.NoError(t, b.Join(ctx, group, false))
	require.NoError(t, a.Join(ctx, group, true))
	e := a.Event()
	require.Equal(t, group, e.Group)
	ah, err := a.PD().CreateAH(e.UD.AV)
	require.NoError(t, err)
	ma, err := a.RegMsgs([]byte("to all"))
	require.NoError(t, err)
	require.NoError(t, a.PostUDSend(6, ma, 0, 6, ib.SendSignaled, ah, e.UD.QPN))
	wc, _, err := b.GetRecvComp(ctx)
	require.NoError(t, err)
	require.Equal(t, "to all", string(mb.Bytes()[40:wc.ByteLen]))
	require.NoError(t, a.Leave(group))
	require.ErrorIs(t, a.Leave(group), ib.EADDRNOTAVAIL)
	require.NoError(t, b.DestroyEP(ctx), "the QP is detached")
	require.NoError(t, a.DestroyEP(ctx))
}

func TestMigrate(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	require.NoError(t, Start(p.b))
	a, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, 9)}, nil, &small)
	require.NoError(t, err)
	require.ErrorIs(t, a.Migrate(ctx, nil), ib.EINVAL)
	ch := CreateEventChannel()
	require.NoError(t, a.Migrate(ctx, ch))
	require.NoError(t, a.Connect(ctx, nil))
	next(t, ch, Rejected).Ack()
	require.NoError(t, a.DestroyEP(ctx))
	require.NoError(t, ch.Destroy())
}

// TestOwnQP: a program whose QP is not the id's.
func TestOwnQP(t *testing.T) {
	p := openSwitch(t)
	ctx := within20(t)
	ca, cb := CreateEventChannel(), CreateEventChannel()
	l, err := CreateID(cb, p.b, TCP)
	require.NoError(t, err)
	require.NoError(t, l.BindAddr(on(p.b, 9)))
	require.NoError(t, l.Listen(0))
	a, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, 9)}, nil, nil)
	require.NoError(t, err)
	require.NoError(t, a.Migrate(ctx, ca))
	require.ErrorIs(t, a.Connect(ctx, nil), ib.EINVAL)
	require.NoError(t, a.Connect(ctx, &ConnParam{QPN: 0x77}))
	e := next(t, cb, ConnectRequest)
	require.Equal(t, ib.QPN(0x77), e.Conn.QPN)
	require.NoError(t, e.ID.Accept(ctx, &ConnParam{QPN: 0x78}))
	e.Ack()
	next(t, ca, ConnectResponse).Ack()
	attr, _, err := a.InitQPAttr(ib.StateRTR)
	require.NoError(t, err)
	require.Equal(t, ib.QPN(0x78), attr.DestQPN)
	require.NoError(t, a.Establish())
	next(t, cb, Established).Ack()
}

// TestStorm connects 1,000 endpoints from 50 goroutines.
// TestDisconnectFlushes: Disconnect takes the queue pair to ERR, on either side, and everything
// that was posted comes back once. (Field report spdk-e810-kill.)
func TestDisconnectFlushes(t *testing.T) {
	for side := range 2 {
		ctx := within20(t)
		a, b := openSwitch(t).endpoints()
		id, peer := a, b
		if side == 1 {
			id, peer = b, a
		}
		m, err := id.RegMsgs(make([]byte, 64))
		require.NoError(t, err)
		for i := range uint64(5) {
			require.NoError(t, id.PostRecv(i, m, 0, 64))
		}
		for i := range uint64(3) { // the peer has no receives
			require.NoError(t, id.PostSendInline(100+i, []byte("hello"), ib.SendSignaled))
		}
		answered := make(chan error, 1)
		go func() { answered <- peer.Disconnect(ctx) }() // in a program on DISCONNECTED
		require.NoError(t, id.Disconnect(ctx))
		require.NoError(t, <-answered)
		at, err := id.QP().Query()
		require.NoError(t, err)
		require.Equal(t, ib.StateErr, at.State)
		flushed := func(wc verbs.WC, wrID uint64) {
			t.Helper()
			require.Equal(t, ib.WCWRFlushErr, wc.Status)
			require.Equal(t, wrID, wc.WRID)
		}
		for i := range uint64(5) {
			wc, _, err := id.GetRecvComp(ctx)
			require.NoError(t, err)
			flushed(wc, i)
			if i == 0 {
				require.Contains(t, id.QP().Explain(wc), "inside rdma_disconnect")
			}
		}
		for i := range uint64(3) {
			wc, _, err := id.GetSendComp(ctx)
			require.NoError(t, err)
			flushed(wc, 100+i)
		}
		_, n, err := id.TryGetRecvComp()
		require.Zero(t, n)
		require.ErrorIs(t, err, ib.EAGAIN)
	}
}

func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("many connections")
	}
	const total, workers = 1000, 50
	p := openSwitch(t)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cb := CreateEventChannel()
	l, err := CreateID(cb, p.b, TCP)
	require.NoError(t, err)
	require.NoError(t, l.BindAddr(on(p.b, 9)))
	require.NoError(t, l.Listen(64))
	attr := small
	attr.Cap = verbs.QPCap{MaxSendWR: 2, MaxRecvWR: 2, MaxSendSGE: 1, MaxRecvSGE: 1}
	served := make(chan error, 1)
	go func() { served <- serve(ctx, cb, attr, total) }()
	var wg sync.WaitGroup
	errs := make(chan error, total)
	for range workers {
		wg.Go(func() {
			for range total / workers {
				a, err := CreateEP(ctx, p.a, AddrInfo{Dst: on(p.b, 9)}, nil, &attr)
				if err == nil {
					err = errors.Join(a.Connect(ctx, nil), a.Disconnect(ctx), a.DestroyEP(ctx))
				}
				errs <- err
			}
		})
	}
	wg.Wait()
	for range total {
		require.NoError(t, <-errs)
	}
	require.NoError(t, <-served)
	require.NoError(t, l.Destroy(ctx))
	require.NoError(t, cb.Destroy())
	require.NoError(t, p.a.Close())
	require.NoError(t, p.b.Close())
}

// serve accepts and ends n connections.
func serve(ctx context.Context, ch *EventChannel, attr verbs.QPInitAttr, n int) error {
	for n > 0 {
		e, err := ch.Get(ctx)
		if err != nil {
			return err
		}
		typ, id := e.Type, e.ID
		switch typ {
		case ConnectRequest:
			err = errors.Join(id.CreateQP(nil, attr), id.Accept(ctx, nil))
		case Disconnected:
			err = id.Disconnect(ctx)
			n--
		}
		e.Ack()
		if typ == Disconnected {
			err = errors.Join(err, id.DestroyEP(ctx))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// TestHostileDatagrams: what no connection manager sends does not disturb it.
func TestHostileDatagrams(t *testing.T) {
	for _, profile := range []qp.Profile{qp.ProfileIBTA, qp.ProfileRXE, qp.ProfileRDMAVT} {
		sw := node.NewSwitch(nil)
		open := func(last byte) *verbs.Device {
			port, err := sw.Port(ib.GIDFromIPv4(10, 0, 0, last), ib.MTU1024)
			require.NoError(t, err)
			dev, err := verbs.Open(verbs.Config{Port: port, Profile: profile})
			require.NoError(t, err)
			t.Cleanup(func() { _ = dev.Shutdown() })
			return dev
		}
		p := &pairOf{t, open(1), open(2), nil}
		require.NoError(t, Start(p.b))
		ctx := within20(t)
		bad, err := CreateEP(ctx, p.a, AddrInfo{Space: UDP, Dst: on(p.b, 9)}, nil, &small)
		require.NoError(t, err)
		ah, err := bad.PD().CreateAH(verbs.AV{DGID: p.b.GID(), IsGlobal: true, PortNum: 1})
		require.NoError(t, err)
		mr, err := bad.RegMsgs(make([]byte, 1024))
		require.NoError(t, err)
		require.NoError(t, bad.QP().Modify(&verbs.QPAttr{QKey: ib.QKeyGSI}, ib.AttrQKey))
		for _, n := range []int{0, 1, 23, 24, 255, 256, 257, 260, 1024} {
			for _, first := range [][]byte{nil, {1, 7, 2, 3, 16: 0, 17: 0x10}, {1, 4, 1, 1}} {
				clear(mr.Bytes())
				copy(mr.Bytes(), first)
				require.NoError(t, bad.QP().PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendSignaled, SGL: []verbs.SGE{mr.SGE(0, n)},
					AH: ah, RemoteQPN: ib.QPNGSI, RemoteQKey: ib.QKeyGSI}))
				wc, _, err := bad.GetSendComp(ctx)
				require.NoError(t, err)
				require.Equal(t, ib.WCSuccess, wc.Status)
			}
		}
		a, b := p.endpoints()
		require.NoError(t, a.DestroyEP(ctx))
		require.NoError(t, b.DestroyEP(ctx))
	}
}

// TestQP1InUse: a device whose QP1 somebody else has gets no connection manager, and
// nothing is left of the attempt.
func TestQP1InUse(t *testing.T) {
	p := openSwitch(t)
	pd, err := p.a.AllocPD()
	require.NoError(t, err)
	cq, err := p.a.CreateCQ(4, nil)
	require.NoError(t, err)
	qp1, err := pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeGSI, SendCQ: cq, RecvCQ: cq, Cap: small.Cap})
	require.NoError(t, err)
	require.ErrorIs(t, Start(p.a), ib.EINVAL)
	require.NoError(t, qp1.Destroy(within20(t)))
	require.NoError(t, Start(p.a))
	require.ErrorIs(t, Configure(p.a, cm.DefaultConfig()), ib.EBUSY)
	require.NoError(t, cq.Destroy(within20(t)))
	require.NoError(t, pd.Dealloc())
	require.NoError(t, p.a.Close())
}
