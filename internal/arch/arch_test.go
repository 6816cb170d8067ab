package arch

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the top of the repository.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "go.mod"))
	return dir
}

// builds are the sets of tags under which pure packages may differ.
var builds = [][]string{nil, {"invariants"}, {"race"}}

func loadAll(t *testing.T) (dir string, loads [][]*Package) {
	t.Helper()
	dir = root(t)
	for _, tags := range builds {
		pkgs, err := Load(dir, tags...)
		require.NoError(t, err)
		require.NotEmpty(t, pkgs)
		loads = append(loads, pkgs)
	}
	return dir, loads
}

// reporter prints each problem once, since most are the same under every set of tags.
func reporter(t *testing.T) func([]Problem) {
	seen := make(map[Problem]bool)
	return func(problems []Problem) {
		t.Helper()
		for _, p := range problems {
			if !seen[p] {
				t.Error(p)
			}
			seen[p] = true
		}
	}
}

func TestImports(t *testing.T) {
	_, loads := loadAll(t)
	report := reporter(t)
	for _, pkgs := range loads {
		report(CheckImports(pkgs))
	}
	report(CheckConstraints(loads...))
}

func TestPurity(t *testing.T) {
	dir, loads := loadAll(t)
	report := reporter(t)
	pure := 0
	for _, pkgs := range loads {
		problems, err := CheckPurity(dir, pkgs)
		require.NoError(t, err)
		report(problems)
		for _, p := range pkgs {
			if r, ok := lookup(table, p.Rel()); ok && r.Kind == Pure {
				pure++
			}
		}
	}
	require.NotZero(t, pure, "no pure package was looked at")
}

// TestTable keeps the table itself in order.
func TestTable(t *testing.T) {
	seen := make(map[string]bool)
	for _, r := range table {
		require.False(t, seen[r.Package], "%s is listed twice", r.Package)
		seen[r.Package] = true
		require.NotEmpty(t, r.Reason, "%s gives no reason", r.Package)
		require.Contains(t, []Kind{Pure, Shell, Open}, r.Kind, r.Package)
		for _, m := range r.Module {
			dep, ok := lookup(table, m)
			require.True(t, ok, "%s may import %s, which has no rule", r.Package, m)
			if r.Kind == Pure {
				require.Equal(t, Pure, dep.Kind, "%s is pure and may import %s, which is not", r.Package, m)
			}
		}
	}
}

// TestTableHasNoCycle proves that the allowed imports are layers: if the table allowed
// a cycle, the order of two packages would be an accident.
func TestTableHasNoCycle(t *testing.T) {
	const visiting, done = 1, 2
	state := make(map[string]int)
	var visit func(pkg string)
	visit = func(pkg string) {
		require.NotEqual(t, visiting, state[pkg], "the table allows an import cycle through %s", pkg)
		if state[pkg] == done {
			return
		}
		state[pkg] = visiting
		r, _ := lookup(table, pkg)
		for _, m := range r.Module {
			visit(m)
		}
		state[pkg] = done
	}
	for _, r := range table {
		visit(strings.TrimSuffix(r.Package, "/..."))
	}
}

// TestCoreDoesNotMeetFabric pins the rule the whole layout rests on, so that the table
// cannot be loosened without somebody editing this test as well.
func TestCoreDoesNotMeetFabric(t *testing.T) {
	for _, pkg := range []string{"ib", "wire", "mr", "cq", "swqe", "qp", "rvt"} {
		r, ok := lookup(table, pkg)
		require.True(t, ok, pkg)
		for _, imp := range []string{"fabric", "fabric/mem", "fabric/udp", "sim", "rvt/node", "verbs"} {
			require.NotEmpty(t, refuse(r, Module+"/"+imp), "%s may import %s", pkg, imp)
		}
		for _, imp := range []string{"os", "net", "sync", "context", "log/slog", "unsafe", "reflect", "runtime", "maps", "io", "github.com/x/y"} {
			require.NotEmpty(t, refuse(r, imp), "%s may import %s", pkg, imp)
		}
	}
}

