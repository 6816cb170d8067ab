package topology

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// unset marks numbers of a flow whose default depends on other keys. No key can give
// a negative number.
const unset = -1

// defaultFlow is a flow before its entry is read.
func defaultFlow() Flow {
	return Flow{
		From: unset, To: unset, After: unset, Transport: ib.QPTypeRC, Sizes: Sizes{SizeFixed, []int64{64}},
		Count: 1, Depth: 16, QPs: 1, Signal: Signal{Kind: SignalAll}, RecvDepth: unset, RecvSize: unset,
		Notify: NotifyPoll, Timeout: 16, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12,
		MaxRdAtomic: unset, MaxDestRdAtomic: unset, RKey: RKeyGood, Verify: true,
		Expect: FlowExpect{Expect: Expect{AllComplete: true, DataOK: true}},
	}
}

// flowEntry is an entry of traffic while it is read.
type flowEntry struct {
	Flow
	from, to string
	sized    bool // size was given
	pattern  Pattern
	peers    int
}

func flow[V any](parse func(*decoder, value) (V, bool), dst func(*Flow) *V) func(*decoder, value, *flowEntry) {
	return put(parse, func(e *flowEntry) *V { return dst(&e.Flow) })
}

var flowObject = object[flowEntry]{
	title:  "traffic",
	doc:    "A flow: a stream of work requests from one node to another, on queue pairs of its own. With a `pattern` it is many flows that are alike.",
	fields: append(append(append([]field[flowEntry]{}, flowBasics...), flowQueues...), flowTransport...),
}

var flowBasics = []field[flowEntry]{
	{"name", "name", "made of transport, operation and position", "How faults and the report refer to the flow.",
		flow(name, func(f *Flow) *string { return &f.Name })},
	{"from", "node name", required, "The node that posts the work requests; with a pattern the name of a group.",
		put(name, func(e *flowEntry) *string { return &e.from })},
	{"to", "node name", required, "Its peer. It may be the same node. With a pattern a node or a group; see patterns for the default.",
		put(name, func(e *flowEntry) *string { return &e.to })},
	{"pattern", "see the table of patterns", "one flow", "Who sends to whom.",
		put(oneOf("pattern", patternNames()...), func(e *flowEntry) *Pattern { return &e.pattern })},
	{"peers", "count", "1", "For the pattern `random`: to how many others each node sends.",
		put(integer(1, mostInt), func(e *flowEntry) *int { return &e.peers })},
	{"transport", "`rc`, `uc`, `ud`", "rc", "Transport service.",
		flow(transport, func(f *Flow) *ib.QPType { return &f.Transport })},
	{"op", "operation", "none", "One operation for all work requests. Each flow has either `op` or `mix`.",
		func(d *decoder, v value, e *flowEntry) {
			if o, ok := operation(d, v); ok {
				e.Ops = []WeightedOp{{o, 1}}
			}
		}},
	{"mix", "mapping of operations to weights", "none", "Several operations, drawn from the seed: `{send: 3, read: 1}` makes about three of four a SEND.",
		flow(mix, func(f *Flow) *[]WeightedOp { return &f.Ops })},
	{"size", "size, range or list", "64", "Message length: `4KiB`; `64..4KiB` drawn evenly from the seed; `[8, 4KiB, 1MiB]` taken in turn. Atomics have 8 bytes whatever it says.",
		func(d *decoder, v value, e *flowEntry) {
			if s, ok := sizes(d, v); ok {
				e.Sizes, e.sized = s, true
			}
		}},
	{"count", "count", "1", "Work requests per queue pair and direction. 0: until the file's `duration` is over.",
		flow(integer[uint64](0, 1<<40), func(f *Flow) *uint64 { return &f.Count })},
	{"qps", "count", "1", "Queue pairs that work side by side.",
		flow(integer(1, mostInt), func(f *Flow) *int { return &f.QPs })},
	{"bidirectional", "boolean", "false", "The peer posts the same work requests back.",
		flow(boolean, func(f *Flow) *bool { return &f.Bidirectional })},
	{"start", "duration", "0s", "Delay before the first post.",
		flow(duration, func(f *Flow) *time.Duration { return &f.Start })},
	{"rate", "rate", "unlimited", "Payload per queue pair and direction that is posted at most. In real time a node that was late by up to 10 ms makes up for it.",
		flow(rate, func(f *Flow) *Rate { return &f.Rate })},
	{"verify", "boolean", "true", "Fill messages with a pattern and check what arrives.",
		flow(boolean, func(f *Flow) *bool { return &f.Verify })},
	{"expect", "mapping", "all SUCCESS, data right", "What the flow must show.",
		func(d *decoder, v value, e *flowEntry) { flowExpectObject.decode(d, v, &e.Expect) }},
}

