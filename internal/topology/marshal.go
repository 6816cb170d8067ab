package topology

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/strict"
)

// Marshal writes a file that Parse reads back to the same nodes, flows and faults. What
// is drawn from the seed, and groups and patterns, are written out, so that the text
// says what happens. comment goes on top.
func (f *File) Marshal(comment string) []byte {
	w := &fileWriter{f: f}
	for _, line := range strings.Split(strings.TrimSpace(comment), "\n") {
		w.line(strings.TrimSpace("# " + line))
	}
	w.line("version: %d", Version)
	w.line("name: %s", f.Name)
	w.line("seed: %d", f.Seed)
	if f.Duration > 0 {
		w.line("duration: %s", f.Duration)
	}
	w.line("timeout: %s", f.Timeout)
	w.line("\nnodes:")
	for i := range f.Nodes {
		w.entry(w.node(&f.Nodes[i]))
	}
	net := w.link(&f.Network)
	if f.Form == FormRouted {
		net = append(net, "form: routed")
	}
	if keys := net; len(keys) > 0 {
		w.line("\nnetwork: {%s}", strings.Join(keys, ", "))
	}
	w.section("links", len(f.Links), func(i int) []string {
		l := &f.Links[i]
		return append(w.pair(l.Pair), w.linkBeside(l)...)
	})
	w.section("switches", len(f.Switches), func(i int) []string { return w.fabricSwitch(&f.Switches[i]) })
	w.section("traffic", len(f.Flows), func(i int) []string { return w.flow(&f.Flows[i]) })
	faults := f.Schedule()
	w.section("faults", len(faults), func(i int) []string { return w.fault(&faults[i]) })
	if e := w.runExpect(&f.Expect); len(e) > 0 {
		w.line("\nexpect: {%s}", strings.Join(e, ", "))
	}
	return []byte(w.b.String())
}

// fileWriter writes the parts of a file as flow mappings, one to a line, and leaves out
// what is the default.
type fileWriter struct {
	f *File
	b strings.Builder
}

func (w *fileWriter) line(format string, args ...any) { fmt.Fprintf(&w.b, format+"\n", args...) }

func (w *fileWriter) entry(keys []string) { w.line("  - {%s}", strings.Join(keys, ", ")) }

func (w *fileWriter) section(name string, n int, entry func(i int) []string) {
	if n == 0 {
		return
	}
	w.line("\n%s:", name)
	for i := range n {
		w.entry(entry(i))
	}
}

// keys collects the keys of a mapping.
type keys []string

func (k *keys) add(format string, args ...any) { *k = append(*k, fmt.Sprintf(format, args...)) }

// put adds a key unless its value is the default.
func putKey[V comparable](k *keys, name string, v, def V) {
	if v != def {
		k.add("%s: %v", name, v)
	}
}

func (w *fileWriter) node(n *Node) []string {
	var k keys
	def := defaultNode()
	k.add("name: %s", n.Name)
	if n.Netdev != "" {
		k.add("netdev: %s", n.Netdev)
	} else {
		k.add("address: %q", n.Address.String())
	}
	putKey(&k, "profile", n.Profile, def.Profile)
	if s := strictNames(n.Strict); len(s) > 0 {
		k.add("strict: [%s]", strings.Join(s, ", "))
	}
	putKey(&k, "mtu", n.MTU.Bytes(), def.MTU.Bytes())
	putKey(&k, "distinct_keys", n.DistinctKeys, false)
	if n.DCQCN != nil {
		k.add("dcqcn: %s", dcqcnKeys(n.DCQCN))
	}
	var l keys
	for _, x := range []struct {
		name   string
		v, def int
	}{
		{"max_qp", n.Limits.MaxQP, def.Limits.MaxQP}, {"max_qp_wr", n.Limits.MaxQPWR, def.Limits.MaxQPWR}, {"max_cqe", n.Limits.MaxCQE, def.Limits.MaxCQE},
		{"max_sge", n.Limits.MaxSGE, def.Limits.MaxSGE}, {"max_inline", n.Limits.MaxInline, def.Limits.MaxInline},
		{"max_rd_atomic", n.Limits.MaxRdAtomic, def.Limits.MaxRdAtomic}, {"max_srq_wr", n.Limits.MaxSRQWR, def.Limits.MaxSRQWR}, {"max_res_rd_atomic", n.Limits.MaxResRdAtomic, def.Limits.MaxResRdAtomic},
	} {
		putKey(&l, x.name, x.v, x.def)
	}
	if len(l) > 0 {
		k.add("limits: {%s}", strings.Join(l, ", "))
	}
	return k
}

