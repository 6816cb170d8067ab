package spectables

import (
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/conform"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

var update = flag.Bool("update", false, "rewrite the derived parts of spec/tables")

const dir = "../../spec/tables"

// read returns a table, nil if the file is not there.
func read(t *testing.T, name string) *Table {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, name+".yaml"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	require.NoError(t, err)
	tab, err := decode(b)
	require.NoError(t, err, "%s.yaml", name)
	return tab
}

// TestTables compares each table with the code, both ways, and wants every cell written.
func TestTables(t *testing.T) {
	for _, s := range sources {
		t.Run(s.name, func(t *testing.T) {
			have := read(t, s.name)
			want := s.build(have)
			if *update {
				require.NoError(t, os.WriteFile(filepath.Join(dir, s.name+".yaml"), want.encode(), 0o644))
				have = read(t, s.name)
			}
			require.NotNil(t, have, "%s.yaml is missing; run with -update", s.name)
			require.Equal(t, want.Columns, have.Columns)
			byKey := map[string]map[string]any{}
			for _, r := range have.Rows {
				byKey[keyOf(s.key, r)] = r
			}
			for _, w := range want.Rows {
				k := keyOf(s.key, w)
				h := byKey[k]
				if h == nil {
					t.Errorf("%s.yaml lacks %s", s.name, k)
					continue
				}
				delete(byKey, k)
				for _, c := range want.Columns {
					if got, want := text(h[c.Name]), text(w[c.Name]); got != want {
						t.Errorf("%s.yaml: %s: %s is %s, the code says %s", s.name, k, c.Name, got, want)
					}
					if !c.Derived && text(h[c.Name]) == unwritten {
						t.Errorf("%s.yaml: %s: write %s", s.name, k, c.Name)
					}
				}
			}
			for k := range byKey {
				t.Errorf("%s.yaml has %s, the code has not", s.name, k)
			}
			b, err := os.ReadFile(filepath.Join(dir, s.name+".yaml"))
			require.NoError(t, err)
			require.Equal(t, string(have.encode()), string(b), "run with -update to bring the file into shape")
		})
	}
}

// TestNoOtherTables: every file of the folder is checked.
func TestNoOtherTables(t *testing.T) {
	paths, err := filepath.Glob(dir + "/*.yaml")
	require.NoError(t, err)
	require.Len(t, paths, len(sources))
	readme, err := os.ReadFile(dir + "/README.md")
	require.NoError(t, err)
	for _, s := range sources {
		require.Contains(t, string(readme), "`"+s.name+".yaml`")
	}
}

// column returns one column of a table by the name of the row.
func column(t *testing.T, table, key, col string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, r := range read(t, table).Rows {
		out[text(r[key])] = strings.Fields(strings.Trim(text(r[col]), "[]"))
	}
	return out
}

var failedWC = regexp.MustCompile(`id=\d+ ([A-Z_]+) \S+ \S+ \S+ verr=(\d+)`)

// TestStatusesAndEvents holds the hand-written columns against what the conformance suite
// sees: each pair of status and cause is listed, events come in the listed profiles and
// in all of those that the suite can provoke.
func TestStatusesAndEvents(t *testing.T) {
	causeName := map[uint64]string{}
	for _, r := range read(t, "causes").Rows {
		n, err := strconv.ParseUint(text(r["value"]), 0, 32)
		require.NoError(t, err)
		causeName[n] = text(r["name"])
	}
	listed := column(t, "statuses", "name", "causes")
	side := column(t, "statuses", "name", "side")
	raised := column(t, "events", "name", "profiles")
	seen := map[string]bool{}
	for _, profile := range conform.Profiles {
		p, _ := qp.ProfileByName(profile)
		rep, err := conform.RunProfile(p, nil)
		require.NoError(t, err)
		got := map[string]bool{}
		for _, c := range rep.Results {
			for _, m := range failedWC.FindAllStringSubmatch(c.Record.Completions, -1) {
				seen[m[1]] = true
				n, err := strconv.ParseUint(m[2], 10, 32)
				require.NoError(t, err)
				if m[1] != "SUCCESS" {
					require.Contains(t, listed[m[1]], causeName[n], "%s, case %s: %s with vendor_err 0x%x", profile, c.Case, m[1], n)
				}
			}
			for e := ib.EventCQErr; e <= ib.EventWQFatal; e++ {
				if strings.Contains(c.Record.Async, conform.EventText(e)+"(") {
					got[e.String()] = true
				}
			}
		}
		for e, in := range raised {
			require.Equal(t, slices.Contains(in, profile), got[e], "profile %s, event %s", profile, e)
		}
	}
	for s, who := range side {
		require.Equal(t, who[0] != "none", seen[s], "status %s, side %s", s, who)
	}
	names := map[string]bool{}
	for _, n := range causeName {
		names[n] = true
	}
	for s, causes := range listed {
		for _, c := range causes {
			require.True(t, names[c], "%s lists cause %s, which is not in causes.yaml", s, c)
		}
	}
}

// TestTablesBite: a changed cell, a missing row and a surplus one are noticed.
func TestTablesBite(t *testing.T) {
	for _, s := range sources {
		want := s.build(read(t, s.name))
		b := want.encode()
		again, err := decode(b)
		require.NoError(t, err)
		require.Equal(t, string(b), string(again.encode()), s.name)
		again.Rows[0][s.key[0]] = "changed"
		require.NotEqual(t, string(b), string(again.encode()), s.name)
	}
	for text, want := range map[string]string{
		"schema: 2": "schema is 2",
		"schema: 1\ncolumns: [{name: a, type: int}]\nrows: [{b: 1}]":                   "row 1 lacks a",
		"schema: 1\ncolumns: [{name: a, type: int}]\nrows: [{a: 1, b: 1}]":             "row 1 has columns",
		"schema: 1\nkey: [a]\ncolumns: [{name: a, type: int}]\nrows: [{a: 1}, {a: 1}]": "row 2: 1 is there already",
		"schema: 1\nsurprise: 2": "surprise",
	} {
		_, err := decode([]byte(text))
		require.ErrorContains(t, err, want)
	}
}
