package topology

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/dcqcn"
)

const dcqcnFile = `version: 1
defaults: {node: {dcqcn: {min_rate: 1Gbps, g: 25%}}}
nodes:
  - {name: a}
  - {name: g, count: 2, dcqcn: {rate_timer: 300us, byte_counter: 32KiB, fast_recovery: 1, alpha_timer: 1us, additive_increase: 5Mbps, hyper_increase: 50Mbps, cnp_interval: 4us, cnp_dscp: 46, line_rate: 40Gbps}}
  - {name: off, dcqcn: false}
  - {name: plain, dcqcn: true}
network: {bandwidth: 25Gbps}
`

// TestDCQCN: what an entry leaves out is as in the defaults of nodes, and those as in the
// paper; the line rate is that of the network; and all of it is written as it was read.
func TestDCQCN(t *testing.T) {
	f, err := Parse("t.yaml", []byte(dcqcnFile))
	require.NoError(t, err)
	want := dcqcn.Default(25e9)
	want.MinRate, want.G = 1e9, dcqcn.One/4
	require.Equal(t, &want, f.Nodes[0].DCQCN)
	require.Equal(t, &dcqcn.Params{LineRate: 40e9, MinRate: 1e9, G: dcqcn.One / 4, AlphaTimer: time.Microsecond, RateTimer: 300 * time.Microsecond,
		ByteCounter: 32 << 10, FastRecovery: 1, AdditiveIncrease: 5e6, HyperIncrease: 50e6, CNPInterval: 4 * time.Microsecond, CNPDSCP: 46}, f.Nodes[2].DCQCN)
	require.Nil(t, f.Nodes[3].DCQCN)
	require.Equal(t, f.Nodes[0].DCQCN, f.Nodes[4].DCQCN, "true keeps the defaults of nodes")

	again, err := Parse("t.yaml", f.Plain().Marshal(""))
	require.NoError(t, err)
	require.Equal(t, f.Plain().Nodes, again.Nodes)
}

// TestSetReplacesMappings: a value on the command line stands for a whole mapping of the
// file, and where none but a mapping will do that is an error.
func TestSetReplacesMappings(t *testing.T) {
	f, err := ParseWith("t.yaml", []byte(dcqcnFile), Options{Set: map[string]string{"defaults.node.dcqcn": "false", "nodes[1].dcqcn": "false", "nodes[3].dcqcn": "false"}})
	require.NoError(t, err)
	for i := range f.Nodes {
		require.Nil(t, f.Nodes[i].DCQCN)
	}
	_, err = ParseWith("t.yaml", []byte(dcqcnFile), Options{Set: map[string]string{"network": "fast"}})
	require.ErrorContains(t, err, `t.yaml:8:10: network: found "fast"; expected a mapping with the keys of network`)
}