var flowQueues = []field[flowEntry]{
	{"depth", "count", "16", "Work requests outstanding per queue pair, and the size of the send queue.",
		flow(integer(1, mostInt), func(f *Flow) *int { return &f.Depth })},
	{"signal", "`all`, `last`, `every N`", "all", "Which work requests ask for a completion. `every N` signals each N-th and the last. The send queue must have room for those in between.",
		flow(signal, func(f *Flow) *Signal { return &f.Signal })},
	{"inline", "boolean", "false", "Post with INLINE. Not for READ and atomics.",
		flow(boolean, func(f *Flow) *bool { return &f.Inline })},
	{"solicited", "boolean", "false", "Post with SOLICITED. For operations that the peer sees as a receive.",
		flow(boolean, func(f *Flow) *bool { return &f.Solicited })},
	{"fence", "boolean", "false", "RC: post with FENCE.",
		flow(boolean, func(f *Flow) *bool { return &f.Fence })},
	{"recv_depth", "count", "rc: twice depth; uc, ud: count", "Receives that the receiver keeps posted per queue pair, at most max_qp_wr by default. 0: it posts none.",
		flow(integer(0, mostInt), func(f *Flow) *int { return &f.RecvDepth })},
	{"recv_size", "size", "longest message", "Length of each receive. UD adds the 40 bytes of the GRH by itself.",
		func(d *decoder, v value, e *flowEntry) {
			if n, ok := size(d, v); ok {
				e.RecvSize = int(min(n, ib.MaxMsgBytes))
			}
		}},
	{"srq", "boolean, or mapping with `size` and `limit`", "false", "One shared receive queue for all queue pairs of the flow at a receiver.",
		func(d *decoder, v value, e *flowEntry) { e.SRQ = decodeSRQ(d, v) }},
	{"receiver_delay", "duration", "0s", "Delay before the receiver posts its first receive. Senders on RC see RNR NAKs until then; UC and UD lose messages.",
		flow(duration, func(f *Flow) *time.Duration { return &f.ReceiverDelay })},
	{"notify", "`poll`, `event`", "poll", "Poll the completion queues, or wait on a completion channel.",
		flow(oneOf("way to wait", NotifyPoll, NotifyEvent), func(f *Flow) *Notify { return &f.Notify })},
}

var flowTransport = []field[flowEntry]{
	{"path_mtu", "256, 512, 1024, 2048, 4096", "smaller MTU of the two nodes", "RC and UC: bytes of payload per packet.",
		flow(mtu, func(f *Flow) *ib.MTU { return &f.PathMTU })},
	{"psn", "number", "drawn from the seed", "RC and UC: packet sequence number that the first queue pair starts with.",
		func(d *decoder, v value, e *flowEntry) {
			if p, ok := psnValue(d, v); ok {
				e.PSN = &p
			}
		}},
	{"timeout", "code 0 to 31, or duration", "16 (268 ms)", "RC: local ACK timeout, 4.096 us times 2^code. A duration is rounded up to the next code. Code 0 waits for ever.",
		flow(timeoutCode, func(f *Flow) *uint8 { return &f.Timeout })},
	{"retry_cnt", "0 to 7", "7", "RC: resends after a timeout or sequence error without progress before RETRY_EXC_ERR.",
		flow(integer[uint8](0, 7), func(f *Flow) *uint8 { return &f.RetryCnt })},
	{"rnr_retry", "0 to 7", "7", "RC: resends after an RNR NAK before RNR_RETRY_EXC_ERR. 7: without end.",
		flow(integer[uint8](0, 7), func(f *Flow) *uint8 { return &f.RNRRetry })},
	{"min_rnr_timer", "code 0 to 31, or duration", "12 (640 us)", "RC: how long an RNR NAK asks the sender to wait. A duration is rounded up to the next longer wait.",
		flow(rnrCode, func(f *Flow) *uint8 { return &f.MinRNRTimer })},
	{"max_rd_atomic", "count", "16, or the smaller node limit", "RC: READs and atomics that the sender keeps outstanding.",
		flow(integer(0, 255), func(f *Flow) *int { return &f.MaxRdAtomic })},
	{"max_dest_rd_atomic", "count", "as max_rd_atomic", "RC: READs and atomics that the responder has room for.",
		flow(integer(0, 255), func(f *Flow) *int { return &f.MaxDestRdAtomic })},
	{"rkey", "`good`, `bad`, `no_access`, `out_of_range`", "good", "Which remote key one-sided operations use: the right one, one that no region has, one whose region lacks the rights, or the right one with an address beyond its region. All but the first end in REM_ACCESS_ERR.",
		flow(oneOf("choice of rkey", RKeyGood, RKeyBad, RKeyNoAccess, RKeyOutOfRange), func(f *Flow) *RKeyChoice { return &f.RKey })},
}

