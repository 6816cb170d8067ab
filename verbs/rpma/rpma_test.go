package rpma

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rdmacm"
)

type network struct {
	name string
	open func(t testing.TB) (a, b *verbs.Device)
}

var networks = []network{{"switch", openSwitch}, {"udp", openUDP}}

func openSwitch(t testing.TB) (a, b *verbs.Device) {
	sw := node.NewSwitch(nil)
	open := func(last byte) *verbs.Device {
		p, err := sw.Port(ib.GIDFromIPv4(10, 0, 0, last), ib.MTU1024)
		require.NoError(t, err)
		dev, err := verbs.Open(verbs.Config{Port: p})
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Shutdown() })
		return dev
	}
	return open(1), open(2)
}

func openUDP(t testing.TB) (a, b *verbs.Device) {
	open := func(addr string) *verbs.Device {
		dev, err := verbs.Open(verbs.Config{Address: addr})
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Shutdown() })
		return dev
	}
	return open(loopback.Node(0, 24867)), open(loopback.Node(1, 24867))
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// world is a connection: a connects, b takes the request.
type world struct {
	t      testing.TB
	ctx    context.Context
	da, db *verbs.Device
	pa, pb *Peer
	ep     *Endpoint
	a, b   *Conn
}

func addrOf(d *verbs.Device) string {
	return netip.AddrFrom16(d.GID()).Unmap().String()
}

func newWorld(t testing.TB, n network) *world {
	w := &world{t: t, ctx: within(t)}
	w.da, w.db = n.open(t)
	var err error
	w.pa, err = NewPeer(w.da)
	require.NoError(t, err)
	w.pb, err = NewPeer(w.db)
	require.NoError(t, err)
	w.ep, err = Listen(w.ctx, w.pb, addrOf(w.db), "0")
	require.NoError(t, err)
	return w
}

func (w *world) port() string { return strconv.Itoa(int(w.ep.Addr().Port())) }

// connect makes the connection. Receives are posted by early, before it is there.
func (w *world) connect(ca, cb *ConnCfg, early func(b *ConnReq)) {
	t := w.t
	ra, err := NewConnReq(w.ctx, w.pa, addrOf(w.db), w.port(), ca)
	require.NoError(t, err)
	require.Nil(t, ra.PrivateData())
	w.a, err = ra.Connect(w.ctx, []byte("from a"))
	require.NoError(t, err)
	rb, err := w.ep.NextConnReq(w.ctx, cb)
	require.NoError(t, err)
	require.Len(t, rb.PrivateData(), 56)
	require.Equal(t, "from a", string(rb.PrivateData()[:6]))
	if early != nil {
		early(rb)
	}
	w.b, err = rb.Connect(w.ctx, []byte("from b"))
	require.NoError(t, err)
	for _, c := range []*Conn{w.a, w.b} {
		e, err := c.NextEvent(w.ctx)
		require.NoError(t, err)
		require.Equal(t, ConnEstablished, e)
	}
	require.Len(t, w.a.PrivateData(), 196)
	require.Equal(t, "from b", string(w.a.PrivateData()[:6]))
	require.Len(t, w.b.PrivateData(), 56)
}

// got waits for one completion.
func (w *world) got(q *CQ) WC {
	w.t.Helper()
	for {
		wc, err := q.GetOneWC()
		if err == nil {
			return wc
		}
		require.ErrorIs(w.t, err, ErrNoCompletion)
		require.NoError(w.t, q.Wait(w.ctx))
	}
}

func (w *world) close() {
	for _, c := range []*Conn{w.a, w.b} {
		if c != nil {
			require.NoError(w.t, c.Delete(w.ctx))
		}
	}
	require.NoError(w.t, w.ep.Shutdown(w.ctx))
}

func (w *world) mr(p *Peer, n int, u Usage) *MRLocal {
	m, err := p.RegMR(make([]byte, n), u)
	require.NoError(w.t, err)
	return m
}

func remote(t testing.TB, m *MRLocal) *MRRemote {
	r, err := RemoteFromDescriptor(m.Descriptor())
	require.NoError(t, err)
	return r
}

