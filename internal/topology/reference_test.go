package topology

import (
	"flag"
	"os"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

var rewrite = flag.Bool("rewrite", false, "rewrite docs/topology.md from the schema")

const referencePath = "../../docs/topology.md"

// The manual is the program's own: go test ./internal/topology -run Reference -rewrite.
func TestReferenceIsUpToDate(t *testing.T) {
	if *rewrite {
		require.NoError(t, os.MkdirAll("../../docs", 0o755))
		require.NoError(t, os.WriteFile(referencePath, []byte(Reference()), 0o644))
	}
	got, err := os.ReadFile(referencePath)
	require.NoError(t, err)
	require.Equal(t, Reference(), string(got), "docs/topology.md is not what the schema says; run this test with -rewrite")
}

// Every YAML block of the manual is a complete file that parses.
func TestReferenceExamplesParse(t *testing.T) {
	text, err := os.ReadFile(referencePath)
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	require.GreaterOrEqual(t, len(blocks), 2)
	for i, b := range blocks {
		f, err := Parse("docs/topology.md", b[1])
		require.NoError(t, err, "block %d", i)
		require.NotEmpty(t, f.Flows)
	}
}
