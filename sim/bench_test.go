package sim

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/hugepages"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/internal/prefetch"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
	"github.com/rvtsim/rvtsim/workload"
)

// busyWorld is a ring of nodes, each sending 64-byte messages to the next one without
// end.
func busyWorld(t testing.TB, nodes int) *World {
	w := newWorld(t, Config{Seed: 1, Network: mem.Config{Default: mem.LinkConfig{Latency: 2 * time.Microsecond}, Ahead: ahead(nodes)}}, nodes)
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

// ahead is what rvtsim gives worlds of that size; see internal/runner.
func ahead(nodes int) func(*mem.Frame) {
	if nodes < 256 {
		return nil
	}
	return func(f *mem.Frame) { prefetch.Bytes(unsafe.Pointer(f), mem.FrameBytes) }
}

// sizes are the numbers of nodes of a curve.
var sizes = []int{2, 10, 100, 1000, 10_000}

// BenchmarkWorld counts events: arrivals, timers and calls. The cost of one should not
// depend on the number of nodes. Messages of 64 bytes, in bursts of eight.
func BenchmarkWorld(b *testing.B) {
	for _, nodes := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { measure(b, nodes, busyWorld) })
	}
}

// BenchmarkWrites is the other extreme: WRITEs of 64 KiB through a switch, in packets of
// 4 KiB that arrive one by one, so that every event is at another node.
func BenchmarkWrites(b *testing.B) {
	for _, nodes := range sizes {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) { measure(b, nodes, writeWorld) })
	}
}

// writeWorld is a ring of nodes at a switch, each writing to the next one without end.
func writeWorld(t testing.TB, nodes int) *World { return writeWorldAhead(t, nodes, ahead(nodes)) }

func writeWorldAhead(t testing.TB, nodes int, ahead func(*mem.Frame)) *World {
	link := mem.LinkConfig{Latency: time.Microsecond, BandwidthBitsPerSecond: 100e9}
	w := newWorld(t, Config{Seed: 1, Network: mem.Config{Default: link, Ahead: ahead}}, nodes)
	at := w.Network().AddSwitch()
	s := workload.DefaultSpec()
	s.Ops = []workload.WeightedOp{{Op: ib.WRRDMAWrite, Weight: 1}}
	s.Sizes, s.Count, s.Depth, s.Verify = workload.Fixed(64<<10), 0, 4, false
	for _, n := range w.Nodes() {
		require.NoError(t, w.Network().Plug(n.Index, at, link))
	}
	for i, n := range w.Nodes() {
		_, err := w.AddFlow(s, n, w.Nodes()[(i+1)%nodes])
		require.NoError(t, err)
	}
	return w
}

// measure runs a world for b.N events after everything has its size.
func measure(b *testing.B, nodes int, build func(testing.TB, int) *World) {
	before := heap()
	w := build(b, nodes)
	w.Run(vtime.Time(20 * time.Microsecond))
	perNode := (heap() - before) / int64(nodes)
	_, err := hugepages.Advise() // as rvtsim does
	require.NoError(b, err)
	b.ReportAllocs()
	b.ResetTimer()
	cpu, start := cpuTime(), w.stats
	sent := w.Network().Totals().Sent
	for until := w.stats.Events + uint64(b.N); w.stats.Events < until && w.Step(); {
	}
	b.StopTimer()
	cpu = cpuTime() - cpu
	events := float64(w.stats.Events - start.Events)
	b.ReportMetric(float64(cpu.Nanoseconds())/events, "cpu-ns/event")
	b.ReportMetric(events/cpu.Seconds(), "events/cpu-s")
	b.ReportMetric(float64(w.Network().Totals().Sent-sent)/events, "packets/event")
	b.ReportMetric(float64(perNode), "B/node")
	runtime.KeepAlive(w)
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

// TestAheadChangesNothing compares a world whose network shows the frames that come soon with
// one whose does not, and asks how often it was right: that the frame was one of the next.
func TestAheadChangesNothing(t *testing.T) {
	const nodes = 20
	shown := map[*mem.Frame]bool{}
	with := writeWorldAhead(t, nodes, func(f *mem.Frame) { shown[f] = true })
	foreseen, taken := 0, 0
	with.cfg.OnPacket = func(_ vtime.Time, _ *Node, f *mem.Frame, _ wire.DropReason) {
		if taken++; shown[f] {
			foreseen++
		}
		delete(shown, f)
	}
	without := writeWorldAhead(t, nodes, nil)
	with.Run(vtime.Time(200 * time.Microsecond))
	without.Run(vtime.Time(200 * time.Microsecond))
	require.Equal(t, without.Digest(), with.Digest())
	require.Greater(t, foreseen, taken/2)
}
