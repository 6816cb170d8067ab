package arch

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CheckPurity type-checks the pure packages among pkgs from source and reports every
// construct that could make two runs differ. dir is the root of the module.
func CheckPurity(dir string, pkgs []*Package) ([]Problem, error) {
	l, err := newLoader(dir, pkgs)
	if err != nil {
		return nil, err
	}
	var out []Problem
	for _, p := range pkgs {
		if r, ok := lookup(table, p.Rel()); !ok || r.Kind != Pure || len(p.GoFiles) == 0 {
			continue
		}
		c, err := l.check(p)
		if err != nil {
			return nil, err
		}
		out = append(out, c.problems...)
	}
	return out, nil
}

// loader type-checks packages of the module from source, each once, and takes the
// standard library from the compiler's export data.
type loader struct {
	dir     string
	fset    *token.FileSet
	pkgs    map[string]*Package
	checked map[string]*checked
	std     types.Importer
}

// checked is a package that has been type-checked and searched.
type checked struct {
	types    *types.Package
	problems []Problem
}

func newLoader(dir string, pkgs []*Package) (*loader, error) {
	l := &loader{dir: dir, fset: token.NewFileSet(), pkgs: make(map[string]*Package), checked: make(map[string]*checked)}
	want := []string{"errors"}
	for _, p := range pkgs {
		l.pkgs[p.ImportPath] = p
		r, ok := lookup(table, p.Rel())
		if !ok || r.Kind != Pure && !slices.Contains(leaves, r.Package) {
			continue
		}
		for _, imp := range p.Imports {
			if isStandard(imp) && imp != "C" && imp != "unsafe" {
				want = append(want, imp)
			}
		}
	}
	slices.Sort(want)
	std, err := stdImporter(dir, l.fset, slices.Compact(want))
	l.std = std
	return l, err
}

// stdImporter reads the named standard packages from export data, which the go
// command builds when its cache lacks it.
func stdImporter(dir string, fset *token.FileSet, paths []string) (types.Importer, error) {
	listed, err := goList(dir, append([]string{"-export"}, paths...)...)
	if err != nil {
		return nil, err
	}
	files := make(map[string]string)
	for _, p := range listed {
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if files[path] == "" {
			return nil, fmt.Errorf("arch: no export data for %q", path)
		}
		return os.Open(files[path])
	}), nil
}

// Import implements types.Importer.
func (l *loader) Import(path string) (*types.Package, error) {
	p := l.pkgs[path]
	if p == nil {
		return l.std.Import(path)
	}
	c, err := l.check(p)
	if err != nil {
		return nil, err
	}
	if c.types == nil {
		return nil, fmt.Errorf("arch: import cycle through %s", path)
	}
	return c.types, nil
}

func (l *loader) check(p *Package) (*checked, error) {
	if c := l.checked[p.ImportPath]; c != nil {
		return c, nil
	}
	c := new(checked)
	l.checked[p.ImportPath] = c
	var files []*ast.File
	for _, name := range p.GoFiles {
		path := filepath.Join(p.Dir, name)
		src, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if rel, err := filepath.Rel(l.dir, path); err == nil {
			path = filepath.ToSlash(rel)
		}
		f, err := parser.ParseFile(l.fset, path, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			c.problems = append(c.problems, Problem{p.Rel(), "does not parse: " + err.Error()})
		}
		files = append(files, f)
	}
	var found []Problem
	c.types, found = inspect(l.fset, p.ImportPath, files, l)
	c.problems = append(c.problems, found...)
	return c, nil
}

// inspect type-checks one package and applies the purity rules to it. A package that
// does not type-check is searched as far as its types are known.
func inspect(fset *token.FileSet, path string, files []*ast.File, imp types.Importer) (*types.Package, []Problem) {
	info := &types.Info{
		Types: make(map[ast.Expr]types.TypeAndValue),
		Uses:  make(map[*ast.Ident]types.Object),
	}
	var first error
	conf := types.Config{Importer: imp, Error: func(err error) {
		if first == nil {
			first = err
		}
	}}
	pkg, _ := conf.Check(path, fset, files, info)
	var out []Problem
	if first != nil {
		out = append(out, Problem{relative(path), "does not type-check: " + first.Error()})
	}
	for _, f := range files {
		out = append(out, inspectFile(fset, info, f)...)
	}
	return pkg, out
}

func inspectFile(fset *token.FileSet, info *types.Info, f *ast.File) []Problem {
	excuses, out := readExcuses(fset, f)
	ast.Inspect(f, func(n ast.Node) bool {
		pos, rule, text := judge(info, n)
		if text == "" || excuses.cover(fset.Position(pos).Line, rule) {
			return true
		}
		out = append(out, Problem{fset.Position(pos).String(), text})
		return true
	})
	for _, e := range excuses {
		if e.line == 0 {
			out = append(out, Problem{e.pos.String(), "//arch:" + e.rule + " excuses nothing: remove it"})
		}
	}
	return out
}

