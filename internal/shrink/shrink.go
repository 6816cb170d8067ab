// Package shrink makes a topology file that fails smaller: fewer flows, faults, nodes,
// operations and imperfections, as long as it still fails. What it keeps has been run as
// it will be written, so the file that comes out is one that reproduces.
package shrink

import (
	"context"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/internal/topology"
)

// Shrinker holds a file that fails.
type Shrinker struct {
	// Fails runs a file and reports whether it fails in the way that is looked for.
	Fails func(context.Context, *topology.File) bool
	// Progress, if not nil, is told how many files were tried and what the smallest is.
	Progress func(tried int, f *topology.File)

	best  *topology.File
	tried int
	ctx   context.Context
}

// Run returns the smallest file that it found within the time that ctx leaves, and false
// if the file, written out, does not fail.
func (s *Shrinker) Run(ctx context.Context, f *topology.File) (*topology.File, bool) {
	s.ctx = ctx
	if !s.try(f.Plain()) {
		return nil, false
	}
	for {
		before := size(s.best)
		s.list(func(f *topology.File) int { return len(f.Faults) }, dropFaults)
		s.list(func(f *topology.File) int { return len(f.Flows) }, dropFlows)
		s.list(func(f *topology.File) int { return len(f.Nodes) }, dropNodes)
		s.list(func(f *topology.File) int { return len(f.Links) }, func(f *topology.File, r topology.Span) {
			f.Links = slices.Delete(slices.Clone(f.Links), r.First, r.First+r.N)
		})
		for _, simpler := range simplifications {
			s.edit(simpler)
		}
		for i := range s.best.Flows {
			for _, simpler := range flowSimplifications {
				s.flow(i, simpler)
			}
		}
		if size(s.best) >= before || ctx.Err() != nil {
			return s.best, true
		}
	}
}

// size is what shrinking reduces.
func size(f *topology.File) int {
	n := 100*len(f.Nodes) + 100*len(f.Flows) + 100*len(f.Faults) + 10*len(f.Links) + 10*len(f.Switches)
	for i := range f.Flows {
		fl := &f.Flows[i]
		n += int(min(fl.Count, 1<<20)) + fl.Depth + fl.QPs + len(fl.Ops) + int(min(fl.Sizes.Max(), 1<<20))/256
	}
	return n
}

// try makes a candidate the best file if it still fails, as it would be written.
func (s *Shrinker) try(f *topology.File) bool {
	if s.ctx.Err() != nil {
		return false
	}
	g, err := topology.Parse(f.Path, f.Marshal(""))
	if err != nil {
		return false // what is left makes no sense: a flow without its node
	}
	s.tried++
	if !s.Fails(s.ctx, g) {
		return false
	}
	s.best = g
	if s.Progress != nil {
		s.Progress(s.tried, g)
	}
	return true
}

// list removes runs of a list, long ones first (delta debugging).
func (s *Shrinker) list(length func(*topology.File) int, drop func(f *topology.File, r topology.Span)) {
	for chunk := length(s.best); chunk > 0; chunk /= 2 {
		for first := 0; first < length(s.best); {
			f := *s.best
			drop(&f, topology.Span{First: first, N: min(chunk, length(s.best)-first)})
			if !s.try(&f) {
				first += chunk
			}
		}
	}
}

// edit tries one change of the whole file.
func (s *Shrinker) edit(change func(f *topology.File) bool) {
	for {
		f := *s.best
		if !change(&f) || !s.try(&f) {
			return
		}
	}
}

// flow tries one change of a flow, again and again.
func (s *Shrinker) flow(i int, change func(fl *topology.Flow) bool) {
	s.edit(func(f *topology.File) bool {
		f.Flows = slices.Clone(f.Flows)
		return change(&f.Flows[i])
	})
}

func dropFaults(f *topology.File, r topology.Span) {
	f.Faults = slices.Delete(slices.Clone(f.Faults), r.First, r.First+r.N)
}

// dropFlows removes flows, and the faults that happen to them.
func dropFlows(f *topology.File, r topology.Span) {
	f.Flows = slices.Delete(slices.Clone(f.Flows), r.First, r.First+r.N)
	var kept []topology.Fault
	for _, x := range f.Faults {
		if x.Flows.N > 0 {
			switch {
			case r.Has(x.Flows.First):
				continue
			case x.Flows.First >= r.First:
				x.Flows.First -= r.N
			}
		}
		kept = append(kept, x)
	}
	f.Faults = kept
}

// dropSwitches removes all switches, and the faults of their cables.
func dropSwitches(f *topology.File) bool {
	n := len(f.Switches)
	f.Switches = nil
	f.Faults = slices.DeleteFunc(slices.Clone(f.Faults), func(x topology.Fault) bool { return x.Switches.N > 0 })
	return n > 0
}

