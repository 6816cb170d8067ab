package tidy

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "take names that exist by now off the glossary's pending list")

// pendingFile lists the names of GLOSSARY.md that are not written yet.
const pendingFile = "testdata/glossary_pending.txt"

func readPending(t *testing.T) []string {
	t.Helper()
	src, err := os.ReadFile(pendingFile)
	require.NoError(t, err)
	return strings.Fields(string(src))
}

func TestGlossary(t *testing.T) {
	var sources []*goFile
	var entries []glossaryEntry
	for _, f := range repository(t) {
		switch {
		case f.path == "GLOSSARY.md":
			entries = parseGlossary(string(f.src))
		case isSource(&f):
			if g, _ := parse(&f); g != nil {
				sources = append(sources, g)
			}
		}
	}
	require.Greater(t, len(entries), 100, "the glossary's tables were not found")
	pending := readPending(t)
	missing, unneeded := checkGlossary(entries, declared(sources), pending)
	for _, name := range missing {
		t.Errorf("GLOSSARY.md: %s does not exist in the code: correct the glossary", name)
	}
	if *rewrite {
		pending = slices.DeleteFunc(pending, func(name string) bool { return slices.Contains(unneeded, name) })
		require.NoError(t, os.WriteFile(pendingFile, []byte(strings.Join(append(pending, ""), "\n")), 0o644))
		return
	}
	for _, name := range unneeded {
		t.Errorf("internal/tidy/%s: %s exists by now, or the glossary dropped it: remove it with\n\tgo test ./internal/tidy -run Glossary -rewrite", pendingFile, name)
	}
}

func TestParseGlossary(t *testing.T) {
	const src = "# Title\n" +
		"`not.Table` text\n\n" +
		"| Kernel | Go | Meaning |\n|---|---|---|\n" +
		"| `s_head` | `qp.QP.SHead` | see `qp.QP.STail` |\n" +
		"| `x` | – | none |\n" +
		"| `y` | `a.B`, `a.C` | two |\n\n" +
		"| Kernel | Why |\n|---|---|\n| `z` | `not.Go` |\n"
	require.Equal(t, []glossaryEntry{{"qp.QP.SHead", 6}, {"a.B", 8}, {"a.C", 8}}, parseGlossary(src))
}

func TestDeclared(t *testing.T) {
	g, problems := parse(&file{path: "p/a.go", src: []byte(`package p
type T struct { A, B int; E }
type E struct{}
type I interface { M() }
type N uint8
const C, D = 1, 2
var v int
func F() { type local int }
func (t *T) g() {}
func (n N) h() {}
`)})
	require.Empty(t, problems)
	var got []string
	for name := range declared([]*goFile{g}) {
		got = append(got, name)
	}
	slices.Sort(got)
	require.Equal(t, strings.Fields("p.C p.D p.E p.F p.I p.I.M p.N p.N.h p.T p.T.A p.T.B p.T.g p.v"), got)
}

func TestGlossaryBites(t *testing.T) {
	entries := []glossaryEntry{{"p.A", 1}, {"p.B", 2}, {"p.B", 3}, {"p.C", 4}}
	names := map[string]bool{"p.A": true, "p.B": true}
	missing, unneeded := checkGlossary(entries, names, []string{"p.C"})
	require.Empty(t, missing)
	require.Empty(t, unneeded)
	missing, _ = checkGlossary(entries, names, nil)
	require.Equal(t, []string{"p.C"}, missing, "neither written nor planned")
	_, unneeded = checkGlossary(entries, names, []string{"p.C", "p.B", "p.X"})
	require.Equal(t, []string{"p.B", "p.X"}, unneeded, "written by now, and never promised")
}
