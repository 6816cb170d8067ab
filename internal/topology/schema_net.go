package topology

import (
	"net/netip"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/strict"
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

// nodeEntry is an entry of nodes while it is read.
type nodeEntry struct {
	Node
	count int // 0 if it was not given
}

var nodeObject = object[nodeEntry]{
	title: "nodes",
	doc:   "One simulated machine with one RDMA adapter and one UDP socket, or `count` of them that are alike.",
	fields: append([]field[nodeEntry]{
		{"count", "count", "one node", "Makes so many nodes, called `name-1`, `name-2` and so on; `address` is that of the first, the others count up. Where a node is asked for, `name` stands for all of them if several will do.",
			put(integer(1, mostNodes), func(n *nodeEntry) *int { return &n.count })},
	}, lift(nodeFields, func(n *nodeEntry) *Node { return &n.Node })...),
}

// mostNodes bounds the nodes of a file.
const mostNodes = 1 << 20

var nodeFields = []field[Node]{
	{"name", "name", required, "How traffic, links and faults refer to the node.",
		put(name, func(n *Node) *string { return &n.Name })},
	{"address", "IP address", "127.0.0.1 for the first, then counting up", "IPv4 or IPv6 address, optionally with a UDP port (default 4791). It is the adapter's GID, so two nodes cannot share one. A port other than 4791 must be the same for all nodes.",
		put(address, func(n *Node) *netip.AddrPort { return &n.Address })},
	{"netdev", "name of a network device", "none", "For `up`, in place of `address`: the node has the device's addresses as its GIDs, its MTU and its link state, and follows them. `netns up` calls the node's device by this name. `run` and `sim` do not use it.",
		put(netdevName, func(n *Node) *string { return &n.Netdev })},
	{"profile", "`ibta`, `rdmavt`, `rxe`", "ibta", "Whose choice the adapter follows where the standard and the kernel's software adapters differ.",
		put(oneOf("profile", ProfileIBTA, ProfileRDMAVT, ProfileRXE), func(n *Node) *Profile { return &n.Profile })},
	{"strict", "boolean or list of checks", "false", "[Strict mode](strict.md): the adapter keeps the rules that hardware keeps and reports misuse by the programs of the node. `true` turns every check on; a list only those it names: " + checkList() + ".",
		put(strictChecks, func(n *Node) *strict.Checks { return &n.Strict })},
	{"mtu", "256, 512, 1024, 2048, 4096", "1024", "Active MTU of the port in bytes of payload. 1024 is what Ethernet with an MTU of 1500 gives.",
		put(mtu, func(n *Node) *ib.MTU { return &n.MTU })},
	{"distinct_keys", "boolean", "false", "Remote keys differ from local keys, as on many adapters. By default they are equal.",
		put(boolean, func(n *Node) *bool { return &n.DistinctKeys })},
	{"dcqcn", "boolean or mapping", "false", "Congestion control: the queue pairs of the node slow down when the network marks their packets, and tell their peers of marked ones. `true` is all defaults of [dcqcn](#dcqcn).",
		func(d *decoder, v value, n *Node) { n.DCQCN = decodeDCQCN(d, v, n.DCQCN) }},
	{"limits", "mapping", "see limits", "What the adapter reports and enforces.",
		func(d *decoder, v value, n *Node) { limitsObject.decode(d, v, &n.Limits) }},
}

func checkList() string { return "`" + strings.Join(strict.CheckNames(), "`, `") + "`" }

// strictChecks reads true, false, or a list of names.
func strictChecks(d *decoder, v value) (c strict.Checks, ok bool) {
	if !d.isSequence(v) {
		on, ok := scalar("true, false or a list of checks", func(s string) (bool, bool) { return s == "true", s == "true" || s == "false" })(d, v)
		if on {
			c = strict.All()
		}
		return c, ok
	}
	ok = true
	items, _ := d.sequence(v, "a list of checks")
	for _, item := range items {
		name, isText := d.text(item)
		switch {
		case !isText:
			d.mismatch(item, "the name of a check")
			ok = false
		case !c.Enable(name):
			d.unknown(item.path, "check", name, strict.CheckNames())
			ok = false
		}
	}
	return c, ok
}

// netdevName reads the name of a network device (IFNAMSIZ).
func netdevName(d *decoder, v value) (string, bool) {
	s, ok := name(d, v)
	if ok && len(s) > 15 {
		d.mismatch(v, "the name of a network device, up to 15 characters")
		return "", false
	}
	return s, ok
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
		{"max_res_rd_atomic", "count", "0", "READs and atomics at a time as responder, of all queue pairs of the node together; 0: no such limit. Queue pairs beyond it do not reach RTR.", put(integer(0, mostInt), func(l *Limits) *int { return &l.MaxResRdAtomic })},
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
	{"mtu", "256, 512, 1024, 2048, 4096", "any", "Largest payload that passes; a longer packet is lost.",
		put(mtu, func(l *Link) *ib.MTU { return &l.MTU })},
	{"ecn", "mapping", "no marks", "When the queue marks packets.",
		func(d *decoder, v value, l *Link) { decodeECN(d, v, &l.ECN) }},
}

var ecnObject = object[ECN]{
	title: "ecn",
	doc:   "A queue marks packets as having met congestion: none while fewer than `min` bytes wait, then by a chance that rises to `probability` at `max`, and all above. Only packets whose sender allows it are marked: data of nodes with `dcqcn`, and what programs send with ECN bits in their traffic class. The report counts the marks.",
	fields: []field[ECN]{
		{"min", "size", required, "Bytes that wait before any packet is marked.", put(size, func(e *ECN) *int64 { return &e.Min })},
		{"max", "size", required, "Bytes that wait when all packets are marked.", put(size, func(e *ECN) *int64 { return &e.Max })},
		{"probability", "probability", "100%", "Chance of a mark just below `max`.", put(probability, func(e *ECN) *float64 { return &e.Probability })},
	},
}

func decodeECN(d *decoder, v value, e *ECN) {
	*e = ECN{Probability: 1}
	ecnObject.decode(d, v, e)
	if e.Max < e.Min || e.Max == 0 {
		if d.given(v.path+".max") && d.given(v.path+".min") {
			d.problem(v.path+".max", "found %d; expected at least %d, the min, and more than 0", e.Max, e.Min)
		}
		*e = ECN{}
	}
}

// checkQueue reports a queue that nothing can wait in.
func (d *decoder) checkQueue(path string, l *Link) {
	for _, key := range []string{"queue", "ecn"} {
		if has := key == "queue" && l.Queue > 0 || key == "ecn" && l.ECN != (ECN{}); has && l.Bandwidth == 0 && d.given(joinPath(path, key)) {
			d.problem(joinPath(path, key), `found %s without a bandwidth; expected the key "bandwidth" too: on a link without limit nothing waits`, key)
		}
	}
}

var burstObject = object[Burst]{
	title: "burst",
	doc:   "Loss that comes in runs: each packet may begin or end a run of bad luck (the Gilbert-Elliott model).",
	fields: []field[Burst]{
		{"enter", "probability", required, "A packet begins a run.", put(probability, func(b *Burst) *float64 { return &b.Enter })},
		{"leave", "probability", required, "A packet ends it.", put(probability, func(b *Burst) *float64 { return &b.Leave })},
		{"loss", "probability", "100%", "A packet of a run is lost.", put(probability, func(b *Burst) *float64 { return &b.Loss })},
	},
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
		{"tamper", "probability", "0", "One bit of a packet's payload is flipped and the ICRC fits all the same: nobody but the program can tell.", p(func(i *Impairment) *float64 { return &i.Tamper })},
		{"burst", "mapping", "none", "Loss that comes in runs, beside `loss`.", func(d *decoder, v value, t *T) {
			b := Burst{Loss: 1}
			burstObject.decode(d, v, &b)
			dst(t).Burst = b
		}},
		{"rules", "list of rules", "none", "What happens to single packets. The rules come before the probabilities; the first that matches a packet decides.", func(d *decoder, v value, t *T) { dst(t).Rules = decodeRules(d, v) }},
	}
}