// strictNames are the checks that are on.
func strictNames(c strict.Checks) (names []string) {
	for _, name := range strict.CheckNames() {
		if with := c; with.Enable(name) && with == c {
			names = append(names, name)
		}
	}
	return names
}

// link writes what differs from a perfect link.
func (w *fileWriter) link(l *Link) []string {
	return append(w.cable(l), w.impairment(&l.Impairment)...)
}

// cable writes what a link has besides its impairment.
func (w *fileWriter) cable(l *Link) []string {
	var k keys
	putKey(&k, "latency", l.Latency, 0)
	putKey(&k, "jitter", l.Jitter, 0)
	putKey(&k, "bandwidth", l.Bandwidth, 0)
	putKey(&k, "queue", l.Queue, 0)
	if l.MTU != 0 {
		k.add("mtu: %d", l.MTU.Bytes())
	}
	if e := l.ECN; e != (ECN{}) {
		k.add("ecn: {min: %d, max: %d, probability: %v}", e.Min, e.Max, e.Probability)
	}
	return k
}

// linkBeside writes a link that stands beside network, whose keys it would inherit.
func (w *fileWriter) linkBeside(l *Link) []string {
	var k keys
	k.add("latency: %s", l.Latency)
	k.add("jitter: %s", l.Jitter)
	k.add("bandwidth: %s", l.Bandwidth)
	queue := "unlimited"
	if l.Queue > 0 {
		queue = fmt.Sprint(l.Queue)
	}
	k.add("queue: %s", queue)
	if l.MTU != 0 {
		k.add("mtu: %d", l.MTU.Bytes())
	}
	if e := l.ECN; e != (ECN{}) {
		k.add("ecn: {min: %d, max: %d, probability: %v}", e.Min, e.Max, e.Probability)
	}
	i := &l.Impairment
	k.add("loss: %v", i.Loss)
	k.add("duplicate: %v", i.Duplicate)
	k.add("reorder: %v", i.Reorder)
	k.add("corrupt: %v", i.Corrupt)
	k.add("tamper: %v", i.Tamper)
	k.add("reorder_delay: %s", i.ReorderDelay)
	k.add("burst: {enter: %v, leave: %v, loss: %v}", i.Burst.Enter, i.Burst.Leave, i.Burst.Loss)
	k.add("rules: [%s]", strings.Join(rules(i.Rules), ", "))
	return k
}

func (w *fileWriter) impairment(i *Impairment) []string {
	var k keys
	putKey(&k, "loss", i.Loss, 0)
	putKey(&k, "duplicate", i.Duplicate, 0)
	putKey(&k, "reorder", i.Reorder, 0)
	putKey(&k, "reorder_delay", i.ReorderDelay, defaultReorderDelay)
	putKey(&k, "corrupt", i.Corrupt, 0)
	putKey(&k, "tamper", i.Tamper, 0)
	if b := i.Burst; b != (Burst{}) {
		k.add("burst: {enter: %v, leave: %v, loss: %v}", b.Enter, b.Leave, b.Loss)
	}
	if len(i.Rules) > 0 {
		k.add("rules: [%s]", strings.Join(rules(i.Rules), ", "))
	}
	return k
}

