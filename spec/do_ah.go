package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
)

// doAH makes an address handle to a device (to=) or an address (gid=).
func (in *Interp) doAH(a *args) error {
	name := a.word("ah name")
	n, err := in.device(a)
	if err != nil {
		return err
	}
	av, err := in.av(a)
	if err != nil {
		return err
	}
	pd, err := in.pdOf(n, a.str("pd", ""))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if _, err := in.ah(name); err == nil || len(in.ahs) >= maxObjects {
		return fmt.Errorf("ah %q exists already, or there are too many", name)
	}
	h, err := n.dev.CreateAH(pd, av)
	if err == nil {
		in.ahs = append(in.ahs, &ahObj{name, n, h})
	}
	in.result(err)
	return nil
}

// av reads the arguments of an address vector.
func (in *Interp) av(a *args) (ib.AV, error) {
	av := ib.AV{IsGlobal: !a.flag("not_global"), PortNum: uint8(a.count("port", 1, 255)), HopLimit: uint8(a.count("hop_limit", 64, 255)),
		SGIDIndex: uint8(a.count("sgid_index", 0, 255)), TrafficClass: uint8(a.count("traffic_class", 0, 255)), FlowLabel: uint32(a.num("flow_label", 0, 0xfffff))}
	if to := a.str("to", ""); to != "" {
		n, err := in.node(to)
		if err != nil {
			return av, err
		}
		av.DGID = n.gid
	}
	if s := a.str("gid", ""); s != "" {
		g, err := ib.ParseGID(s)
		if err != nil {
			return av, err
		}
		av.DGID = g
	}
	return av, nil
}
