package runner

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/topology"
)

// The tests here hold simulations of many nodes against arithmetic.

// wireBits is what a message of n bytes takes on the wire, in packets of 4096 bytes:
// Ethernet, IPv4 and UDP 66, BTH and ICRC 16, and a RETH of 16 in the first packet of a
// WRITE.
func wireBits(n int, write bool) float64 {
	packets := max((n+4095)/4096, 1)
	bits := float64(n+packets*(66+16)) * 8
	if write {
		bits += 16 * 8
	}
	return bits
}

// TestIncastIsBoundByTheLastCable: however many send, the cable to the sink is busy from
// the first packet to the last, so the end comes after so many bytes at its rate; the
// queue before it is what the senders may have outstanding; and the senders share evenly.
func TestIncastIsBoundByTheLastCable(t *testing.T) {
	const size, count, depth, rate = 32 << 10, 8, 4, 100e9
	for _, senders := range []int{1, 4, 16, 48} {
		f := parse(t, fmt.Sprintf(`version: 1
timeout: 10s
nodes: [{name: h, count: %d, address: 10.0.0.1, mtu: 4096}, {name: sink, address: 10.0.9.1, mtu: 4096}]
network: {latency: 1us, bandwidth: 100Gbps}
switches: [{name: s, nodes: [h, sink]}]
traffic: [{pattern: incast, from: h, to: sink, op: write, size: %d, count: %d, depth: %d, verify: false}]
`, senders, size, count, depth))
		o := runVirtual(t, f, Options{Measure: true})
		requireGood(t, o)
		messages := float64(senders * count)
		want := messages * wireBits(size, true) / rate * 1e9
		require.InDelta(t, want, float64(o.Elapsed), 0.02*want+6000, "%d senders: %v", senders, o.Elapsed)

		queue := uint64(0)
		for _, p := range o.Measures.Ports {
			if p.Name == "s>sink" {
				queue = p.MaxQueueBytes
				require.EqualValues(t, messages*wireBits(size, true)/8, p.Bytes)
			}
		}
		window := float64(senders) * depth * wireBits(size, true) / 8
		require.LessOrEqual(t, float64(queue), window)
		if senders >= 16 {
			require.Greater(t, float64(queue), 0.9*window, "all but what is on the cables waits there")
		}
		first, last := o.Measures.Entries[0].Flows.Min(), o.Measures.Entries[0].Flows.Max()
		require.Less(t, float64(last-first), 0.15*float64(last), "nobody is starved")
	}
}

// TestAllToAllIsBoundByTheNodes: each node sends n-1 messages of each round and receives
// as many, so the end comes when a node's cable has carried its part.
func TestAllToAllIsBoundByTheNodes(t *testing.T) {
	const size, count, rate = 32 << 10, 4, 100e9
	for _, nodes := range []int{2, 5, 12} {
		f := parse(t, fmt.Sprintf(`version: 1
timeout: 10s
nodes: [{name: h, count: %d, address: 10.0.0.1, mtu: 4096}]
network: {latency: 1us, bandwidth: 100Gbps}
switches: [{name: s, nodes: [h]}]
traffic: [{pattern: all_to_all, from: h, op: write, size: %d, count: %d, depth: 4, verify: false}]
`, nodes, size, count))
		o := runVirtual(t, f, Options{})
		requireGood(t, o)
		least := float64((nodes-1)*count) * wireBits(size, true) / rate * 1e9
		require.GreaterOrEqual(t, float64(o.Elapsed), least)
		// No schedule is perfect: nodes meet at the same receivers, and ACKs go beside.
		require.LessOrEqual(t, float64(o.Elapsed), 1.35*least+8000, "%d nodes: %v", nodes, o.Elapsed)
	}
}

// slope runs a pattern over one switch with two counts and returns how much longer the
// second takes for each that it has more: without what a start costs, in which adapters
// open their windows, and without the way there and back.
func slope(t *testing.T, pattern string, nodes, size, less, more int) time.Duration {
	var took [2]time.Duration
	for i, count := range []int{less, more} {
		f := parse(t, fmt.Sprintf(`version: 1
timeout: 10s
nodes: [{name: h, count: %d, address: 10.0.0.1, mtu: 4096}]
network: {latency: 1us, bandwidth: 100Gbps}
switches: [{name: s, nodes: [h]}]
traffic: [{pattern: %s, from: h, size: %d, count: %d, depth: 16, verify: false}]
`, nodes, pattern, size, count))
		o := runVirtual(t, f, Options{Measure: true})
		requireGood(t, o)
		flows := o.Measures.Entries[0].Flows
		require.InEpsilon(t, float64(flows.Min()), float64(flows.Max()), 0.02, "all flows are alike")
		took[i] = o.Elapsed
	}
	return (took[1] - took[0]) / time.Duration(more-less)
}

