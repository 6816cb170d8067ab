package main

import (
	"cmp"
	"go/ast"
	"go/constant"
	"go/token"
	"go/types"
	"slices"
)

// swapped are operators and what a fault makes of them.
var swapped = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL,
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.ADD,
	token.AND: token.OR, token.OR: token.AND, token.AND_NOT: token.AND,
	token.SHL: token.SHR, token.SHR: token.SHL,
}

// expr plants the faults of an expression; false keeps out of what is below it.
func (g *generator) expr(e ast.Expr) bool {
	tv, ok := g.p.info.Types[e]
	if !ok || tv.IsType() {
		return !ok
	}
	if isString(tv.Type) {
		return false // texts of errors
	}
	if tv.Value != nil {
		g.constant(e, tv)
		return false
	}
	if b, ok := e.(*ast.BinaryExpr); ok {
		g.binary(b, tv)
	}
	return true
}

func isString(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsString != 0
}

func isInteger(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsInteger != 0
}

func (g *generator) binary(b *ast.BinaryExpr, tv types.TypeAndValue) {
	t, ok := g.typeName(tv.Type)
	if !ok {
		return
	}
	if b.Op == token.LAND || b.Op == token.LOR {
		g.logic(b)
		return
	}
	op, ok := swapped[b.Op]
	if !ok || (b.Op == token.EQL || b.Op == token.NEQ) && g.whole[b] {
		return // the same fault as the negated condition
	}
	if !isInteger(tv.Type) && !isInteger(g.p.info.TypeOf(b.X)) && b.Op != token.EQL && b.Op != token.NEQ {
		return
	}
	wrong := g.text(b.X) + " " + op.String() + " " + g.text(b.Y)
	g.pick(b, t, "operator", wrong, hasCall(b))
}

// logic swaps && and ||; the right side keeps its chance not to be evaluated.
func (g *generator) logic(b *ast.BinaryExpr) {
	fun := "mutants.And("
	op := token.LOR
	if b.Op == token.LOR {
		fun, op = "mutants.Or(", token.LAND
	}
	id := g.add(b, "operator", g.text(b.X)+" "+op.String()+" "+g.text(b.Y))
	g.around(b, fun+itoa(id)+", ", " })")
	x, y := g.offset(b.X.End()), g.offset(b.Y.Pos())
	g.edits = append(g.edits, edit{at: x, end: y, text: ", func() bool { return ", closing: true, order: -len(g.edits)})
}

func hasCall(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if _, ok := n.(*ast.CallExpr); ok {
			found = true
		}
		return !found
	})
	return found
}

func (g *generator) constant(e ast.Expr, tv types.TypeAndValue) {
	t, ok := g.typeName(tv.Type)
	if !ok {
		return
	}
	if id, is := e.(*ast.Ident); is && (id.Name == "true" || id.Name == "false") {
		g.pick(e, t, "constant", map[string]string{"true": "false", "false": "true"}[id.Name], false)
		return
	}
	if !isInteger(tv.Type) {
		return
	}
	if b, is := e.(*ast.BinaryExpr); is && b.Op == token.OR {
		g.pick(e, t, "constant", g.text(b.X), false)
		g.pick(e, t, "constant", g.text(b.Y), false)
		return
	}
	if other := g.sibling(e, tv); other != "" {
		g.pick(e, t, "constant", other, false)
		return
	}
	for _, d := range []string{" + 1", " - 1"} {
		v := constant.BinaryOp(constant.ToInt(tv.Value), map[string]token.Token{" + 1": token.ADD, " - 1": token.SUB}[d], constant.MakeInt64(1))
		if b, is := types.Default(tv.Type).Underlying().(*types.Basic); is && representable(v, b) {
			g.pick(e, t, "constant", g.text(e)+d, false)
		}
	}
}

// representable reports whether an integer fits a type of the platforms with 64 bits.
func representable(v constant.Value, b *types.Basic) bool {
	unsigned := b.Info()&types.IsUnsigned != 0
	bits := map[types.BasicKind]int{types.Int8: 8, types.Uint8: 8, types.Int16: 16, types.Uint16: 16, types.Int32: 32, types.Uint32: 32}[b.Kind()]
	if bits == 0 {
		bits = 64
	}
	if unsigned {
		return constant.Sign(v) >= 0 && constant.BitLen(v) <= bits
	}
	return constant.BitLen(v) < bits
}

// sibling returns another constant of the same enumeration as it may be written here,
// the one with the next value or else the first; "" if e is no such constant.
func (g *generator) sibling(e ast.Expr, tv types.TypeAndValue) string {
	named, ok := tv.Type.(*types.Named)
	if !ok {
		return ""
	}
	prefix := ""
	var id *ast.Ident
	switch e := e.(type) {
	case *ast.Ident:
		id = e
	case *ast.SelectorExpr:
		id, prefix = e.Sel, g.text(e.X)+"."
	default:
		return ""
	}
	c, ok := g.p.info.Uses[id].(*types.Const)
	if !ok {
		return ""
	}
	var all []*types.Const
	scope := c.Pkg().Scope()
	for _, name := range scope.Names() {
		o, ok := scope.Lookup(name).(*types.Const)
		if ok && types.Identical(o.Type(), named) && (prefix == "" || o.Exported()) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *types.Const) int {
		x, y := constant.ToInt(a.Val()), constant.ToInt(b.Val())
		switch {
		case constant.Compare(x, token.LSS, y):
			return -1
		case constant.Compare(y, token.LSS, x):
			return 1
		}
		return cmp.Compare(a.Name(), b.Name())
	})
	at := slices.Index(all, c)
	for i := range all {
		o := all[(at+1+i)%len(all)]
		if !constant.Compare(o.Val(), token.EQL, c.Val()) {
			return prefix + o.Name()
		}
	}
	return ""
}
