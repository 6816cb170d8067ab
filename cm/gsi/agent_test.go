package gsi

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// host is a node with an agent, and the events that its manager has told.
type host struct {
	t   testing.TB
	n   *node.Node
	a   *Agent
	gid ib.GID

	mu   sync.Mutex
	evs  []cm.Event
	gone int
	news chan struct{}
}

func newHost(t testing.TB, sw *node.Switch, last byte) *host {
	h := &host{t: t, gid: ib.GIDFromIPv4(10, 0, 0, last), news: make(chan struct{}, 1)}
	port, err := sw.Port(h.gid, ib.MTU4096)
	require.NoError(t, err)
	dc := rvt.DefaultConfig("rvt0", h.gid)
	dc.GUID = uint64(last)
	dev, err := rvt.New(dc)
	require.NoError(t, err)
	h.n, err = node.New(dev, port, node.Config{Events: func([]rvt.Event) { t.Error("an event of QP1 is nobody else's") }})
	require.NoError(t, err)
	t.Cleanup(func() { _ = h.n.Close() })
	cfg := cm.DefaultConfig()
	cfg.Seed = uint64(last)
	h.a, err = New(h.n, Config{CM: cfg, Port: cm.PortConfig{Name: "rvt0", GUID: uint64(last), GIDs: []ib.GID{h.gid}, MTU: ib.MTU1024, AckDelay: DefaultAckDelay},
		Events: h.events, Gone: func() { h.gone++ }})
	require.NoError(t, err)
	return h
}

func (h *host) events(evs []cm.Event) {
	h.mu.Lock()
	h.evs = append(h.evs, evs...)
	h.mu.Unlock()
	select {
	case h.news <- struct{}{}:
	default:
	}
}

// next waits for the next event.
func (h *host) next(want cm.EventType) cm.Event {
	h.t.Helper()
	for end := time.After(20 * time.Second); ; {
		h.mu.Lock()
		if len(h.evs) > 0 {
			e := h.evs[0]
			h.evs = h.evs[1:]
			h.mu.Unlock()
			require.Equal(h.t, want, e.Type)
			return e
		}
		h.mu.Unlock()
		select {
		case <-h.news:
		case <-end:
			h.t.Fatalf("%v does not come", want)
		}
	}
}

func (h *host) do(f func(m *cm.Manager, now vtime.Time) error) {
	h.t.Helper()
	require.NoError(h.t, h.a.Do(f))
}

// listen makes a listener on a port.
func (h *host) listen(port uint16) (id *cm.ID) {
	h.do(func(m *cm.Manager, _ vtime.Time) (err error) {
		if id, err = m.CreateID(cm.PSTCP, ib.QPTypeRC); err == nil {
			err = id.Bind(cm.AddrOf(h.gid, port))
		}
		if err == nil {
			err = id.Listen(0)
		}
		return err
	})
	return id
}

// connect calls a port of another host.
func (h *host) connect(to *host, port uint16, qpn ib.QPN) (id *cm.ID) {
	h.do(func(m *cm.Manager, now vtime.Time) (err error) {
		if id, err = m.CreateID(cm.PSTCP, ib.QPTypeRC); err == nil {
			err = id.ResolveAddr(now, cm.Addr{}, cm.AddrOf(to.gid, port), time.Second)
		}
		return err
	})
	h.next(cm.EventAddrResolved)
	h.do(func(_ *cm.Manager, now vtime.Time) error { return id.ResolveRoute(now, time.Second) })
	h.next(cm.EventRouteResolved)
	h.do(func(_ *cm.Manager, now vtime.Time) error { return id.Connect(now, cm.ConnParam{QPN: qpn}) })
	return id
}

// TestConnect goes over real QP1s.
//
// req: CM-WIRE-01 CM-CONN-01
func TestConnect(t *testing.T) {
	sw := node.NewSwitch(nil)
	a, b := newHost(t, sw, 1), newHost(t, sw, 2)
	b.listen(7471)
	for i := range ib.QPN(20) {
		c := a.connect(b, 7471, 0x100+i)
		s := b.next(cm.EventConnectRequest).ID
		b.do(func(_ *cm.Manager, now vtime.Time) error { return s.Accept(now, cm.ConnParam{QPN: 0x200 + i}) })
		a.next(cm.EventConnectResponse)
		a.do(func(_ *cm.Manager, now vtime.Time) error { return c.Establish(now) })
		b.next(cm.EventEstablished)
	}
	a.connect(b, 7472, 0x300)
	require.EqualValues(t, cm.RejInvalidServiceID, a.next(cm.EventRejected).Status)
	require.NoError(t, b.n.Close())
	b.next(cm.EventDeviceRemoval)
	require.ErrorIs(t, b.a.Do(func(*cm.Manager, vtime.Time) error { return nil }), ErrGone)
	require.NoError(t, b.a.DoAlways(func(*cm.Manager, vtime.Time) error { return nil }))
	require.Equal(t, 1, b.gone)
}

