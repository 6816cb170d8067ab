package topology

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Sweep is a file that asks for one simulation with many seeds and parameters.
type Sweep struct {
	Name     string
	Topology string // path of the topology file, from where the sweep's is
	First    uint64 // seeds
	Seeds    int
	Nodes    []int // how many nodes in all; empty: as the file says
	Vary     []Variation
	For      time.Duration
	Check    string
}

// Variation is a value of the topology file and what it shall be in turn.
type Variation struct {
	Path   string
	Values []string
}

// Point is one simulation of a sweep.
type Point struct {
	Seed  uint64            `json:"seed"`
	Nodes int               `json:"nodes,omitempty"`
	Set   map[string]string `json:"set,omitempty"`
}

// mostPoints bounds a sweep.
const mostPoints = 1 << 20

var sweepObject = object[Sweep]{
	title: "the sweep",
	doc:   "A file of its own, for `rvtsim sim --sweep`: one simulation for each combination of seed, number of nodes and values.",
	fields: []field[Sweep]{
		{"version", "1", required, "Version of the schema.", func(d *decoder, v value, _ *Sweep) { readVersion(d, v, nil) }},
		{"name", "name", "the file's name without extension", "Name of the sweep.", put(name, func(s *Sweep) *string { return &s.Name })},
		{"topology", "path", required, "The topology file, relative to the sweep's.",
			put(scalar("the path of a topology file", func(s string) (string, bool) { return s, s != "" }), func(s *Sweep) *string { return &s.Topology })},
		{"first_seed", "number", "1", "The first seed.", put(integer[uint64](0, 1<<63), func(s *Sweep) *uint64 { return &s.First })},
		{"seeds", "count", "1", "How many seeds.", put(integer(1, mostPoints), func(s *Sweep) *int { return &s.Seeds })},
		{"nodes", "list of counts", "as the topology says", "Numbers of nodes in all: the only group of the topology grows or shrinks.",
			func(d *decoder, v value, s *Sweep) {
				entries, _ := d.sequence(v, "a list of numbers of nodes")
				for _, e := range entries {
					if n, ok := integer(1, mostNodes)(d, e); ok {
						s.Nodes = append(s.Nodes, n)
					}
				}
			}},
		{"vary", "mapping of paths to lists", "none", "Values of the topology file, by path, and what they shall be in turn: `{network.loss: [0, 1%], \"traffic[0].size\": [4KiB, 1MiB]}`. The file must have them.",
			func(d *decoder, v value, s *Sweep) { s.Vary = variations(d, v) }},
		{"for", "duration", "as the topology says", "Lets traffic go on without end and stops it after this virtual time.", put(positiveDuration, func(s *Sweep) *time.Duration { return &s.For })},
		{"check", "`none`, `data`, `all`", "data", "What is checked.", put(oneOf("check", "none", "data", "all"), func(s *Sweep) *string { return &s.Check })},
	},
}

func variations(d *decoder, v value) (list []Variation) {
	entries, _ := d.mapping(v, "a mapping of paths to lists of values")
	for _, e := range entries {
		child := value{e.node, v.path + "." + e.key}
		d.note(child)
		x := Variation{Path: e.key}
		values, _ := d.sequence(child, "a list of values")
		for _, item := range values {
			s, ok := d.text(item)
			if !ok {
				d.mismatch(item, "a single value")
			}
			x.Values = append(x.Values, s)
		}
		if slices.ContainsFunc(list, func(y Variation) bool { return y.Path == x.Path }) {
			d.problemAt(e.at, v.path, "key %q is given twice", e.key)
		}
		list = append(list, x)
	}
	return list
}

// LoadSweep reads a sweep and its topology file, and checks that the topology is good at
// every point that has the first seed. text is the topology file.
func LoadSweep(path string) (s *Sweep, text []byte, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	if s, err = parseSweep(path, b); err != nil {
		return nil, nil, err
	}
	top := filepath.Join(filepath.Dir(path), s.Topology)
	if text, err = os.ReadFile(top); err != nil {
		return nil, nil, err
	}
	for _, p := range s.Points() {
		if p.Seed != s.First {
			continue
		}
		if _, err := ParseWith(top, text, Options{Nodes: p.Nodes, Set: p.Set}); err != nil {
			return nil, nil, err
		}
	}
	return s, text, nil
}

func parseSweep(path string, b []byte) (*Sweep, error) {
	d, root, err := open(path, b, Options{})
	if err != nil {
		return nil, err
	}
	s := &Sweep{First: 1, Seeds: 1, Check: "data"}
	sweepObject.decode(d, root, s)
	points := s.Seeds * max(len(s.Nodes), 1)
	for _, x := range s.Vary {
		if points *= len(x.Values); points == 0 || points > mostPoints {
			break
		}
	}
	if points == 0 || points > mostPoints {
		d.problem("", "found %d points; expected 1 to %d", points, mostPoints)
	}
	if len(d.problems) > 0 {
		return nil, d.problems.placed(b)
	}
	if s.Name == "" {
		s.Name = runName(path)
	}
	return s, nil
}

// Points are all combinations, seeds fastest.
func (s *Sweep) Points() []Point {
	points := []Point{{}}
	cross := func(n int, set func(p *Point, i int)) {
		var out []Point
		for _, p := range points {
			for i := range n {
				q := p
				q.Set = maps.Clone(p.Set)
				set(&q, i)
				out = append(out, q)
			}
		}
		points = out
	}
	if len(s.Nodes) > 0 {
		cross(len(s.Nodes), func(p *Point, i int) { p.Nodes = s.Nodes[i] })
	}
	for _, x := range s.Vary {
		cross(len(x.Values), func(p *Point, i int) {
			if p.Set == nil {
				p.Set = map[string]string{}
			}
			p.Set[x.Path] = x.Values[i]
		})
	}
	cross(s.Seeds, func(p *Point, i int) { p.Seed = s.First + uint64(i) })
	return points
}
