package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

func newWorld(t testing.TB, cfg Config, nodes int) *World {
	w, err := New(cfg)
	require.NoError(t, err)
	for i := range nodes {
		_, err := w.AddNode(rvt.DefaultConfig(fmt.Sprintf("n%d", i), ib.GIDFromIPv4(10, byte(i>>16), byte(i>>8), byte(i))))
		require.NoError(t, err)
	}
	return w
}

func lossy() mem.Config {
	return mem.Config{Default: mem.LinkConfig{Latency: time.Microsecond, Jitter: 200 * time.Nanosecond,
		Impairment: fabric.ImpairmentConfig{Loss: 0.1, Duplicate: 0.05, Reorder: 0.05, ReorderDelay: 5 * time.Microsecond, Corrupt: 0.01}}}
}

func lossless() mem.Config {
	return mem.Config{Default: mem.LinkConfig{Latency: time.Microsecond}}
}

func TestFlowOnALossyNetwork(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRSend, ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAndAdd, ib.WRSendWithInv, ib.WRRDMAWriteWithImm, ib.WRAtomicCmpAndSwp} {
		t.Run(op.String(), func(t *testing.T) {
			w := newWorld(t, Config{Seed: 1, Network: lossy(), Check: true, Digest: DigestAll}, 2)
			s := workload.DefaultSpec()
			s.Ops = []workload.WeightedOp{{Op: op, Weight: 1}}
			s.Sizes = workload.Sizes{Min: 0, Max: 9000}
			s.RecvSize = 9000
			s.Count, s.QPs = 200, 2
			s.PathMTU = ib.MTU1024
			f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
			require.NoError(t, err)
			done := w.RunUntil(vtime.Time(time.Hour), f.Done)
			require.NoError(t, w.Err())
			require.True(t, done, f.Stuck())
			require.Empty(t, f.Verify())
			require.False(t, f.Client.Failed(), "%v", f.Client.Stats().FirstFailure)
			require.NoError(t, w.CheckConservation())
			require.EqualValues(t, 400, f.Client.Stats().Completed)
			t.Log(w.Now(), w.Stats(), w.Nodes()[0].Dev.Counters().RetransPackets)
		})
	}
}
