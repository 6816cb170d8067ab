package topology

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
)

// value is a node of the file with the path that names it in messages.
type value struct {
	node ast.Node
	path string
}

// position is a place in the file, both from 1.
type position struct{ line, column int }

// decoder holds what one Parse has found so far.
type decoder struct {
	file     string
	problems Problems
	at       map[string]position // of each value that was read, by path
	anchors  map[string]ast.Node
	options  Options
	names    map[string]Span // of nodes and groups, once all are read
	flows    map[string]Span // of flows and entries of traffic, likewise
}

// object is the schema of one kind of mapping: its keys and how each is read.
type object[T any] struct {
	title  string // of its section in the manual
	doc    string
	fields []field[T]
}

// field is one key of an object.
type field[T any] struct {
	key  string
	typ  string // as the manual shows it
	def  string // default as the manual shows it; "required" makes it so
	doc  string
	read func(d *decoder, v value, t *T)
}

const required = "required"

// put makes the read function of a key that one parser fills.
func put[T, V any](parse func(*decoder, value) (V, bool), dst func(*T) *V) func(*decoder, value, *T) {
	return func(d *decoder, v value, t *T) {
		if x, ok := parse(d, v); ok {
			*dst(t) = x
		}
	}
}

// decode reads a mapping into t. Keys that are absent leave t as it was.
func (o *object[T]) decode(d *decoder, v value, t *T) {
	entries, ok := d.mapping(v, "a mapping with the keys of "+o.title)
	if !ok {
		return
	}
	seen := make(map[string]position, len(entries))
	for _, e := range entries {
		if first, again := seen[e.key]; again {
			d.problemAt(e.at, v.path, "key %q is given twice, first on line %d", e.key, first.line)
			continue
		}
		seen[e.key] = e.at
		o.decodeEntry(d, v, e, t)
	}
	for i := range o.fields {
		f := &o.fields[i]
		if _, given := seen[f.key]; f.def == required && !given {
			d.problem(v.path, "key %q is missing; expected %s", f.key, f.typ)
		}
	}
}

func (o *object[T]) decodeEntry(d *decoder, v value, e entry, t *T) {
	for i := range o.fields {
		if o.fields[i].key != e.key {
			continue
		}
		child := value{e.node, joinPath(v.path, e.key)}
		d.note(child)
		o.fields[i].read(d, child, t)
		return
	}
	keys := o.keys()
	d.problemAt(e.at, v.path, "unknown key %q; expected one of %s%s", e.key, listed(keys), didYouMean(e.key, keys))
}

func (o *object[T]) keys() []string {
	keys := make([]string, len(o.fields))
	for i := range o.fields {
		keys[i] = o.fields[i].key
	}
	return keys
}

func joinPath(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// entry is one key of a mapping.
type entry struct {
	key  string
	at   position
	node ast.Node
}

// mapping returns the entries of v in order; if v is none it reports that expected
// was.
func (d *decoder) mapping(v value, expected string) ([]entry, bool) {
	n := d.resolve(v)
	var pairs []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	default:
		d.mismatch(v, expected)
		return nil, false
	}
	entries := make([]entry, 0, len(pairs))
	for _, p := range pairs {
		key, ok := scalarText(p.Key)
		at := nodePosition(p.Key)
		if _, merge := p.Key.(*ast.MergeKeyNode); merge {
			d.problemAt(at, v.path, `merge key "<<" is not supported; expected plain keys (defaults.node and defaults.flow hold what several entries share)`)
			continue
		}
		if !ok {
			d.problemAt(at, v.path, "found %s as a key; expected a plain word", describe(p.Key))
			continue
		}
		entries = append(entries, entry{key, at, p.Value})
	}
	return entries, true
}

// sequence returns the entries of a list, each with its path; if v is none it
// reports that expected was.
func (d *decoder) sequence(v value, expected string) ([]value, bool) {
	n, ok := d.resolve(v).(*ast.SequenceNode)
	if !ok {
		d.mismatch(v, expected)
		return nil, false
	}
	values := make([]value, len(n.Values))
	for i, c := range n.Values {
		values[i] = value{c, v.path + "[" + strconv.Itoa(i) + "]"}
		d.note(values[i])
	}
	return values, true
}

// text returns the text of a scalar; null is not one.
func (d *decoder) text(v value) (string, bool) {
	if s, ok := d.options.Set[v.path]; ok {
		return s, true
	}
	return scalarText(d.resolve(v))
}