// TestManyAtOnce: what is more than can be under way at once waits and arrives.
func TestManyAtOnce(t *testing.T) {
	const n = 2 * sends
	sw := node.NewSwitch(nil)
	a, b := newHost(t, sw, 1), newHost(t, sw, 2)
	b.listen(7471)
	var ids []*cm.ID
	a.do(func(m *cm.Manager, now vtime.Time) error {
		for range n {
			id, err := m.CreateID(cm.PSTCP, ib.QPTypeRC)
			require.NoError(t, err)
			require.NoError(t, id.ResolveAddr(now, cm.Addr{}, cm.AddrOf(b.gid, 7471), time.Second))
			require.NoError(t, id.ResolveRoute(now, time.Second))
			ids = append(ids, id)
		}
		for i, id := range ids { // nothing leaves before Do returns
			require.NoError(t, id.Connect(now, cm.ConnParam{QPN: 0x100 + ib.QPN(i)}))
		}
		return nil
	})
	for range n {
		b.next(cm.EventConnectRequest)
	}
}

// TestForeignDatagrams: QP1 outlives whatever is sent to it, of any length.
//
// req: CM-WIRE-05
func TestForeignDatagrams(t *testing.T) {
	sw := node.NewSwitch(nil)
	b := newHost(t, sw, 2)
	a := newHost(t, sw, 1)
	b.listen(7471)
	var ud *qp.QP
	var ah *swqe.AH
	var scq *cq.CQ
	buf := make([]byte, 4096)
	var key ib.LKey
	require.NoError(t, a.n.Do(func(d *rvt.Device, now vtime.Time) {
		pd, err := d.AllocPD()
		require.NoError(t, err)
		scq, err = d.CreateCQ(64, nil)
		require.NoError(t, err)
		m, err := d.RegMR(pd, mr.NewSlice(0x1000, buf), 0x1000, 4096, 0x1000, ib.AccessLocalWrite)
		require.NoError(t, err)
		key = m.LKey
		ud, err = d.CreateQP(pd, &qp.InitAttr{Type: ib.QPTypeUD, SendCQ: scq, RecvCQ: scq, SQSigAll: true, Cap: qp.Cap{MaxSendWR: 64, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
		require.NoError(t, err)
		for _, s := range []struct {
			a qp.Attr
			m ib.AttrMask
		}{
			{qp.Attr{State: ib.StateInit, PortNum: 1, QKey: ib.QKeyGSI}, ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey},
			{qp.Attr{State: ib.StateRTR}, ib.AttrState},
			{qp.Attr{State: ib.StateRTS}, ib.AttrState | ib.AttrSQPSN},
		} {
			require.NoError(t, d.ModifyQP(now, ud, &s.a, s.m))
		}
		ah, err = d.CreateAH(pd, ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1, HopLimit: 64})
		require.NoError(t, err)
		for _, n := range []uint32{0, 1, 23, 24, 200, 255, 256, 257, 260, 1024, 4096} {
			for _, op := range []ib.WROpcode{ib.WRSend, ib.WRSendWithImm} {
				_, err := d.PostSend(ud, []swqe.SendWR{{Opcode: op, SGL: []mr.SGE{{Addr: 0x1000, Length: n, LKey: key}}, AH: ah, RemoteQPN: ib.QPNGSI, RemoteQKey: ib.QKeyGSI}})
				require.NoError(t, err)
			}
		}
	}))
	a.connect(b, 7471, 0x100)
	b.next(cm.EventConnectRequest)
	var ctr cm.Counters
	b.do(func(m *cm.Manager, _ vtime.Time) error { ctr = m.Counters(); return nil })
	require.NotZero(t, ctr.DropLength+ctr.DropHeader)
}
