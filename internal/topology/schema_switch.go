package topology

import "strconv"

// switchEntry is an entry of switches while it is read.
type switchEntry struct {
	Link
	name     string
	count    int
	nodes    []string
	switches []string
	path     string
	paths    [2]string // of nodes and switches
}

var switchObject = object[switchEntry]{
	title: "switches",
	doc:   "A switch that stores and forwards, or `count` of them. It has a queue for each cable that leaves it; the keys of a link say how these cables are, and those to the switches that the entry names, in both directions. What they leave out is as in `network`, which also describes the way from a node to its switch. Between two nodes that `links` names lies a cable of their own and no switch. Packets take a shortest way; where there are several, one that addresses and UDP source port choose.",
	fields: append([]field[switchEntry]{
		{"name", "name", required, "How other switches refer to it.",
			put(name, func(s *switchEntry) *string { return &s.name })},
		{"count", "count", "one switch", "Makes so many, called `name-1` and so on. The nodes are dealt out in equal parts, in their order.",
			put(integer(1, mostSwitches), func(s *switchEntry) *int { return &s.count })},
		{"nodes", "list of node names", "none", "Nodes and groups that are plugged into it.",
			func(d *decoder, v value, s *switchEntry) { s.nodes, s.paths[0] = names(d, v), v.path }},
		{"switches", "list of switch names", "none", "Switches, of earlier entries, to each of which it has a trunk.",
			func(d *decoder, v value, s *switchEntry) { s.switches, s.paths[1] = names(d, v), v.path }},
	}, lift(linkFields, func(s *switchEntry) *Link { return &s.Link })...),
}

// mostSwitches bounds the switches of a file.
const mostSwitches = 4096

func names(d *decoder, v value) (list []string) {
	entries, _ := d.sequence(v, "a list of names")
	for _, e := range entries {
		n, _ := name(d, e)
		list = append(list, n)
	}
	return list
}

func decodeSwitches(d *decoder, v value, f *File) {
	known := map[string]Span{} // switches by name
	var order []string
	plugged := map[int]string{} // by node: the path that plugged it in
	for _, e := range d.list(v, "a list of switches") {
		s := switchEntry{Link: f.Network, path: e.path}
		s.Impairment = Impairment{}
		switchObject.decode(d, e, &s)
		d.checkQueue(e.path, &s.Link)
		group := Span{len(f.Switches), max(s.count, 1)}
		if group.First+group.N > mostSwitches {
			d.problem(e.path, "found %d switches in all; expected at most %d", group.First+group.N, mostSwitches)
			return
		}
		if _, taken := known[s.name]; taken && s.name != "" {
			d.problem(e.path+".name", "found %q, the name of a switch before it; expected a name of its own", s.name)
		}
		trunks := d.trunksOf(&s, known, order)
		nodes := d.pluggedInto(f, &s, plugged)
		for k := range group.N {
			one := Switch{Name: s.name, Port: s.Link, Switches: trunks}
			if s.count > 0 {
				one.Name += "-" + strconv.Itoa(k+1)
			}
			for _, n := range nodes {
				from, to := n.N*k/group.N, n.N*(k+1)/group.N
				if to > from {
					one.Nodes = append(one.Nodes, Span{n.First + from, to - from})
				}
			}
			f.Switches = append(f.Switches, one)
			known[one.Name] = One(group.First + k)
		}
		known[s.name] = group
		order = append(order, s.name)
	}
}

// trunksOf resolves the switches of an entry.
func (d *decoder) trunksOf(s *switchEntry, known map[string]Span, order []string) (trunks []int) {
	for i, n := range s.switches {
		t, ok := known[n]
		if !ok && n != "" {
			d.unknown(s.paths[1]+"["+strconv.Itoa(i)+"]", "switch", n, order)
		}
		for k := range t.N {
			trunks = append(trunks, t.First+k)
		}
	}
	return trunks
}

// pluggedInto resolves the nodes of an entry; a node has one switch at most.
func (d *decoder) pluggedInto(f *File, s *switchEntry, plugged map[int]string) (nodes []Span) {
	for i, n := range s.nodes {
		path := s.paths[0] + "[" + strconv.Itoa(i) + "]"
		span, ok := d.nodes(f, path, n)
		if !ok {
			continue
		}
		for k := span.First; k < span.First+span.N; k++ {
			if first, taken := plugged[k]; taken {
				d.problem(path, "found node %q, which %s plugged in already; expected each node once", f.Nodes[k].Name, first)
				break
			}
			plugged[k] = path
		}
		nodes = append(nodes, span)
	}
	return nodes
}

// checkTrunks reports traffic between nodes at switches that nothing joins, once for each
// entry.
func (d *decoder) checkTrunks(f *File) {
	if len(f.Switches) == 0 || len(d.problems) > 0 { // mistakes there may be why
		return
	}
	island := make([]int, len(f.Switches)) // of a switch: the lowest number that trunks lead to
	for i := range island {
		island[i] = i
	}
	root := func(i int) int {
		for island[i] != i {
			i = island[i]
		}
		return i
	}
	at := make([]int, len(f.Nodes)) // of a node: its switch
	for i := range at {
		at[i] = unset
	}
	for i := range f.Switches {
		for _, o := range f.Switches[i].Switches {
			a, b := root(i), root(o)
			island[max(a, b)] = min(a, b)
		}
		for _, s := range f.Switches[i].Nodes {
			for k := range s.N {
				at[s.First+k] = i
			}
		}
	}
	told := -1
	for i := range f.Flows {
		fl := &f.Flows[i]
		if fl.Entry == told || fl.From < 0 || fl.To < 0 {
			continue
		}
		from, to := at[fl.From], at[fl.To]
		if from < 0 || to < 0 || root(from) == root(to) || f.linked(fl.From, fl.To) && f.linked(fl.To, fl.From) {
			continue
		}
		told = fl.Entry
		d.problem("traffic["+strconv.Itoa(told)+"]", "found traffic from node %q at switch %q to node %q at switch %q, and no trunks lead from the one to the other; expected a way through the switches, or a link of their own",
			f.Nodes[fl.From].Name, f.Switches[from].Name, f.Nodes[fl.To].Name, f.Switches[to].Name)
	}
}
