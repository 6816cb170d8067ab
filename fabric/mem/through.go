package mem

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Through moves a packet that this network does not carry one stage further from one node
// to another: [fabric.Departing] is the sender's own link, the other stages are switches.
// The packet takes its place in the queue there as one that was sent does. See
// [fabric.Way.Step], whose arguments and results these are; impairments are left out.
//
// Packets that come late to a stage, because their host was late, find its queue as it is
// by then.
func (n *Network) Through(now vtime.Time, s fabric.Stage, from, to NodeIndex, bytes, payload int, path *wire.Path) (fabric.Stage, vtime.Time, fabric.LossReason, bool) {
	if n.checkPair(from, to) != nil {
		return fabric.Arrived, now, fabric.LossUnreachable, false
	}
	src, dst := &n.spots[from], &n.spots[to]
	out, next := n.egress(from, to), NoSwitch
	switch {
	case s == fabric.Departing:
		if src.sw != NoSwitch && dst.sw != NoSwitch && out == &n.nodes[from].out {
			n.route()
			next = src.sw
		}
	case n.checkSwitch(SwitchIndex(s)) != nil:
		return fabric.Arrived, now, fabric.LossUnreachable, false
	default:
		n.route()
		var ok bool
		if out, next, ok = n.exit(SwitchIndex(s), dst, path); !ok {
			return fabric.Arrived, now, fabric.LossUnreachable, false
		}
	}
	if out.cfg.MTU != 0 && payload > out.cfg.MTU.Bytes() {
		return fabric.Arrived, now, fabric.LossMTU, false
	}
	left, fits := out.serialise(now, bytes+wire.FrameOverheadBytes(path.IsIPv4()), path)
	if !fits {
		return fabric.Arrived, now, fabric.LossQueue, false
	}
	at := out.arrive(left)
	if next == NoSwitch {
		return fabric.Arrived, at, fabric.LossNone, true
	}
	return fabric.Stage(next), at, fabric.LossNone, true
}

// exit is the port of a switch that leads on to a node, and the switch behind it.
func (n *Network) exit(at SwitchIndex, dst *spot, path *wire.Path) (port *egress, next SwitchIndex, ok bool) {
	if dst.sw == at {
		return dst.in, NoSwitch, true
	}
	s := &n.switches[at]
	if dst.sw == NoSwitch {
		return nil, NoSwitch, false
	}
	ways := s.next[dst.sw]
	if len(ways) == 0 {
		return nil, NoSwitch, false
	}
	t := &s.trunks[ways[flowHash(path)%uint64(len(ways))]]
	return t.port, t.to, true
}