func forNetworks(t *testing.T, f func(t *testing.T, n network)) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) { f(t, n) })
	}
}

func TestOperations(t *testing.T) {
	forNetworks(t, func(t *testing.T, n network) {
		w := newWorld(t, n)
		msgs := w.mr(w.pb, 64, UsageRecv)
		w.connect(nil, nil, func(b *ConnReq) { require.NoError(t, b.Recv(msgs, 0, 16, 1)) })
		here := w.mr(w.pa, 64, UsageSend|UsageReadDst|UsageWriteSrc)
		there := w.mr(w.pb, 64, UsageReadSrc|UsageWriteDst|UsageFlushVisibility)
		far := remote(t, there)
		require.Equal(t, uint64(64), far.Size())
		copy(here.Bytes(), "message!")
		require.NoError(t, w.a.Send(here, 0, 8, FlagCompletionAlways, 10))
		wc := w.got(w.b.CQ())
		require.Equal(t, WC{WRID: 1, Opcode: ib.WCRecv, ByteLen: 8, QPN: w.b.QPNum()}, WC{WRID: wc.WRID, Opcode: wc.Opcode, ByteLen: wc.ByteLen, QPN: wc.QPN})
		require.Equal(t, "message!", string(msgs.Bytes()[:8]))
		require.Equal(t, uint64(10), w.got(w.a.CQ()).WRID)

		require.NoError(t, w.b.Recv(nil, 0, 0, 2))
		require.NoError(t, w.a.Write(far, 8, here, 0, 8, FlagCompletionOnError, 11))
		require.NoError(t, w.a.AtomicWrite(far, 16, [8]byte{1, 2, 3}, FlagCompletionOnError, 12))
		require.NoError(t, w.a.Flush(far, 0, 64, FlushVisibility, FlagCompletionAlways, 13))
		wc = w.got(w.a.CQ())
		require.Equal(t, uint64(13), wc.WRID, "the others complete only if they fail")
		require.Equal(t, ib.WCRDMARead, wc.Opcode)
		require.NoError(t, w.a.WriteWithImm(far, 0, here, 0, 4, FlagCompletionAlways, 0xabcd, 14))
		wc = w.got(w.b.CQ())
		require.Equal(t, ib.WCRecvRDMAWithImm, wc.Opcode)
		require.Equal(t, uint32(0xabcd), wc.Imm)
		require.Equal(t, "message!\x01\x02\x03", string(there.Bytes()[8:19]))
		require.Equal(t, "mess", string(there.Bytes()[:4]))
		require.Equal(t, uint64(14), w.got(w.a.CQ()).WRID)
		require.NoError(t, w.a.Read(here, 32, far, 8, 8, FlagCompletionAlways, 15))
		w.got(w.a.CQ())
		require.Equal(t, "message!", string(here.Bytes()[32:40]))
		require.NoError(t, w.a.Write(nil, 0, nil, 0, 0, FlagCompletionAlways, 16), "moves nothing")
		require.Equal(t, ib.WCSuccess, w.got(w.a.CQ()).Status)
		require.NoError(t, w.b.Recv(msgs, 0, 16, 3))
		require.NoError(t, w.a.SendWithImm(nil, 0, 0, FlagCompletionAlways, 7, 17))
		require.Equal(t, uint32(7), w.got(w.b.CQ()).Imm)

		require.NoError(t, w.a.Disconnect(w.ctx))
		for _, c := range []*Conn{w.b, w.a} {
			e, err := c.NextEvent(w.ctx)
			require.NoError(t, err)
			require.Equal(t, ConnClosed, e)
			require.NoError(t, c.Disconnect(w.ctx))
		}
		w.close()
		require.ErrorIs(t, w.pa.Delete(), ErrProvider, "it has a region")
		require.NoError(t, here.Dereg())
		require.NoError(t, w.pa.Delete())
		require.NoError(t, w.da.Close())
	})
}