func rules(list []Rule) (out []string) {
	for _, r := range list {
		var k keys
		k.add("action: %s", r.Action)
		if r.HasOpcode {
			k.add("opcode: %s", opcodeName(r.Opcode))
		}
		if r.HasPSN {
			k.add("psn: %d", r.PSN)
		}
		if r.HasDestQP {
			k.add("dest_qp: %d", r.DestQP)
		}
		putKey(&k, "nth", r.Nth, 1)
		putKey(&k, "every", r.Every, 1)
		putKey(&k, "count", r.Count, 1)
		putKey(&k, "delay", r.Delay, 0)
		out = append(out, "{"+strings.Join(k, ", ")+"}")
	}
	return out
}

// names lists the nodes of spans. A link or fault between groups is written for their
// nodes one by one elsewhere; here only single nodes occur.
func (w *fileWriter) name(s Span) string { return w.f.Nodes[s.First].Name }

func (w *fileWriter) pair(p Pair) []string {
	switch {
	case p.All:
		return nil
	case p.Both:
		return []string{fmt.Sprintf("between: [%s, %s]", w.name(p.From), w.name(p.To))}
	}
	return []string{"from: " + w.name(p.From), "to: " + w.name(p.To)}
}

func (w *fileWriter) fabricSwitch(s *Switch) []string {
	var k keys
	k.add("name: %s", s.Name)
	var nodes, others []string
	for _, span := range s.Nodes {
		for i := range span.N {
			nodes = append(nodes, w.f.Nodes[span.First+i].Name)
		}
	}
	for _, o := range s.Switches {
		others = append(others, w.f.Switches[o].Name)
	}
	if len(nodes) > 0 {
		k.add("nodes: [%s]", strings.Join(nodes, ", "))
	}
	if len(others) > 0 {
		k.add("switches: [%s]", strings.Join(others, ", "))
	}
	port := w.linkBeside(&s.Port)
	return append(k, slices.DeleteFunc(port, func(s string) bool {
		key, _, _ := strings.Cut(s, ":")
		return !slices.Contains([]string{"latency", "jitter", "bandwidth", "queue", "mtu", "ecn"}, key)
	})...)
}

func (w *fileWriter) flow(fl *Flow) []string {
	def := defaultFlow()
	k := keys{"name: " + fl.Name, "from: " + w.f.Nodes[fl.From].Name, "to: " + w.f.Nodes[fl.To].Name}
	putKey(&k, "transport", lower(fl.Transport), lower(def.Transport))
	var mix, sizes []string
	for _, o := range fl.Ops {
		mix = append(mix, fmt.Sprintf("%s: %d", o.Op, o.Weight))
	}
	if len(fl.Ops) == 1 {
		k.add("op: %s", fl.Ops[0].Op)
	} else {
		k.add("mix: {%s}", strings.Join(mix, ", "))
	}
	for _, v := range fl.Sizes.Values {
		sizes = append(sizes, fmt.Sprint(v))
	}
	atomics := !slices.ContainsFunc(fl.Ops, func(o WeightedOp) bool { return !o.Op.Atomic() })
	switch {
	case atomics:
	case fl.Sizes.Kind == SizeList:
		k.add("size: [%s]", strings.Join(sizes, ", "))
	default:
		k.add("size: %s", strings.Join(sizes, ".."))
	}
	k.add("count: %d", fl.Count)
	putKey(&k, "depth", fl.Depth, def.Depth)
	putKey(&k, "qps", fl.QPs, def.QPs)
	putKey(&k, "bidirectional", fl.Bidirectional, false)
	putKey(&k, "start", fl.Start, 0)
	putKey(&k, "rate", fl.Rate, 0)
	putKey(&k, "verify", fl.Verify, true)
	switch fl.Signal.Kind {
	case SignalEvery:
		k.add("signal: every %d", fl.Signal.Every)
	case SignalLast:
		k.add("signal: last")
	}
	putKey(&k, "inline", fl.Inline, false)
	putKey(&k, "solicited", fl.Solicited, false)
	putKey(&k, "fence", fl.Fence, false)
	return append(k, w.flowTransport(fl)...)
}

