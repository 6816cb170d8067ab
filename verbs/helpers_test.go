package verbs

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
	"github.com/rvtsim/rvtsim/rvt/node"
)

const allAccess = ib.AccessLocalWrite | ib.AccessRemoteMask | ib.AccessMWBind

// host is a device with one of everything.
type host struct {
	t  testing.TB
	d  *Device
	pd *PD
	ch *CompChannel
	cq *CQ
	mr *MR
}

// strictTests opens devices in strict mode; see TestStrictChangesNothing.
var strictTests bool

// network opens two devices that can talk to each other.
type network struct {
	name string
	open func(t testing.TB) (a, b *Device)
}

var networks = []network{{"switch", openSwitch}, {"udp", openUDP}, {"memory", openMemory}}

func openSwitch(t testing.TB) (a, b *Device) {
	sw := node.NewSwitch(nil)
	open := func(last byte) *Device {
		p, err := sw.Port(ib.GIDFromIPv4(10, 0, 0, last), ib.MTU4096)
		require.NoError(t, err)
		d, err := Open(Config{Port: p, Strict: strictTests, StrictReport: func(StrictReport) {}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Shutdown() })
		return d
	}
	return open(1), open(2)
}

// testPort is the UDP port of the tests: not that of programs.
const testPort = 24817

// openUDP uses addresses of this process, so that several copies of the tests can run at
// the same time.
func openUDP(t testing.TB) (a, b *Device) { return openSockets(t, false) }

// openMemory opens devices whose packets go through memory, where there is such a thing.
func openMemory(t testing.TB) (a, b *Device) { return openSockets(t, true) }

func openSockets(t testing.TB, memory bool) (a, b *Device) {
	open := func(addr string) *Device {
		d, err := Open(Config{Address: addr, Memory: memory, Strict: strictTests, StrictReport: func(StrictReport) {}})
		require.NoError(t, err)
		t.Cleanup(func() { _ = d.Shutdown() })
		return d
	}
	return open(loopback.Node(0, testPort)), open(loopback.Node(1, testPort))
}

func newHost(t testing.TB, d *Device) *host {
	h := &host{t: t, d: d}
	var err error
	h.pd, err = d.AllocPD()
	require.NoError(t, err)
	h.ch, err = d.CreateCompChannel()
	require.NoError(t, err)
	h.cq, err = d.CreateCQ(8192, h.ch)
	require.NoError(t, err)
	h.mr, err = h.pd.RegMR(make([]byte, 1<<20), allAccess)
	require.NoError(t, err)
	return h
}

func (h *host) qp(typ ib.QPType, srq *SRQ) *QP {
	q, err := h.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: h.cq, RecvCQ: h.cq, SRQ: srq, SQSigAll: true,
		Cap: QPCap{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}})
	require.NoError(h.t, err)
	return q
}

// pair opens two hosts with a connected QP each.
func pair(t testing.TB, n network, typ ib.QPType) (a, b *host, qa, qb *QP) {
	da, db := n.open(t)
	a, b = newHost(t, da), newHost(t, db)
	qa, qb = a.qp(typ, nil), b.qp(typ, nil)
	require.NoError(t, Connect(qa, qb))
	return a, b, qa, qb
}

// wait polls until n completions have come.
func (h *host) wait(n int) []WC {
	h.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	got, wc := []WC(nil), make([]WC, 16)
	for len(got) < n {
		k, err := h.cq.Poll(wc)
		require.NoError(h.t, err)
		got = append(got, wc[:k]...)
		if k == 0 && time.Now().After(deadline) {
			h.t.Fatalf("%d of %d completions after 20 s; counters %+v", len(got), n, h.d.Counters())
		}
	}
	return got
}

// ok waits for n completions, all of which must be successes.
func (h *host) ok(n int) []WC {
	h.t.Helper()
	got := h.wait(n)
	require.Len(h.t, got, n)
	for _, wc := range got {
		require.Equal(h.t, ib.WCSuccess, wc.Status, "wr %d: %v", wc.WRID, wc.VendorErr)
	}
	return got
}

func (h *host) sgl(off, n int) []SGE { return []SGE{h.mr.SGE(off, n)} }

// within returns a context that ends long after anything should have happened.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// over returns a context that has ended.
func over() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
