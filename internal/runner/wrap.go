package runner

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/rvt/node"
)

// WrapPort gives the port of node i what the file says of its links, for hosts that run
// the nodes of a file without its traffic. A port whose links are perfect comes back as
// it is.
func WrapPort(f *topology.File, i int, seed uint64, port fabric.Port) (fabric.Port, error) {
	im := fabric.NewImpaired(port, nil, node.Now)
	active := false
	for j := range f.Nodes {
		if i == j {
			continue
		}
		l := f.LinkBetween(i, j)
		p, err := policyOf(&l, seed, i, j)
		if err != nil {
			return nil, err
		}
		if p != nil {
			im.SetPolicyFor(gidOf(&f.Nodes[j]), p)
			active = true
		}
	}
	if !active {
		return port, nil
	}
	return im, nil
}
