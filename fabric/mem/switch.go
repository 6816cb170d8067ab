package mem

import (
	"fmt"
	"slices"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// SwitchIndex numbers the switches of a network from 0 in the order of AddSwitch.
type SwitchIndex int32

// NoSwitch is no switch's index: that of a node whose packets go straight to others.
const NoSwitch SwitchIndex = -1

// fabricSwitch stores and forwards: a packet that has arrived waits at the port that
// leads on, behind those that arrived before it.
type fabricSwitch struct {
	trunks []trunk
	// next[d] are the trunks on shortest ways to switch d; packets of one flow (both
	// addresses and the UDP source port) always take the same one.
	next [][]int32
}

// trunk is a cable to another switch.
type trunk struct {
	to   SwitchIndex
	port *egress
}

// AddSwitch adds a switch without ports.
func (n *Network) AddSwitch() SwitchIndex {
	n.switches = append(n.switches, fabricSwitch{})
	n.routed = false
	return SwitchIndex(len(n.switches) - 1)
}

// Plug connects a node to a switch. What the node sends reaches the switch by the
// node's own link; port is the switch's link to the node.
func (n *Network) Plug(i NodeIndex, s SwitchIndex, port LinkConfig) error {
	if err := n.check(i); err != nil {
		return err
	}
	if err := n.checkSwitch(s); err != nil {
		return err
	}
	if err := port.Validate(); err != nil {
		return fmt.Errorf("port to node %d: %w", i, err)
	}
	e := newEgress(n.shared(port), fabric.Mix(fabric.Mix(n.cfg.Seed, seedPort), uint64(i)))
	n.spots[i].in, n.spots[i].sw = &e, s
	if out := &n.nodes[i].out; out.place == noPlace {
		out.place = n.sched.addPlace()
	}
	return nil
}

// shared returns the configuration of the port that was plugged last if that is the same, so
// that a thousand equal ports do not fill the cache with theirs. Ports never change what they
// point to.
func (n *Network) shared(port LinkConfig) *LinkConfig {
	if n.port == nil || !n.port.equal(&port) {
		n.port = &port
	}
	return n.port
}

// Trunk connects two switches, in both directions alike.
func (n *Network) Trunk(a, b SwitchIndex, port LinkConfig) error {
	for _, s := range []SwitchIndex{a, b} {
		if err := n.checkSwitch(s); err != nil {
			return err
		}
	}
	if err := port.Validate(); err != nil {
		return fmt.Errorf("trunk from switch %d to %d: %w", a, b, err)
	}
	for _, d := range [][2]SwitchIndex{{a, b}, {b, a}} {
		from := &n.switches[d[0]]
		e := newEgress(&port, fabric.Mix(fabric.Mix(n.cfg.Seed, seedTrunk), uint64(d[0])<<32|uint64(len(from.trunks))))
		e.place = n.sched.addPlace()
		from.trunks = append(from.trunks, trunk{d[1], &e})
	}
	n.routed = false
	return nil
}

func (n *Network) checkSwitch(s SwitchIndex) error {
	if s < 0 || int(s) >= len(n.switches) {
		return fmt.Errorf("mem: there is no switch %d", s)
	}
	return nil
}

// Switches returns how many switches there are.
func (n *Network) Switches() int { return len(n.switches) }

// Connected reports whether packets find a way from node a to node b: by a link of their
// own, straight if one of them is at no switch, or from switch to switch.
func (n *Network) Connected(a, b NodeIndex) bool {
	if n.checkPair(a, b) != nil {
		return false
	}
	from, to := n.spots[a].sw, n.spots[b].sw
	if _, apart := n.linkAt[pair{a, b}]; apart || from == NoSwitch || to == NoSwitch {
		return true
	}
	n.route()
	return from == to || len(n.switches[from].next[to]) > 0
}

// route finds the shortest ways between all switches.
func (n *Network) route() {
	if n.routed {
		return
	}
	n.routed = true
	for i := range n.switches {
		n.switches[i].next = make([][]int32, len(n.switches))
	}
	dist := make([]int, len(n.switches))
	var queue []SwitchIndex
	for d := range n.switches {
		// Distances to d, breadth first; trunks go both ways.
		for i := range dist {
			dist[i] = -1
		}
		dist[d] = 0
		queue = append(queue[:0], SwitchIndex(d))
		for len(queue) > 0 {
			s := queue[0]
			queue = queue[1:]
			for _, t := range n.switches[s].trunks {
				if dist[t.to] < 0 {
					dist[t.to] = dist[s] + 1
					queue = append(queue, t.to)
				}
			}
		}
		for i := range n.switches {
			s := &n.switches[i]
			for k, t := range s.trunks {
				if dist[i] > 0 && dist[t.to] == dist[i]-1 {
					s.next[d] = append(s.next[d], int32(k))
				}
			}
		}
	}
}

// hop moves a packet that has arrived at a switch on, or loses it there.
func (n *Network) hop(f *Frame, now vtime.Time) {
	dst := &n.spots[f.To]
	out, next, ok := n.exit(f.sw, dst, &f.Path)
	if !ok {
		n.lose(f, fabric.LossUnreachable)
		return
	}
	place := dst.place
	if next != NoSwitch {
		place = out.place
	}
	if out.cfg.MTU != 0 && len(f.Packet.Payload) > out.cfg.MTU.Bytes() {
		n.lose(f, fabric.LossMTU)
		return
	}
	left, fits := out.serialise(now, int(f.Bytes)+wire.FrameOverheadBytes(f.Path.IsIPv4()), &f.Path)
	if !fits {
		n.lose(f, fabric.LossQueue)
		return
	}
	f.sw = next
	n.sched.push(place, event{at: out.arrive(left), seq: n.seq, slot: f.slot})
	n.seq++
}

// lose drops a packet on its way and counts it at its sender.
func (n *Network) lose(f *Frame, r fabric.LossReason) {
	n.nodes[f.From].count.Dropped[r]++
	f.state = framePopped
	n.Release(f)
}

// flowHash is equal for packets of one flow.
func flowHash(p *wire.Path) uint64 {
	h := uint64(p.SPort)
	for _, g := range [2]*ib.GID{&p.Src, &p.Dst} {
		for i := 0; i < len(g); i += 4 {
			h = h*0x9e3779b97f4a7c15 + uint64(g[i])<<24 + uint64(g[i+1])<<16 + uint64(g[i+2])<<8 + uint64(g[i+3])
		}
	}
	return fabric.Mix(h, 0)
}

// PortStats is what passed a port, and what did not.
type PortStats struct {
	Packets, Bytes uint64 // sent, as they are on the wire
	Dropped        uint64 // for want of room in the queue
	Marked         uint64 // with congestion experienced
	MaxQueueBytes  uint64 // the longest that the queue was when a packet came
}

// Port is a queue with a cable behind it, for reports.
type Port struct {
	// From and FromSwitch say whose port it is: of a node or of a switch. To or
	// ToSwitch is at the other end; both are none for a node's port to all others.
	From, To             NodeIndex
	FromSwitch, ToSwitch SwitchIndex
	Config               LinkConfig
	Stats                PortStats
	egress               *egress
}

// QueueBytes is how long the queue is at now.
func (p *Port) QueueBytes(now vtime.Time) uint64 { return p.egress.waiting(now) }

// Refresh reads the counters again.
func (p *Port) Refresh() { p.Stats = p.egress.stats }

// Ports returns every port: those of the nodes, of links set apart, and of the
// switches, in an order that depends on nothing but how the network was built.
func (n *Network) Ports() (ports []Port) {
	add := func(e *egress, p Port) {
		p.Config, p.Stats, p.egress = *e.cfg, e.stats, e
		ports = append(ports, p)
	}
	for i := range n.nodes {
		add(&n.nodes[i].out, Port{From: NodeIndex(i), To: NoNode, FromSwitch: NoSwitch, ToSwitch: n.spots[i].sw})
	}
	pairs := make([]pair, len(n.links))
	for p, i := range n.linkAt { //arch:sorted each entry goes to its own place
		pairs[i] = p
	}
	for i, e := range n.links {
		add(e, Port{From: pairs[i].from, To: pairs[i].to, FromSwitch: NoSwitch, ToSwitch: NoSwitch})
	}
	for i := range n.spots {
		if e := n.spots[i].in; e != nil {
			add(e, Port{From: NoNode, To: NodeIndex(i), FromSwitch: n.spots[i].sw, ToSwitch: NoSwitch})
		}
	}
	for i := range n.switches {
		for _, t := range n.switches[i].trunks {
			add(t.port, Port{From: NoNode, To: NoNode, FromSwitch: SwitchIndex(i), ToSwitch: t.to})
		}
	}
	return slices.Clip(ports)
}
