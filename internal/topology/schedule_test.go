package topology

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func runningNet(t *testing.T) *File {
	t.Helper()
	f, err := Parse("up.yaml", []byte("version: 1\nnodes: [{name: n1}, {name: n2}, {name: g, count: 2}]\ntraffic: [{name: f, from: n1, to: n2, op: send}]\n"))
	require.NoError(t, err)
	return f
}

func TestScheduleAlone(t *testing.T) {
	list, err := ParseSchedule(runningNet(t), "s.yaml", []byte(`version: 1
faults:
  - {at: 2m, action: heal}
  - {at: 1s, action: kill_node, node: g}
  - {at: 1s, action: fail_post, flow: f, qp: 3, count: 2}
  - {at: 2s, action: complete_with, node: n2, qpn: 0x11, status: REM_OP_ERR}
  - {at: 3s, action: pause_receiver, flow: f}
`))
	require.NoError(t, err)
	require.Len(t, list, 5)
	require.Equal(t, KillNode, list[0].Action)
	require.Equal(t, Span{2, 2}, list[0].Nodes)
	require.Equal(t, FailPost, list[1].Action)
	require.Equal(t, One(0), list[1].Nodes, "the sender of the flow")
	require.Equal(t, 3, list[1].QP)
	require.Equal(t, 2, list[1].Count)
	require.Equal(t, ib.QPN(0x11), list[2].QPN)
	require.Equal(t, One(1), list[3].Nodes, "its receiver")
	require.Equal(t, 2*time.Minute, list[4].At, "no timeout ends a network that runs")
}

// A whole topology file may number its nodes in another way.
func TestScheduleOfATopology(t *testing.T) {
	list, err := ParseSchedule(runningNet(t), "s.yaml", []byte(`version: 1
nodes: [{name: n2}, {name: n1}]
traffic: [{name: x, from: n2, to: n1, op: send}, {name: y, from: n2, to: n1, op: send}]
faults:
  - {at: 1s, action: partition, between: [n1, n2]}
  - {at: 2s, action: modify_qp_error, flow: x}
  - {at: 3s, action: spurious_event, node: n1}
random_faults: {count: 20, until: 10s, from: 5s, actions: [port_down, fail_post]}
`))
	require.NoError(t, err)
	require.Equal(t, Pair{From: One(0), To: One(1), Both: true}, list[0].Pair)
	require.Equal(t, One(1), list[1].Nodes)
	require.Equal(t, One(0), list[2].Nodes)
	for _, x := range list[3:] {
		require.GreaterOrEqual(t, x.At, 5*time.Second)
		require.Equal(t, 1, x.Nodes.N)
		require.Zero(t, x.Flows.N)
	}
}

// Random faults need no flows where programs of others run.
func TestScheduleDrawnWithoutFlows(t *testing.T) {
	f, err := Parse("nodes", []byte("version: 1\nnodes: [{name: n1}, {name: n2}]\n"))
	require.NoError(t, err)
	list, err := ParseSchedule(f, "s.yaml", []byte("version: 1\nseed: 3\nrandom_faults: {count: 50, until: 1s, actions: [complete_with, kill_node]}\n"))
	require.NoError(t, err)
	for _, x := range list {
		require.Equal(t, 1, x.Nodes.N)
	}
	again, err := ParseSchedule(f, "s.yaml", []byte("version: 1\nseed: 3\nrandom_faults: {count: 50, until: 1s, actions: [complete_with, kill_node]}\n"))
	require.NoError(t, err)
	require.Equal(t, list, again)
}

func TestScheduleProblems(t *testing.T) {
	for text, want := range map[string]string{
		"version: 1\nnodes: [{name: n1}, {name: n9}]\n":                                                                  `s.yaml:2:28: nodes[1].name: found node "n9", which the network that runs does not have; expected n1, n2, g-1, g-2`,
		"version: 1\nfaults: [{at: 1s, action: port_down, node: n9}]\n":                                                  `s.yaml:2:44: faults[0].node: unknown node "n9"; expected one of n1, n2, g; did you mean "n1"?`,
		"version: 1\ntraffic: []\n":                                                                                      `s.yaml:2:1: unknown key "traffic"; expected one of version, name, seed, faults, random_faults`,
		"version: 1\nfaults: [{at: 1s, action: fail_post}]\n":                                                            `s.yaml:2:10: faults[0]: key "flow" is missing; action fail_post needs it, or "node"`,
		"version: 1\nfaults: [{at: 1s, action: fail_post, node: n1, flow: f}]\n":                                         `s.yaml:2:44: faults[0].node: found "node" beside "flow"; expected one or the other`,
		"version: 1\nfaults: [{at: 1s, action: fail_post, node: n1, qp: 1}]\n":                                           `s.yaml:2:52: faults[0].qp: found a key that goes with "flow"; expected "qpn"`,
		"version: 1\nfaults: [{at: 1s, action: fail_post, flow: f, qpn: 17}]\n":                                          `s.yaml:2:52: faults[0].qpn: found a key that goes with "node"; expected "qp"`,
		"version: 1\nrandom_faults: {count: 1, until: 1s}\nfaults: [{at: 1s, action: restart_node, node: n1, qpn: 3}]\n": `s.yaml:3:56: faults[0].qpn: found a key that action restart_node does not take; expected only at, action, node`,
	} {
		_, err := ParseSchedule(runningNet(t), "s.yaml", []byte(text))
		require.Error(t, err, text)
		require.Contains(t, err.Error(), want)
	}
}