func transport(d *decoder, v value) (ib.QPType, bool) {
	s, ok := oneOf("transport", "rc", "uc", "ud")(d, v)
	return map[string]ib.QPType{"rc": ib.QPTypeRC, "uc": ib.QPTypeUC, "ud": ib.QPTypeUD}[s], ok
}

func allOpNames() []Op {
	ops := make([]Op, len(opTable))
	for i := range opTable {
		ops[i] = opTable[i].op
	}
	return ops
}

var operation = oneOf("operation", allOpNames()...)

// mix reads a mapping of operations to weights.
func mix(d *decoder, v value) ([]WeightedOp, bool) {
	const wanted = "a mapping of operations to weights such as {send: 3, read: 1}"
	entries, ok := d.mapping(v, wanted)
	if !ok {
		return nil, false
	}
	if len(entries) == 0 {
		d.problem(v.path, "found an empty mapping; expected %s", wanted)
		return nil, false
	}
	var ops []WeightedOp
	for _, e := range entries {
		child := value{e.node, v.path + "." + e.key}
		d.note(child)
		info := Op(e.key).info()
		switch w, good := integer[uint64](1, 1e6)(d, child); {
		case info.op == "":
			names := allOpNames()
			list := make([]string, len(names))
			for i, n := range names {
				list[i] = string(n)
			}
			d.problemAt(e.at, v.path, "unknown operation %s; expected one of %s%s", quote(e.key), listed(list), didYouMean(e.key, list))
			ok = false
		case !good:
			ok = false
		default:
			ops = append(ops, WeightedOp{info.op, w})
		}
	}
	return ops, ok
}

var srqObject = object[SRQ]{
	title: "srq",
	doc:   "A shared receive queue.",
	fields: []field[SRQ]{
		{"size", "count", "qps times recv_depth", "Receives that are kept posted.", put(integer(1, mostInt), func(s *SRQ) *int { return &s.Size })},
		{"limit", "count", "0", "SRQ_LIMIT_REACHED is raised when fewer receives are left; 0: never.", put(integer(0, mostInt), func(s *SRQ) *int { return &s.Limit })},
	},
}

func decodeSRQ(d *decoder, v value) *SRQ {
	if d.isMapping(v) {
		s := &SRQ{}
		srqObject.decode(d, v, s)
		return s
	}
	s, _ := d.text(v)
	switch s {
	case "true":
		return &SRQ{}
	case "false":
		return nil
	}
	d.mismatch(v, "true, false, or a mapping such as {size: 64, limit: 8}")
	return nil
}

// expectFields are the keys that the expectations of a flow and of the run share.
var expectFields = []field[Expect]{
	{"completions", "mapping of status to count", "flow: {SUCCESS: all}", "Completions of send work requests, including those of failed ones that asked for none. A status that is not listed must not occur.",
		put(statusCounts, func(e *Expect) *[]StatusCount { return &e.Completions })},
	{"receives", "mapping of status to count", "rc with default completions: {SUCCESS: all}, else not checked", "Completions of receive work requests. `all` is one per message that takes a receive. A status that is not listed must not occur.",
		put(statusCounts, func(e *Expect) *[]StatusCount { return &e.Receives })},
	{"all_complete", "boolean", "true", "Every send work request that was posted is done at the end, whatever its status.",
		put(boolean, func(e *Expect) *bool { return &e.AllComplete })},
	{"data_ok", "boolean", "true", "Every message that was reported as SUCCESS has the right data. Says nothing about flows with `verify: false`.",
		put(boolean, func(e *Expect) *bool { return &e.DataOK })},
	{"retransmissions", "count", "not checked", "Packets sent again.",
		func(d *decoder, v value, e *Expect) {
			if r, ok := countRange(d, v); ok {
				e.Retransmissions = &r
			}
		}},
	{"events", "mapping of event to count", "not checked", "Asynchronous events, by their names without IBV_EVENT_. Those not listed are not checked.",
		put(eventCounts, func(e *Expect) *[]EventCount { return &e.Events })},
	{"max_latency", "duration", "not checked", "Longest time from post to completion. Exact in virtual time; on sockets the machine's load counts too.",
		put(positiveDuration, func(e *Expect) *time.Duration { return &e.MaxLatency })},
	{"min_rate", "rate", "not checked", "Payload of successful work requests over the time they took.",
		put(rate, func(e *Expect) *Rate { return &e.MinRate })},
}