// checkSet reports values that were to be replaced and are not there.
func (d *decoder) checkSet() {
	for _, path := range slices.Sorted(maps.Keys(d.options.Set)) {
		if !d.given(path) {
			d.problem(path, "found no value to replace with %s; expected the path of one that the file has, such as network.latency or traffic[0].size", quote(d.options.Set[path]))
		}
	}
}

// isMapping and isSequence test without reporting.
func (d *decoder) isMapping(v value) bool {
	switch d.resolve(v).(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

func (d *decoder) isSequence(v value) bool {
	_, ok := d.resolve(v).(*ast.SequenceNode)
	return ok
}

// resolve follows anchors, aliases and tags to the content. The bound ends a chain
// of aliases that leads back to itself. A value that Options.Set replaces is text and no
// node.
func (d *decoder) resolve(v value) ast.Node {
	if _, replaced := d.options.Set[v.path]; replaced {
		return nil
	}
	n := v.node
	for range 32 {
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			n = t.Value
		case *ast.AliasNode:
			name, _ := scalarText(t.Value)
			target, ok := d.anchors[name]
			if !ok {
				d.problem(v.path, "alias *%s names no anchor of this file", name)
				return nil
			}
			n = target
		default:
			return n
		}
	}
	d.problem(v.path, "the alias leads back to itself; expected one that leads to a value")
	return nil
}

// collectAnchors makes every &anchor known by its name; of several with one name
// the last counts.
func (d *decoder) collectAnchors(n ast.Node) {
	ast.Walk(anchorVisitor(d.anchors), n)
}

type anchorVisitor map[string]ast.Node

func (a anchorVisitor) Visit(n ast.Node) ast.Visitor {
	if t, ok := n.(*ast.AnchorNode); ok {
		if name, ok := scalarText(t.Name); ok {
			a[name] = t.Value
		}
	}
	return a
}

// scalarText is the text of a scalar as written, without quotes.
func scalarText(n ast.Node) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return t.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		if tk := n.GetToken(); tk != nil {
			return tk.Value, true
		}
	}
	return "", false
}

// nodePosition is where a node starts.
func nodePosition(n ast.Node) position {
	switch t := n.(type) {
	case *ast.MappingNode:
		if !t.IsFlowStyle && len(t.Values) > 0 {
			return nodePosition(t.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return nodePosition(t.Key)
	}
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return position{1, 1}
	}
	p := n.GetToken().Position
	return position{max(p.Line, 1), max(p.Column, 1)}
}

// describe says in a few words what a node is.
func describe(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	}
	if s, ok := scalarText(n); ok {
		return quote(s)
	}
	return "something else"
}

// quote is s in quotes, shortened if it is long.
func quote(s string) string {
	const most = 40
	if utf8.RuneCountInString(s) > most {
		s = string([]rune(s)[:most]) + "..."
	}
	return strconv.Quote(s)
}

// note remembers where a value is. Of an alias that is where the alias stands.
func (d *decoder) note(v value) { d.at[v.path] = nodePosition(v.node) }

// given reports whether the file has a value at this path.
func (d *decoder) given(path string) bool {
	_, ok := d.at[path]
	return ok
}

// positionOf is where the value at path is; where the file has none, where the
// nearest enclosing value is.
func (d *decoder) positionOf(path string) position {
	for {
		if p, ok := d.at[path]; ok {
			return p
		}
		i := strings.LastIndexAny(path, ".[")
		if i < 0 {
			return d.at[""]
		}
		path = path[:i]
	}
}

func (d *decoder) problem(path, format string, args ...any) {
	d.problemAt(d.positionOf(path), path, format, args...)
}

func (d *decoder) problemAt(at position, path, format string, args ...any) {
	d.problems = append(d.problems, Problem{d.file, at.line, at.column, path, fmt.Sprintf(format, args...)})
}

// mismatch reports that v is not what was expected.
func (d *decoder) mismatch(v value, expected string) {
	if s, ok := d.options.Set[v.path]; ok {
		d.problem(v.path, "found %s; expected %s", quote(s), expected)
		return
	}
	n := d.resolve(v)
	if n == nil {
		return // an alias without anchor, which resolve has reported
	}
	d.problem(v.path, "found %s; expected %s", describe(n), expected)
}