// TestGetWC goes through the man page of rpma_cq_get_wc.
func TestGetWC(t *testing.T) {
	forNetworks(t, func(t *testing.T, n network) {
		w := newWorld(t, n)
		msgs := w.mr(w.pb, 64, UsageRecv)
		w.connect(nil, nil, func(b *ConnReq) {
			for i := range 4 {
				require.NoError(t, b.Recv(msgs, 8*i, 8, uint64(i)))
			}
		})
		q := w.b.CQ()
		wc := make([]WC, 3)
		// RPMA_E_NO_COMPLETION, RPMA_E_INVAL.
		k, err := q.GetWC(wc)
		require.Zero(t, k)
		require.ErrorIs(t, err, ErrNoCompletion)
		for _, none := range [][]WC{nil, {}} {
			_, err = q.GetWC(none)
			require.ErrorIs(t, err, ErrInval)
		}
		_, err = q.GetOneWC()
		require.ErrorIs(t, err, ErrNoCompletion)

		// As many as there are and fit, in order, each once.
		src := w.mr(w.pa, 8, UsageSend)
		for i := range 4 {
			require.NoError(t, w.a.Send(src, 0, 8, FlagCompletionAlways, uint64(100+i)))
		}
		var ids []uint64
		for len(ids) < 4 {
			k, err := w.a.CQ().GetWC(wc)
			if err != nil {
				require.ErrorIs(t, err, ErrNoCompletion)
				continue
			}
			for _, c := range wc[:k] {
				ids = append(ids, c.WRID)
			}
		}
		require.Equal(t, []uint64{100, 101, 102, 103}, ids)
		k, err = q.GetWC(wc)
		require.NoError(t, err)
		require.Equal(t, 3, k, "the first num_entries of them")
		require.Equal(t, [3]uint64{0, 1, 2}, [3]uint64{wc[0].WRID, wc[1].WRID, wc[2].WRID})
		k, err = q.GetWC(wc)
		require.NoError(t, err)
		require.Equal(t, 1, k, "all that are available")
		require.Equal(t, uint64(3), wc[0].WRID)

		// All operations complete on error, whatever their flags; only four fields mean
		// anything then, and the call succeeds all the same.
		bad := remote(t, w.mr(w.pb, 8, UsageReadSrc))
		require.NoError(t, w.a.Write(bad, 0, w.mr(w.pa, 8, UsageWriteSrc), 0, 8, FlagCompletionOnError, 200))
		got := w.got(w.a.CQ())
		require.Equal(t, ib.WCRemAccessErr, got.Status)
		require.Equal(t, WC{WRID: 200, Status: got.Status, QPN: w.a.QPNum(), VendorErr: got.VendorErr}, got)
		require.NotZero(t, got.VendorErr)

		// RPMA_E_PROVIDER.
		require.NoError(t, w.da.Shutdown())
		_, err = w.a.CQ().GetWC(wc)
		require.ErrorIs(t, err, ErrProvider)
		require.ErrorIs(t, err, ib.ENODEV)
		e, err := w.a.NextEvent(w.ctx)
		require.NoError(t, err)
		require.Equal(t, ConnLost, e)
	})
}

