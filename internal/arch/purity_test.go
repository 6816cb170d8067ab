package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/stretchr/testify/require"
)

// snippets are small packages, one per rule and one per way around it.
var snippets = []struct {
	name string
	src  string
	want string // part of the only problem; empty for none
}{
	{"clean", `import "fmt"
		func f(xs []int) (s string) { for _, x := range xs { s += fmt.Sprint(x) }; return s }`, ""},
	{"go statement", `func f() { go f() }`, "go statement"},
	{"channel type", `func f() { var c chan int; _ = c }`, "channel"},
	{"channel in a struct", `type t struct { done chan struct{} }`, "channel"},
	{"make a channel", `func f() { _ = make(chan int) }`, "channel"},
	{"select", `func f() { select {} }`, "select"},
	{"send", "type c = chan int //\nfunc f(x c) { x <- 1 }", "channel"},

	{"range over a map", `func f(m map[int]int) { for range m {} }`, "range over a map"},
	{"range over a named map", `type m map[int]int
		func f(x m) { for k := range x { _ = k } }`, "range over a map"},
	{"range over a map field", `type t struct { m map[int]int }
		func f(x *t) { for k, v := range x.m { _, _ = k, v } }`, "range over a map"},
	{"range over a type parameter", `func f[M ~map[int]int](m M) { for k := range m { _ = k } }`, "range over a map"},
	{"range over a slice, array, string, integer", `func f(a []int, b [2]int, s string) { for range a {}; for range b {}; for range s {}; for range 3 {} }`, ""},
	{"map without range", `func f(m map[int]int) int { delete(m, 1); m[2] = 3; return len(m) }`, ""},
	{"excused range", "func f(m map[int]int) (n int) {\nfor range m { //arch:sorted only counted\nn++ }\nreturn }", ""},
	{"excused range, line above", "func f(m map[int]int) (n int) {\n//arch:sorted only counted\nfor range m {\nn++ }\nreturn }", ""},
	{"excuse of another rule", "func f(m map[int]int) {\nfor range m { //arch:sorted counted\npanic(1) } }", "panic"},
	{"excuse does not reach the next line", "func f(m map[int]int) {\nfor range m { //arch:sorted counted\nfor range m {} } }", "range over a map"},
	{"excuse without a reason", "func f(m map[int]int) {\n_ = m //arch:sorted\n}", "gives no reason"},
	{"stale excuse", "func f(m []int) {\nfor range m { //arch:sorted it was a map once\n} }", "excuses nothing"},
	{"unknown excuse", "func f() {\n_ = 1 //arch:clock it is fine\n}", "unknown"},

	{"now", `import "time"
		func f() int64 { return time.Now().Unix() }`, "time.Now"},
	{"now as a value", `import "time"
		var clock = time.Now`, "time.Now"},
	{"now under another name", `import t "time"
		func f() { t.Now() }`, "time.Now"},
	{"now by dot import", `import . "time"
		func f() { Now() }`, "time.Now"},
	{"since", `import "time"
		var d = time.Since`, "time.Since"},
	{"after", `import "time"
		var d = time.After`, "time.After"},
	{"after func", `import "time"
		var d = time.AfterFunc`, "time.AfterFunc"},
	{"tick", `import "time"
		var d = time.Tick`, "time.Tick"},
	{"new timer", `import "time"
		var d = time.NewTimer`, "time.NewTimer"},
	{"sleep", `import "time"
		func f() { time.Sleep(1) }`, "time.Sleep"},
	{"instant type", `import "time"
		func f(t time.Time) {}`, "time.Time"},
	{"duration", `import "time"
		const d = 4*time.Microsecond + 96*time.Nanosecond
		func f(x time.Duration) (float64, string) { y, _ := time.ParseDuration("1s"); return (x + y).Seconds(), d.String() }`, ""},

	{"global random number", `import "math/rand/v2"
		func f() int { return rand.IntN(6) }`, "rand.IntN"},
	{"global random generic", `import "math/rand/v2"
		func f() int { return rand.N(6) }`, "rand.N"},
	{"global random function value", `import "math/rand/v2"
		var roll = rand.Uint64`, "rand.Uint64"},
	{"seeded source", `import "math/rand/v2"
		func f(r *rand.Rand) int { return r.IntN(6) + rand.New(rand.NewPCG(1, 2)).IntN(6) }`, ""},

	{"panic", `func f() { panic("no") }`, "panic"},
	{"excused panic", "func f() {\npanic(1) //arch:panic the table below is constant\n}", ""},
	{"own panic function", `func f() { panic := func(string) {}; panic("fine") }`, ""},
	{"built-in print", `func f() { println("x") }`, "println"},
	{"standard output", `import "fmt"
		func f() { fmt.Println("x") }`, "fmt.Println"},

	{"type error", `func f() int { return "x" }`, "does not type-check"},
}

func TestPurityBites(t *testing.T) {
	fset := token.NewFileSet()
	std, err := stdImporter(root(t), fset, []string{"fmt", "time", "math/rand/v2"})
	require.NoError(t, err)
	for _, tt := range snippets {
		t.Run(tt.name, func(t *testing.T) {
			f, err := parser.ParseFile(fset, tt.name+".go", "package p\n"+tt.src, parser.ParseComments|parser.SkipObjectResolution)
			require.NoError(t, err)
			_, got := inspect(fset, Module+"/p", []*ast.File{f}, std)
			if tt.name == "send" {
				require.Len(t, got, 2, "the type and the send")
				got = got[:1]
			}
			expect(t, got, tt.want)
		})
	}
}
