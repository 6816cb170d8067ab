package shrink

import (
	"context"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/simreport"
	"github.com/rvtsim/rvtsim/internal/topology"
)

const bad = `version: 1
name: bad
timeout: 5s
nodes:
  - {name: n, count: 6, address: 10.0.0.1}
network: {latency: 5us, bandwidth: 10Gbps, loss: 0.5%}
switches: [{name: s, nodes: [n]}]
links: [{between: [n-5, n-6], latency: 1us}]
traffic:
  - {name: talk, pattern: all_to_all, from: n, op: send, size: 2KiB, count: 20, timeout: 1ms}
  - {name: mix, pattern: ring, from: n, mix: {send: 1, read: 1, write: 1}, size: 1..4KiB, count: 50, timeout: 1ms}
faults:
  - {at: 100us, action: set_impairment, between: [n-3, n-4], tamper: 20%}
  - {at: 150us, action: pause_receiver, flow: mix-1}
  - {at: 250us, action: resume_receiver, flow: mix-1}
random_faults: {count: 4, until: 2ms, actions: [partition, port_down]}
`

func fails(ctx context.Context, f *topology.File) bool {
	o, err := runner.RunVirtual(ctx, f, runner.Options{Measure: true})
	return err == nil && slices.Contains(simreport.Collect(o, runner.CheckData, 0).Kinds, "data_ok")
}

func TestShrink(t *testing.T) {
	f, err := topology.Parse("bad.yaml", []byte(bad))
	require.NoError(t, err)
	f = f.WithSeed(3)
	require.True(t, fails(context.Background(), f))
	s := Shrinker{Fails: fails}
	small, ok := s.Run(context.Background(), f)
	require.True(t, ok)
	require.Len(t, small.Nodes, 2)
	require.Len(t, small.Flows, 1)
	require.Len(t, small.Faults, 1)
	require.Equal(t, topology.SetImpairment, small.Faults[0].Action)
	require.Empty(t, small.Switches)
	require.Empty(t, small.Links)
	require.Zero(t, small.Network.Loss)
	again, err := topology.Parse("small.yaml", small.Marshal("smaller"))
	require.NoError(t, err)
	require.True(t, fails(context.Background(), again), "what was written fails")
}

func TestSoundFileIsNotShrunk(t *testing.T) {
	f, err := topology.Parse("x.yaml", []byte("version: 1\nnodes: [{name: a}, {name: b}]\ntraffic: [{from: a, to: b, op: send}]\n"))
	require.NoError(t, err)
	_, ok := (&Shrinker{Fails: fails}).Run(context.Background(), f)
	require.False(t, ok)
}
