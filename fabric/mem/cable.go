package mem

import "fmt"

// cable replaces everything of a port's configuration but its impairment, whose random
// streams and counts go on. Frames that wait keep the time that they were given.
func (e *egress) cable(cfg *LinkConfig) {
	own := *cfg
	own.Impairment = e.cfg.Impairment
	e.cfg = &own
}

// SetCable changes the link from a to b, that direction only, from the next packet on:
// all of cfg counts but its impairment. A pair that was not set apart is from then on.
func (n *Network) SetCable(a, b NodeIndex, cfg LinkConfig) error {
	if err := n.checkPair(a, b); err != nil {
		return err
	}
	if _, apart := n.linkAt[pair{a, b}]; !apart {
		cfg.Impairment = n.cfg.Default.Impairment
		return n.SetLink(a, b, cfg)
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("link %d to %d: %w", a, b, err)
	}
	n.egress(a, b).cable(&cfg)
	return nil
}

// SetCables changes all links between nodes and from nodes to switches, those that were
// set apart too. What comes out of switches stays.
func (n *Network) SetCables(cfg LinkConfig) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("links: %w", err)
	}
	cfg.Impairment = n.cfg.Default.Impairment
	n.cfg.Default = cfg
	for i := range n.nodes {
		n.nodes[i].out.cable(&cfg)
	}
	for _, e := range n.links {
		e.cable(&cfg)
	}
	return nil
}

// SetPorts changes all cables of a switch: to its nodes, and to and from the switches that
// have a trunk to it.
func (n *Network) SetPorts(s SwitchIndex, cfg LinkConfig) error {
	if err := n.checkSwitch(s); err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("ports of switch %d: %w", s, err)
	}
	for i := range n.nodes {
		if n.spots[i].sw == s {
			n.spots[i].in.cable(&cfg)
		}
	}
	for i := range n.switches {
		for _, t := range n.switches[i].trunks {
			if SwitchIndex(i) == s || t.to == s {
				t.port.cable(&cfg)
			}
		}
	}
	return nil
}

// Instant reports whether packets from a to b take no time, wait in no queue and are never
// too long, whatever their impairment does to them.
func (n *Network) Instant(a, b NodeIndex) bool {
	if n.checkPair(a, b) != nil {
		return true
	}
	e := n.egress(a, b)
	if e == &n.nodes[a].out && n.spots[a].sw != NoSwitch && n.spots[b].sw != NoSwitch {
		return false
	}
	c := e.cfg
	return c.Latency == 0 && c.Jitter == 0 && c.BandwidthBitsPerSecond == 0 && c.MTU == 0
}
