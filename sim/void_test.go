package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
	"github.com/rvtsim/rvtsim/workload"
)

// TestContentsChangeNothing: a flow whose contents nobody checks has none, takes no memory
// for them, and sends the same packets at the same instants as one with contents.
func TestContentsChangeNothing(t *testing.T) {
	const nodes = 20
	run := func(verify bool, op ib.WROpcode) (digest uint64, perNode int64) {
		before := heap()
		w := newWorld(t, Config{Seed: 3, Network: lossy()}, nodes)
		s := workload.DefaultSpec()
		s.Ops = []workload.WeightedOp{{Op: op, Weight: 1}}
		s.Sizes, s.RecvSize, s.Depth, s.RecvDepth, s.Count, s.Verify = workload.Fixed(64<<10), 64<<10, 4, 8, 20, verify
		s.PathMTU = ib.MTU4096
		for i, n := range w.Nodes() {
			_, err := w.AddFlow(s, n, w.Nodes()[(i+1)%nodes])
			require.NoError(t, err)
		}
		// What a node has before packets are under way.
		perNode = (heap() - before) / nodes
		w.Run(vtime.Time(time.Second))
		return w.Digest(), perNode
	}
	for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRSend, ib.WRRDMARead} {
		with, full := run(true, op)
		without, thin := run(false, op)
		require.Equal(t, with, without, op.String())
		require.Greater(t, full, int64(4*64<<10))
		require.Less(t, thin, int64(160<<10), "one piece of memory serves all nodes")
	}
	// An atomic finds what an earlier one left, whether it is checked or not.
	w := newWorld(t, Config{Network: lossless()}, 2)
	s := workload.DefaultSpec()
	s.Ops, s.Sizes, s.Verify, s.Count = []workload.WeightedOp{{Op: ib.WRAtomicFetchAndAdd, Weight: 1}}, workload.Fixed(8), false, 50
	f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	require.True(t, w.RunUntil(vtime.Time(time.Second), f.Done))
	require.Empty(t, f.Client.Violations())
}

// sleeper counts how often it is stepped.
type sleeper struct {
	steps, left int
	at          vtime.Time
}

func (s *sleeper) CompletionDriven() bool { return true }
func (s *sleeper) Deadline() vtime.Time   { return s.at }
func (s *sleeper) Step(now vtime.Time) bool {
	s.steps++
	if now >= s.at {
		s.at = vtime.Never
	}
	s.left--
	return s.left > 0
}

// TestSleepersAreLeftAlone: a program that polls is stepped at first, at its deadline,
// after Touch, and as long as it does something, but not for packets of others.
func TestSleepersAreLeftAlone(t *testing.T) {
	packets := 0
	cfg := Config{Network: lossless(), OnPacket: func(vtime.Time, *Node, *mem.Frame, wire.DropReason) { packets++ }}
	w := newWorld(t, cfg, 2)
	a, b := w.Nodes()[0], w.Nodes()[1]
	early, late := &sleeper{at: vtime.Time(time.Hour)}, &sleeper{at: vtime.Time(time.Hour)}
	w.AddApp(b, early)
	w.AddApp(b, late)
	require.Equal(t, 1, early.steps)
	s := workload.DefaultSpec()
	s.Count = 50
	f, err := w.AddFlow(s, a, b)
	require.NoError(t, err)
	require.True(t, w.RunUntil(vtime.Time(time.Second), f.Done))
	require.Greater(t, packets, 10)
	require.Equal(t, 1, early.steps)

	late.left = 3
	w.Touch(b)
	require.Equal(t, 2, early.steps)
	require.Equal(t, 4, late.steps, "it did something twice")
	w.Run(vtime.Time(2 * time.Hour))
	require.Equal(t, 3, early.steps)
	require.Equal(t, 6, late.steps, "with the other one at its deadline, and when its own turn comes")
}
