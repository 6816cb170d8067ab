package runner

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// setPolicies gives node i's port what the file says of each of its links, and reports
// whether any of them does something. Latency and bandwidth are the machine's.
func setPolicies(f *topology.File, i int, seed uint64, im *fabric.Impaired) (active bool, err error) {
	for j := range f.Nodes {
		if i == j {
			continue
		}
		l := f.LinkBetween(i, j)
		p, err := PolicyOf(&l, seed, i, j)
		if err != nil {
			return false, err
		}
		if p != nil {
			im.SetPolicyFor(gidOf(&f.Nodes[j]), p)
			active = true
		}
	}
	return active, nil
}
