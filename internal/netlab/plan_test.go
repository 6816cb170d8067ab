package netlab

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/topology"
)

func planOf(t *testing.T, nodes string) string {
	t.Helper()
	f, err := topology.Parse("t.yaml", []byte("version: 1\nnodes:\n"+nodes))
	require.NoError(t, err)
	plan, err := Plan(f)
	require.NoError(t, err)
	var b strings.Builder
	for _, n := range plan {
		fmt.Fprintf(&b, "%s %s %d %v\n", n.Name, n.Netdev, n.MTU, n.Addrs)
	}
	return b.String()
}

func TestPlan(t *testing.T) {
	require.Equal(t, `a eth0 1500 [10.77.0.1/24 fd77::1/64]
b eth0 1500 [10.77.0.2/24 fd77::2/64]
`, planOf(t, " - {name: a}\n - {name: b}"))

	require.Equal(t, `a eth0 1500 [10.0.0.1/9 fd77::1/64]
b ib1 4200 [10.77.0.1/9 fd77::2/64]
c eth0 2152 [10.77.0.2/9 fd77::3/64]
`, planOf(t, " - {name: a, address: 10.0.0.1}\n - {name: b, netdev: ib1}\n - {name: c, mtu: 2048}"), "all are neighbours, whatever their addresses")

	require.Equal(t, `a eth0 1500 [10.77.0.2/24 2001:db8::1/0]
b eth0 1500 [10.77.0.1/24 fd77::1/0]
`, planOf(t, " - {name: a, address: \"2001:db8::1\"}\n - {name: b, address: 10.77.0.1}"), "an address of the file is not given to another node")

	require.Contains(t, planOf(t, " - {name: n, count: 300}"), "n-255 eth0 1500 [10.77.1.0/23 fd77::ff/64]\n")
}

func TestRoutedPlan(t *testing.T) {
	f, err := topology.Parse("t.yaml", []byte("version: 1\nnetwork: {form: routed}\nnodes: [{name: a, address: 10.0.0.1, mtu: 4096}, {name: b}]\n"))
	require.NoError(t, err)
	plan, err := Plan(f)
	require.NoError(t, err)
	require.Equal(t, "[10.0.0.1/32 fd77::1/128]", fmt.Sprint(plan[0].Addrs), "nobody is a neighbour")
	require.Equal(t, "[10.77.0.1/32 fd77::2/128]", fmt.Sprint(plan[1].Addrs))
	require.Equal(t, []int{4200, 1500}, []int{plan[0].MTU, plan[1].MTU}, "each link has its own")
	require.True(t, plan[0].Routed && plan[1].Routed)
}

func TestPlanRefusesGroupAddress(t *testing.T) {
	f, err := topology.Parse("t.yaml", []byte("version: 1\nnodes: [{name: a, address: 224.0.0.1}]\n"))
	if err == nil {
		_, err = Plan(f)
	}
	require.Error(t, err)
}
