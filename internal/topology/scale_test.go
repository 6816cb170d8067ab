package topology

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const cluster = `version: 1
nodes:
  - {name: host, count: 4, address: 10.0.0.254}
  - {name: sink}
  - {name: rack, count: 3}
`

func TestGroups(t *testing.T) {
	f := mustParse(t, cluster)
	require.Len(t, f.Nodes, 8)
	require.Equal(t, "host-1", f.Nodes[0].Name)
	require.Equal(t, "10.0.1.1:4791", f.Nodes[3].Address.String(), "addresses count up")
	require.Equal(t, "127.0.0.5:4791", f.Nodes[4].Address.String())
	require.Equal(t, []Group{{"host", Span{0, 4}, true}, {"sink", One(4), false}, {"rack", Span{5, 3}, true}}, f.Groups)
}

func TestNodesOption(t *testing.T) {
	text := "version: 1\nnodes: [{name: g, count: 2}, {name: s}]\n"
	f, err := ParseWith("t.yaml", []byte(text), Options{Nodes: 11})
	require.NoError(t, err)
	require.Len(t, f.Nodes, 11)
	require.Equal(t, "g-10", f.Nodes[9].Name)
	for _, c := range []struct {
		text  string
		nodes int
		want  string
	}{
		{text, 1, "t.yaml:2:8: nodes: found 1 single nodes; expected a number of nodes from 2 to 1048577, not 1"},
		{"version: 1\nnodes: [{name: g}]\n", 5, "t.yaml:2:8: nodes: found no entry with a count; expected one, whose size the number of nodes that was asked for decides"},
		{cluster, 50, "t.yaml:3:3: nodes: found more than one entry with a count; expected one, whose size the number of nodes that was asked for decides"},
	} {
		_, err := ParseWith("t.yaml", []byte(c.text), Options{Nodes: c.nodes})
		require.EqualError(t, err, c.want)
	}
}

// ends lists who sends to whom.
func ends(f *File) (list [][2]int) {
	for i := range f.Flows {
		list = append(list, [2]int{f.Flows[i].From, f.Flows[i].To})
	}
	return list
}

func TestPatterns(t *testing.T) {
	for flow, want := range map[string][][2]int{
		"{pattern: pairwise, from: host, op: send}":             {{0, 2}, {1, 3}},
		"{pattern: pairwise, from: rack, to: rack, op: send}":   {{5, 5}, {6, 6}, {7, 7}},
		"{pattern: incast, from: host, to: sink, op: send}":     {{0, 4}, {1, 4}, {2, 4}, {3, 4}},
		"{pattern: incast, from: host, op: send}":               {{1, 0}, {2, 0}, {3, 0}},
		"{pattern: all_to_all, from: rack, op: send}":           {{5, 6}, {5, 7}, {6, 7}, {6, 5}, {7, 5}, {7, 6}},
		"{pattern: all_to_all, from: sink, to: rack, op: send}": {{4, 5}, {4, 6}, {4, 7}},
		"{pattern: ring, from: rack, op: send}":                 {{5, 6}, {6, 7}, {7, 5}},
		"{from: host-2, to: rack-1, op: send}":                  {{1, 5}},
	} {
		f := mustParse(t, strings.ReplaceAll(cluster, ", address: 10.0.0.254", "")+"traffic: ["+flow+"]\n")
		require.Equal(t, want, ends(f), flow)
		require.Equal(t, Span{0, len(want)}, f.Entries[0].Flows)
	}
}

func TestRingAllReduce(t *testing.T) {
	f := mustParse(t, cluster+"traffic: [{name: r, pattern: ring_all_reduce, from: rack, op: send, size: 1000, count: 5}]\n")
	require.Len(t, f.Flows, 3)
	for i, after := range []int{2, 0, 1} {
		fl := &f.Flows[i]
		require.Equal(t, after, fl.After)
		require.EqualValues(t, 334, fl.Sizes.Max())
		require.EqualValues(t, 5*2*2, fl.Count)
		require.Equal(t, f.Flows[after].To, fl.From, "it waits for what its sender receives")
	}
}

// TestDrawnPatterns: every node sends to and receives from one other, for every seed, and
// another seed draws something else.
func TestDrawnPatterns(t *testing.T) {
	f := mustParse(t, "version: 1\nnodes: [{name: n, count: 20}]\ntraffic: [{pattern: permutation, from: n, op: send}, {pattern: random, peers: 3, from: n, op: send}]\n")
	require.Len(t, f.Flows, 20+60)
	before := ends(f)
	for seed := range uint64(50) {
		g := f.WithSeed(seed)
		require.Equal(t, ends(g), ends(f.WithSeed(seed)))
		from, to := map[int]int{}, map[int]int{}
		pairs := map[[2]int]bool{}
		for i, p := range ends(g) {
			require.NotEqual(t, p[0], p[1])
			if i < 20 {
				from[p[0]]++
				to[p[1]]++
				continue
			}
			require.False(t, pairs[p], "peers differ")
			pairs[p] = true
		}
		require.Len(t, from, 20)
		require.Len(t, to, 20)
	}
	require.NotEqual(t, before, ends(f.WithSeed(99)))
	require.Equal(t, before, ends(f), "the file itself stays as it was")
	require.Equal(t, before, ends(f.WithSeed(1)))
}

