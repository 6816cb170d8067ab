package strict

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCodes: each code can be looked up, says what to do, and is in the documentation.
func TestCodes(t *testing.T) {
	doc, err := os.ReadFile("../docs/strict.md")
	require.NoError(t, err)
	seen := map[string]bool{}
	for _, c := range Codes() {
		require.False(t, seen[c.ID], c.ID)
		seen[c.ID] = true
		got, ok := Lookup(c.ID)
		require.True(t, ok)
		require.Same(t, c, got)
		require.NotEmpty(t, c.Fix)
		require.Contains(t, c.Describe(), "\n  - ")
		require.Contains(t, string(doc), "| "+c.ID+" |")
	}
	require.Equal(t, len(seen), strings.Count(string(doc), "| STRICT-"))
	_, ok := Lookup("STRICT-XX-01")
	require.False(t, ok)
}