// flowTransport writes the keys that have a meaning on the flow's transport.
func (w *fileWriter) flowTransport(fl *Flow) []string {
	var k keys
	def := defaultFlow()
	if fl.TakesReceives() {
		k.add("recv_depth: %d", fl.RecvDepth)
		k.add("recv_size: %d", fl.RecvSize)
		putKey(&k, "receiver_delay", fl.ReceiverDelay, 0)
		if fl.SRQ != nil {
			k.add("srq: {size: %d, limit: %d}", fl.SRQ.Size, fl.SRQ.Limit)
		}
	}
	putKey(&k, "notify", fl.Notify, def.Notify)
	if fl.Transport != ib.QPTypeUD {
		k.add("path_mtu: %d", fl.PathMTU.Bytes())
		if fl.PSN != nil {
			k.add("psn: %d", *fl.PSN)
		}
	}
	if fl.Transport == ib.QPTypeRC {
		putKey(&k, "timeout", fl.Timeout, def.Timeout)
		putKey(&k, "retry_cnt", fl.RetryCnt, def.RetryCnt)
		putKey(&k, "rnr_retry", fl.RNRRetry, def.RNRRetry)
		putKey(&k, "min_rnr_timer", fl.MinRNRTimer, def.MinRNRTimer)
		if slices.ContainsFunc(fl.Ops, func(o WeightedOp) bool { return o.Op.info().rdAtomic }) {
			k.add("max_rd_atomic: %d", fl.MaxRdAtomic)
			k.add("max_dest_rd_atomic: %d", fl.MaxDestRdAtomic)
		}
	}
	putKey(&k, "rkey", fl.RKey, def.RKey)
	e := w.expect(&fl.Expect.Expect)
	if fl.Expect.QPState != nil {
		e = append(e, "qp_state: "+fl.Expect.QPState.String())
	}
	if len(e) > 0 {
		k.add("expect: {%s}", strings.Join(e, ", "))
	}
	return k
}

func (w *fileWriter) fault(x *Fault) []string {
	k := keys{fmt.Sprintf("at: %s", x.At), fmt.Sprintf("action: %s", x.Action)}
	a := actionOf(x.Action)
	for _, key := range a.takes {
		switch key {
		case "between":
			if x.Switches.N == 0 {
				k = append(k, w.pair(x.Pair)...)
			}
		case "switch":
			if x.Switches.N > 0 {
				k.add("switch: %s", w.f.Switches[x.Switches.First].Name)
			}
		case "flow":
			if x.Flows.N > 0 {
				k.add("flow: %s", w.f.Flows[x.Flows.First].Name)
			}
		case "node":
			if x.Flows.N == 0 {
				k.add("node: %s", w.name(x.Nodes))
			}
		case "qpn":
			putKey(&k, "qpn", x.QPN, 0)
		case "qp":
			putKey(&k, "qp", x.QP, -1)
		case "side":
			if x.Receiver {
				k.add("side: receiver")
			}
		case "count":
			putKey(&k, "count", x.Count, 1)
		case "status":
			k.add("status: %s", x.Status)
		case "delay":
			k.add("delay: %s", x.Delay)
		case "event":
			if !x.Notify {
				k.add("event: %s", x.Event)
			}
		}
	}
	if a.impaired {
		k = append(k, w.impairment(&x.Impairment)...)
	}
	return append(k, w.cable(&x.Link)...)
}

