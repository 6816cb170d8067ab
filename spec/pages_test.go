package spec

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cells returns the rows of the tables of a file, without their heads.
func cells(t *testing.T, name string, columns int) (rows [][]string) {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if !strings.HasPrefix(line, "| ") || strings.HasPrefix(line, "| # ") || strings.HasPrefix(line, "| Page ") {
			continue
		}
		row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		require.Len(t, row, columns, line)
		for i := range row {
			row[i] = strings.TrimSpace(row[i])
		}
		rows = append(rows, row)
	}
	return rows
}

// shown checks that everything in a list of tests and functions exists.
func shown(t *testing.T, list string) {
	t.Helper()
	for item := range strings.SplitSeq(list, ", ") {
		if item == "" {
			continue
		}
		file, name, ok := strings.Cut(item, " ")
		require.True(t, ok, item)
		if !strings.HasSuffix(file, ".c") {
			require.True(t, testExists(t, item), "%q does not exist", item)
			continue
		}
		src, err := os.ReadFile(filepath.Join("..", "tests", "front", "progs", "cm", file))
		require.NoError(t, err)
		require.Regexp(t, regexp.MustCompile(`(?m)^static \w[\w ]* \*?`+name+`\(`), string(src), item)
	}
}

// TestPages: each statement of the man pages names Go tests that exist, and functions in C.
func TestPages(t *testing.T) {
	rows := cells(t, "PAGES.md", 4)
	require.Len(t, rows, 24)
	for _, r := range rows {
		require.NotEmpty(t, r[2], r[1])
		shown(t, r[2])
		shown(t, r[3])
	}
}

// TestCMReports: each of the 30 bugs names what shows that it is none here, or says why it
// cannot be one.
func TestCMReports(t *testing.T) {
	rows := cells(t, "CM-REPORTS.md", 5)
	require.Len(t, rows, 30)
	for i, r := range rows {
		require.Equal(t, strconv.Itoa(i+1), r[0])
		require.NotEmpty(t, r[3]+r[4], r[2])
		shown(t, r[3])
	}
}