// dropNodes removes nodes with their links, flows, faults and plugs.
func dropNodes(f *topology.File, r topology.Span) {
	for i := len(f.Flows) - 1; i >= 0; i-- {
		if r.Has(f.Flows[i].From) || r.Has(f.Flows[i].To) {
			dropFlows(f, topology.One(i))
		}
	}
	moved := func(i int) int {
		if i >= r.First {
			return i - r.N
		}
		return i
	}
	pair := func(p *topology.Pair) bool {
		if p.All {
			return true
		}
		if r.Has(p.From.First) || r.Has(p.To.First) {
			return false
		}
		p.From.First, p.To.First = moved(p.From.First), moved(p.To.First)
		return true
	}
	f.Flows = slices.Clone(f.Flows)
	for i := range f.Flows {
		f.Flows[i].From, f.Flows[i].To = moved(f.Flows[i].From), moved(f.Flows[i].To)
	}
	f.Links = slices.Clone(f.Links)
	f.Links = slices.DeleteFunc(f.Links, func(l topology.Link) bool { return r.Has(l.Pair.From.First) || r.Has(l.Pair.To.First) })
	for i := range f.Links {
		pair(&f.Links[i].Pair)
	}
	var faults []topology.Fault
	for _, x := range f.Faults {
		if x.Pair.From.N > 0 && !pair(&x.Pair) || x.Nodes.N > 0 && r.Has(x.Nodes.First) {
			continue
		}
		x.Nodes.First = moved(x.Nodes.First)
		faults = append(faults, x)
	}
	f.Faults = faults
	f.Switches = slices.Clone(f.Switches)
	for i := range f.Switches {
		var spans []topology.Span
		for _, s := range f.Switches[i].Nodes {
			for k := range s.N {
				if n := s.First + k; !r.Has(n) {
					spans = append(spans, topology.One(moved(n)))
				}
			}
		}
		f.Switches[i].Nodes = spans
	}
	f.Nodes = slices.Delete(slices.Clone(f.Nodes), r.First, r.First+r.N)
}

// simplifications change the file as a whole; each returns whether there was something
// to change.
var simplifications = []func(f *topology.File) bool{
	dropSwitches,
	func(f *topology.File) bool { return zero(&f.Network.Loss) },
	func(f *topology.File) bool { return zero(&f.Network.Duplicate) },
	func(f *topology.File) bool { return zero(&f.Network.Reorder) },
	func(f *topology.File) bool { return zero(&f.Network.Corrupt) },
	func(f *topology.File) bool { return zero(&f.Network.Tamper) },
	func(f *topology.File) bool { return zero(&f.Network.Burst) },
	func(f *topology.File) bool { return zero(&f.Network.Jitter) },
	func(f *topology.File) bool { return zero(&f.Network.ECN) },
	func(f *topology.File) bool { return zero(&f.Network.Queue) },
	func(f *topology.File) bool { return zero(&f.Network.Bandwidth) },
	func(f *topology.File) bool { n := len(f.Network.Rules); f.Network.Rules = nil; return n > 0 },
	func(f *topology.File) bool { n := len(f.Expect.Drops); f.Expect.Drops = nil; return n > 0 },
}

func zero[T comparable](v *T) bool {
	var none T
	was := *v
	*v = none
	return was != none
}

// flowSimplifications change one flow.
var flowSimplifications = []func(fl *topology.Flow) bool{
	func(fl *topology.Flow) bool { n := fl.Count; fl.Count = (n + 1) / 2; return fl.Count < n },
	func(fl *topology.Flow) bool { n := fl.Count; fl.Count--; return n > 1 },
	func(fl *topology.Flow) bool { n := fl.QPs; fl.QPs = (n + 1) / 2; return fl.QPs < n },
	func(fl *topology.Flow) bool { n := fl.Depth; fl.Depth = (n + 1) / 2; return fl.Depth < n },
	func(fl *topology.Flow) bool { n := len(fl.Ops); fl.Ops = fl.Ops[:max(n-1, 1)]; return n > 1 },
	func(fl *topology.Flow) bool { n := len(fl.Ops); fl.Ops = fl.Ops[min(n-1, 1):]; return n > 1 },
	func(fl *topology.Flow) bool {
		n := fl.Sizes.Max()
		if n < 2 || fl.Sizes.Kind == topology.SizeFixed && fl.RecvSize == 0 && n <= 8 {
			return false
		}
		fl.Sizes = topology.Sizes{Kind: topology.SizeFixed, Values: []int64{n / 2}}
		return true
	},
	func(fl *topology.Flow) bool { return zero(&fl.Bidirectional) },
	func(fl *topology.Flow) bool { return zero(&fl.Fence) },
	func(fl *topology.Flow) bool { return zero(&fl.Inline) },
	func(fl *topology.Flow) bool { return zero(&fl.Solicited) },
	func(fl *topology.Flow) bool { return zero(&fl.Rate) },
	func(fl *topology.Flow) bool { was := fl.SRQ != nil; fl.SRQ = nil; return was },
	func(fl *topology.Flow) bool { d := fl.Start; fl.Start = d / 2; return d > time.Microsecond },
}
