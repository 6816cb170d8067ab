package spec

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var fieldReport = regexp.MustCompile(`(?m)^\| \[([a-z0-9-]+)\]\(https://[^|]*\) \| ([ABCD]) \| ([^|]*)\| ?([^|]*)\|$`)

// TestFieldReports: each of the 55 reports names tests that exist, or says what is open;
// for each mistake of a program there is a text.
func TestFieldReports(t *testing.T) {
	b, err := os.ReadFile("FIELD-REPORTS.md")
	require.NoError(t, err)
	table, texts, ok := strings.Cut(string(b), "## What a program is told")
	require.True(t, ok)
	rows := fieldReport.FindAllStringSubmatch(table, -1)
	require.Len(t, rows, 55)
	seen := map[string]bool{}
	for _, r := range rows {
		name, class, tests, open := r[1], r[2], strings.TrimSpace(r[3]), strings.TrimSpace(r[4])
		require.False(t, seen[name], name)
		seen[name] = true
		require.NotEmpty(t, tests+open, name)
		if class == "A" || class == "B" {
			require.NotEmpty(t, tests, name)
		}
		if class == "B" {
			require.Contains(t, texts, name, "no text for %s", name)
		}
		for test := range strings.SplitSeq(tests, ", ") {
			if test != "" {
				require.True(t, testExists(t, test), "%s: %q does not exist", name, test)
			}
		}
	}
}

// testExists finds a scenario, a Go test ("verbs TestX") or an example.
func testExists(t *testing.T, test string) bool {
	pkg, name, ok := strings.Cut(test, " ")
	if !ok {
		_, err := os.Stat(filepath.Join("scenarios", test))
		return err == nil
	}
	dir := filepath.Join("..", pkg)
	if pkg == "examples/statuses" {
		_, err := os.Stat(filepath.Join(dir, "testdata", strings.ToLower(name)+".txt"))
		return err == nil
	}
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	require.NoError(t, err)
	for _, f := range files {
		src, err := os.ReadFile(f)
		require.NoError(t, err)
		if strings.Contains(string(src), "func "+name+"(") {
			return true
		}
	}
	return false
}
