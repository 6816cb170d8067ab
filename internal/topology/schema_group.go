package topology

import (
	"net/netip"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// decodeNodes reads nodes and writes groups out.
func decodeNodes(d *decoder, v value, def nodeEntry, f *File) {
	entries := d.list(v, "a list of nodes")
	if v.node != nil && len(entries) == 0 && d.isSequence(v) {
		d.problem(v.path, "found an empty list; expected at least one node")
	}
	nodes := make([]nodeEntry, len(entries))
	for i, e := range entries {
		nodes[i] = def
		nodeObject.decode(d, e, &nodes[i])
	}
	d.scale(v.path, nodes)
	for i := range nodes {
		d.addGroup(f, i, &nodes[i])
	}
	d.checkNodes(f)
}

// scale lets the only group have as many nodes as make Options.Nodes in all.
func (d *decoder) scale(path string, nodes []nodeEntry) {
	if d.options.Nodes == 0 {
		return
	}
	group, single := -1, 0
	for i := range nodes {
		switch {
		case nodes[i].count == 0:
			single++
		case group >= 0:
			d.problem(path, "found more than one entry with a count; expected one, whose size the number of nodes that was asked for decides")
			return
		default:
			group = i
		}
	}
	switch {
	case group < 0:
		d.problem(path, "found no entry with a count; expected one, whose size the number of nodes that was asked for decides")
	case d.options.Nodes <= single || d.options.Nodes-single > mostNodes:
		d.problem(path, "found %d single nodes; expected a number of nodes from %d to %d, not %d", single, single+1, single+mostNodes, d.options.Nodes)
	default:
		nodes[group].count = d.options.Nodes - single
	}
}

// addGroup appends the nodes of an entry. A group that would pass the bound of the file
// is reported and left out.
func (d *decoder) addGroup(f *File, entry int, n *nodeEntry) {
	path := "nodes[" + strconv.Itoa(entry) + "]"
	count := max(n.count, 1)
	g := Group{Name: n.Name, Nodes: Span{len(f.Nodes), count}, Count: n.count > 0}
	if len(f.Nodes)+count > mostNodes {
		d.problem(path+".count", "found %d nodes in all; expected at most %d", len(f.Nodes)+count, mostNodes)
		g.Nodes.N, count = 1, 1
	}
	f.Groups = append(f.Groups, g)
	d.checkNetdev(path, &n.Node)
	address := n.Address
	for k := range count {
		one := n.Node
		if g.Count && n.Name != "" {
			one.Name = n.Name + "-" + strconv.Itoa(k+1)
		}
		if d.given(path + ".address") {
			one.Address = address
			address = netip.AddrPortFrom(address.Addr().Next(), address.Port())
		} else {
			one.Address = netip.AddrPortFrom(loopback(len(f.Nodes)), DefaultPort)
		}
		f.Nodes = append(f.Nodes, one)
	}
}

// checkNetdev gives a node on a network device what such a device decides.
func (d *decoder) checkNetdev(path string, n *Node) {
	if n.Netdev == "" {
		return
	}
	if d.given(path+".netdev") && d.given(path+".address") {
		d.problem(path+".address", "found an address beside the network device %q, whose addresses the node has; expected one or the other", n.Netdev)
	}
	if !d.given(path+".mtu") && !d.given("defaults.node.mtu") {
		n.MTU = ib.MTU4096 // as much as the device carries
	}
}

// entryPath is the path of the entry that a node comes from.
func (f *File) entryPath(node int) string {
	lo, hi := 0, len(f.Groups)
	for hi-lo > 1 {
		if mid := (lo + hi) / 2; f.Groups[mid].Nodes.First <= node {
			lo = mid
		} else {
			hi = mid
		}
	}
	return "nodes[" + strconv.Itoa(lo) + "]"
}

// checkNodes finds names and addresses used twice, and remembers the names.
func (d *decoder) checkNodes(f *File) {
	d.names = make(map[string]Span, len(f.Nodes)+len(f.Groups))
	lines := make(map[string]string, len(f.Nodes)) // of a name: the path that has it
	take := func(name, path string, s Span) bool {
		if name == "" {
			return true
		}
		if first, taken := lines[name]; taken {
			d.problem(path+".name", "found %q, the name of the node on line %d; expected a name of its own", name, d.positionOf(first).line)
			return false
		}
		lines[name], d.names[name] = path, s
		return true
	}
	for i := range f.Groups {
		g := &f.Groups[i]
		path := "nodes[" + strconv.Itoa(i) + "]"
		if !take(g.Name, path, g.Nodes) {
			continue
		}
		for k := g.Nodes.First; g.Count && k < g.Nodes.First+g.Nodes.N; k++ {
			if !take(f.Nodes[k].Name, path, One(k)) {
				break
			}
		}
	}
	d.checkAddresses(f)
}

func (d *decoder) checkAddresses(f *File) {
	addresses := make(map[netip.Addr]int, len(f.Nodes))
	reported := map[string]bool{}
	for i := range f.Nodes {
		n, path := &f.Nodes[i], f.entryPath(i)
		if !n.Address.IsValid() || reported[path] {
			continue
		}
		if j, taken := addresses[n.Address.Addr()]; taken {
			d.problem(path+".address", "found %s, the address of node %q; expected an address of its own: it is the node's GID", n.Address.Addr(), f.Nodes[j].Name)
			reported[path] = true
		} else {
			addresses[n.Address.Addr()] = i
		}
		if first := f.Nodes[0].Address; first.IsValid() && n.Address.Port() != first.Port() {
			d.problem(path+".address", "found port %d; expected %d, the port of node %q: packets go to one port on all nodes", n.Address.Port(), first.Port(), f.Nodes[0].Name)
			reported[path] = true
		}
	}
}

// loopback is the i-th address of 127.0.0.0/8, from 127.0.0.1. The mask keeps
// absurdly many nodes inside; they are then reported as duplicates.
func loopback(i int) netip.Addr {
	n := uint32(i+1) & 0xffffff
	return netip.AddrFrom4([4]byte{127, byte(n >> 16), byte(n >> 8), byte(n)})
}