// TestEveryOperationFails: all operations complete on an error, with the four fields that
// mean something then; receives in the receive queue.
func TestEveryOperationFails(t *testing.T) {
	forNetworks(t, func(t *testing.T, n network) {
		w := newWorld(t, n)
		cfg := NewConnCfg()
		cfg.RCQSize = 10
		w.connect(cfg, nil, nil)
		here := w.mr(w.pa, 64, UsageReadDst|UsageWriteSrc|UsageSend|UsageRecv)
		far := remote(t, w.mr(w.pb, 64, UsageReadSrc|UsageWriteDst|UsageFlushVisibility))
		require.NoError(t, w.a.Disconnect(w.ctx))
		const quiet = FlagCompletionOnError
		for i, err := range []error{
			w.a.Read(here, 0, far, 0, 8, quiet, 0),
			w.a.Write(far, 0, here, 0, 8, quiet, 1),
			w.a.WriteWithImm(far, 0, here, 0, 8, quiet, 9, 2),
			w.a.AtomicWrite(far, 0, [8]byte{}, quiet, 3),
			w.a.Flush(far, 0, 8, FlushVisibility, quiet, 4),
			w.a.Send(here, 0, 8, quiet, 5),
			w.a.SendWithImm(here, 0, 8, quiet, 9, 6),
		} {
			require.NoError(t, err)
			wc := w.got(w.a.CQ())
			require.Equal(t, WC{WRID: uint64(i), Status: ib.WCWRFlushErr, QPN: w.a.QPNum(), VendorErr: wc.VendorErr}, wc)
			require.NotZero(t, wc.VendorErr)
		}
		require.NoError(t, w.a.Recv(here, 0, 8, 7))
		wc := w.got(w.a.RCQ())
		require.Equal(t, WC{WRID: 7, Status: ib.WCWRFlushErr, QPN: w.a.QPNum(), VendorErr: wc.VendorErr}, wc)
		_, err := w.a.CQ().GetOneWC()
		require.ErrorIs(t, err, ErrNoCompletion)
		w.close()
	})
}

// TestReceiveCQ: with a receive queue the main queue has no receives, ever.
func TestReceiveCQ(t *testing.T) {
	forNetworks(t, func(t *testing.T, n network) {
		w := newWorld(t, n)
		cfg := NewConnCfg()
		cfg.RCQSize = 10
		msgs := w.mr(w.pb, 64, UsageRecv)
		w.connect(nil, cfg, func(b *ConnReq) {
			require.NoError(t, b.Recv(msgs, 0, 8, 1))
			require.NoError(t, b.Recv(msgs, 8, 8, 2))
			require.NoError(t, b.Recv(msgs, 16, 8, 3))
		})
		require.Nil(t, w.a.RCQ())
		src, dst := w.mr(w.pa, 8, UsageSend|UsageWriteSrc), w.mr(w.pb, 8, UsageWriteDst|UsageSend)
		require.NoError(t, w.a.Send(src, 0, 8, FlagCompletionAlways, 1))
		require.NoError(t, w.a.WriteWithImm(remote(t, dst), 0, src, 0, 8, FlagCompletionAlways, 9, 2))
		require.Equal(t, ib.WCRecv, w.got(w.b.RCQ()).Opcode)
		require.Equal(t, ib.WCRecvRDMAWithImm, w.got(w.b.RCQ()).Opcode)
		_, err := w.b.CQ().GetOneWC()
		require.ErrorIs(t, err, ErrNoCompletion)
		// The flushed receive, too, goes to the receive queue.
		require.NoError(t, w.b.Disconnect(w.ctx))
		require.NoError(t, w.b.Send(dst, 0, 8, FlagCompletionOnError, 5))
		wc := w.got(w.b.RCQ())
		require.Equal(t, ib.WCWRFlushErr, wc.Status)
		require.Equal(t, uint64(3), wc.WRID)
		wc = w.got(w.b.CQ())
		require.Equal(t, [2]any{uint64(5), ib.WCWRFlushErr}, [2]any{wc.WRID, wc.Status})
		_, err = w.b.CQ().GetOneWC()
		require.ErrorIs(t, err, ErrNoCompletion)
		w.close()
	})
}