var flowExpectObject = object[FlowExpect]{
	title: "expect of a flow",
	doc:   "What a flow must show.",
	fields: append(lift(expectFields, func(e *FlowExpect) *Expect { return &e.Expect }),
		field[FlowExpect]{"qp_state", "`RTS`, `SQD`, `SQE`, `ERR`", "not checked", "State of every sending queue pair at the end.", readQPState}),
}

var runExpectObject = object[RunExpect]{
	title: "expect of the run",
	doc:   "What the run as a whole must show: sums over all flows and nodes, beside what each flow must show.",
	fields: append(lift(expectFields, func(e *RunExpect) *Expect { return &e.Expect }),
		field[RunExpect]{"drops", "mapping of reason to count", "not checked", "Packets that adapters dropped, by the names that the report prints; `total` for all. Those not listed are not checked. What the network loses is no drop.",
			put(dropCounts, func(e *RunExpect) *[]DropCount { return &e.Drops })},
		field[RunExpect]{"misuse", "count", "not checked", "Reports of strict nodes; see [strict mode](strict.md).",
			func(d *decoder, v value, e *RunExpect) {
				if r, ok := countRange(d, v); ok {
					e.Misuse = &r
				}
			}}),
}

func readQPState(d *decoder, v value, e *FlowExpect) {
	states := []ib.QPState{ib.StateRTS, ib.StateSQD, ib.StateSQE, ib.StateErr}
	names := make([]string, len(states))
	for i, s := range states {
		names[i] = s.String()
	}
	got, ok := oneOf("QP state", names...)(d, v)
	for i := range states {
		if ok && names[i] == got {
			e.QPState = &states[i]
		}
	}
}

// countsByName reads a mapping whose keys come from a closed list; add gets each
// good entry.
func countsByName[C any](d *decoder, v value, what string, names []string, count func(*decoder, value) (C, bool), add func(i int, c C)) bool {
	entries, ok := d.mapping(v, "a mapping of "+what+" to count")
	if !ok {
		return false
	}
	seen := map[string]bool{}
	for _, e := range entries {
		child := value{e.node, v.path + "." + e.key}
		d.note(child)
		index := -1
		for i, n := range names {
			if n == e.key {
				index = i
			}
		}
		c, good := count(d, child)
		switch {
		case index < 0:
			d.problemAt(e.at, v.path, "unknown %s %s; expected one of %s%s", what, quote(e.key), listed(names), didYouMean(e.key, names))
			ok = false
		case seen[e.key]:
			d.problemAt(e.at, v.path, "key %q is given twice", e.key)
			ok = false
		case !good:
			ok = false
		default:
			add(index, c)
		}
		seen[e.key] = true
	}
	return ok
}

func statusCounts(d *decoder, v value) ([]StatusCount, bool) {
	counts := []StatusCount{} // an empty mapping differs from none
	ok := countsByName(d, v, "status", statusNames, countOrAll, func(i int, c Count) {
		counts = append(counts, StatusCount{ib.WCStatus(i), c})
	})
	return counts, ok
}

func eventCounts(d *decoder, v value) ([]EventCount, bool) {
	var counts []EventCount
	ok := countsByName(d, v, "event", eventNames, countRange, func(i int, r Range) {
		counts = append(counts, EventCount{ib.EventType(i), r})
	})
	return counts, ok
}

func dropCounts(d *decoder, v value) ([]DropCount, bool) {
	var counts []DropCount
	ok := countsByName(d, v, "drop reason", dropNames, countRange, func(i int, r Range) {
		counts = append(counts, DropCount{dropNames[i], r})
	})
	return counts, ok
}

var statusNames = func() []string {
	names := make([]string, ib.NumWCStatuses)
	for i := range names {
		names[i] = ib.WCStatus(i).String()
	}
	return names
}()

var eventNames = func() []string {
	names := make([]string, ib.EventWQFatal+1)
	for i := range names {
		names[i] = ib.EventType(i).String()
	}
	return names
}()
