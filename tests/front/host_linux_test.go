package front

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/buildid"
	"github.com/rvtsim/rvtsim/shim"
)

// log is what the daemon has written so far.
func (s *site) log() string {
	b, err := os.ReadFile(filepath.Join(s.dir, "rvtsim", "default.log"))
	require.NoError(s.t, err)
	return string(b)
}

// plainly runs a program as a user does who chooses nothing, and returns what rvtsim or the
// program said.
func (s *site) plainly(rvtsim string, prog ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), rvtsim, append([]string{"exec", "--node", "n1", "--"}, prog...)...)
	cmd.Env = s.env
	out, err := cmd.CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	return string(out)
}

// TestWhoWorks: who does the adapter's work if nobody has said who. What cannot have the
// engine inside is served by the daemon, and one line says why.
func TestWhoWorks(t *testing.T) {
	guest := program(t, "guest")
	s := up(t, 1)
	s.engine = "program"

	require.Empty(t, s.plainly(built.rvtsim, guest, "once"))
	require.Regexp(t, `msg=attach .*comm=guest engine=program`, s.log())

	static := staticProgram(t)
	require.Equal(t, "rvtsim: "+static+" is statically linked: the daemon serves it, --via seccomp\n", s.plainly(built.rvtsim, static, "loopback"))

	watched := filepath.Join(s.dir, "watched")
	out, err := exec.Command("cc", "-g", "-fsanitize=address", "-o", watched, "progs/guest.c", "-libverbs", "-pthread", "-ldl").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.env = append(s.env, "ASAN_OPTIONS=detect_leaks=0")
	s.because = "a sanitizer or valgrind watches it"
	require.Empty(t, s.plainly(built.rvtsim, watched, "once"))
	require.Contains(t, s.log(), s.because)
	s.served(1)

	// Somebody who has no engine: a command without anything beside it.
	s = up(t, 1)
	s.engine = "program"
	alone := filepath.Join(s.dir, "bin", "rvtsim")
	require.NoError(t, os.Mkdir(filepath.Dir(alone), 0o755))
	require.NoError(t, os.Link(built.rvtsim, alone))
	s.because = "no engine was built"
	require.Empty(t, s.plainly(alone, guest, "once"))
	s.served(1)
}

// TestEngineOfAnotherBuild: the daemon takes no engine that was built with another rvtsim of
// the same version, be it one that lay beside it before it was compiled anew.
func TestEngineOfAnotherBuild(t *testing.T) {
	guest := program(t, "guest")
	s := newSite(t, nil)
	s.engine, s.rvtsim = "program", filepath.Join(s.dir, "bin", "rvtsim")
	dir := filepath.Dir(s.rvtsim)
	require.NoError(t, os.Mkdir(dir, 0o755))
	old, err := buildid.Of(built.rvtsim)
	require.NoError(t, err)
	exe, err := os.ReadFile(built.rvtsim)
	require.NoError(t, err)
	exe = bytes.ReplaceAll(exe, []byte(old), []byte("another"+old[len("another"):]))
	require.NoError(t, os.WriteFile(s.rvtsim, exe, 0o755))
	for _, lib := range []string{shim.EngineName(), shim.FileName()} {
		require.NoError(t, os.Link(filepath.Join(built.dir, lib), filepath.Join(dir, lib)))
	}
	s.because = "the engine belongs to another build of rvtsim"
	s.up(1)
	require.Empty(t, s.plainly(s.rvtsim, guest, "once"))
	s.served(1)
}

// served counts the lines that say why the daemon serves a program.
func (s *site) served(want int) {
	s.t.Helper()
	require.Len(s.t, regexp.MustCompile(`because=`).FindAllString(s.log(), -1), want, "one line for each program:\n%s", s.log())
}

// TestTwoRuntimes runs a Go program that is linked with libibverbs.
func TestTwoRuntimes(t *testing.T) {
	program(t, "guest") // or say what is missing
	prog := filepath.Join(built.dir, "cgo")
	out, err := exec.Command("go", "build", "-o", prog, "./progs/testdata/cgo").CombinedOutput()
	require.NoError(t, err, "%s", out)
	s := up(t, 1)
	said := s.run("n1", prog)
	require.Regexp(t, `(?s)recovered: .*nil pointer.*child\s.*ok`, said)
	s.empty()
}

// switches counts how often threads of a program have waited for something.
func (r *running) switches() (n int) {
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", r.pid()))
	require.NoError(r.t, err)
	require.NotEmpty(r.t, tasks)
	for _, f := range tasks {
		b, err := os.ReadFile(f)
		require.NoError(r.t, err)
		m := regexp.MustCompile(`\nvoluntary_ctxt_switches:\s+(\d+)`).FindSubmatch(b)
		require.NotNil(r.t, m)
		k, err := strconv.Atoi(string(m[1]))
		require.NoError(r.t, err)
		n += k
	}
	return n
}

// TestIdleProgram: the engine of a program that waits for events does nothing at all.
func TestIdleProgram(t *testing.T) {
	s := up(t, 1)
	v := s.start("n1", program(t, "victim"), "wait")
	v.until("ready")
	before := v.switches()
	still := func() bool {
		now := v.switches()
		same := now == before
		before = now
		return same
	}
	require.Eventually(t, still, longest, 300*time.Millisecond, "it wakes up again and again")
	require.NoError(t, v.cmd.Process.Kill())
	s.empty()
}

// TestStoppedPeer stops the responder for longer than all retries take, or the requester: no
// work request fails, and the traffic goes on. A peer that is killed while it is stopped is
// dead like any other. In the long form it is for half a minute, and of each kind.
func TestStoppedPeer(t *testing.T) {
	need(t, "ib_write_bw")
	progs, long := []string{"ib_write_bw"}, 700*time.Millisecond
	if *full {
		progs, long = []string{"ib_write_bw", "ib_send_bw", "ib_read_bw", "ib_atomic_bw"}, 30*time.Second
	}
	for _, prog := range progs {
		s := up(t, 2)
		flow := func() (server, client *running) { return s.flow(prog, "-u", "14") } // half a second
		server, client := flow()
		s.stand(server, client, long, syscall.SIGCONT)
		s.moves(client)
		if *full { // a program lives for a minute
			require.NoError(t, client.cmd.Process.Kill())
			server, client = flow()
		}
		s.stand(client, client, long, syscall.SIGCONT)
		s.moves(client)
		s.stand(server, client, 700*time.Millisecond, syscall.SIGKILL)
		require.Error(t, client.wait(), "%s", client.output())
		require.Contains(t, client.output(), "Failed status 12", "IBV_WC_RETRY_EXC_ERR")
		s.empty()
		require.Equal(t, s.engine == "program", strings.Contains(s.log(), "stopped; its peers wait"), "%s", s.log())
	}
}

// stand stops a program for some time, and then sends another signal. The client lives
// on, and so does the node.
func (s *site) stand(who, client *running, long time.Duration, then syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, who.cmd.Process.Signal(syscall.SIGSTOP))
	out, err := s.try("n2", program(s.t, "events"))
	require.NoError(s.t, err, "the node is held up: %s", out)
	require.Never(s.t, client.ended, long, 20*time.Millisecond, "%s", client.output())
	require.NoError(s.t, who.cmd.Process.Signal(then))
}
