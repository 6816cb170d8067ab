package topology

import (
	"slices"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// faultEntry is an entry of faults while it is read.
type faultEntry struct {
	Fault
	pairNames
	flow, node string
	side       string
	sw         string
}

var faultObject = object[faultEntry]{
	title: "faults",
	doc:   "Something that goes wrong, or right again, at a point in time. Which keys an entry has follows from its action.",
	fields: append(append([]field[faultEntry]{
		{"at", "duration", required, "Time since the start of the run.",
			put(duration, func(e *faultEntry) *time.Duration { return &e.At })},
		{"action", "see the table of actions", required, "What happens.",
			put(oneOf("action", actionNames()...), func(e *faultEntry) *FaultAction { return &e.Action })},
		{"flow", "flow name", "none", "The flow that it happens to; the name of an entry with a pattern stands for all of its flows.",
			put(name, func(e *faultEntry) *string { return &e.flow })},
		{"qp", "number", "all", "Which queue pair of each flow, from 0.",
			put(integer(0, mostInt), func(e *faultEntry) *int { return &e.QP })},
		{"side", "`sender`, `receiver`", "sender", "Which end of the flow.",
			put(oneOf("side", "sender", "receiver"), func(e *faultEntry) *string { return &e.side })},
		{"node", "node name", "none", "The node that it happens to, or a group. In place of `flow`: what would happen at one end of a flow happens at all that the node has, also of programs that no file knows.",
			put(name, func(e *faultEntry) *string { return &e.node })},
		{"qpn", "number", "all", "Which queue pair of the node, by its number. Without programs of others, a node numbers its queue pairs from 17, in the order of `traffic`.",
			put(qpnValue, func(e *faultEntry) *ib.QPN { return &e.QPN })},
		{"count", "count", "1", "How often it happens.",
			put(integer(1, mostInt), func(e *faultEntry) *int { return &e.Count })},
		{"status", "status of a completion", "GENERAL_ERR", "Status that a work request completes with.",
			func(d *decoder, v value, e *faultEntry) { e.Status = failedStatus(d, v) }},
		{"delay", "duration", "none", "How long completions are held back.",
			put(positiveDuration, func(e *faultEntry) *time.Duration { return &e.Delay })},
		{"event", "asynchronous event, or `COMPLETION`", "COMPLETION", "Event that is raised without a reason. `COMPLETION` is the notification of a completion queue.",
			func(d *decoder, v value, e *faultEntry) { e.Event, e.Notify = spuriousEvent(d, v) }},
		{"switch", "switch name", "none", "The switch, or all of an entry, whose cables change: those to its nodes, and those to and from other switches.",
			put(name, func(e *faultEntry) *string { return &e.sw })},
	}, pairFields(func(e *faultEntry) *pairNames { return &e.pairNames })...),
		append(lift(linkFields, func(e *faultEntry) *Link { return &e.Link }),
			impaired(func(e *faultEntry) *Impairment { return &e.Impairment })...)...),
}

// faultAction says what an action does and which keys it takes beside at and action.
type faultAction struct {
	action   FaultAction
	doc      string
	needs    []string // reported if absent; pairs and ends are checked by themselves
	takes    []string
	impaired bool // also takes the keys of an impairment
}

// atEnds reports whether the action happens at the ends of flows.
func (a *faultAction) atEnds() bool { return slices.Contains(a.takes, "flow") }

var pairKeys = []string{"between", "from", "to"}

// linkChange are the keys of SetLink.
var linkChange = func() []string {
	keys := append(slices.Clone(pairKeys), "switch")
	for _, f := range linkFields {
		keys = append(keys, f.key)
	}
	return keys
}()

var faultActions = []faultAction{
	{Partition, "No packet passes between the nodes until `heal`. Without nodes: between any.", nil, pairKeys, false},
	{Heal, "Ends a partition of the same nodes. Without nodes: every partition.", nil, pairKeys, false},
	{SetImpairment, "From now on `loss`, `duplicate`, `reorder`, `corrupt` and `rules` between the nodes are as given here; what is not given is off. Without nodes: between any.", nil, pairKeys, true},
	{SetLink, "From now on the keys of a link between the nodes, or at a switch, are as given here; what is not given is as on a link without keys: no latency, no limits. What goes wrong there stays. Without nodes: between any, and from nodes to switches. Packets that wait already keep their times.", nil, linkChange, false},
	{ModifyQPError, "The program moves its queue pairs to the state ERR.", nil, []string{"flow", "qp", "side", "node", "qpn"}, false},
	{PauseReceiver, "The flow's receiver posts no more receives.", nil, []string{"flow", "node"}, false},
	{ResumeReceiver, "It posts receives again.", nil, []string{"flow", "node"}, false},
	{KillNode, "The node vanishes: it answers nothing from now on.", []string{"node"}, []string{"node"}, false},
	{RestartNode, "A node that was killed comes back with an empty adapter. Its flows that were not done begin anew, on new queue pairs; programs of others have to be started again.", []string{"node"}, []string{"node"}, false},
	{PortDown, "The node's port goes down: nothing comes in or goes out.", []string{"node"}, []string{"node"}, false},
	{PortUp, "It comes up again.", []string{"node"}, []string{"node"}, false},
	{RevokeKey, "The receiver deregisters the memory that it offers to WRITE, READ and atomics.", nil, []string{"flow", "node"}, false},
	{CQOverflow, "The next completion of a side's send queue finds its completion queue full.", nil, []string{"flow", "side", "node"}, false},
	{FailPost, "The next `count` work requests that a side posts are refused with ENOMEM, on each queue pair. The program tries again.", nil, []string{"flow", "qp", "side", "node", "qpn", "count"}, false},
	{CompleteWith, "The oldest work request of a send queue completes with `status`, which is an error and has the consequences of one.", nil, []string{"flow", "qp", "side", "node", "qpn", "status"}, false},
	{DelayCompletions, "Completions of a side are held back for `delay` and then shown all at once.", []string{"delay"}, []string{"flow", "side", "node", "delay"}, false},
	{SpuriousEvent, "An event without a reason.", nil, []string{"flow", "qp", "side", "node", "qpn", "event"}, false},
}

// actionOf finds an action; nil if there is none of that name.
func actionOf(name FaultAction) *faultAction {
	if i := slices.IndexFunc(faultActions, func(a faultAction) bool { return a.action == name }); i >= 0 {
		return &faultActions[i]
	}
	return nil
}

// failedStatus reads a status that is not SUCCESS.
func failedStatus(d *decoder, v value) ib.WCStatus {
	s, _ := oneOf("status", statusNames[1:]...)(d, v)
	return ib.WCStatus(max(slices.Index(statusNames, s), 0))
}

// spuriousEvent reads the name of an event, or that of a notification.
func spuriousEvent(d *decoder, v value) (ib.EventType, bool) {
	const notification = "COMPLETION"
	s, ok := oneOf("event", append([]string{notification}, eventNames...)...)(d, v)
	return ib.EventType(max(slices.Index(eventNames, s), 0)), !ok || s == notification
}

func actionNames() []FaultAction {
	names := make([]FaultAction, len(faultActions))
	for i := range faultActions {
		names[i] = faultActions[i].action
	}
	return names
}

var impairmentKeys = func() []string {
	var keys []string
	for _, f := range impaired(func(i *Impairment) *Impairment { return i }) {
		keys = append(keys, f.key)
	}
	return keys
}()

func decodeFaults(d *decoder, v value, f *File) {
	for _, e := range d.list(v, "a list of faults") {
		x := faultEntry{Fault: Fault{QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true}}
		x.Impairment.ReorderDelay = defaultReorderDelay
		faultObject.decode(d, e, &x)
		if d.finishFault(f, e.path, &x) {
			f.Faults = append(f.Faults, x.Fault)
		}
	}
	slices.SortStableFunc(f.Faults, func(a, b Fault) int { return int(a.At - b.At) })
}

// finishFault checks the keys against the action and resolves names.
func (d *decoder) finishFault(f *File, path string, x *faultEntry) bool {
	a := actionOf(x.Action)
	if a == nil {
		return false // reported when it was read
	}
	ok := d.checkKeys(a, path, faultObject.keys(), "at", "action")
	if slices.Contains(a.takes, "between") {
		var good bool
		x.Pair, good = d.resolvePair(f, path, x.pairNames, true)
		ok = ok && good
	}
	ok = d.checkEnds(a, path) && ok
	ok = d.finishLink(f, path, x) && ok
	if x.flow != "" {
		ok = d.resolveFaultFlow(f, path, x) && ok
	}
	if x.node != "" {
		var good bool
		x.Nodes, good = d.nodes(f, path+".node", x.node)
		ok = ok && good
	}
	x.Receiver = x.side == "receiver"
	if x.At >= f.Timeout && !d.options.Live {
		d.problem(path+".at", "found %s; expected less than the file's timeout of %s, at which the run ends", x.At, f.Timeout)
		ok = false
	}
	return ok
}

// checkEnds reports unless an action at the ends of flows says which: those of a flow, or
// those at a node.
func (d *decoder) checkEnds(a *faultAction, path string) bool {
	if !a.atEnds() {
		return true
	}
	flow, node := d.given(joinPath(path, "flow")), d.given(joinPath(path, "node"))
	switch {
	case !flow && !node:
		d.problem(path, `key "flow" is missing; action %s needs it, or "node"`, a.action)
		return false
	case flow && node:
		d.problem(joinPath(path, "node"), `found "node" beside "flow"; expected one or the other`)
		return false
	}
	ok := true
	for _, key := range []string{"qp", "side", "qpn"} {
		if d.given(joinPath(path, key)) && (key == "qpn") == flow {
			d.problem(joinPath(path, key), "found a key that goes with %q; expected %s", map[bool]string{true: "node", false: "flow"}[flow], map[bool]string{true: `"qp"`, false: `"qpn"`}[flow])
			ok = false
		}
	}
	return ok
}

// checkKeys reports keys that an action does not take, beside those that every entry has,
// and those that it needs.
func (d *decoder) checkKeys(a *faultAction, path string, all []string, always ...string) bool {
	ok := true
	for _, key := range all {
		allowed := slices.Contains(always, key) || slices.Contains(a.takes, key) || a.impaired && slices.Contains(impairmentKeys, key)
		if d.given(joinPath(path, key)) && !allowed {
			d.problem(joinPath(path, key), "found a key that action %s does not take; expected only %s, %s", a.action, strings.Join(always, ", "), listed(a.keys()))
			ok = false
		}
	}
	for _, key := range a.needs {
		if !d.given(joinPath(path, key)) {
			d.problem(path, "key %q is missing; action %s needs it", key, a.action)
			ok = false
		}
	}
	return ok
}

func (a faultAction) keys() []string {
	if a.impaired {
		return append(slices.Clone(a.takes), impairmentKeys...)
	}
	return a.takes
}

func (d *decoder) resolveFaultFlow(f *File, path string, x *faultEntry) bool {
	var ok bool
	if x.Flows, ok = d.flows[x.flow]; !ok {
		names := make([]string, len(f.Entries))
		for i := range f.Entries {
			names[i] = f.Entries[i].Name
		}
		d.unknown(path+".flow", "flow", x.flow, names)
		return false
	}
	if qps := f.Flows[x.Flows.First].QPs; x.QP >= qps && !d.options.Live {
		d.problem(path+".qp", "found %d; expected less than %d, the flow's qps", x.QP, qps)
		return false
	}
	return true
}
