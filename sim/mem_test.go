package sim

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// heap is the memory in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestIdleNodeIsSmall keeps worlds of very many nodes possible.
func TestIdleNodeIsSmall(t *testing.T) {
	const nodes = 2000
	before := heap()
	w := newWorld(t, Config{}, nodes)
	perNode := (heap() - before) / nodes
	t.Logf("%d bytes per idle node", perNode)
	require.Less(t, perNode, int64(4<<10))
	require.Len(t, w.Nodes(), nodes)
}

// TestIdleQPIsSmall counts what a queue pair takes that was created and connected and has
// never been used.
func TestIdleQPIsSmall(t *testing.T) {
	const qps = 2000
	w := newWorld(t, Config{}, 1)
	dev := w.Nodes()[0].Dev
	pd, err := dev.AllocPD()
	require.NoError(t, err)
	cq, err := dev.CreateCQ(16, nil)
	require.NoError(t, err)
	before := heap()
	for range qps {
		q, err := dev.CreateQP(pd, &qp.InitAttr{SendCQ: cq, RecvCQ: cq, Type: ib.QPTypeRC, Cap: qp.Cap{MaxSendWR: 128, MaxRecvWR: 512, MaxSendSGE: 4, MaxRecvSGE: 4}})
		require.NoError(t, err)
		rc(t, dev, q)
	}
	perQP := (heap() - before) / qps
	t.Logf("%d bytes per idle queue pair", perQP)
	require.Less(t, perQP, int64(2<<10))
	runtime.KeepAlive(w)
}

// rc takes an RC queue pair to RTS, connected to itself.
func rc(t testing.TB, dev *rvt.Device, q *qp.QP) {
	for _, s := range []struct {
		a qp.Attr
		m ib.AttrMask
	}{
		{qp.Attr{State: ib.StateInit, PortNum: 1}, ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags},
		{qp.Attr{State: ib.StateRTR, AV: ib.AV{DGID: dev.GIDs()[0], IsGlobal: true, PortNum: 1}, PathMTU: ib.MTU1024, DestQPN: q.QPN, MinRNRTimer: 12, MaxDestRdAtomic: 1},
			ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer},
		{qp.Attr{State: ib.StateRTS, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: 1}, ib.AttrState | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrSQPSN | ib.AttrMaxQPRdAtomic},
	} {
		require.NoError(t, dev.ModifyQP(0, q, &s.a, s.m))
	}
}

// TestTenThousandNodes: ten thousand nodes with ten queue pairs each, all of which carry
// something, in one process.
func TestTenThousandNodes(t *testing.T) {
	nodes := 10_000
	if invariants.Enabled {
		nodes = 500 // assertions and the race detector take their time
	}
	before := heap()
	w := newWorld(t, Config{Network: lossless()}, nodes)
	s := workload.DefaultSpec()
	s.QPs, s.Depth, s.RecvDepth, s.Count, s.Sizes, s.RecvSize, s.Events = 5, 1, 1, 1, workload.Fixed(16), 16, true
	flows := make([]*Flow, nodes)
	for i, n := range w.Nodes() {
		var err error
		flows[i], err = w.AddFlow(s, n, w.Nodes()[(i+1)%nodes])
		require.NoError(t, err)
	}
	open := 0
	require.True(t, w.RunUntil(vtime.Time(time.Second), func() bool {
		for open < nodes && flows[open].Done() {
			open++
		}
		return open == nodes
	}))
	perNode := (heap() - before) / int64(nodes)
	t.Logf("%d bytes per node with 10 queue pairs in use, of which the programs' memory is a part", perNode)
	for _, f := range flows {
		require.EqualValues(t, 5, f.Server.Stats().Received)
		require.Empty(t, f.Verify())
	}
	require.Less(t, perNode, int64(16<<10+10*(4<<10)))
}