func (w *fileWriter) expect(e *Expect) []string {
	var k keys
	counts := func(key string, list []StatusCount) {
		if list == nil {
			return
		}
		var each []string
		for _, c := range list {
			each = append(each, fmt.Sprintf("%s: %q", c.Status, c.Count.String()))
		}
		k.add("%s: {%s}", key, strings.Join(each, ", "))
	}
	counts("completions", e.Completions)
	counts("receives", e.Receives)
	putKey(&k, "all_complete", e.AllComplete, true)
	putKey(&k, "data_ok", e.DataOK, true)
	if e.Retransmissions != nil {
		k.add("retransmissions: %q", e.Retransmissions.String())
	}
	if len(e.Events) > 0 {
		var each []string
		for _, c := range e.Events {
			each = append(each, fmt.Sprintf("%s: %q", c.Event, c.Range.String()))
		}
		k.add("events: {%s}", strings.Join(each, ", "))
	}
	putKey(&k, "max_latency", e.MaxLatency, time.Duration(0))
	putKey(&k, "min_rate", e.MinRate, 0)
	return k
}

func (w *fileWriter) runExpect(e *RunExpect) []string {
	k := keys(w.expect(&e.Expect))
	if len(e.Drops) > 0 {
		var each []string
		for _, c := range e.Drops {
			each = append(each, fmt.Sprintf("%s: %q", c.Reason, c.Range.String()))
		}
		k.add("drops: {%s}", strings.Join(each, ", "))
	}
	if e.Misuse != nil {
		k.add("misuse: %q", e.Misuse.String())
	}
	return k
}

// Plain returns the file with everything written out: no groups, patterns or random
// faults, and every link, flow and fault about single nodes and flows. It is what
// Marshal can write.
func (f *File) Plain() *File {
	g := *f
	g.Groups, g.Entries, g.Random = nil, nil, RandomFaults{}
	for i := range f.Nodes {
		g.Groups = append(g.Groups, Group{Name: f.Nodes[i].Name, Nodes: One(i)})
	}
	g.Flows = slices.Clone(f.Flows)
	for i := range g.Flows {
		fl := &g.Flows[i]
		fl.Entry, fl.After = i, unset
		g.Entries = append(g.Entries, Entry{Name: fl.Name, Flows: One(i), From: One(fl.From), To: One(fl.To), Peers: 1})
	}
	g.Links = nil
	for _, l := range f.Links {
		for _, p := range l.Pair.singles() {
			one := l
			one.Pair = p
			g.Links = append(g.Links, one)
		}
	}
	g.Faults = nil
	for _, x := range f.Schedule() {
		g.Faults = append(g.Faults, x.singles()...)
	}
	return &g
}

// singles are the pairs of single nodes that a pair covers.
func (p Pair) singles() (list []Pair) {
	if p.All || p.From.N == 1 && p.To.N == 1 {
		return []Pair{p}
	}
	for _, d := range p.directions() {
		for a := d.From.First; a < d.From.First+d.From.N; a++ {
			for b := d.To.First; b < d.To.First+d.To.N; b++ {
				one := Pair{From: One(a), To: One(b)}
				if a != b && !slices.Contains(list, one) {
					list = append(list, one)
				}
			}
		}
	}
	return list
}

// singles are the fault for each pair, flow or node that it happens to.
func (x Fault) singles() (list []Fault) {
	switch {
	case x.Switches.N > 0:
		for k := range x.Switches.N {
			one := x
			one.Switches = One(x.Switches.First + k)
			list = append(list, one)
		}
	case slices.Contains(actionOf(x.Action).takes, "between"):
		for _, p := range x.Pair.singles() {
			one := x
			one.Pair = p
			list = append(list, one)
		}
	case x.Flows.N == 0:
		for k := range x.Nodes.N {
			one := x
			one.Nodes = One(x.Nodes.First + k)
			list = append(list, one)
		}
	default:
		for k := range x.Flows.N {
			one := x
			one.Flows = One(x.Flows.First + k)
			list = append(list, one)
		}
	}
	return list
}
