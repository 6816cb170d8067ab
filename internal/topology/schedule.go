package topology

import (
	"slices"
	"strconv"
	"strings"
)

// Live returns the schedule of the file for a network that runs programs of others, in
// order of time. What happens to an end of a flow happens to the queue pairs that programs
// have at the node of that end; qp counts these then.
func (f *File) Live() []LiveFault {
	var list []LiveFault
	for _, x := range f.Schedule() {
		if x.Flows.N == 0 || !actionOf(x.Action).atEnds() {
			list = append(list, LiveFault{Fault: x})
			continue
		}
		var nodes []int
		f.Ends(&x, func(flow int, receiver bool) {
			node := f.Flows[flow].From
			if receiver {
				node = f.Flows[flow].To
			}
			if !slices.Contains(nodes, node) {
				nodes = append(nodes, node)
			}
		})
		for _, n := range nodes {
			one := x
			one.Flows, one.Nodes = Span{}, One(n)
			list = append(list, LiveFault{Fault: one})
		}
	}
	return list
}

// scheduleEntry is a schedule while it is read.
type scheduleEntry struct {
	File
	faults value
}

// scheduleObject has the keys of a file that says nothing of the network.
var scheduleObject = object[scheduleEntry]{
	title: "a schedule",
	fields: func() (list []field[scheduleEntry]) {
		for _, f := range fileObject.fields {
			switch f.key {
			case "version", "name", "seed", "random_faults":
				list = append(list, field[scheduleEntry]{f.key, f.typ, f.def, f.doc, func(d *decoder, v value, e *scheduleEntry) {
					whole := fileEntry{File: e.File}
					f.read(d, v, &whole)
					e.File = whole.File
				}})
			case "faults":
				list = append(list, field[scheduleEntry]{f.key, f.typ, f.def, f.doc, func(_ *decoder, v value, e *scheduleEntry) { e.faults = v }})
			}
		}
		return list
	}(),
}

// ParseSchedule reads what shall go wrong in a running network whose nodes are those of
// running: the faults and random_faults of a topology file, or of a file with nothing else
// than these, version, name and seed. The nodes of a whole topology file must be there
// under the same names; the rest of it is left out. The faults are in order of time. The
// error is [Problems].
func ParseSchedule(running *File, name string, b []byte) ([]LiveFault, error) {
	d, root, err := open(name, b, Options{Live: true})
	if err != nil {
		return nil, err
	}
	var list []LiveFault
	if d.hasKey(root, "nodes") {
		f := decodeFile(d, root)
		move := d.sameNodes(f, running)
		if len(d.problems) == 0 {
			list = f.Plain().Live()
			for i := range list {
				list[i].Fault = list[i].moved(move)
				d.sameSwitch(&list[i].Fault, f, running)
			}
		}
	} else {
		e := scheduleEntry{File: File{Nodes: running.Nodes, Groups: running.Groups, Flows: running.Flows, Entries: running.Entries, Links: running.Links, Switches: running.Switches, Network: running.Network, Seed: 1, Timeout: DefaultTimeout}}
		d.names = namesOf(running)
		d.flows = map[string]Span{}
		for _, en := range running.Entries {
			d.flows[en.Name] = en.Flows
		}
		scheduleObject.decode(d, root, &e)
		decodeFaults(d, e.faults, &e.File)
		d.checkRandomFaults(&e.File)
		if len(d.problems) == 0 {
			list = e.File.Live()
		}
	}
	if len(d.problems) > 0 {
		return nil, d.problems.placed(b)
	}
	return list, nil
}

// hasKey looks at a mapping without reading it.
func (d *decoder) hasKey(v value, key string) bool {
	if !d.isMapping(v) {
		return false
	}
	entries, _ := d.mapping(v, "")
	return slices.ContainsFunc(entries, func(e entry) bool { return e.key == key })
}

// namesOf are the nodes and groups of a file by name.
func namesOf(f *File) map[string]Span {
	names := map[string]Span{}
	for _, g := range f.Groups {
		names[g.Name] = g.Nodes
		for k := g.Nodes.First; k < g.Nodes.First+g.Nodes.N; k++ {
			names[f.Nodes[k].Name] = One(k)
		}
	}
	return names
}

// sameNodes finds the nodes of f in the running network, and reports those that are not
// there.
func (d *decoder) sameNodes(f, running *File) func(i int) int {
	at := map[string]int{}
	var known []string
	for i := range running.Nodes {
		at[running.Nodes[i].Name] = i
		known = append(known, running.Nodes[i].Name)
	}
	for g := range f.Groups {
		for k := f.Groups[g].Nodes.First; k < f.Groups[g].Nodes.First+f.Groups[g].Nodes.N; k++ {
			if _, ok := at[f.Nodes[k].Name]; !ok && f.Nodes[k].Name != "" {
				d.problem(joinPath("nodes["+strconv.Itoa(g)+"]", "name"), "found node %q, which the network that runs does not have; expected %s", f.Nodes[k].Name, strings.Join(known, ", "))
				break
			}
		}
	}
	return func(i int) int { return at[f.Nodes[i].Name] }
}

// sameSwitch finds the switch of a fault of f in the running network, and reports it if it
// is not there.
func (d *decoder) sameSwitch(x *Fault, f, running *File) {
	if x.Switches.N == 0 {
		return
	}
	name := f.Switches[x.Switches.First].Name
	i := slices.IndexFunc(running.Switches, func(s Switch) bool { return s.Name == name })
	if i < 0 {
		d.problem("switches", "found switch %q, which the network that runs does not have", name)
		return
	}
	x.Switches.First = i
}

// moved is the fault where node i has another number. It is about single nodes.
func (x Fault) moved(number func(i int) int) Fault {
	for _, s := range []*Span{&x.Nodes, &x.Pair.From, &x.Pair.To} {
		if s.N > 0 {
			s.First = number(s.First)
		}
	}
	return x
}
