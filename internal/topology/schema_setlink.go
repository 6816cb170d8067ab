package topology

import "strings"

// finishLink checks what a fault says of a link, and resolves the name of a switch.
func (d *decoder) finishLink(f *File, path string, x *faultEntry) bool {
	if x.Action != SetLink {
		return true
	}
	before := len(d.problems)
	d.checkQueue(path, &x.Link)
	if x.sw != "" {
		for _, key := range pairKeys {
			if d.given(joinPath(path, key)) {
				d.problem(joinPath(path, key), `found %q beside "switch"; expected one or the other`, key)
			}
		}
		x.Switches = d.switchesNamed(f, joinPath(path, "switch"), x.sw)
		x.Pair = Pair{}
	} else {
		d.checkOwnCable(f, path, x.Pair)
	}
	return len(d.problems) == before
}

// switchesNamed finds a switch, or all of an entry.
func (d *decoder) switchesNamed(f *File, path, name string) (s Span) {
	var known []string
	for i := range f.Switches {
		n := f.Switches[i].Name
		known = append(known, n)
		if n == name {
			return One(i)
		}
		if k, ok := strings.CutPrefix(n, name+"-"); ok && strings.Trim(k, "0123456789") == "" {
			if s.N == 0 {
				s.First = i
			}
			s.N++
		}
	}
	if s.N == 0 && len(known) == 0 {
		d.problem(path, "found switch %q; expected none: this network has no switches", name)
	} else if s.N == 0 {
		d.unknown(path, "switch", name, known)
	}
	return s
}

// checkOwnCable reports nodes that have no cable of their own between them, which could
// change, but switches.
func (d *decoder) checkOwnCable(f *File, path string, p Pair) {
	if p.All || len(f.Switches) == 0 {
		return
	}
	plugged := map[int]bool{}
	for i := range f.Switches {
		for _, s := range f.Switches[i].Nodes {
			for k := range s.N {
				plugged[s.First+k] = true
			}
		}
	}
	for _, one := range p.singles() {
		a, b := one.From.First, one.To.First
		if a != b && plugged[a] && plugged[b] && !f.linked(a, b) {
			key := "from"
			if p.Both {
				key = "between"
			}
			d.problem(joinPath(path, key), `found nodes %q and %q, which switches join; expected nodes with a link of their own, or "switch"`, f.Nodes[a].Name, f.Nodes[b].Name)
			return
		}
	}
}
