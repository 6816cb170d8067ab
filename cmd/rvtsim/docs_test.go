package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/invariants"
)

// notRun are the documented commands that no test runs, with the reason. The same
// command in a document is fine as long as it stands here.
var notRun = map[string]string{
	"make test":     "is what runs this test",
	"make demo":     "its command is run here by its own name, after the build",
	"make":          "lists targets; internal/tidy checks the list",
	"make campaign": "runs as long as one likes; tests/campaign runs a slice",
	"make fuzz":     "part of make test",
	"make bench":    "figures, not a check",
	"make cover":    "figures, not a check",
}

// prefixNotRun are kinds of commands that are covered elsewhere.
var prefixNotRun = map[string]string{
	"make ":                 "targets with settings",
	"go test ":              "is run by make test",
	"rvtsim up":             "tests/front runs the daemon",
	"rvtsim exec":           "tests/front runs programs",
	"rvtsim ls":             "tests/front",
	"rvtsim netns ":         "tests/front makes namespaces",
	"rvtsim fault ":         "tests/front has programs meet faults",
	"bin/rvtsim netns ":     "tests/front makes namespaces",
	"bin/rvtsim fault ":     "tests/front has programs meet faults",
	"rvtsim explain --node": "tests/front asks the daemon",
	"rvtsim down":           "tests/front",
	"bin/rvtsim up":         "tests/front runs the daemon",
	"bin/rvtsim exec":       "tests/front runs programs",
	"bin/rvtsim ls":         "tests/front",
	"bin/rvtsim down":       "tests/front",
	"apt-get install ":      "the machine's affair",
	"git ":                  "the machine's affair",
	"go get ":               "needs the module to be published",
}

// docCommands returns the lines of a document's ```sh blocks.
func docCommands(t *testing.T, path string) (cmds []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	in := false
	for _, line := range strings.Split(string(b), "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			in = trimmed == "```sh"
		case in && trimmed != "" && !strings.HasPrefix(trimmed, "#"):
			if i := strings.Index(trimmed, "  #"); i >= 0 {
				trimmed = strings.TrimSpace(trimmed[:i])
			}
			cmds = append(cmds, trimmed)
		}
	}
	return cmds
}

func excused(cmd string) bool {
	if _, ok := notRun[cmd]; ok {
		return true
	}
	for p := range prefixNotRun {
		if strings.HasPrefix(cmd, p) {
			return true
		}
	}
	return false
}

// TestDocumentedCommands runs every command that the documents show.
func TestDocumentedCommands(t *testing.T) {
	if invariants.Race {
		t.Skip("the plain pass runs them; the race detector has seen their code elsewhere")
	}
	docs, err := filepath.Glob("../../*.md")
	require.NoError(t, err)
	more, err := filepath.Glob("../../docs/*.md")
	require.NoError(t, err)
	ran := map[string]bool{}
	for _, doc := range append(docs, more...) {
		for _, cmd := range docCommands(t, doc) {
			if ran[cmd] || excused(cmd) {
				continue
			}
			ran[cmd] = true
			t.Run(filepath.Base(doc)+"/"+cmd, func(t *testing.T) { runDocumented(t, cmd, byte(100+len(ran))) })
		}
	}
	require.Greater(t, len(ran), 4, "the documents show commands")
}

func runDocumented(t *testing.T, cmd string, subnet byte) {
	args := strings.Fields(cmd)
	switch args[0] {
	case "bin/rvtsim", "rvtsim":
		args = documentedArgs(t, args[1:], subnet)
		r := rvtsim(t, args...)
		require.Equal(t, exitOK, r.code, r.out+r.errout)
	case "go":
		c := exec.Command(args[0], args[1:]...)
		c.Dir = "../.."
		out, err := c.CombinedOutput()
		if strings.Contains(string(out), "is in use") {
			t.Skip("another program of this machine has 127.0.0.1:4791")
		}
		require.NoError(t, err, string(out))
	default:
		t.Fatalf("no test knows how to run %q; add it here, or to notRun with the reason", cmd)
	}
}

// documentedArgs expands globs, and gives files that would open sockets addresses of
// the test's own and captures a place of their own.
func documentedArgs(t *testing.T, args []string, subnet byte) (out []string) {
	virtual := strings.Contains(strings.Join(args, " "), "--virtual")
	for i, a := range args {
		switch {
		case strings.Contains(a, "*"):
			files, err := filepath.Glob(filepath.Join("../..", a))
			require.NoError(t, err)
			require.NotEmpty(t, files, a)
			for _, f := range files {
				out = append(out, strings.TrimPrefix(f, "../../"))
			}
		case args[0] == "run" && strings.HasSuffix(a, ".yaml") && !virtual:
			out = append(out, onAddresses(t, a, subnet))
		case i > 0 && args[i-1] == "--pcap":
			out = append(out, filepath.Join(t.TempDir(), a))
		default:
			out = append(out, a)
		}
	}
	return out
}

// TestReadmeProgram: what the README shows of the first program is the program.
func TestReadmeProgram(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(readme), "<!-- hello -->\n```go\n")
	require.True(t, ok)
	shown, _, ok := strings.Cut(rest, "```")
	require.True(t, ok)
	program, err := os.ReadFile("../../examples/hello/main.go")
	require.NoError(t, err)
	for _, line := range strings.Split(strings.TrimSpace(shown), "\n") {
		require.Contains(t, string(program), "\t"+line+"\n")
	}
}