// TestWait goes through the man page of rpma_cq_wait, on queues with a channel each.
func TestWait(t *testing.T) {
	w := newWorld(t, networks[0])
	msgs := w.mr(w.pb, 64, UsageRecv)
	w.connect(nil, nil, func(b *ConnReq) {
		for i := range 3 {
			require.NoError(t, b.Recv(msgs, 8*i, 8, uint64(i)))
		}
	})
	q := w.b.CQ()
	src := w.mr(w.pa, 8, UsageSend)
	err := q.Wait(over())
	require.ErrorIs(t, err, ErrNoCompletion)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = w.b.Wait(w.ctx)
	require.ErrorIs(t, err, ErrNotSharedChnl)
	_, err = w.b.CompReady()
	require.ErrorIs(t, err, ErrNotSharedChnl)
	require.NoError(t, w.a.Send(src, 0, 8, FlagCompletionAlways, 1))
	require.NoError(t, q.Wait(w.ctx), "the queue was armed when it was made")
	_, err = q.GetOneWC()
	require.NoError(t, err)

	ready, err := q.Ready()
	require.NoError(t, err)
	require.NoError(t, w.a.Send(src, 0, 8, FlagCompletionAlways, 2))
	<-ready
	require.NoError(t, q.Wait(over()), "an event is there")
	_, err = q.GetOneWC()
	require.NoError(t, err)
	require.ErrorIs(t, q.Wait(over()), ErrNoCompletion)
	done := make(chan error)
	go func() { done <- q.Wait(w.ctx) }()
	require.NoError(t, w.a.Send(src, 0, 8, FlagCompletionAlways, 3))
	require.NoError(t, <-done)
	w.close()
	require.ErrorIs(t, q.Wait(w.ctx), ErrNoCompletion, "the channel is gone")
}

func TestSharedChannel(t *testing.T) {
	w := newWorld(t, networks[0])
	cfg := NewConnCfg()
	cfg.RCQSize, cfg.SharedCompChannel = 10, true
	msgs := w.mr(w.pb, 64, UsageRecv|UsageSend)
	w.connect(nil, cfg, func(b *ConnReq) { require.NoError(t, b.Recv(msgs, 0, 8, 1)) })
	require.ErrorIs(t, w.b.CQ().Wait(w.ctx), ErrSharedChannel)
	require.ErrorIs(t, w.b.RCQ().Wait(w.ctx), ErrSharedChannel)
	_, err := w.b.CQ().Ready()
	require.ErrorIs(t, err, ErrSharedChannel)
	_, _, err = w.b.Wait(over())
	require.ErrorIs(t, err, ErrNoCompletion)
	require.NoError(t, w.a.Send(w.mr(w.pa, 8, UsageSend), 0, 8, FlagCompletionAlways, 1))
	q, isRCQ, err := w.b.Wait(w.ctx)
	require.NoError(t, err)
	require.True(t, isRCQ)
	require.Same(t, w.b.RCQ(), q)
	_, err = q.GetOneWC()
	require.NoError(t, err)
	ready, err := w.b.CompReady()
	require.NoError(t, err)
	require.NoError(t, w.a.Recv(w.mr(w.pa, 8, UsageRecv), 0, 8, 1))
	require.NoError(t, w.b.Send(msgs, 0, 8, FlagCompletionAlways, 1))
	<-ready
	q, isRCQ, err = w.b.Wait(w.ctx)
	require.NoError(t, err)
	require.False(t, isRCQ)
	require.Same(t, w.b.CQ(), q)
	w.close()
}