// judge applies every rule to one node. rule is the directive that can excuse it, if
// any; an empty text means that the node is fine.
func judge(info *types.Info, n ast.Node) (pos token.Pos, rule, text string) {
	switch n := n.(type) {
	case *ast.GoStmt:
		return n.Pos(), "", "go statement: the core has no goroutines; its host has"
	case *ast.SelectStmt:
		return n.Pos(), "", "select: the core takes inputs one at a time, in the order its host gives them"
	case *ast.ChanType:
		return n.Pos(), "", "channel: the core returns outputs, it does not send them"
	case *ast.SendStmt:
		return n.Arrow, "", "channel send: the core returns outputs, it does not send them"
	case *ast.UnaryExpr:
		if n.Op == token.ARROW {
			return n.Pos(), "", "channel receive: the core never waits"
		}
	case *ast.RangeStmt:
		switch kindOf(info.TypeOf(n.X)) {
		case rangesMap:
			return n.For, "sorted", "range over a map: the order is random; sort the keys, or say why order cannot matter with //arch:sorted"
		case rangesChan:
			return n.For, "", "range over a channel: the core never waits"
		}
	case *ast.Ident:
		rule, text = judgeUse(info.Uses[n])
		return n.Pos(), rule, text
	}
	return token.NoPos, "", ""
}

// judgeUse looks at what an identifier means, so that aliases, dot imports and
// function values are seen as well as calls.
func judgeUse(obj types.Object) (rule, text string) {
	if b, ok := obj.(*types.Builtin); ok {
		switch b.Name() {
		case "panic":
			return "panic", "panic: use internal/invariants for what cannot happen and an error for what can, or say why with //arch:panic"
		case "print", "println":
			return "", b.Name() + ": the core has no output but its results"
		}
		return "", ""
	}
	if obj == nil || obj.Pkg() == nil || obj.Parent() != obj.Pkg().Scope() {
		return "", "" // local, a field or a method
	}
	name := obj.Name()
	_, isFunc := obj.(*types.Func)
	switch obj.Pkg().Path() {
	case "time":
		if name == "Duration" || name == "ParseDuration" || isDurationConst(obj) {
			return "", ""
		}
		return "", "time." + name + ": of package time only Duration may be used; instants are vtime.Time arguments"
	case "math/rand", "math/rand/v2":
		if isFunc && !strings.HasPrefix(name, "New") {
			return "", "rand." + name + ": the global source is not seeded; draw from a *rand.Rand that was passed in"
		}
	case "fmt":
		if isFunc && (strings.HasPrefix(name, "Print") || name == "Scan" || name == "Scanf" || name == "Scanln") {
			return "", "fmt." + name + ": the core does not touch standard input and output"
		}
	}
	return "", ""
}

func isDurationConst(obj types.Object) bool {
	c, ok := obj.(*types.Const)
	return ok && types.TypeString(c.Type(), nil) == "time.Duration"
}

type rangeKind uint8

const (
	rangesOther rangeKind = iota
	rangesMap
	rangesChan
)

// kindOf says what a range statement over a value of type t iterates over. For a type
// parameter, one term of its constraint is enough to condemn it.
func kindOf(t types.Type) rangeKind {
	if t == nil {
		return rangesOther
	}
	switch u := t.Underlying().(type) {
	case *types.Map:
		return rangesMap
	case *types.Chan:
		return rangesChan
	case *types.Union:
		for term := range u.Terms() {
			if k := kindOf(term.Type()); k != rangesOther {
				return k
			}
		}
	case *types.Interface:
		for e := range u.EmbeddedTypes() {
			if k := kindOf(e); k != rangesOther {
				return k
			}
		}
	}
	return rangesOther
}

// excuse is one //arch: comment.
type excuse struct {
	rule string
	pos  token.Position
	line int // the line it was used for; 0 when not used yet
}

type excuses []*excuse

// cover reports whether a comment on this line or the one above excuses rule. A
// comment serves one line, so that one at the end of a line does not reach the next.
func (es excuses) cover(line int, rule string) bool {
	if rule == "" {
		return false
	}
	for _, e := range es {
		if e.rule != rule || e.line != 0 && e.line != line {
			continue
		}
		if e.pos.Line == line || e.pos.Line == line-1 {
			e.line = line
			return true
		}
	}
	return false
}

// readExcuses collects the //arch: comments of a file and reports malformed ones.
func readExcuses(fset *token.FileSet, f *ast.File) (out excuses, bad []Problem) {
	for _, g := range f.Comments {
		for _, c := range g.List {
			rest, ok := strings.CutPrefix(c.Text, "//arch:")
			if !ok {
				continue
			}
			pos := fset.Position(c.Pos())
			rule, reason, _ := strings.Cut(rest, " ")
			switch {
			case rule != "sorted" && rule != "panic":
				bad = append(bad, Problem{pos.String(), "//arch:" + rule + " is unknown; there are //arch:sorted and //arch:panic"})
			case strings.TrimSpace(reason) == "":
				bad = append(bad, Problem{pos.String(), "//arch:" + rule + " gives no reason"})
			default:
				out = append(out, &excuse{rule: rule, pos: pos})
			}
		}
	}
	return out, bad
}
