package topology

import (
	"strconv"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Version is the schema version that this package reads.
const Version = 1

// DefaultTimeout bounds a run that sets no timeout.
const DefaultTimeout = 30 * time.Second

// fileEntry is a file while it is read. Names are looked up only when all of it has
// been read, so that sections may come in any order.
type fileEntry struct {
	File
	defaults value // zero node if absent
	nodes    value
	links    value
	switches value
	traffic  value
	faults   value
}

var fileObject = object[fileEntry]{
	title: "the file",
	doc:   "The outermost mapping.",
	fields: []field[fileEntry]{
		{"version", "1", required, "Version of the schema.", readVersion},
		{"name", "name", "the file's name without extension", "Name of the run in the report.",
			put(name, func(f *fileEntry) *string { return &f.Name })},
		{"seed", "number", "1", "All randomness comes from it: keys, PSNs, sizes, mixes, losses. The command line can override it.",
			put(integer[uint64](0, 1<<64-1), func(f *fileEntry) *uint64 { return &f.Seed })},
		{"duration", "duration", "no limit", "Flows post nothing after this time.",
			put(positiveDuration, func(f *fileEntry) *time.Duration { return &f.Duration })},
		{"timeout", "duration", "30s", "The run has failed if it is not done by then.",
			put(positiveDuration, func(f *fileEntry) *time.Duration { return &f.Timeout })},
		{"defaults", "mapping", "none", "Keys that several nodes or flows share.", func(_ *decoder, v value, f *fileEntry) { f.defaults = v }},
		{"nodes", "list", required, "The machines, and groups of machines.", func(_ *decoder, v value, f *fileEntry) { f.nodes = v }},
		{"network", "mapping", "perfect", "The network between all nodes.", func(d *decoder, v value, f *fileEntry) { networkObject.decode(d, v, &f.File) }},
		{"links", "list", "none", "Pairs of nodes whose network differs.", func(_ *decoder, v value, f *fileEntry) { f.links = v }},
		{"switches", "list", "none", "Switches between the nodes.", func(_ *decoder, v value, f *fileEntry) { f.switches = v }},
		{"traffic", "list", "none", "The flows, and patterns of flows.", func(_ *decoder, v value, f *fileEntry) { f.traffic = v }},
		{"faults", "list", "none", "What goes wrong, and when.", func(_ *decoder, v value, f *fileEntry) { f.faults = v }},
		{"random_faults", "mapping", "none", "Faults that are drawn from the seed.", func(d *decoder, v value, f *fileEntry) { decodeRandomFaults(d, v, &f.Random) }},
		{"expect", "mapping", "each flow's", "What the run as a whole must show.", func(d *decoder, v value, f *fileEntry) { runExpectObject.decode(d, v, &f.Expect) }},
	},
}

func readVersion(d *decoder, v value, _ *fileEntry) {
	s, ok := d.text(v)
	if n, number := parseUint(s); !ok || !number || n != Version {
		d.mismatch(v, "1, the version of the schema that this program reads")
	}
}

// defaultsEntry is what defaults hold while they are read.
type defaultsEntry struct {
	node nodeEntry
	flow flowEntry
}

var defaultsObject = object[defaultsEntry]{
	title: "defaults",
	doc:   "What nodes and flows have unless their own entry says otherwise.",
	fields: []field[defaultsEntry]{
		{"node", "mapping", "none", "Every key of a node but `name`, `address` and `count`.",
			func(d *decoder, v value, t *defaultsEntry) {
				without(nodeObject, "name", "address", "count").decode(d, v, &t.node)
			}},
		{"flow", "mapping", "none", "Every key of a flow but `name`.",
			func(d *decoder, v value, t *defaultsEntry) { without(flowObject, "name").decode(d, v, &t.flow) }},
	},
}

// without is o without some keys, and with the others optional.
func without[T any](o object[T], keys ...string) *object[T] {
	out := object[T]{title: o.title, doc: o.doc}
next:
	for _, f := range o.fields {
		for _, k := range keys {
			if f.key == k {
				continue next
			}
		}
		if f.def == required {
			f.def = "none"
		}
		out.fields = append(out.fields, f)
	}
	return &out
}

// decodeFile reads the whole file into one File.
func decodeFile(d *decoder, root value) *File {
	e := &fileEntry{File: File{Path: d.file, Seed: 1, Timeout: DefaultTimeout, Form: FormBridge}}
	e.Network = Link{Pair: Pair{All: true}, Impairment: Impairment{ReorderDelay: defaultReorderDelay}}
	e.Expect = RunExpect{Expect: Expect{AllComplete: true, DataOK: true}}
	fileObject.decode(d, root, e)
	d.checkQueue("network", &e.Network)

	def := defaultsEntry{nodeEntry{Node: defaultNode()}, flowEntry{Flow: defaultFlow()}}
	if e.defaults.node != nil {
		defaultsObject.decode(d, e.defaults, &def)
		d.oneOfOpAndMix("defaults.flow")
	}
	f := &e.File
	decodeNodes(d, e.nodes, def.node, f)
	decodeLinks(d, e.links, f)
	decodeSwitches(d, e.switches, f)
	decodeFlows(d, e.traffic, def.flow, f)
	decodeFaults(d, e.faults, f)
	d.checkRandomFaults(f)
	d.checkFile(f)
	return f.WithSeed(f.Seed)
}

// list is d.sequence for a section that may be absent.
func (d *decoder) list(v value, expected string) []value {
	if v.node == nil {
		return nil
	}
	entries, _ := d.sequence(v, expected)
	return entries
}

func decodeLinks(d *decoder, v value, f *File) {
	var seen []linkPlace
	for _, e := range d.list(v, "a list of links") {
		l := linkEntry{Link: f.Network}
		linkObject.decode(d, e, &l)
		d.checkQueue(e.path, &l.Link)
		pair, ok := d.resolvePair(f, e.path, l.pairNames, false)
		if !ok {
			continue
		}
		l.Pair = pair
		f.Links = append(f.Links, l.Link)
		seen = d.checkLink(f, e.path, pair, seen)
	}
}

// flowReader requires no key: defaults.flow may stand in. finishFlow reports what
// neither has.
var flowReader = without(flowObject)

// oneOfOpAndMix refuses both in one mapping. (An entry's own op or mix replaces
// either of the defaults.)
func (d *decoder) oneOfOpAndMix(path string) {
	if d.given(path+".op") && d.given(path+".mix") {
		d.problem(path+".mix", `found "mix" beside "op"; expected one or the other`)
	}
}

// defaultFlowName is such as "rc-send-1": unique by its number.
func defaultFlowName(fl *Flow, index int) string {
	op := "mix"
	if len(fl.Ops) == 1 {
		op = string(fl.Ops[0].Op)
	}
	transport := map[ib.QPType]string{ib.QPTypeRC: "rc", ib.QPTypeUC: "uc", ib.QPTypeUD: "ud"}[fl.Transport]
	return transport + "-" + op + "-" + strconv.Itoa(index+1)
}
