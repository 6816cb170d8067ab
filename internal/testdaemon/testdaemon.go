// Package testdaemon gives a test a daemon of its own, to run foreign programs on.
package testdaemon

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Missing skips the test for lack of a program. In CI nothing may be missing.
func Missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("missing tool: " + what)
	}
	t.Skip("missing tool: " + what)
}

// Build compiles the command into dir, for a test in a package two levels below the root
// of the module, and returns its path.
func Build(t *testing.T, dir string) string {
	t.Helper()
	exe := filepath.Join(dir, "rvtsim-command")
	out, err := exec.Command("go", "build", "-o", exe, "../../cmd/rvtsim").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return exe
}

// BuildEngine compiles what comes into programs with "exec --engine program", beside exe.
func BuildEngine(t *testing.T, exe string) {
	t.Helper()
	out, err := exec.Command(exe, "engine", "--source", "../..", filepath.Dir(exe)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// Daemon is where a daemon runs that nobody else knows of.
type Daemon struct {
	Exe string   // rvtsim
	Dir string   // its own, with a short name: sockets are in it
	Env []string // of every command
	// Engine is who does the adapter's work, for exec --engine: "daemon" or "program".
	Engine string
}

// New makes the place for a daemon, which goes with the test.
func New(t *testing.T, exe string) *Daemon {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rvtd")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &Daemon{Exe: exe, Dir: dir, Env: append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, "cache")), Engine: "daemon"}
}

// Up runs "rvtsim up" with the arguments. At the end of the test the daemon is taken down,
// which must work; of a test that failed its log is shown.
func (d *Daemon) Up(t *testing.T, args ...string) {
	t.Helper()
	out, err := d.Command(t.Context(), append([]string{"up"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		if out, err := d.Command(context.Background(), "down").CombinedOutput(); err != nil {
			t.Errorf("down: %v\n%s", err, out)
		}
		log, _ := os.ReadFile(filepath.Join(d.Dir, "rvtsim", "default.log"))
		inside := strings.Contains(string(log), "engine=program")
		served := strings.Contains(strings.ReplaceAll(string(log), `because="it opens the device in a child of fork"`, ""), "because=")
		if inside != (d.Engine == "program") || served {
			t.Errorf("the engine was not in the %s", d.Engine)
		}
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", log)
		}
	})
}

// Command is rvtsim with the arguments, for this daemon.
func (d *Daemon) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.Exe, args...)
	cmd.Env = d.Env
	return cmd
}
