package topology

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// drawable are the actions that random faults draw from, in this order, and what repairs
// them; "" where nothing is broken for long.
var drawable = []struct{ action, repair FaultAction }{
	{Partition, Heal}, {SetImpairment, SetImpairment}, {PauseReceiver, ResumeReceiver}, {PortDown, PortUp}, {KillNode, RestartNode},
	{ModifyQPError, ""}, {RevokeKey, ""}, {CQOverflow, ""}, {FailPost, ""}, {CompleteWith, ""}, {DelayCompletions, ""}, {SpuriousEvent, ""},
}

func drawableNames() []FaultAction {
	names := make([]FaultAction, len(drawable))
	for i := range drawable {
		names[i] = drawable[i].action
	}
	return names
}

var randomObject = object[RandomFaults]{
	title: "random_faults",
	doc:   "Faults drawn from the seed: when, which of `actions`, and to what. Those that break something are repaired after `duration`; `set_impairment` loses, duplicates and reorders up to a tenth of the packets between two nodes.",
	fields: []field[RandomFaults]{
		{"count", "count", required, "How many.", put(integer(0, mostFaults), func(r *RandomFaults) *int { return &r.Count })},
		{"from", "duration", "0s", "None comes before.", put(duration, func(r *RandomFaults) *time.Duration { return &r.From })},
		{"until", "duration", required, "None comes after.", put(duration, func(r *RandomFaults) *time.Duration { return &r.Until })},
		{"duration", "duration", "1ms", "How long something stays broken.", put(positiveDuration, func(r *RandomFaults) *time.Duration { return &r.Duration })},
		{"actions", "list of actions", "[partition, set_impairment, pause_receiver, port_down]", "Which ones may be drawn: `" + strings.Join(asStrings(drawableNames()), "`, `") + "`.",
			func(d *decoder, v value, r *RandomFaults) { r.Actions = actionList(d, v) }},
	},
}

// mostFaults bounds the random faults of a file.
const mostFaults = 100_000

func actionList(d *decoder, v value) (list []FaultAction) {
	entries, ok := d.sequence(v, "a list of actions")
	if ok && len(entries) == 0 {
		d.problem(v.path, "found an empty list; expected at least one of %s", listed(asStrings(drawableNames())))
	}
	for _, e := range entries {
		if a, ok := oneOf("action", drawableNames()...)(d, e); ok {
			list = append(list, a)
		}
	}
	return list
}

func asStrings[S ~string](list []S) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = string(s)
	}
	return out
}

func decodeRandomFaults(d *decoder, v value, r *RandomFaults) {
	*r = RandomFaults{Duration: time.Millisecond, Actions: []FaultAction{Partition, SetImpairment, PauseReceiver, PortDown}}
	randomObject.decode(d, v, r)
}

// checkRandomFaults looks at what needs the rest of the file.
func (d *decoder) checkRandomFaults(f *File) {
	r := &f.Random
	if r.Count == 0 {
		return
	}
	if r.Until < r.From {
		d.problem("random_faults.until", "found %s; expected at least %s, the from", r.Until, r.From)
	}
	if r.Until >= f.Timeout && !d.options.Live {
		d.problem("random_faults.until", "found %s; expected less than the file's timeout of %s", r.Until, f.Timeout)
	}
	if len(f.Flows) == 0 && !d.options.Live || len(f.Nodes) < 2 {
		d.problem("random_faults", "found random faults in a file without flows, or with one node; expected something that can go wrong")
	}
}

// WithSeed returns the file as it is with another seed: patterns and faults that depend
// on it are drawn anew. What does not depend on it is shared with f.
func (f *File) WithSeed(seed uint64) *File {
	g := *f
	g.Seed = seed
	for i := range g.Entries {
		if !g.Entries[i].drawn() {
			continue
		}
		g.Flows = slices.Clone(f.Flows)
		break
	}
	for i := range g.Entries {
		e := &g.Entries[i]
		k := e.Flows.First
		if e.drawn() {
			e.pairs(seed, func(from, to int) {
				g.Flows[k].From, g.Flows[k].To = from, to
				k++
			})
		}
	}
	return &g
}

// Schedule returns all faults in order of time: those of the file and those that the
// seed draws.
func (f *File) Schedule() []Fault {
	all := slices.Clone(f.Faults)
	rng := rand.New(rand.NewPCG(fabric.Mix(f.Seed, 0x6661), fabric.Mix(f.Seed, 0x756c)))
	for range f.Random.Count {
		all = append(all, f.draw(rng)...)
	}
	slices.SortStableFunc(all, func(a, b Fault) int {
		switch {
		case a.At < b.At:
			return -1
		case a.At > b.At:
			return 1
		}
		return 0
	})
	return all
}

// draw draws one fault, and its repair if it has one.
func (f *File) draw(rng *rand.Rand) []Fault {
	r := &f.Random
	// Every fault takes the same draws, so that another list of actions changes the
	// action and nothing else.
	at := r.From + time.Duration(rng.Int64N(int64(r.Until-r.From)+1))
	action := r.Actions[rng.IntN(len(r.Actions))]
	flow := rng.IntN(max(len(f.Flows), 1))
	a, b := rng.IntN(len(f.Nodes)), rng.IntN(len(f.Nodes)-1)
	if b >= a {
		b++
	}
	status := ib.WCStatus(1 + rng.IntN(ib.NumWCStatuses-1))
	x := Fault{At: at, Action: action, QP: -1, Flows: One(flow), Nodes: One(a), Count: 1 + rng.IntN(4), Status: status, Delay: r.Duration, Notify: true,
		Pair: Pair{From: One(a), To: One(b), Both: true}}
	if action == SetImpairment {
		x.Impairment = Impairment{Loss: rng.Float64() / 10, Duplicate: rng.Float64() / 10, Reorder: rng.Float64() / 10, ReorderDelay: defaultReorderDelay}
	}
	switch a := actionOf(action); {
	case a.atEnds() && len(f.Flows) > 0:
		x.Nodes = Span{}
	default:
		x.Flows = Span{}
	}
	i := slices.IndexFunc(drawable, func(d struct{ action, repair FaultAction }) bool { return d.action == action })
	if drawable[i].repair == "" {
		return []Fault{x}
	}
	end := x
	end.At += r.Duration
	end.Action = drawable[i].repair
	if action == SetImpairment {
		end.Impairment = f.LinkBetween(a, b).Impairment
	}
	return []Fault{x, end}
}

// For returns the file with traffic that goes on for d and stops then. Flows whose work
// requests must have an end keep their counts.
func (f *File) For(d time.Duration) *File {
	g := *f
	g.Duration = d
	g.Timeout = max(f.Timeout, 2*d)
	g.Flows = slices.Clone(f.Flows)
	for i := range g.Flows {
		fl := &g.Flows[i]
		windows := slices.ContainsFunc(fl.Ops, func(o WeightedOp) bool { return o.Op == OpSendInv })
		if fl.Signal.Kind != SignalLast && !(windows && fl.Bidirectional) {
			fl.Count = 0
		}
	}
	return &g
}
