package runner

import (
	"fmt"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// joinNodes gives a network whose nodes are attached the links and switches of a file. index
// is the number there of a node of the file.
func joinNodes(net *mem.Network, f *topology.File, index func(i int) mem.NodeIndex) error {
	for i := range f.Links {
		if err := setLink(net, &f.Links[i], index); err != nil {
			return err
		}
	}
	for i := range f.Switches {
		if err := plug(net, &f.Switches[i], index); err != nil {
			return err
		}
	}
	for i := range f.Flows {
		fl := &f.Flows[i]
		from, to := index(fl.From), index(fl.To)
		if !net.Connected(from, to) || !net.Connected(to, from) {
			return fmt.Errorf("%s: flow %s: no trunks lead from the switch of node %s to that of node %s; expected a way through the switches, or a link of their own", f.Path, fl.Name, f.Nodes[fl.From].Name, f.Nodes[fl.To].Name)
		}
	}
	return nil
}

// setLink sets the links of one entry apart.
func setLink(net *mem.Network, l *topology.Link, index func(i int) mem.NodeIndex) (err error) {
	cfg := linkConfig(l)
	eachPair(l.Pair, func(i, j int) {
		if err == nil {
			err = net.SetLink(index(i), index(j), cfg)
		}
	})
	return err
}

// eachPair calls do for each direction that p selects, which is not all.
func eachPair(p topology.Pair, do func(i, j int)) {
	each := func(from, to topology.Span) {
		for i := from.First; i < from.First+from.N; i++ {
			for j := to.First; j < to.First+to.N; j++ {
				if i != j {
					do(i, j)
				}
			}
		}
	}
	each(p.From, p.To)
	if p.Both && p.From != p.To {
		each(p.To, p.From)
	}
}

// plug builds one switch. Those that it has trunks to are there already.
func plug(net *mem.Network, s *topology.Switch, index func(i int) mem.NodeIndex) error {
	port, at := linkConfig(&s.Port), net.AddSwitch()
	for _, span := range s.Nodes {
		for i := span.First; i < span.First+span.N; i++ {
			if err := net.Plug(index(i), at, port); err != nil {
				return err
			}
		}
	}
	for _, other := range s.Switches {
		if err := net.Trunk(at, mem.SwitchIndex(other), port); err != nil {
			return err
		}
	}
	return nil
}

// changeLink carries out a SetLink.
func changeLink(net *mem.Network, x *topology.Fault, index func(i int) mem.NodeIndex) (err error) {
	cfg := linkConfig(&x.Link)
	switch {
	case x.Switches.N > 0:
		for k := range x.Switches.N {
			if err == nil {
				err = net.SetPorts(mem.SwitchIndex(x.Switches.First+k), cfg)
			}
		}
	case x.Pair.All:
		err = net.SetCables(cfg)
	default:
		eachPair(x.Pair, func(i, j int) {
			if err == nil {
				err = net.SetCable(index(i), index(j), cfg)
			}
		})
	}
	return err
}