func TestSwitches(t *testing.T) {
	f := mustParse(t, cluster+`network: {latency: 1us, bandwidth: 10Gbps, loss: 1%}
switches:
  - {name: leaf, count: 2, nodes: [host, sink], ecn: {min: 10KiB, max: 100KiB, probability: 50%}}
  - {name: spine, switches: [leaf], bandwidth: 40Gbps, latency: 3us}
`)
	require.Equal(t, []string{"leaf-1", "leaf-2", "spine"}, []string{f.Switches[0].Name, f.Switches[1].Name, f.Switches[2].Name})
	require.Equal(t, []Span{{0, 2}}, f.Switches[0].Nodes)
	require.Equal(t, []Span{{2, 2}, {4, 1}}, f.Switches[1].Nodes)
	require.Equal(t, []int{0, 1}, f.Switches[2].Switches)
	port := f.Switches[0].Port
	require.Equal(t, Link{Pair: Pair{All: true}, Latency: time.Microsecond, Bandwidth: 10e9, ECN: ECN{10 << 10, 100 << 10, 0.5}}, port)
	require.EqualValues(t, 40e9, f.Switches[2].Port.Bandwidth)
}

func TestScheduleIsDrawn(t *testing.T) {
	f := mustParse(t, "version: 1\nnodes: [{name: n, count: 5}]\ntraffic: [{pattern: ring, from: n, op: send}]\n"+
		"faults: [{at: 3ms, action: heal}]\nrandom_faults: {count: 40, from: 1ms, until: 9ms, duration: 2ms, actions: [partition, kill_node, fail_post]}\n")
	s := f.Schedule()
	require.Equal(t, s, f.Schedule())
	require.NotEqual(t, s, f.WithSeed(7).Schedule())
	count := map[FaultAction]int{}
	for i, x := range s {
		count[x.Action]++
		require.True(t, i == 0 || s[i-1].At <= x.At)
		require.True(t, x.At >= time.Millisecond && x.At <= 11*time.Millisecond)
	}
	require.Equal(t, 40, count[Partition]+count[KillNode]+count[FailPost])
	require.Equal(t, count[Partition]+1, count[Heal])
	require.Equal(t, count[KillNode], count[RestartNode])
	require.NotZero(t, count[FailPost])
}

