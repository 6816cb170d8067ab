package topology

import (
	"slices"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
)

// LiveFault is a fault of a network that runs the programs of others. There are no flows
// then: what happens at an end of a flow in a file happens at queue pairs of a node here.
type LiveFault struct {
	Fault
	Key    uint32 // RevokeKey: rkey or lkey of the region
	HasKey bool
}

// liveEntry is a fault while it is read.
type liveEntry struct {
	faultEntry
	key    uint32
	hasKey bool
}

var liveObject = object[liveEntry]{
	title: "fault",
	fields: append(lift(without(faultObject, "at", "flow", "qp", "side").fields, func(e *liveEntry) *faultEntry { return &e.faultEntry }),
		field[liveEntry]{"key", "number", "all", "Remote or local key of a memory region.",
			func(d *decoder, v value, e *liveEntry) { e.key, e.hasKey = integer[uint32](0, 1<<32-1)(d, v) }},
	),
}

// liveActions are those of files, at nodes where files have flows.
var liveActions = func() []faultAction {
	var list []faultAction
	for _, a := range faultActions {
		if a.atEnds() {
			a.takes = slices.DeleteFunc(slices.Clone(a.takes), func(k string) bool { return k == "flow" || k == "qp" || k == "side" })
			switch a.action {
			case RevokeKey:
				a.takes = append(a.takes, "key")
			default:
				if !slices.Contains(a.takes, "qpn") {
					a.takes = append(a.takes, "qpn")
				}
			}
			a.needs = append([]string{"node"}, a.needs...)
			a.doc = liveDocs[a.action]
		}
		if a.action == RestartNode {
			a.doc = liveDocs[RestartNode]
		}
		list = append(list, a)
	}
	return list
}()

// liveDocs say what actions do whose part in a file is about flows.
var liveDocs = map[FaultAction]string{
	ModifyQPError:    "Queue pairs go to the state ERR, as if the program had moved them there.",
	PauseReceiver:    "Messages find no receive, although the program has posted some.",
	ResumeReceiver:   "They find them again.",
	RevokeKey:        "Memory regions cannot be used any more, like deregistered ones.",
	CQOverflow:       "The next completion of a send finds its completion queue full.",
	FailPost:         "The next `count` sends that are posted are refused with ENOMEM, on each queue pair.",
	CompleteWith:     "The oldest work request of a send queue completes with `status`, which is an error and has the consequences of one. One that is posted later does if the queue is empty.",
	DelayCompletions: "Completions are held back for `delay` and then shown all at once.",
	SpuriousEvent:    "An event without a reason.",
	RestartNode:      "A node that was killed comes back with an empty adapter, for programs that start from now on.",
}

// ParseFault reads a fault of a running network whose nodes are those of f. It is a YAML
// mapping with the keys of an entry of faults, without at, and with node and qpn in place
// of flow, qp and side. The error is [Problems].
func ParseFault(f *File, text string) (*LiveFault, error) {
	d, root, err := open("fault", []byte(text), Options{})
	if err != nil {
		return nil, err
	}
	d.names = namesOf(f)
	out := &LiveFault{}
	decodeLive(d, root, f, out)
	if len(d.problems) > 0 {
		return nil, d.problems.placed([]byte(text))
	}
	return out, nil
}

func decodeLive(d *decoder, v value, f *File, out *LiveFault) {
	x := liveEntry{faultEntry: faultEntry{Fault: Fault{QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true}}}
	x.Impairment.ReorderDelay = defaultReorderDelay
	liveObject.decode(d, v, &x)
	i := slices.IndexFunc(liveActions, func(a faultAction) bool { return a.action == x.Action })
	if i < 0 {
		if !d.given("action") {
			d.problem("", `key "action" is missing; expected one of %s`, listed(liveNames()))
		}
		return
	}
	a := &liveActions[i]
	d.checkKeys(a, "", liveObject.keys(), "action")
	if slices.Contains(a.takes, "between") {
		x.Pair, _ = d.resolvePair(f, "", x.pairNames, true)
	}
	if x.node != "" {
		x.Nodes, _ = d.nodes(f, "node", x.node)
	}
	d.finishLink(f, "", &x.faultEntry)
	*out = LiveFault{Fault: x.Fault, Key: x.key, HasKey: x.hasKey}
}

// Summary is what an impairment does, in the words of a file; empty if it does nothing.
func (i *Impairment) Summary() string {
	var w fileWriter
	return strings.Join(w.impairment(i), ", ")
}

// Summary is what a link has besides an impairment, in the words of a file; empty if it
// takes no time and has no limits.
func (l *Link) Summary() string {
	var w fileWriter
	return strings.Join(w.cable(l), ", ")
}

func liveNames() []string {
	var names []string
	for i := range liveActions {
		names = append(names, string(liveActions[i].action))
	}
	return names
}

// LiveHelp lists the actions with their keys, for the command line.
func LiveHelp() string {
	var b strings.Builder
	for i := range liveActions {
		a := &liveActions[i]
		b.WriteString("  " + string(a.action))
		for _, k := range a.keys() {
			if slices.Contains(a.needs, k) {
				b.WriteString(" " + k + "=")
			} else {
				b.WriteString(" [" + k + "=]")
			}
		}
		b.WriteString("\n      " + strings.ReplaceAll(a.doc, "`", "") + "\n")
	}
	return b.String()
}