// TestPermutationIsBoundByOneCable: everybody sends to one and receives from one, so nobody
// is in anybody's way, whatever the number of nodes: a message takes what its bytes take on
// one cable. It may take a little longer, since acknowledgements wait behind the data that
// their sender has to send: a window of packets then needs its own time and once the way
// there and back, if all of it waits there. A ring is such a permutation.
func TestPermutationIsBoundByOneCable(t *testing.T) {
	const size, rate, depth = 32 << 10, 100e9, 16
	least := wireBits(size, true) / rate * 1e9
	most := least * (1 + (4*1000+2*wireBits(4096, false)/rate*1e9)/(depth*least))
	for _, nodes := range []int{3, 9, 40} {
		for _, pattern := range []string{"permutation, op: write", "ring, op: write"} {
			got := float64(slope(t, pattern, nodes, size, 64, 192))
			require.GreaterOrEqual(t, got, 0.999*least, "%s of %d", pattern, nodes)
			require.LessOrEqual(t, got, most, "%s of %d", pattern, nodes)
		}
	}
}

// TestRingAllReduceIsStepByStep: each vector takes 2(n-1) steps, and each of these as long
// as a share of the vector from the first bit sent to the last received: its time on a
// cable, that of its last packet on the second cable, and both cables' latency.
func TestRingAllReduceIsStepByStep(t *testing.T) {
	const vector, rate = 1 << 20, 100e9
	for _, nodes := range []int{2, 4, 8, 16} {
		step := (wireBits(vector/nodes, false)+wireBits(4096, false))/rate*1e9 + 2*1000
		want := float64(2*(nodes-1)) * step
		require.InEpsilon(t, want, float64(slope(t, "ring_all_reduce, op: send", nodes, vector, 2, 6)), 0.01, "%d nodes", nodes)
	}
}

// TestTrunksAreShared: two leaves of four nodes whose trunk has the rate of one node's
// cable: pairs across it take four times as long as pairs beside it.
func TestTrunksAreShared(t *testing.T) {
	run := func(pairs string) time.Duration {
		f := parse(t, `version: 1
timeout: 10s
nodes: [{name: a, count: 4, address: 10.0.0.1, mtu: 4096}, {name: b, count: 4, address: 10.0.1.1, mtu: 4096}]
network: {latency: 1us, bandwidth: 100Gbps}
switches:
  - {name: left, nodes: [a]}
  - {name: right, nodes: [b], switches: [left]}
traffic: [{pattern: pairwise, `+pairs+`, op: write, size: 64KiB, count: 16, depth: 4, verify: false}]
`)
		o := runVirtual(t, f, Options{})
		requireGood(t, o)
		return o.Elapsed
	}
	beside, across := run("from: a"), run("from: a, to: b")
	require.InEpsilon(t, 4, across.Seconds()/beside.Seconds(), 0.08, "%v and %v", across, beside)
}

// TestQueuesLoseAndMark: a short queue before the sink loses packets, which are sent
// again; one that marks does so before it loses any.
func TestQueuesLoseAndMark(t *testing.T) {
	run := func(node, port string) PortMeasures {
		f := parse(t, `version: 1
timeout: 10s
defaults: {node: {mtu: 4096`+node+`}}
nodes: [{name: h, count: 8, address: 10.0.0.1}, {name: sink, address: 10.0.9.1}]
network: {latency: 1us, bandwidth: 100Gbps}
switches: [{name: s, nodes: [h, sink], `+port+`}]
traffic: [{pattern: incast, from: h, to: sink, op: write, size: 32KiB, count: 8, depth: 4, timeout: 1ms}]
`)
		o := runVirtual(t, f, Options{Measure: true})
		requireGood(t, o)
		for _, p := range o.Measures.Ports {
			if p.Name == "s>sink" {
				return p
			}
		}
		return PortMeasures{}
	}
	short := run("", "queue: 64KiB")
	require.NotZero(t, short.Dropped)
	require.LessOrEqual(t, short.MaxQueueBytes, uint64(64<<10))
	const ecn = "ecn: {min: 32KiB, max: 128KiB}"
	require.Zero(t, run("", ecn).Marked, "a packet whose sender does not allow it is not marked")
	// Intervals that are never over: packets may be marked, and nobody slows down for it.
	marking := run(", dcqcn: {cnp_interval: 1h, min_rate: 100Gbps}", ecn)
	require.Zero(t, marking.Dropped)
	require.Greater(t, marking.Marked, marking.Packets/2, "the queue is long most of the time")
	require.Less(t, marking.Marked, marking.Packets)
}

// TestDefaultNetworkIsPerfect: what a file says of a network when it says nothing costs
// nothing.
func TestDefaultNetworkIsPerfect(t *testing.T) {
	for text, perfect := range map[string]bool{"": true, "network: {latency: 5us}\n": true, "network: {reorder: 0.1}\n": false, "network: {loss: 0.1}\n": false} {
		f, err := topology.Parse("x", []byte("version: 1\nnodes: [{name: a}, {name: b}]\n"+text))
		require.NoError(t, err)
		l := f.LinkBetween(0, 1)
		p, err := PolicyOf(&l, 1, 0, 1)
		require.NoError(t, err)
		require.Equal(t, perfect, p == nil, text)
	}
}
