package topology

import (
	"math/rand/v2"
	"strconv"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// pattern says what a pattern takes.
type pattern struct {
	name Pattern
	doc  string
	to   string // what `to` may be and what its absence means, for the manual
}

var patterns = []pattern{
	{PatternPairwise, "The first of `from` sends to the first of `to`, the second to the second.", "a group as large; without it the first half of `from` sends to the second"},
	{PatternIncast, "Every node of `from` sends to one.", "that node; without it the first of `from`, to which the others send"},
	{PatternAllToAll, "Every node of `from` sends to every node of `to` but itself.", "a node or a group; `from` by default"},
	{PatternRing, "Every node sends to the next one, the last to the first.", "is not given"},
	{PatternRingAllReduce, "The nodes sum up vectors of `size` bytes, one at each: each sends its share of the vector to the next, waits for one from the node before it, and passes that on, 2(n-1) times. `count` vectors follow each other. Operations that take a receive, on rc.", "is not given"},
	{PatternPermutation, "Every node sends to one other and receives from one, drawn from the seed.", "is not given"},
	{PatternRandom, "Every node of `from` sends to `peers` nodes of `to`, drawn from the seed.", "a node or a group; `from` by default"},
}

func patternNames() []Pattern {
	names := make([]Pattern, len(patterns))
	for i := range patterns {
		names[i] = patterns[i].name
	}
	return names
}

// mostFlows bounds the flows of a file.
const mostFlows = 1 << 18

func decodeFlows(d *decoder, v value, def flowEntry, f *File) {
	for i, e := range d.list(v, "a list of flows") {
		fl := def
		flowReader.decode(d, e, &fl)
		d.oneOfOpAndMix(e.path)
		d.addFlows(f, i, e.path, &fl)
	}
	d.checkFlowNames(f)
}

// addFlows appends the flows of one entry. The nodes of a group are alike, so what holds
// for the first flow holds for all.
func (d *decoder) addFlows(f *File, index int, path string, e *flowEntry) {
	entry := Entry{Name: e.Name, Pattern: e.pattern, Peers: max(e.peers, 1), Flows: Span{First: len(f.Flows)}}
	known := d.ends(f, path, e, &entry)
	if entry.Pattern != "" && known {
		known = d.checkPattern(f, path, e, &entry)
	} else if d.given(path + ".peers") {
		d.problem(path+".peers", "found a key that means nothing here: it is for the pattern random")
	}
	e.From, e.To, e.Entry = unset, unset, index
	if known {
		e.From, e.To = entry.first()
	}
	d.finishFlow(f, path, e)
	if entry.Name == "" {
		entry.Name = defaultFlowName(&e.Flow, index)
	}
	if entry.Pattern == "" || !known {
		entry.Pattern, entry.Flows.N = "", 1
		e.Name = entry.Name
		f.Flows = append(f.Flows, e.Flow)
	} else {
		entry.Flows.N = entry.flows()
		d.expand(f, path, e, &entry)
	}
	f.Entries = append(f.Entries, entry)
}

// ends resolves from and to.
func (d *decoder) ends(f *File, path string, e *flowEntry, entry *Entry) (known bool) {
	known = true
	pattern := e.pattern != "" || d.given(path+".pattern") // one that is unknown was reported
	for _, end := range []struct {
		key, name string
		span      *Span
		optional  bool
	}{{"from", e.from, &entry.From, false}, {"to", e.to, &entry.To, pattern}} {
		s, ok := d.nodes(f, path+"."+end.key, end.name)
		switch {
		case ok && !pattern && s.N > 1:
			d.problem(path+"."+end.key, "found %q, a group of %d nodes; expected one node, such as %q, or a pattern beside it", end.name, s.N, f.Nodes[s.First].Name)
			known = false
		case ok:
			*end.span = s
		case end.name == "" && !d.given(path+"."+end.key):
			if !end.optional {
				d.problem(path, "key %q is missing; expected a node name", end.key)
				known = false
			}
		default:
			known = false
		}
	}
	return known && (e.pattern != "" || !pattern)
}

// checkPattern checks that the groups suit the pattern and fills in what `to` is.
func (d *decoder) checkPattern(f *File, path string, e *flowEntry, entry *Entry) bool {
	bad := len(d.problems)
	switch entry.Pattern {
	case PatternRing, PatternRingAllReduce, PatternPermutation:
		if d.given(path + ".to") {
			d.problem(path+".to", "found a key that pattern %s does not take; its flows stay within from", entry.Pattern)
		}
		entry.To = entry.From
		if entry.From.N < 2 {
			d.problem(path+".from", "found one node; expected a group of at least 2 for pattern %s", entry.Pattern)
		}
	case PatternIncast:
		if entry.To.N == 0 {
			entry.To = One(entry.From.First)
		}
		if entry.To.N > 1 {
			d.problem(path+".to", "found %q, a group of %d nodes; expected one node for pattern incast", e.to, entry.To.N)
		}
	case PatternPairwise:
		d.checkPairwise(path, entry)
	default:
		if entry.To.N == 0 {
			entry.To = entry.From
		}
	}
	others := entry.To.N
	if entry.From.overlap(entry.To) {
		others--
	}
	if entry.Pattern == PatternRandom && entry.Peers > others && others > 0 {
		d.problem(path+".peers", "found %d; expected at most %d, the other nodes of to", entry.Peers, others)
	}
	if entry.Pattern != PatternRandom && d.given(path+".peers") {
		d.problem(path+".peers", "found a key that means nothing here: it is for the pattern random")
	}
	if entry.Pattern == PatternRingAllReduce {
		d.checkAllReduce(path, e, entry)
	}
	if len(d.problems) > bad {
		return false
	}
	if n := entry.flows(); n == 0 {
		d.problem(path, "pattern %s makes no flow between these nodes; expected at least two nodes", entry.Pattern)
	} else if n > mostFlows-len(f.Flows) {
		d.problem(path, "pattern %s makes %d flows, %d with those before it; expected at most %d in a file", entry.Pattern, n, n+len(f.Flows), mostFlows)
	}
	return len(d.problems) == bad
}

func (d *decoder) checkPairwise(path string, entry *Entry) {
	switch {
	case entry.To.N == 0 && entry.From.N%2 != 0:
		d.problem(path+".from", "found a group of %d nodes; expected an even number, of which the first half sends to the second, or the key \"to\"", entry.From.N)
	case entry.To.N == 0:
		half := entry.From.N / 2
		entry.From, entry.To = Span{entry.From.First, half}, Span{entry.From.First + half, half}
	case entry.To.N != entry.From.N:
		d.problem(path+".to", "found a group of %d nodes; expected %d, as many as from has", entry.To.N, entry.From.N)
	}
}

// checkAllReduce turns the flow of the file, which speaks of vectors, into that of each
// node, which sends shares.
func (d *decoder) checkAllReduce(path string, e *flowEntry, entry *Entry) {
	fl := &e.Flow
	if len(fl.Sizes.Values) != 1 {
		d.problem(path+".size", "found several sizes; expected one, the length of a vector, for pattern ring_all_reduce")
		return
	}
	for _, o := range fl.Ops {
		if !o.Op.TakesReceive() {
			d.problem(path, "found operation %s; expected operations that take a receive for pattern ring_all_reduce: a node must learn that its share has come", o.Op)
			return
		}
	}
	if fl.Transport != ib.QPTypeRC || fl.Bidirectional || fl.Count == 0 || fl.QPs != 1 {
		d.problem(path, "found a transport, direction, count or number of queue pairs that pattern ring_all_reduce cannot have; expected rc, one direction, a count above 0 and one queue pair")
		return
	}
	n := int64(entry.From.N)
	e.Sizes = Sizes{SizeFixed, []int64{max((fl.Sizes.Values[0]+n-1)/n, 1)}}
	e.Count = fl.Count * uint64(2*(n-1))
}

// expand writes the flows of a pattern out.
func (d *decoder) expand(f *File, path string, e *flowEntry, entry *Entry) {
	k := 0
	entry.pairs(f.Seed, func(from, to int) {
		fl := e.Flow
		fl.From, fl.To = from, to
		fl.Name = entry.Name + "-" + strconv.Itoa(k+1)
		if entry.Pattern == PatternRingAllReduce {
			fl.After = entry.Flows.First + (k+entry.Flows.N-1)%entry.Flows.N
		}
		if fl.PSN != nil && k > 0 {
			fl.PSN = nil // the file's is that of the first queue pair
		}
		f.Flows = append(f.Flows, fl)
		k++
	})
}

// flows is how many flows the entry stands for, whatever the seed.
func (e *Entry) flows() int {
	both := 0 // nodes that would send to themselves
	if e.From.overlap(e.To) {
		both = min(e.From.First+e.From.N, e.To.First+e.To.N) - max(e.From.First, e.To.First)
	}
	switch e.Pattern {
	case PatternAllToAll, PatternIncast:
		return e.From.N*e.To.N - both
	case PatternRandom:
		if e.To.N-both == 0 && both < 2 {
			return 0
		}
		return e.From.N * e.Peers
	}
	return e.From.N
}

// first is a flow of the entry whose ends are typical of all.
func (e *Entry) first() (from, to int) {
	if e.Pattern == "" {
		return e.From.First, e.To.First
	}
	from = -1
	e.pairs(0, func(a, b int) {
		if from < 0 {
			from, to = a, b
		}
	})
	return from, to
}

// drawn reports whether who sends to whom depends on the seed.
func (e *Entry) drawn() bool { return e.Pattern == PatternPermutation || e.Pattern == PatternRandom }

// pairs calls yield for each flow of the pattern, as often as flows says.
func (e *Entry) pairs(seed uint64, yield func(from, to int)) {
	last := e.From.First + e.From.N
	rng := rand.New(rand.NewPCG(fabric.Mix(seed, 0x7061), fabric.Mix(seed, uint64(e.Flows.First))))
	perm := e.cycle(rng)
	for a := e.From.First; a < last; a++ {
		k := a - e.From.First
		switch e.Pattern {
		case PatternPairwise:
			yield(a, e.To.First+k)
		case PatternRing, PatternRingAllReduce:
			yield(a, e.From.First+(k+1)%e.From.N)
		case PatternPermutation:
			yield(a, e.From.First+perm[k])
		case PatternRandom:
			e.drawPeers(rng, a, yield)
		default:
			// Each begins with the one after itself, or all would begin with the same.
			for k := range e.To.N {
				if b := e.To.First + (max(a-e.To.First+1, 0)+k)%e.To.N; a != b {
					yield(a, b)
				}
			}
		}
	}
}

// cycle draws a permutation of one cycle (Sattolo), so that nobody sends to itself.
func (e *Entry) cycle(rng *rand.Rand) []int {
	if e.Pattern != PatternPermutation {
		return nil
	}
	p := make([]int, e.From.N)
	for i := range p {
		p[i] = i
	}
	for i := len(p) - 1; i > 0; i-- {
		j := rng.IntN(i)
		p[i], p[j] = p[j], p[i]
	}
	return p
}

// drawPeers draws Peers different nodes of To other than a (Floyd's way).
func (e *Entry) drawPeers(rng *rand.Rand, a int, yield func(from, to int)) {
	n, self := e.To.N, a-e.To.First
	if e.To.Has(a) {
		n--
	} else {
		self = e.To.N
	}
	chosen := make(map[int]bool, e.Peers)
	for i := n - e.Peers; i < n; i++ {
		x := rng.IntN(i + 1)
		if chosen[x] {
			x = i
		}
		chosen[x] = true
		if x >= self {
			x++
		}
		yield(a, e.To.First+x)
	}
}
