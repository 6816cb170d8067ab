package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
)

var update = flag.Bool("update", false, "rewrite the expected output")

// TestExamples runs every example over UDP and compares what it prints.
func TestExamples(t *testing.T) {
	two.Addresses = [2]string{loopback.Node(0, 24833), loopback.Node(1, 24833)}
	for _, e := range examples {
		t.Run(e.name, func(t *testing.T) {
			var out bytes.Buffer
			two.Out = &out
			t.Cleanup(two.CloseAll)
			e.run()
			file := filepath.Join("testdata", strings.ToLower(e.name)+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, out.Bytes(), 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			require.Equal(t, string(want), out.String())
		})
	}
}

// TestComplete: every status and event has an example or a line in README.md that says
// why not, and each example is in a file of its name that fits a screen.
func TestComplete(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	has := map[string]bool{"PORT_ACTIVE": true} // with PORT_ERR
	for _, e := range examples {
		has[e.name] = true
		src, err := os.ReadFile(strings.ToLower(e.name) + ".go")
		require.NoError(t, err)
		require.LessOrEqual(t, bytes.Count(src, []byte("\n")), 60, e.name)
	}
	check := func(name string) {
		listed := bytes.Contains(readme, []byte("| `"+name+"` |"))
		require.NotEqual(t, has[name], listed, "%s: either an example or a reason", name)
	}
	for s := range ib.WCStatus(ib.NumWCStatuses) {
		check(s.String())
	}
	for e := range ib.EventWQFatal + 1 {
		check(e.String())
	}
}
