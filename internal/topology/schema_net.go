package topology

import (
	"net/netip"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// DefaultPort is the UDP port of RoCE v2.
const DefaultPort = 4791

// DefaultLimits are the limits of a node that sets none, near those of the kernel's
// software adapters.
func DefaultLimits() Limits {
	return Limits{MaxQP: 32768, MaxQPWR: 16383, MaxCQE: 1 << 20, MaxSGE: 32, MaxInline: 512, MaxRdAtomic: 16, MaxSRQWR: 131071}
}

// defaultNode is a node before its entry is read.
func defaultNode() Node {
	return Node{Profile: ProfileIBTA, MTU: ib.MTU1024, Limits: DefaultLimits()}
}

var nodeObject = object[Node]{
	title: "nodes",
	doc:   "One simulated machine with one RDMA adapter and one UDP socket.",
	fields: []field[Node]{
		{"name", "name", required, "How traffic, links and faults refer to the node.",
			put(name, func(n *Node) *string { return &n.Name })},
		{"address", "IP address", "127.0.0.1 for the first, then counting up", "IPv4 or IPv6 address, optionally with a UDP port (default 4791). It is the adapter's GID, so two nodes cannot share one. A port other than 4791 must be the same for all nodes.",
			put(address, func(n *Node) *netip.AddrPort { return &n.Address })},
		{"profile", "`ibta`, `rdmavt`, `rxe`", "ibta", "Whose choice the adapter follows where the standard and the kernel's software adapters differ.",
			put(oneOf("profile", ProfileIBTA, ProfileRDMAVT, ProfileRXE), func(n *Node) *Profile { return &n.Profile })},
		{"strict", "boolean", "false", "Reserved: refuse what the standard leaves undefined.",
			put(boolean, func(n *Node) *bool { return &n.Strict })},
		{"mtu", "256, 512, 1024, 2048, 4096", "1024", "Active MTU of the port in bytes of payload. 1024 is what Ethernet with an MTU of 1500 gives.",
			put(mtu, func(n *Node) *ib.MTU { return &n.MTU })},
		{"limits", "mapping", "see limits", "What the adapter reports and enforces.",
			func(d *decoder, v value, n *Node) { limitsObject.decode(d, v, &n.Limits) }},
	},
}

// mostInt bounds counts that become the size of something in memory.
const mostInt = 1 << 24

var limitsObject = object[Limits]{
	title: "limits",
	doc:   "The limits of an adapter, by their names in `ibv_query_device` and `ibv_create_qp`.",
	fields: []field[Limits]{
		{"max_qp", "count", "32768", "Queue pairs.", put(integer(1, mostInt), func(l *Limits) *int { return &l.MaxQP })},
		{"max_qp_wr", "count", "16383", "Work requests per send queue and per receive queue.", put(integer(1, mostInt), func(l *Limits) *int { return &l.MaxQPWR })},
		{"max_cqe", "count", "1048576", "Entries per completion queue.", put(integer(1, mostInt), func(l *Limits) *int { return &l.MaxCQE })},
		{"max_sge", "count", "32", "Scatter/gather entries per work request.", put(integer(1, 1024), func(l *Limits) *int { return &l.MaxSGE })},
		{"max_inline", "bytes", "512", "Longest inline message.", put(integer(0, 1<<16), func(l *Limits) *int { return &l.MaxInline })},
		{"max_rd_atomic", "count", "16", "READs and atomics outstanding per queue pair, in either direction.", put(integer(0, 255), func(l *Limits) *int { return &l.MaxRdAtomic })},
		{"max_srq_wr", "count", "131071", "Work requests per shared receive queue; 0: no shared receive queues.", put(integer(0, mostInt), func(l *Limits) *int { return &l.MaxSRQWR })},
	},
}

// linkFields are the keys that network and links share.
var linkFields = []field[Link]{
	{"latency", "duration", "0s", "Time on the way, without the time that bandwidth takes.",
		put(duration, func(l *Link) *time.Duration { return &l.Latency })},
	{"jitter", "duration", "0s", "Each packet takes up to this much longer, drawn evenly.",
		put(duration, func(l *Link) *time.Duration { return &l.Jitter })},
	{"bandwidth", "rate", "unlimited", "Bits of whole packets per second.",
		put(rate, func(l *Link) *Rate { return &l.Bandwidth })},
	{"queue", "size", "unlimited", "Bytes that may wait for bandwidth; a packet that finds no room is lost.",
		put(sizeOrUnlimited, func(l *Link) *int64 { return &l.Queue })},
}

// impaired adapts the keys of an impairment to what contains it.
func impaired[T any](dst func(*T) *Impairment) []field[T] {
	p := func(get func(*Impairment) *float64) func(*decoder, value, *T) {
		return put(probability, func(t *T) *float64 { return get(dst(t)) })
	}
	return []field[T]{
		{"loss", "probability", "0", "A packet is lost.", p(func(i *Impairment) *float64 { return &i.Loss })},
		{"duplicate", "probability", "0", "A packet arrives twice.", p(func(i *Impairment) *float64 { return &i.Duplicate })},
		{"reorder", "probability", "0", "A packet is held back by `reorder_delay`, so that later ones overtake it.", p(func(i *Impairment) *float64 { return &i.Reorder })},
		{"reorder_delay", "duration", "100us", "How long a reordered packet is held back.", put(positiveDuration, func(t *T) *time.Duration { return &dst(t).ReorderDelay })},
		{"corrupt", "probability", "0", "One bit of a packet is flipped. The receiver sees a wrong ICRC and drops it.", p(func(i *Impairment) *float64 { return &i.Corrupt })},
		{"rules", "list of rules", "none", "What happens to single packets. The rules come before the probabilities; the first that matches a packet decides.", func(d *decoder, v value, t *T) { dst(t).Rules = decodeRules(d, v) }},
	}
}

const defaultReorderDelay = 100 * time.Microsecond

var networkObject = object[Link]{
	title:  "network",
	doc:    "The network between every pair of nodes that `links` does not name. On sockets, latency and bandwidth come on top of what the real network takes.",
	fields: append(append([]field[Link]{}, linkFields...), impaired(func(l *Link) *Impairment { return &l.Impairment })...),
}

// linkEntry is an entry of links while it is read.
type linkEntry struct {
	Link
	pairNames
}

// pairNames is a selector of node pairs by name.
type pairNames struct {
	between  []string
	from, to string
}

var linkObject = object[linkEntry]{
	title: "links",
	doc:   "Pairs of nodes whose network differs. It has every key of `network`, and what it leaves out is as in `network`. Either `between`, or `from` and `to`, says which pair.",
	fields: append(append(pairFields(func(l *linkEntry) *pairNames { return &l.pairNames }),
		lift(linkFields, func(l *linkEntry) *Link { return &l.Link })...),
		impaired(func(l *linkEntry) *Impairment { return &l.Impairment })...),
}

// lift makes the keys of an inner struct keys of the one that contains it.
func lift[T, U any](fields []field[U], dst func(*T) *U) []field[T] {
	out := make([]field[T], len(fields))
	for i, f := range fields {
		out[i] = field[T]{f.key, f.typ, f.def, f.doc, func(d *decoder, v value, t *T) { f.read(d, v, dst(t)) }}
	}
	return out
}

func pairFields[T any](dst func(*T) *pairNames) []field[T] {
	return []field[T]{
		{"between", "list of two node names", "none", "Both directions between two nodes.", put(twoNames, func(t *T) *[]string { return &dst(t).between })},
		{"from", "node name", "none", "Where one direction starts.", put(name, func(t *T) *string { return &dst(t).from })},
		{"to", "node name", "none", "Where it ends.", put(name, func(t *T) *string { return &dst(t).to })},
	}
}

func twoNames(d *decoder, v value) ([]string, bool) {
	const wanted = "a list of two node names such as [n1, n2]"
	entries, ok := d.sequence(v, wanted)
	if !ok {
		return nil, false
	}
	if len(entries) != 2 {
		d.problem(v.path, "found a list of %d; expected %s", len(entries), wanted)
		return nil, false
	}
	a, ok1 := name(d, entries[0])
	b, ok2 := name(d, entries[1])
	return []string{a, b}, ok1 && ok2
}

// resolvePair turns the names of a selector into indices. If all is true a selector
// without names means every pair.
func (d *decoder) resolvePair(f *File, path string, p pairNames, all bool) (Pair, bool) {
	has := func(key string) bool { return d.given(path + "." + key) }
	switch {
	case has("between") && (has("from") || has("to")):
		d.problem(path+".between", `found "between" beside "from" or "to"; expected one or the other`)
		return Pair{}, false
	case has("from") != has("to"):
		d.problem(path, `found only one of "from" and "to"; expected both, or "between"`)
		return Pair{}, false
	case !has("between") && !has("from"):
		if !all {
			d.problem(path, `found no nodes; expected "between: [a, b]", or "from" and "to"`)
		}
		return Pair{All: true}, all
	case has("between"):
		if len(p.between) != 2 {
			return Pair{}, false // already reported
		}
		from, ok1 := d.node(f, path+".between[0]", p.between[0])
		to, ok2 := d.node(f, path+".between[1]", p.between[1])
		return Pair{From: from, To: to, Both: true}, ok1 && ok2
	}
	from, ok1 := d.node(f, path+".from", p.from)
	to, ok2 := d.node(f, path+".to", p.to)
	return Pair{From: from, To: to}, ok1 && ok2
}

// node finds the index of a node. An empty name has been reported already.
func (d *decoder) node(f *File, path, name string) (int, bool) {
	if name == "" {
		return 0, false
	}
	if i := f.NodeIndex(name); i >= 0 {
		return i, true
	}
	d.unknown(path, "node", name, f.nodeNames())
	return 0, false
}

// nodeNames lists the names for messages; of very many only the first.
func (f *File) nodeNames() []string {
	var names []string
	for i := range f.Nodes {
		if f.Nodes[i].Name != "" {
			names = append(names, f.Nodes[i].Name)
		}
	}
	return names
}

var ruleObject = object[Rule]{
	title: "rules",
	doc:   "Picks single packets of a link. Every packet that has the rule's `opcode` and `psn`, where given, counts, from 1, per direction. The rule acts from the `nth` on, `count` times.",
	fields: []field[Rule]{
		{"action", "`drop`, `duplicate`, `corrupt`, `delay`", required, "What happens to the packet.",
			put(oneOf("action", RuleDrop, RuleDuplicate, RuleCorrupt, RuleDelay), func(r *Rule) *RuleAction { return &r.Action })},
		{"opcode", "packet opcode", "any", "Such as SEND_ONLY, READ_RESP_FIRST, ACKNOWLEDGE, UC_WRITE_LAST, UD_SEND_ONLY: the names that traces print.",
			func(d *decoder, v value, r *Rule) { r.Opcode, r.HasOpcode = packetOpcode(d, v) }},
		{"psn", "number", "any", "Packet sequence number, 24 bits. The flow's `psn` says where its numbers start.",
			func(d *decoder, v value, r *Rule) { r.PSN, r.HasPSN = psnValue(d, v) }},
		{"nth", "count", "1", "The first matching packet that the rule acts on.",
			put(integer[uint64](1, 1<<62), func(r *Rule) *uint64 { return &r.Nth })},
		{"every", "count", "1", "After that, each how-many-th matching packet.",
			put(integer[uint64](1, 1<<62), func(r *Rule) *uint64 { return &r.Every })},
		{"count", "count", "1", "How often the rule acts at most; 0: without end.",
			put(integer[uint64](0, 1<<62), func(r *Rule) *uint64 { return &r.Count })},
		{"delay", "duration", "none", "For the action `delay`: how long the packet is held back.",
			put(positiveDuration, func(r *Rule) *time.Duration { return &r.Delay })},
	},
}

var psnValue = integer[ib.PSN](0, ib.PSNMask)

func decodeRules(d *decoder, v value) []Rule {
	entries, _ := d.sequence(v, "a list of rules")
	rules := make([]Rule, len(entries))
	for i, e := range entries {
		rules[i] = Rule{Nth: 1, Every: 1, Count: 1}
		ruleObject.decode(d, e, &rules[i])
		delay := d.given(e.path + ".delay")
		switch {
		case rules[i].Action == RuleDelay && !delay:
			d.problem(e.path, `key "delay" is missing; action delay needs it`)
		case rules[i].Action != RuleDelay && rules[i].Action != "" && delay:
			d.problem(e.path+".delay", "found a delay on action %s; expected it on action delay only", rules[i].Action)
		}
	}
	return rules
}
