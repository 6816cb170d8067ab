package runner

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// setPolicies gives node i's port what the file says of each of its links.
func setPolicies(f *topology.File, i int, seed uint64, ways *Ways, im *fabric.Impaired) error {
	for j := range f.Nodes {
		if i == j {
			continue
		}
		l := f.LinkBetween(i, j)
		p, err := PolicyOf(&l, seed, i, j)
		if err != nil {
			return err
		}
		dst := gidOf(&f.Nodes[j])
		im.SetPolicyFor(dst, p)
		im.SetWayFor(dst, ways.Between(i, j))
	}
	return nil
}
