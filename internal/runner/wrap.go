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
	active, err := setPolicies(f, i, seed, im)
	if err != nil {
		return nil, err
	}
	if !active {
		return port, nil
	}
	return im, nil
}

// setPolicies gives node i's port what the file says of each of its links, and reports
// whether any of them does something. Latency and bandwidth are the machine's.
func setPolicies(f *topology.File, i int, seed uint64, im *fabric.Impaired) (active bool, err error) {
	for j := range f.Nodes {
		if i == j {
			continue
		}
		l := f.LinkBetween(i, j)
		p, err := policyOf(&l, seed, i, j)
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
