package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"slices"
	"strconv"
	"strings"
)

// mutant is one fault.
type mutant struct {
	id        int
	file      string
	line, col int
	kind      string
	what      string
	result    result
	by        string // the package whose tests noticed
}

func (m *mutant) String() string {
	return fmt.Sprintf("%s:%d:%d: %s: %s", m.file, m.line, m.col, m.kind, m.what)
}

// edit replaces the source between two offsets. Most edits only insert.
type edit struct {
	at, end int
	text    string
	closing bool // ends a node: at one offset it comes before what begins another node
	order   int
}

// generator puts faults into one file. Each is an insertion before and one behind a
// node, so that faults nest without knowing of each other; what stands in the place of
// the node while the fault is on is the original text, without faults.
type generator struct {
	p       *loaded
	file    *ast.File
	name    string
	src     []byte
	base    int // offset of the file in the set
	next    int
	mutants []*mutant
	edits   []edit
	imports map[string]string // path -> name in this file
	whole   map[ast.Expr]bool // conditions that are negated as a whole
}

func newGenerator(p *loaded, f *ast.File, name string, first int) *generator {
	g := &generator{p: p, file: f, name: name, next: first, base: p.fset.File(f.Pos()).Base(),
		imports: make(map[string]string), whole: make(map[ast.Expr]bool)}
	g.src = p.src[slices.Index(p.names, name)]
	for _, s := range f.Imports {
		path, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			continue
		}
		g.imports[path] = path[strings.LastIndexByte(path, '/')+1:]
		if s.Name != nil {
			g.imports[path] = s.Name.Name
		}
	}
	return g
}

func (g *generator) offset(p token.Pos) int { return int(p) - g.base }

func (g *generator) text(n ast.Node) string {
	return string(g.src[g.offset(n.Pos()):g.offset(n.End())])
}

// add registers a fault at a node and returns its number.
func (g *generator) add(n ast.Node, kind, what string) int {
	pos := g.p.fset.Position(n.Pos())
	m := &mutant{id: g.next, file: g.name, line: pos.Line, col: pos.Column, kind: kind, what: oneLine(what)}
	g.next++
	g.mutants = append(g.mutants, m)
	return m.id
}

func oneLine(s string) string {
	s = strings.Join(strings.Fields(s), " ")
	if len(s) > 100 {
		s = s[:97] + "..."
	}
	return s
}

func (g *generator) around(n ast.Node, before, after string) {
	g.edits = append(g.edits,
		edit{at: g.offset(n.Pos()), end: g.offset(n.Pos()), text: before, order: len(g.edits)},
		edit{at: g.offset(n.End()), end: g.offset(n.End()), text: after, closing: true, order: len(g.edits)})
}

// pick plants a fault that makes an expression of type t have the value of wrong.
func (g *generator) pick(e ast.Expr, t, kind, wrong string, lazy bool) {
	id := g.add(e, kind, g.text(e)+" -> "+wrong)
	if lazy {
		g.around(e, fmt.Sprintf("mutants.Lazy[%s](%d, func() %s { return ", t, id, t),
			fmt.Sprintf(" }, func() %s { return %s })", t, wrong))
		return
	}
	g.around(e, fmt.Sprintf("mutants.Pick[%s](%d, ", t, id), ", "+wrong+")")
}

func (g *generator) drop(s ast.Stmt) {
	id := g.add(s, "drop", g.text(s))
	g.around(s, fmt.Sprintf("if !mutants.On(%d) { ", id), " }")
}

func (g *generator) negate(cond ast.Expr) {
	id := g.add(cond, "negate", g.text(cond))
	g.around(cond, fmt.Sprintf("mutants.Not(%d, ", id), ")")
	g.whole[cond] = true
}

// generate returns the file's source with every fault in it.
func (g *generator) generate() []byte {
	for _, d := range g.file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Body != nil {
				g.walk(d.Body)
			}
		case *ast.GenDecl:
			if d.Tok == token.VAR {
				for _, s := range d.Specs {
					for _, v := range s.(*ast.ValueSpec).Values {
						g.walk(v)
					}
				}
			}
		}
	}
	slices.SortStableFunc(g.edits, func(a, b edit) int {
		switch {
		case a.at != b.at:
			return a.at - b.at
		case a.closing != b.closing: // what ends here comes first
			if a.closing {
				return -1
			}
			return 1
		case a.closing:
			return b.order - a.order // inner nodes end first
		}
		return a.order - b.order
	})
	var out []byte
	at := 0
	for _, e := range g.edits {
		out = append(append(out, g.src[at:e.at]...), e.text...)
		at = e.end
	}
	out = append(out, g.src[at:]...)
	// The import goes on the line of the package clause, so that lines keep their numbers.
	clause := g.offset(g.file.Name.End())
	return slices.Concat(out[:clause], []byte(`; import "`+modulePath+"/"+switchesPath+`"`), out[clause:])
}

func (g *generator) walk(n ast.Node) { ast.Inspect(n, g.visit) }

// visit plants the faults of one node; false keeps out of what is below it.
func (g *generator) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BlockStmt:
		g.list(n.List)
	case *ast.CaseClause:
		g.list(n.Body)
	case *ast.IfStmt:
		g.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			g.negate(n.Cond)
		}
	case *ast.SwitchStmt:
		if n.Tag == nil {
			for _, c := range n.Body.List {
				for _, e := range c.(*ast.CaseClause).List {
					g.negate(e)
				}
			}
		}
	case *ast.TypeSwitchStmt:
		for _, c := range n.Body.List {
			for _, s := range c.(*ast.CaseClause).Body {
				g.walk(s)
			}
			g.list(c.(*ast.CaseClause).Body)
		}
		return false
	case *ast.GenDecl:
		return n.Tok == token.VAR
	case *ast.KeyValueExpr:
		g.walk(n.Value)
		return false
	case *ast.ArrayType, *ast.StructType, *ast.FuncType:
		return false
	case ast.Expr:
		return g.expr(n)
	}
	return true
}

// list plants dropped statements.
func (g *generator) list(stmts []ast.Stmt) {
	for i, s := range stmts {
		switch s := s.(type) {
		case *ast.ExprStmt:
			if call, ok := s.X.(*ast.CallExpr); !ok || !isCheck(g.text(call.Fun)) {
				g.drop(s)
			}
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE && g.text(s.Lhs[0]) != "_" {
				g.drop(s)
			}
		case *ast.IncDecStmt:
			g.drop(s)
		case *ast.IfStmt:
			// Without an else and not at the end, the function ends somewhere else, so
			// that it still compiles.
			if n := len(s.Body.List); s.Else == nil && n > 0 && i < len(stmts)-1 {
				switch last := s.Body.List[n-1].(type) {
				case *ast.ReturnStmt, *ast.BranchStmt:
					g.drop(last)
				}
			}
		}
	}
}

// isCheck recognises calls of assertions.
func isCheck(fun string) bool {
	return fun == "panic" || fun == "q.check" || strings.HasPrefix(fun, "invariants.")
}

// typeName writes a type as this file may write it; ok is false if it cannot.
func (g *generator) typeName(t types.Type) (name string, ok bool) {
	ok = true
	name = types.TypeString(types.Default(t), func(p *types.Package) string {
		if p == g.p.types {
			return ""
		}
		if g.imports[p.Path()] == "" {
			ok = false
		}
		return g.imports[p.Path()]
	})
	if n, is := t.(*types.Named); is && n.Obj().Pkg() != g.p.types && !n.Obj().Exported() {
		ok = false
	}
	return name, ok
}