func TestImportsBites(t *testing.T) {
	pkg := func(rel string, imports ...string) *Package {
		return &Package{ImportPath: Module + "/" + rel, Name: rel, Imports: imports}
	}
	main := func(rel string) *Package { return &Package{ImportPath: Module + "/" + rel, Name: "main"} }
	tests := []struct {
		name string
		pkgs []*Package
		want string // part of the only problem; empty for none
	}{
		{"allowed", []*Package{pkg("qp", "fmt", Module+"/swqe", Module+"/vtime", Module+"/internal/invariants")}, ""},
		{"unlisted", []*Package{pkg("util")}, "util: not in the table"},
		{"unlisted below an exact rule", []*Package{pkg("qp/helpers")}, "qp/helpers: not in the table"},
		{"tree", []*Package{pkg("tests/campaign", "os", Module+"/rvt")}, ""},
		{"upwards", []*Package{pkg("qp", Module+"/rvt")}, "qp: may not import rvt: the table does not list it (rule: the protocol must not know"},
		{"sideways", []*Package{pkg("qp", Module+"/fabric")}, "qp: may not import fabric"},
		{"impure standard", []*Package{pkg("qp", "os")}, "qp: may not import os: not on the list"},
		{"atomics where allowed", []*Package{pkg("cq", "sync/atomic")}, ""},
		{"atomics elsewhere", []*Package{pkg("qp", "sync/atomic")}, "may not import sync/atomic"},
		{"io in fabric", []*Package{pkg("fabric", "io")}, ""},
		{"other module", []*Package{pkg("wire", "golang.org/x/sys/unix")}, "pure code uses no other module"},
		{"shell takes what it likes outside", []*Package{pkg("rvt/node", "net", "golang.org/x/sys/unix", Module+"/fabric")}, ""},
		{"shell is bound inside", []*Package{pkg("rvt/node", Module+"/fabric/udp")}, "may not import fabric/udp"},
		{"leaf imports core", []*Package{pkg("internal/invariants", Module+"/ib")}, "may not import ib"},
		{"leaf imports leaf", []*Package{pkg("vtime", Module+"/internal/invariants")}, "may not import internal/invariants"},
		{"command as a library", []*Package{pkg("verbs", Module+"/cmd/rvtsim"), main("cmd/rvtsim")}, "verbs: may not import cmd/rvtsim: a command"},
		{"a module for tests", []*Package{pkg("internal/sweep", "github.com/nats-io/nats-server/v2/server")}, "internal/sweep: may not import github.com/nats-io/nats-server/v2/server: it is for tests only: a timer"},
		{"a module of nearly the same name", []*Package{pkg("internal/sweep", "github.com/nats-io/nats.go", "github.com/nats-io/nats-server-list")}, ""},
		{"cgo", []*Package{{ImportPath: Module + "/wire", CgoFiles: []string{"crc.go"}}}, "crc.go is not plain Go"},
		{"assembly", []*Package{{ImportPath: Module + "/wire", SFiles: []string{"crc_amd64.s"}}}, "crc_amd64.s is not plain Go"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			expect(t, CheckImports(tt.pkgs), tt.want)
		})
	}
}

func TestConstraintsBites(t *testing.T) {
	load := func(rel string, built, ignored []string) []*Package {
		return []*Package{{ImportPath: Module + "/" + rel, GoFiles: built, IgnoredGoFiles: ignored}}
	}
	on, off := []string{"check_on.go"}, []string{"check_off.go"}
	expect(t, CheckConstraints(load("qp", off, on), load("qp", on, off)), "")
	linux := []string{"sum_linux.go"}
	expect(t, CheckConstraints(load("qp", nil, linux), load("qp", nil, linux)), "sum_linux.go has a build constraint")
	expect(t, CheckConstraints(load("fabric/udp", nil, linux)), "")
	expect(t, CheckConstraints(load("qp", nil, []string{"slow_test.go"})), "")
}

func TestLookupPrefersTheMostSpecificRule(t *testing.T) {
	rules := []Rule{{Package: "a/..."}, {Package: "a/b/..."}, {Package: "a/b/c"}}
	for pkg, want := range map[string]string{"a": "a/...", "a/x": "a/...", "a/b": "a/b/...", "a/b/x/y": "a/b/...", "a/b/c": "a/b/c", "a/b/c/d": "a/b/..."} {
		r, ok := lookup(rules, pkg)
		require.True(t, ok, pkg)
		require.Equal(t, want, r.Package, pkg)
	}
	_, ok := lookup(rules, "ab")
	require.False(t, ok)
}

// expect requires exactly one problem that contains want, or none if want is empty.
func expect(t *testing.T, got []Problem, want string) {
	t.Helper()
	if want == "" {
		require.Empty(t, got)
		return
	}
	require.Len(t, got, 1)
	require.Contains(t, got[0].String(), want)
}
