package front

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tableElsewhere are rows of the table of verbs that other tests are about.
var tableElsewhere = []string{
	"provider in rdma-core", // a name
	"how sends reach",       // TestOwnPrograms/posting and tests of package uverbs
	"ATOMIC_WRITE",          // newer than the verbs.h of some distributions: tests of package uverbs
	"librdmacm and librpma", // TestRDMACM, TestOwnCMPrograms
}

// verbsTable reads the table of docs/unmodified-programs.md: for each row what it says of
// the two ABIs.
func verbsTable(t *testing.T) map[string][2]string {
	text, err := os.ReadFile("../../docs/unmodified-programs.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "| | `--abi rxe` (default) | `--abi rvt` |\n|---|---|---|\n")
	require.True(t, ok)
	rows := map[string][2]string{}
	for line := range strings.Lines(rest) {
		f := strings.Split(strings.TrimSpace(line), " | ")
		if len(f) != 3 {
			break
		}
		rows[strings.TrimPrefix(f[0], "| ")] = [2]string{f[1], strings.TrimSuffix(f[2], " |")}
	}
	return rows
}

// TestVerbsTable tries what each row of the table is about, with both providers.
func TestVerbsTable(t *testing.T) {
	rows := verbsTable(t)
	require.Greater(t, len(rows), 10)
	tried := map[string]bool{}
	for i, abi := range []string{"rxe", "rvt"} {
		s := up(t, 1, "--abi", abi)
		out, err := s.try("n1", program(t, "table"))
		require.NoError(t, err, "%s", out)
		for line := range strings.Lines(out) {
			begin, works, ok := strings.Cut(strings.TrimSpace(line), "\t")
			require.True(t, ok, line)
			found := 0
			for row, says := range rows {
				if strings.HasPrefix(row, begin) {
					found++
					tried[row] = true
					require.Equal(t, says[i], works, "%s: %s", abi, row)
				}
			}
			require.Equal(t, 1, found, "rows that begin with %q", begin)
		}
		s.empty()
	}
	for row := range rows {
		for _, e := range tableElsewhere {
			tried[row] = tried[row] || strings.HasPrefix(row, e)
		}
		require.True(t, tried[row], "nobody tries: %s", row)
	}
}

// TestMulticastByVerbs attaches queue pairs on two nodes to a group, without librdmacm, and
// sends from a third.
func TestMulticastByVerbs(t *testing.T) {
	s := up(t, 3)
	var members []*running
	for _, n := range []string{"n1", "n2"} {
		m := s.start(n, program(t, "group"))
		m.until("attached")
		members = append(members, m)
	}
	s.run("n3", program(t, "group"), "send")
	for _, m := range members {
		require.NoError(t, m.wait(), "%s", m.output())
		require.Contains(t, m.output(), "taken")
	}
	s.empty()
}