func TestOperationErrors(t *testing.T) {
	w := newWorld(t, networks[0])
	cfg := NewConnCfg()
	cfg.SQSize = 1
	w.connect(cfg, nil, nil)
	here := w.mr(w.pa, 64, UsageReadDst|UsageWriteSrc|UsageSend|UsageRecv)
	far := remote(t, w.mr(w.pb, 64, UsageReadSrc|UsageWriteDst|UsageFlushPersistent))
	visible := remote(t, w.mr(w.pb, 64, UsageFlushVisibility))
	const all = FlagCompletionAlways
	for _, c := range []struct {
		name string
		err  error
		want Error
	}{
		{"read flags", w.a.Read(here, 0, far, 0, 8, 0, 1), ErrInval},
		{"write flags", w.a.Write(far, 0, here, 0, 8, 0, 1), ErrInval},
		{"send flags", w.a.Send(here, 0, 8, 0, 1), ErrInval},
		{"atomic flags", w.a.AtomicWrite(far, 0, [8]byte{}, 0, 1), ErrInval},
		{"flush flags", w.a.Flush(far, 0, 8, FlushPersistent, 0, 1), ErrInval},
		{"read without source", w.a.Read(here, 0, nil, 0, 8, all, 1), ErrInval},
		{"read without destination", w.a.Read(nil, 0, far, 0, 0, all, 1), ErrInval},
		{"write without regions but length", w.a.Write(nil, 0, nil, 0, 8, all, 1), ErrInval},
		{"write without regions but offset", w.a.Write(nil, 8, nil, 0, 0, all, 1), ErrInval},
		{"send without region", w.a.Send(nil, 0, 8, all, 1), ErrInval},
		{"recv without region", w.a.Recv(nil, 8, 0, 1), ErrInval},
		{"negative", w.a.Send(here, -1, 8, all, 1), ErrInval},
		{"atomic unaligned", w.a.AtomicWrite(far, 4, [8]byte{}, all, 1), ErrInval},
		{"atomic without region", w.a.AtomicWrite(nil, 0, [8]byte{}, all, 1), ErrInval},
		{"flush without region", w.a.Flush(nil, 0, 8, FlushVisibility, all, 1), ErrInval},
		{"flush type", w.a.Flush(far, 0, 8, 2, all, 1), ErrInval},
		{"flush persistent, no direct write", w.a.Flush(far, 0, 8, FlushPersistent, all, 1), ErrNoSupp},
		{"flush visibility, not registered for", w.a.Flush(far, 0, 8, FlushVisibility, all, 1), ErrNoSupp},
	} {
		require.ErrorIs(t, c.err, c.want, c.name)
	}
	cfgB, err := PeerCfgFromDescriptor(PeerCfg{DirectWriteToPmem: true}.Descriptor())
	require.NoError(t, err)
	w.a.ApplyRemotePeerCfg(cfgB)
	require.ErrorIs(t, w.a.Flush(visible, 0, 8, FlushPersistent, all, 1), ErrNoSupp)
	require.NoError(t, w.a.Flush(far, 0, 8, FlushPersistent, all, 2))
	require.Equal(t, uint64(2), w.got(w.a.CQ()).WRID)
	// The queue is full: the other side takes no messages.
	require.NoError(t, w.a.Send(here, 0, 8, all, 3))
	err = w.a.Send(here, 0, 8, all, 4)
	require.ErrorIs(t, err, ErrProvider)
	require.ErrorIs(t, err, ib.ENOMEM)
	// Nothing checks bounds but the memory's owner.
	require.NoError(t, w.a.Disconnect(w.ctx))
	require.Equal(t, ib.WCWRFlushErr, w.got(w.a.CQ()).Status)
	w.close()
	require.ErrorIs(t, w.a.Send(here, 0, 8, all, 1), ErrInval)
	require.NoError(t, w.a.Delete(w.ctx))
}