// Mistakes in what is new for many nodes, each at its place.
func TestScaleProblems(t *testing.T) {
	const nodes = "version: 1\nnodes: [{name: g, count: 3}, {name: n}]\n"
	flow := nodes + "traffic: [{name: f, from: n, to: g-1, op: write}]\n"
	for _, c := range []struct{ text, want string }{
		{"version: 1\nnodes: [{name: g, count: @0}]\n", `nodes[0].count: found "0"; expected a whole number from 1 to 1048576`},
		{"version: 1\nnodes: [{name: g, count: 3}, {name: @g-2}]\n", `nodes[1].name: found "g-2", the name of the node on line 2; expected a name of its own`},
		{"version: 1\nnodes: [{name: g, count: 3, address: 10.0.0.1}, {name: n, address: @10.0.0.3}]\n", `nodes[1].address: found 10.0.0.3, the address of node "g-3"; expected an address of its own: it is the node's GID`},
		{nodes + "traffic: [{from: @g, to: n, op: send}]\n", `traffic[0].from: found "g", a group of 3 nodes; expected one node, such as "g-1", or a pattern beside it`},
		{nodes + "traffic: [{from: g, to: n, op: send, pattern: @in_cast}]\n", `traffic[0].pattern: unknown pattern "in_cast"; expected one of pairwise, incast, all_to_all, ring, ring_all_reduce, permutation, random; did you mean "incast"?`},
		{nodes + "traffic: [{from: n, to: @g, op: send, pattern: incast}]\n", `traffic[0].to: found "g", a group of 3 nodes; expected one node for pattern incast`},
		{nodes + "traffic: [{from: @g, op: send, pattern: pairwise}]\n", `traffic[0].from: found a group of 3 nodes; expected an even number, of which the first half sends to the second, or the key "to"`},
		{nodes + "traffic: [{from: g, to: @n, op: send, pattern: pairwise}]\n", `traffic[0].to: found a group of 1 nodes; expected 3, as many as from has`},
		{nodes + "traffic: [{from: g, to: @n, op: send, pattern: ring}]\n", `traffic[0].to: found a key that pattern ring does not take; its flows stay within from`},
		{nodes + "traffic: [{from: @n, op: send, pattern: ring}]\n", `traffic[0].from: found one node; expected a group of at least 2 for pattern ring`},
		{nodes + "traffic: [{from: g, op: send, pattern: random, peers: @3}]\n", `traffic[0].peers: found 3; expected at most 2, the other nodes of to`},
		{nodes + "traffic: [{from: g, op: send, pattern: ring, peers: @3}]\n", `traffic[0].peers: found a key that means nothing here: it is for the pattern random`},
		{nodes + "traffic: [@{from: g, op: write, pattern: ring_all_reduce}]\n", `traffic[0]: found operation write; expected operations that take a receive for pattern ring_all_reduce: a node must learn that its share has come`},
		{nodes + "traffic: [{from: g, op: send, size: @1..9, pattern: ring_all_reduce}]\n", `traffic[0].size: found several sizes; expected one, the length of a vector, for pattern ring_all_reduce`},
		{"version: 1\nnodes: [{name: g, count: 1000}]\ntraffic: [@{from: g, op: send, pattern: all_to_all}]\n", `traffic[0]: pattern all_to_all makes 999000 flows, 999000 with those before it; expected at most 262144 in a file`},
		{nodes + "network: {ecn: {min: 5, max: @4}, bandwidth: 1Gbps}\n", `network.ecn.max: found 4; expected at least 5, the min, and more than 0`},
		{nodes + "network: {bandwidth: 1Gbps}\ndefaults: {node: {dcqcn: @on}}\n", `defaults.node.dcqcn: found "on"; expected true, false, or a mapping such as {min_rate: 100Mbps, additive_increase: 100Mbps}`},
		{"version: 1\nnodes: [{name: a, dcqcn: @true}, {name: b}]\n", `nodes[0].dcqcn: found no line_rate, and network has no bandwidth; expected one or the other: a queue pair begins with that rate`},
		{"version: 1\nnodes: [{name: a, dcqcn: {line_rate: 1Gbps, @gain: 1}}]\n", `nodes[0].dcqcn: unknown key "gain"; expected one of line_rate, min_rate, g, alpha_timer, rate_timer, byte_counter, fast_recovery, additive_increase, hyper_increase, cnp_interval, cnp_dscp`},
		{"version: 1\nnodes: [{name: a, dcqcn: {cnp_dscp: @64, line_rate: 1Gbps}}]\n", `nodes[0].dcqcn.cnp_dscp: found "64"; expected a whole number from 0 to 63`},
		{"version: 1\nnodes: [{name: a, dcqcn: @{line_rate: 100Gbps, min_rate: 200Gbps, additive_increase: 1kbps}}]\n", `nodes[0].dcqcn: the lowest rate is 200000000000 bit/s, want 1 to the line rate, 100000000000; the additive increase is 1000 bit/s, want more than a 2^20th of the line rate`},
		{nodes + "network: {burst: @{enter: 1%}}\n", `network.burst: key "leave" is missing; expected probability`},
		{nodes + "switches: [{name: s, nodes: [@h]}]\n", `switches[0].nodes[0]: unknown node "h"; expected one of g, n; did you mean "g"?`},
		{nodes + "switches: [{name: s, nodes: [g]}, {name: t, nodes: [@g-2]}]\n", `switches[1].nodes[0]: found node "g-2", which switches[0].nodes[0] plugged in already; expected each node once`},
		{nodes + "switches: [{name: s}, {name: t, switches: [@u]}]\n", `switches[1].switches[0]: unknown switch "u"; expected one of s; did you mean "s"?`},
		{nodes + "switches: [{name: s}, {name: @s}]\n", `switches[1].name: found "s", the name of a switch before it; expected a name of its own`},
		{nodes + "links: [{between: [g, n]}, @{from: n, to: g-3}]\n", `links[1]: the link from "n" to "g-3" is described on line 3 already`},
		{flow + "faults: [{at: 1ms, action: complete_with, flow: f, status: @SUCCESS}]\n", `faults[0].status: unknown status "SUCCESS"; expected one of ` + listed(statusNames[1:])},
		{flow + "faults: [{at: 1ms, action: spurious_event, flow: f, event: @CQ_EROR}]\n", `faults[0].event: unknown event "CQ_EROR"; expected one of COMPLETION, ` + listed(eventNames) + `; did you mean "CQ_ERR"?`},
		{flow + "faults: [@{at: 1ms, action: delay_completions, flow: f}]\n", `faults[0]: key "delay" is missing; action delay_completions needs it`},
		{flow + "random_faults: {count: 1, until: 1ms, actions: [@heal]}\n", `random_faults.actions[0]: unknown action "heal"; expected one of ` + listed(asStrings(drawableNames()))},
		{flow + "random_faults: {count: 1, from: 2ms, until: @1ms}\n", `random_faults.until: found 1ms; expected at least 2ms, the from`},
		{nodes + "random_faults: @{count: 1, until: 1ms}\n", `random_faults: found random faults in a file without flows, or with one node; expected something that can go wrong`},
	} {
		checkMarked(t, c.text, c.want)
	}
}
