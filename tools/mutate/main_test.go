package main

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const sample = `package p

type color uint8

const (
	red color = iota
	green
	blue
)

const limit = 3

type s struct {
	n  int
	ok bool
	c  color
}

func effect() int { return 1 }

func (x *s) f(a, b int, m map[string]int) (string, bool) {
	if a < b && b > 0 {
		x.n++
		return "text", true
	}
	switch {
	case x.c == red, !x.ok:
		x.ok = false
	}
	for i := 0; i < limit; i++ {
		x.n += effect()
		if i == 2 {
			continue
		}
		effect()
	}
	switch x.c {
	case green:
		x.n = a<<1 | b
	}
	v := uint8(0)
	_ = v
	return "x" + "y", x.n+effect() == 7
}
`

func generateSample(t *testing.T) (*generator, string) {
	p := &loaded{fset: token.NewFileSet(), names: []string{"p.go"}, src: [][]byte{[]byte(sample)}}
	f, err := parser.ParseFile(p.fset, "p.go", sample, parser.ParseComments|parser.SkipObjectResolution)
	require.NoError(t, err)
	p.files = []*ast.File{f}
	p.info = &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	p.types, err = new(types.Config).Check("p", p.fset, p.files, p.info)
	require.NoError(t, err)
	g := newGenerator(p, f, "p.go", 0)
	return g, string(g.generate())
}

func TestEveryKindOfFault(t *testing.T) {
	g, _ := generateSample(t)
	var all strings.Builder
	for _, m := range g.mutants {
		all.WriteString(m.String() + "\n")
	}
	for _, want := range []string{
		"22:5: negate: a < b && b > 0", "22:5: operator: a < b || b > 0", "operator: a < b -> a <= b", "operator: b > 0 -> b >= 0",
		"22:18: constant: 0 -> 0 + 1", "22:18: constant: 0 -> 0 - 1", "drop: x.n++", `drop: return "text", true`, "constant: true -> false",
		"negate: x.c == red", "negate: !x.ok", "constant: red -> green", "drop: x.ok = false", "constant: green -> blue",
		"negate: i < limit", "constant: limit -> limit - 1", "drop: x.n += effect()", "drop: continue", "drop: effect()",
		"operator: a<<1 -> a >> 1", "operator: x.n+effect() -> x.n - effect()", "operator: x.n+effect() == 7 -> x.n+effect() != 7",
	} {
		require.Contains(t, all.String(), want+"\n")
	}
	require.NotContains(t, all.String(), `"x"`, "texts are no behaviour")
	require.NotContains(t, all.String(), "uint8(0) -> uint8(0) - 1", "does not fit the type")
	require.NotContains(t, all.String(), "operator: x.c == red", "the same as the negated condition")
}

// What is generated must compile, whatever is nested in what.
func TestGeneratedSourceCompiles(t *testing.T) {
	_, src := generateSample(t)
	runtime := regexp.MustCompile(`(?m)^package.*|^import \((?s:.*?)\)|^var \((?s:.*?)\n\)|^func (open|note)(?s:.*?)\n}`).ReplaceAllString(string(switches), "")
	runtime = strings.NewReplacer("if record != nil {\n\t\tnote(id)\n\t}\n", "", "id == active", "id == 0").Replace(runtime)
	for _, name := range []string{"Not", "Pick", "Lazy", "And", "Or", "On"} {
		src = strings.ReplaceAll(src, "mutants."+name, name)
	}
	src = regexp.MustCompile(`; import "[^"]*"`).ReplaceAllString(src, "") + runtime
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", src, 0)
	require.NoError(t, err, src)
	_, err = (&types.Config{Importer: importer.Default()}).Check("p", fset, []*ast.File{f}, nil)
	require.NoError(t, err, src)
	require.Equal(t, strings.Count(sample, "\n"), strings.Count(src, "\n")-strings.Count(runtime, "\n"), "lines keep their numbers")
}

func TestChoose(t *testing.T) {
	var all []*mutant
	for i := range 100 {
		all = append(all, &mutant{id: i, file: "a.go", line: i})
	}
	pick := func(o options) []*mutant {
		o.only = regexp.MustCompile(`:[0-9]*5:`)
		return choose(&o, all)
	}
	require.Len(t, pick(options{}), 10)
	one := pick(options{n: 4, seed: 1})
	require.Equal(t, one, pick(options{n: 4, seed: 1}))
	require.Len(t, one, 4)
	require.IsIncreasing(t, []int{one[0].id, one[1].id, one[2].id, one[3].id})
}

func TestReport(t *testing.T) {
	var b strings.Builder
	report(&b, []*mutant{
		{file: "a.go", kind: "drop", result: killed, by: "spec"}, {file: "a.go", kind: "drop", result: timedOut, by: "spec"},
		{file: "a.go", line: 3, kind: "negate", what: "x", result: survived}, {file: "b.go", kind: "drop", result: unreached}, {file: "b.go"},
	})
	for _, want := range []string{"| `a.go` | 3 | 1 | 1 | 1 | 0 | 67 % |", "| all | 4 | 1 | 1 | 1 | 1 | 50 % |", "| `spec` | 2 |", "survived: a.go:3:0: negate: x"} {
		require.Contains(t, b.String(), want)
	}
}