const defaultReorderDelay = 100 * time.Microsecond

var networkObject = object[File]{
	title: "network",
	doc:   "The network between every pair of nodes that `links` does not name. On sockets the adapters hold packets back for as long, on top of what the machine takes, and at most 16384 of each node wait.",
	fields: append(append([]field[File]{
		{"form", "`bridge`, `routed`", "bridge", "What joins the namespaces of `netns up`: a switch that all are neighbours at, or a router, to which each node has a link of its own and through which it reaches the others. Nothing else uses it.",
			put(oneOf("form", FormBridge, FormRouted), func(f *File) *Form { return &f.Form })},
	}, lift(linkFields, func(f *File) *Link { return &f.Network })...), impaired(func(f *File) *Impairment { return &f.Network.Impairment })...),
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
		{"between", "list of two node names", "none", "Both directions between two nodes, or between two groups.", put(twoNames, func(t *T) *[]string { return &dst(t).between })},
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
	has := func(key string) bool { return d.given(joinPath(path, key)) }
	switch {
	case has("between") && (has("from") || has("to")):
		d.problem(joinPath(path, "between"), `found "between" beside "from" or "to"; expected one or the other`)
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
		from, ok1 := d.nodes(f, joinPath(path, "between[0]"), p.between[0])
		to, ok2 := d.nodes(f, joinPath(path, "between[1]"), p.between[1])
		return Pair{From: from, To: to, Both: true}, ok1 && ok2
	}
	from, ok1 := d.nodes(f, joinPath(path, "from"), p.from)
	to, ok2 := d.nodes(f, joinPath(path, "to"), p.to)
	return Pair{From: from, To: to}, ok1 && ok2
}