func TestConnectionErrors(t *testing.T) {
	w := newWorld(t, networks[0])
	_, err := NewPeer(nil)
	require.ErrorIs(t, err, ErrInval)
	_, err = NewConnReq(w.ctx, nil, "10.0.0.2", "1", nil)
	require.ErrorIs(t, err, ErrInval)
	_, err = NewConnReq(w.ctx, w.pa, "", "1", nil)
	require.ErrorIs(t, err, ErrInval)
	_, err = NewConnReq(w.ctx, w.pa, "10.0.0.2", "no such port", nil)
	require.ErrorIs(t, err, ErrProvider)
	_, err = NewConnReq(w.ctx, w.pa, "255.255.255.255", "1", nil)
	require.ErrorIs(t, err, ErrProvider)
	require.ErrorIs(t, err, ib.ENETUNREACH)
	_, err = Listen(w.ctx, nil, "10.0.0.2", "1")
	require.ErrorIs(t, err, ErrInval)
	_, err = Listen(w.ctx, w.pb, "10.0.0.2", w.port())
	require.ErrorIs(t, err, ErrProvider)
	require.ErrorIs(t, err, ib.EADDRINUSE)
	_, err = w.ep.NextConnReq(over(), nil)
	require.ErrorIs(t, err, ErrNoEvent)
	_, err = RemoteFromDescriptor(make([]byte, 20))
	require.ErrorIs(t, err, ErrInval)
	_, err = RemoteFromDescriptor(make([]byte, 21))
	require.ErrorIs(t, err, ErrInval)
	_, err = PeerCfgFromDescriptor(nil)
	require.ErrorIs(t, err, ErrInval)
	_, err = w.pa.RegMR(nil, UsageSend)
	require.ErrorIs(t, err, ErrInval)
	_, err = w.pa.RegMR(make([]byte, 1), 0)
	require.ErrorIs(t, err, ErrInval)

	req := func() *ConnReq {
		r, err := NewConnReq(w.ctx, w.pa, "10.0.0.2", w.port(), nil)
		require.NoError(t, err)
		return r
	}
	r := req()
	_, err = r.Connect(w.ctx, []byte{})
	require.ErrorIs(t, err, ErrInval)
	_, err = r.Connect(w.ctx, nil)
	require.ErrorIs(t, err, ErrInval, "used up")
	_, err = req().Connect(w.ctx, make([]byte, 57))
	require.ErrorIs(t, err, ErrProvider)
	require.NoError(t, req().Delete(w.ctx))
	require.ErrorIs(t, r.Delete(w.ctx), ErrInval)

	// The other side refuses.
	c, err := req().Connect(w.ctx, nil)
	require.NoError(t, err)
	e, err := c.NextEvent(over())
	require.Equal(t, ConnUndefined, e)
	require.ErrorIs(t, err, ErrNoEvent)
	other, err := w.ep.NextConnReq(w.ctx, nil)
	require.NoError(t, err)
	require.NoError(t, other.Delete(w.ctx))
	e, err = c.NextEvent(w.ctx)
	require.NoError(t, err)
	require.Equal(t, ConnRejected, e)
	require.NoError(t, c.Delete(w.ctx))
	require.NoError(t, c.Delete(w.ctx), "deleting twice does nothing")
	w.close()
	require.NoError(t, w.pa.Delete())
	require.NoError(t, w.da.Close())
	require.NoError(t, w.pb.Delete())
	require.NoError(t, w.db.Close())
}

func TestCodes(t *testing.T) {
	for code, name := range map[Error]string{ErrUnknown: "UNKNOWN", ErrNoSupp: "NOSUPP", ErrProvider: "PROVIDER", ErrNoMem: "NOMEM", ErrInval: "INVAL",
		ErrNoCompletion: "NO_COMPLETION", ErrNoEvent: "NO_EVENT", ErrAgain: "AGAIN", ErrSharedChannel: "SHARED_CHANNEL", ErrNotSharedChnl: "NOT_SHARED_CHNL"} {
		require.Contains(t, code.Error(), "RPMA_E_"+name+")")
	}
	require.Equal(t, Error(-100009), ErrNotSharedChnl)
	require.Equal(t, "rpma error -5", Error(-5).Error())
	err := fail("cq_get_wc", ErrProvider, ib.ENODEV)
	require.Equal(t, "rpma_cq_get_wc: provider error (RPMA_E_PROVIDER): ENODEV", err.Error())
	require.True(t, errors.Is(err, ErrProvider) && errors.Is(err, ib.ENODEV) && !errors.Is(err, ErrInval))
}

// TestUnreachable: nobody answers.
func TestUnreachable(t *testing.T) {
	ctx := within(t)
	dev, _ := openSwitch(t) // the second has no connection manager
	cfg := cm.DefaultConfig()
	cfg.ResponseTimeout, cfg.PacketLifeTime, cfg.MaxCMRetries = 12, 10, 2
	require.NoError(t, rdmacm.Configure(dev, cfg))
	p, err := NewPeer(dev)
	require.NoError(t, err)
	r, err := NewConnReq(ctx, p, "10.0.0.2", "7", nil)
	require.NoError(t, err)
	c, err := r.Connect(ctx, nil)
	require.NoError(t, err)
	e, err := c.NextEvent(ctx)
	require.NoError(t, err)
	require.Equal(t, ConnUnreachable, e)
	require.NoError(t, c.Delete(ctx))
}
