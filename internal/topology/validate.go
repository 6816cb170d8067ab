package topology

import (
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// The checks here see values that parsed, and look at how they go together. A value
// that did not parse has been reported and has its zero or default here; checks must
// not report it again.

// linkPlace is a link that was read, and where.
type linkPlace struct {
	pair Pair
	at   position
}

// overlap reports whether two spans have an index in common.
func (s Span) overlap(o Span) bool { return s.First < o.First+o.N && o.First < s.First+s.N }

// directions are the one or two directions that a pair selects.
func (p Pair) directions() []Pair {
	list := []Pair{{From: p.From, To: p.To}}
	if p.Both {
		list = append(list, Pair{From: p.To, To: p.From})
	}
	return list
}

// mostPairs bounds the links that one entry sets apart.
const mostPairs = 1 << 20

// checkLink refuses a second description of the same direction, so that the order of
// links means nothing.
func (d *decoder) checkLink(f *File, path string, p Pair, seen []linkPlace) []linkPlace {
	if p.Both && p.From == p.To && p.From.N == 1 {
		d.problem(path+".between[1]", "found %q twice; expected two nodes", f.Nodes[p.To.First].Name)
		return seen
	}
	if n := p.From.N * p.To.N; n > mostPairs {
		d.problem(path, "found links between %d pairs of nodes; expected at most %d; network describes all links", n, mostPairs)
		return seen
	}
	for _, s := range seen {
		for _, a := range p.directions() {
			for _, b := range s.pair.directions() {
				if a.From.overlap(b.From) && a.To.overlap(b.To) {
					d.problem(path, "the link from %q to %q is described on line %d already",
						f.Nodes[max(a.From.First, b.From.First)].Name, f.Nodes[max(a.To.First, b.To.First)].Name, s.at.line)
					return seen
				}
			}
		}
	}
	return append(seen, linkPlace{p, d.positionOf(path)})
}

// checkFlowNames finds names used twice, and remembers what they stand for.
func (d *decoder) checkFlowNames(f *File) {
	d.flows = make(map[string]Span, len(f.Flows))
	lines := make(map[string]position, len(f.Flows))
	for i := range f.Entries {
		e := &f.Entries[i]
		path := "traffic[" + strconv.Itoa(i) + "]"
		names := []string{e.Name}
		for k := e.Flows.First; e.Pattern != "" && k < e.Flows.First+e.Flows.N; k++ {
			names = append(names, f.Flows[k].Name)
		}
		for k, name := range names {
			if first, taken := lines[name]; taken {
				d.problem(path+".name", "found %q, the name of the flow on line %d; expected a name of its own", name, first.line)
				break
			}
			lines[name] = d.positionOf(path)
			d.flows[name] = e.Flows
			if k > 0 {
				d.flows[name] = One(e.Flows.First + k - 1)
			}
		}
	}
}

// checkFile looks at what takes all of the file.
func (d *decoder) checkFile(f *File) {
	d.finishDCQCN(f)
	d.checkTrunks(f)
	for i := range f.Entries {
		if e := &f.Entries[i]; e.Flows.N > 0 && f.Flows[e.Flows.First].Count == 0 && f.Duration == 0 {
			d.problem("traffic["+strconv.Itoa(i)+"].count", `found 0, which means "until the duration is over", in a file without duration; expected a count above 0, or the key "duration"`)
		}
	}
	qps := make([]int, len(f.Nodes))
	for i := range f.Flows {
		fl := &f.Flows[i]
		for _, n := range []int{fl.From, fl.To} {
			if n >= 0 {
				qps[n] += fl.QPs
			}
		}
	}
	reported := map[string]bool{}
	for i, n := range qps {
		path := f.entryPath(i)
		if most := f.Nodes[i].Limits.MaxQP; n > most && !reported[path] {
			d.problem(path, "traffic needs %d queue pairs on node %q; expected at most %d, its max_qp", n, f.Nodes[i].Name, most)
			reported[path] = true
		}
	}
	if f.Duration > f.Timeout {
		d.problem("duration", "found %s; expected at most the timeout of %s", f.Duration, f.Timeout)
	}
}

// finishFlow fills in defaults that depend on other keys, and checks the flow as a
// whole. Its nodes are known, or unset if they were reported.
func (d *decoder) finishFlow(f *File, path string, e *flowEntry) {
	fl := &e.Flow
	bad := len(d.problems)
	if len(fl.Ops) == 0 && !d.given(path+".op") && !d.given(path+".mix") {
		d.problem(path, `key "op" is missing; expected "op" or "mix"`)
	}
	d.checkOps(path, fl)
	d.checkMeaning(path, fl)
	d.checkSignal(path, fl)
	finishExpect(&fl.Expect, fl)
	if fl.From < 0 || fl.To < 0 || len(d.problems) > bad && len(fl.Ops) == 0 {
		return // what follows needs the nodes and operations
	}
	c := &flowCheck{d, f, path, fl}
	c.sizes(e.sized)
	c.receives()
	c.sends()
	c.rdAtomic()
	if a, b := f.Nodes[fl.From].Address.Addr(), f.Nodes[fl.To].Address.Addr(); a.IsValid() && b.IsValid() && a.Is4() != b.Is4() {
		d.problem(path, "the flow goes from %s to %s; expected both ends to be IPv4 or both IPv6", a, b)
	}
}

// checkOps checks the operations against the transport.
func (d *decoder) checkOps(path string, fl *Flow) {
	for _, o := range fl.Ops {
		if o.Op.On(fl.Transport) {
			continue
		}
		at := path + ".op"
		if d.given(path + ".mix") {
			at = path + ".mix." + string(o.Op)
		}
		d.problem(at, "operation %s does not exist on transport %s; expected one of %s", o.Op, lower(fl.Transport), listed(opNames(fl.Transport)))
	}
}

func lower(t ib.QPType) string {
	return map[ib.QPType]string{ib.QPTypeRC: "rc", ib.QPTypeUC: "uc", ib.QPTypeUD: "ud"}[t]
}

// checkMeaning reports keys of the entry itself (not of defaults) that mean nothing
// for its transport and operations: somebody expects an effect they will not have.
func (d *decoder) checkMeaning(path string, fl *Flow) {
	report := func(why string, keys ...string) {
		for _, k := range keys {
			if d.given(path + "." + k) {
				d.problem(path+"."+k, "found a key that means nothing here: %s", why)
			}
		}
	}
	if fl.Transport != ib.QPTypeRC {
		report("it is for transport rc", "fence", "timeout", "retry_cnt", "rnr_retry", "min_rnr_timer", "max_rd_atomic", "max_dest_rd_atomic")
	}
	if fl.Transport == ib.QPTypeUD {
		report("transport ud has neither a path MTU nor a sequence of packets", "path_mtu", "psn")
	}
	if len(fl.Ops) == 0 {
		return
	}
	if !fl.TakesReceives() {
		report("no operation of the flow takes a receive", "recv_depth", "recv_size", "srq", "receiver_delay", "solicited")
	}
	if !slices.ContainsFunc(fl.Ops, func(o WeightedOp) bool { return o.Op.OneSided() }) {
		report("no operation of the flow uses a remote key", "rkey")
	}
	if !slices.ContainsFunc(fl.Ops, func(o WeightedOp) bool { return o.Op.info().rdAtomic }) {
		report("no operation of the flow is a READ or atomic", "max_rd_atomic", "max_dest_rd_atomic")
	}
}

// checkSignal refuses what cannot go on: the send queue is full of work requests
// whose slots only a later completion would free.
func (d *decoder) checkSignal(path string, fl *Flow) {
	at := path + ".signal"
	switch depth := uint64(fl.Depth); {
	case fl.Signal.Kind == SignalEvery && fl.Signal.Every > depth:
		d.problem(at, `found "every %d" with a depth of %d; expected at most "every %d", or the send queue fills up for ever`, fl.Signal.Every, depth, depth)
	case fl.Signal.Kind == SignalLast && (fl.Count > depth || fl.Count == 0):
		d.problem(at, `found "last" with a depth of %d; expected a count from 1 to %d, or the send queue fills up for ever`, depth, depth)
	}
}

// finishExpect fills in what a flow is expected to show unless it says otherwise.
func finishExpect(e *FlowExpect, fl *Flow) {
	all := []StatusCount{{ib.WCSuccess, Count{All: true}}}
	if e.Completions != nil {
		return
	}
	e.Completions = all
	if e.Receives == nil && fl.Transport == ib.QPTypeRC && fl.TakesReceives() {
		e.Receives = slices.Clone(all)
	}
}

// flowCheck checks a flow whose nodes are known.
type flowCheck struct {
	d    *decoder
	f    *File
	path string
	fl   *Flow
}

// senders and receivers are the nodes that post sends and receives.
func (c *flowCheck) senders() []*Node {
	if c.fl.Bidirectional {
		return []*Node{&c.f.Nodes[c.fl.From], &c.f.Nodes[c.fl.To]}
	}
	return []*Node{&c.f.Nodes[c.fl.From]}
}

func (c *flowCheck) receivers() []*Node {
	if c.fl.Bidirectional {
		return []*Node{&c.f.Nodes[c.fl.To], &c.f.Nodes[c.fl.From]}
	}
	return []*Node{&c.f.Nodes[c.fl.To]}
}

// atMost reports a number above a limit of a node.
func (c *flowCheck) atMost(key string, n int, nodes []*Node, limit string, get func(*Limits) int) {
	for _, node := range nodes {
		if most := get(&node.Limits); n > most {
			c.d.problem(c.path+"."+key, "found %d; expected at most %d, the %s of node %q", n, most, limit, node.Name)
			return
		}
	}
}

// smallest is the least limit among nodes.
func smallest(nodes []*Node, get func(*Limits) int) int {
	n := math.MaxInt
	for _, node := range nodes {
		n = min(n, get(&node.Limits))
	}
	return n
}

// sizes settles path MTU and message lengths.
func (c *flowCheck) sizes(sized bool) {
	d, fl := c.d, c.fl
	from, to := &c.f.Nodes[c.fl.From], &c.f.Nodes[c.fl.To]
	most := min(from.MTU, to.MTU)
	switch {
	case fl.PathMTU == 0 || fl.Transport == ib.QPTypeUD:
		fl.PathMTU = most
	case fl.PathMTU > most && d.given(c.path+".path_mtu"):
		d.problem(c.path+".path_mtu", "found %s; expected at most %s, the smaller MTU of the nodes %q and %q", fl.PathMTU, most, from.Name, to.Name)
	case fl.PathMTU > most:
		fl.PathMTU = most // from defaults: a wish for flows that can have it
	}
	own := d.given(c.path + ".size")
	atomics := 0
	for _, o := range fl.Ops {
		if o.Op.Atomic() {
			atomics++
		}
	}
	switch {
	case atomics == len(fl.Ops):
		if own && sized && (fl.Sizes.Max() != AtomicBytes || slices.Min(fl.Sizes.Values) != AtomicBytes) {
			d.problem(c.path+".size", "found a size on a flow of atomics; expected 8 or no size: atomics have 8 bytes")
		}
		fl.Sizes = Sizes{SizeFixed, []int64{AtomicBytes}}
	case fl.Transport == ib.QPTypeUD && fl.Sizes.Max() > int64(most.Bytes()):
		d.problem(c.path+".size", "found messages of %d bytes on ud; expected at most %s, the smaller MTU of the nodes %q and %q", fl.Sizes.Max(), most, from.Name, to.Name)
	}
	if fl.Inline {
		c.inline(own)
	}
}

func (c *flowCheck) inline(ownSize bool) {
	for _, o := range c.fl.Ops {
		if !o.Op.info().inline {
			c.d.problem(c.path+".inline", "found inline with operation %s; expected it with SEND and WRITE operations only", o.Op)
			return
		}
	}
	key := "inline"
	if ownSize {
		key = "size"
	}
	c.atMost(key, int(c.fl.Sizes.Max()), c.senders(), "max_inline", func(l *Limits) int { return l.MaxInline })
}

// receives settles the receive queue.
func (c *flowCheck) receives() {
	d, fl := c.d, c.fl
	if !fl.TakesReceives() {
		fl.RecvDepth, fl.RecvSize, fl.SRQ, fl.ReceiverDelay = 0, 0, nil, 0
		return
	}
	if fl.RecvSize == unset {
		fl.RecvSize = int(fl.Sizes.Max())
	}
	maxWR := func(l *Limits) int { return l.MaxQPWR }
	maxSRQWR := func(l *Limits) int { return l.MaxSRQWR }
	if fl.RecvDepth == unset {
		fl.RecvDepth = c.defaultRecvDepth(smallest(c.receivers(), maxWR))
	} else if fl.SRQ == nil {
		c.atMost("recv_depth", fl.RecvDepth, c.receivers(), "max_qp_wr", maxWR)
	}
	if fl.SRQ == nil {
		return
	}
	srq := *fl.SRQ // the defaults' SRQ serves several flows: never write to it
	fl.SRQ = &srq
	if srq.Size == 0 {
		srq.Size = max(1, min(saturatedMul(fl.QPs, fl.RecvDepth), smallest(c.receivers(), maxSRQWR)))
	}
	c.atMost("srq", srq.Size, c.receivers(), "max_srq_wr", maxSRQWR)
	if srq.Limit > srq.Size {
		d.problem(c.path+".srq.limit", "found %d; expected at most %d, the size of the queue", srq.Limit, srq.Size)
	}
}

// defaultRecvDepth is enough for RC to keep going, and for the unreliable transports
// to hold all messages, which are lost if they find no receive.
func (c *flowCheck) defaultRecvDepth(most int) int {
	if c.fl.Transport == ib.QPTypeRC {
		return min(saturatedMul(2, c.fl.Depth), most)
	}
	if c.fl.Count == 0 || c.fl.Count > uint64(most) {
		return most
	}
	return int(c.fl.Count)
}

func saturatedMul(a, b int) int {
	if a != 0 && b > math.MaxInt/a {
		return math.MaxInt
	}
	return a * b
}

// sends checks the send queue.
func (c *flowCheck) sends() {
	c.atMost("depth", c.fl.Depth, c.senders(), "max_qp_wr", func(l *Limits) int { return l.MaxQPWR })
	c.atMost("depth", c.fl.Depth, c.senders(), "max_cqe", func(l *Limits) int { return l.MaxCQE })
	if c.fl.TakesReceives() {
		c.atMost("recv_depth", c.fl.RecvDepth, c.receivers(), "max_cqe", func(l *Limits) int { return l.MaxCQE })
	}
	if c.fl.Solicited && c.d.given(c.path+".solicited") {
		for _, o := range c.fl.Ops {
			if !o.Op.info().solicited {
				c.d.problem(c.path+".solicited", "found solicited with operation %s; expected it with operations that take a receive", o.Op)
				return
			}
		}
	}
}

// rdAtomic settles the limits on outstanding READs and atomics.
func (c *flowCheck) rdAtomic() {
	fl := c.fl
	both := []*Node{&c.f.Nodes[fl.From], &c.f.Nodes[fl.To]}
	get := func(l *Limits) int { return l.MaxRdAtomic }
	if fl.Transport != ib.QPTypeRC {
		fl.MaxRdAtomic, fl.MaxDestRdAtomic = 0, 0
		return
	}
	if fl.MaxRdAtomic == unset {
		fl.MaxRdAtomic = min(16, smallest(both, get))
	} else {
		c.atMost("max_rd_atomic", fl.MaxRdAtomic, c.senders(), "max_rd_atomic", get)
	}
	if fl.MaxDestRdAtomic == unset {
		fl.MaxDestRdAtomic = min(fl.MaxRdAtomic, smallest(both, get))
	} else {
		c.atMost("max_dest_rd_atomic", fl.MaxDestRdAtomic, c.receivers(), "max_rd_atomic", get)
	}
	for _, o := range fl.Ops {
		if o.Op.info().rdAtomic && fl.MaxRdAtomic == 0 {
			c.d.problem(c.path+".max_rd_atomic", "found 0 with operation %s; expected at least 1: READs and atomics cannot be posted without", o.Op)
			return
		}
	}
}

// String prints sizes as files give them.
func (s Sizes) String() string {
	switch s.Kind {
	case SizeRange:
		return fmt.Sprintf("%d..%d", s.Values[0], s.Values[1])
	case SizeList:
		return fmt.Sprint(s.Values)
	}
	return strconv.FormatInt(s.Max(), 10)
}
