package sim

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// busyWorld is a ring of nodes, each sending 64-byte messages to the next one without
// end.
func busyWorld(t testing.TB, nodes int) *World {
	w := newWorld(t, Config{Seed: 1, Network: mem.Config{Default: mem.LinkConfig{Latency: 2 * time.Microsecond}}}, nodes)
	s := workload.DefaultSpec()
	s.Ops = []workload.WeightedOp{{Op: ib.WRSend, Weight: 1}}
	s.Count, s.Depth, s.RecvDepth, s.Verify = 0, 8, 16, false
	s.Events = true
	for i, n := range w.Nodes() {
		_, err := w.AddFlow(s, n, w.Nodes()[(i+1)%nodes])
		require.NoError(t, err)
	}
	return w
}

// BenchmarkWorld counts events: arrivals and timers. The cost of one should not depend
// on the number of nodes.
func BenchmarkWorld(b *testing.B) {
	for _, nodes := range []int{2, 10, 100, 1000, 10_000} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			w := busyWorld(b, nodes)
			w.Run(vtime.Time(20 * time.Microsecond)) // everything has its size
			b.ReportAllocs()
			b.ResetTimer()
			cpu := cpuTime()
			until := w.stats.Events + uint64(b.N)
			for w.stats.Events < until && w.Step() {
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N), "cpu-ns/event")
		})
	}
}

func TestEventsDoNotAllocate(t *testing.T) {
	if invariants.Race {
		t.Skip("the race detector allocates")
	}
	w := busyWorld(t, 10)
	w.Run(vtime.Time(time.Millisecond))
	before := w.stats.Events
	allocs := testing.AllocsPerRun(10, func() { w.Run(w.Now().Add(100 * time.Microsecond)) })
	require.Greater(t, w.stats.Events, before)
	require.Zero(t, allocs)
}

// cpuTime is the time that the process has used, which says more than the clock's on a
// machine with other work.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