// nodes finds a node or a group. An empty name has been reported already.
func (d *decoder) nodes(f *File, path, name string) (Span, bool) {
	if name == "" {
		return Span{}, false
	}
	if s, ok := d.names[name]; ok {
		return s, true
	}
	d.unknown(path, "node", name, f.nodeNames())
	return Span{}, false
}

// nodeNames lists the names for messages: of groups that of the group.
func (f *File) nodeNames() []string {
	var names []string
	for i := range f.Groups {
		if f.Groups[i].Name != "" {
			names = append(names, f.Groups[i].Name)
		}
	}
	return names
}

var ruleObject = object[Rule]{
	title: "rules",
	doc:   "Picks single packets of a link. Every packet that has the rule's `opcode`, `psn` and `dest_qp`, where given, counts, from 1, per direction. The rule acts from the `nth` on, `count` times.",
	fields: []field[Rule]{
		{"action", "`drop`, `duplicate`, `corrupt`, `delay`, `tamper`", required, "What happens to the packet.",
			put(oneOf("action", RuleDrop, RuleDuplicate, RuleCorrupt, RuleDelay, RuleTamper), func(r *Rule) *RuleAction { return &r.Action })},
		{"opcode", "packet opcode", "any", "Such as SEND_ONLY, READ_RESP_FIRST, ACKNOWLEDGE, UC_WRITE_LAST, UD_SEND_ONLY: the names that traces print.",
			func(d *decoder, v value, r *Rule) { r.Opcode, r.HasOpcode = packetOpcode(d, v) }},
		{"psn", "number", "any", "Packet sequence number, 24 bits. The flow's `psn` says where its numbers start.",
			func(d *decoder, v value, r *Rule) { r.PSN, r.HasPSN = psnValue(d, v) }},
		{"dest_qp", "number", "any", "Queue pair that the packet is for, 24 bits. A node numbers its queue pairs from 17, in the order of `traffic`.",
			func(d *decoder, v value, r *Rule) { r.DestQP, r.HasDestQP = qpnValue(d, v) }},
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

var qpnValue = integer[ib.QPN](0, ib.QPNMask)

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
