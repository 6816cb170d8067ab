package rdmacm

import (
	"context"
	"fmt"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/wire"
)

// pairOf are two devices that can talk to each other.
type pairOf struct {
	t    testing.TB
	a, b *verbs.Device
	// drop decides about messages of the connection manager on their way out.
	drop *dropper
}

type network struct {
	name string
	open func(t testing.TB) *pairOf
}

var networks = []network{{"switch", openSwitch}, {"udp", openUDP}}

// dropper loses messages of the connection manager.
type dropper struct {
	fate atomic.Pointer[func(cm.Attr) bool]
}

func (d *dropper) set(f func(cm.Attr) bool) { d.fate.Store(&f) }

// lossyPort loses what its dropper says.
type lossyPort struct {
	*node.SwitchPort
	d *dropper
}

func (p *lossyPort) WriteBatch(src []fabric.Datagram) (int, error) {
	for i := range src {
		f := p.d.fate.Load()
		var pkt wire.Packet
		if f != nil && wire.Decode(src[i].Buf[:len(src[i].Buf)-wire.ICRCBytes], &pkt) == wire.DropNone && pkt.DestQP == ib.QPNGSI &&
			(*f)(cm.DecodeHeader(pkt.Payload).Attr) {
			src[i].BadICRC = true
		}
	}
	return p.SwitchPort.WriteBatch(src)
}

func openSwitch(t testing.TB) *pairOf {
	sw := node.NewSwitch(nil)
	d := new(dropper)
	open := func(last byte) *verbs.Device {
		p, err := sw.Port(ib.GIDFromIPv4(10, 0, 0, last), ib.MTU1024)
		require.NoError(t, err)
		dev, err := verbs.Open(verbs.Config{Port: &lossyPort{p, d}, Name: fmt.Sprint("dev", last)})
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Shutdown() })
		return dev
	}
	return &pairOf{t, open(1), open(2), d}
}

func openUDP(t testing.TB) *pairOf {
	open := func(addr string) *verbs.Device {
		dev, err := verbs.Open(verbs.Config{Address: addr})
		require.NoError(t, err)
		t.Cleanup(func() { _ = dev.Shutdown() })
		return dev
	}
	return &pairOf{t, open(loopback.Node(0, 24866)), open(loopback.Node(1, 24866)), nil}
}

// quick makes the connection managers of both devices impatient: messages are repeated
// every 96 or 64 ms.
func (p *pairOf) quick(retries uint8) *pairOf {
	for i, d := range []*verbs.Device{p.a, p.b} {
		cfg := cm.DefaultConfig()
		cfg.Seed, cfg.ResponseTimeout, cfg.PacketLifeTime, cfg.MaxCMRetries = uint64(i+1), 14, 12, retries
		require.NoError(p.t, Configure(d, cfg))
	}
	return p
}

func on(d *verbs.Device, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom16(d.GID()).Unmap(), port)
}

func within20(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

var small = verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}

// endpoints makes two synchronous endpoints that are connected; b was the listener's.
func (p *pairOf) endpoints() (a, b *ID) {
	t := p.t
	ctx := within20(t)
	l, err := CreateEP(ctx, p.b, AddrInfo{Passive: true, Src: on(p.b, 0)}, nil, &small)
	require.NoError(t, err)
	require.NoError(t, l.Listen(0))
	done := make(chan error, 1)
	go func() {
		var err error
		if b, err = l.GetRequest(ctx); err == nil {
			err = b.Accept(ctx, nil)
		}
		done <- err
	}()
	a, err = CreateEP(ctx, p.a, AddrInfo{Dst: l.LocalAddr()}, nil, &small)
	require.NoError(t, err)
	require.NoError(t, a.Connect(ctx, nil))
	require.NoError(t, <-done)
	require.NoError(t, l.DestroyEP(ctx))
	return a, b
}

// next takes the next event, which must be of this type.
func next(t testing.TB, ch *EventChannel, want EventType) *Event {
	t.Helper()
	e, err := ch.Get(within20(t))
	require.NoError(t, err)
	require.Equal(t, want, e.Type, "%v", e)
	return e
}
