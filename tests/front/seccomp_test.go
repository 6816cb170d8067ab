//go:build linux

package front

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// static returns the path of our program that nothing can be preloaded into.
var static = sync.OnceValues(func() (string, error) {
	return link("seccomp_static", "cc", "-static", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "progs/seccomp_static.c")
})

// pureGo returns the path of our program without C.
var pureGo = sync.OnceValues(func() (string, error) {
	return link("seccomp_go", "go", "build", "./progs/seccomp_go")
})

func link(name string, command ...string) (string, error) {
	path := filepath.Join(built.dir, name+".static")
	n := 1
	if command[0] == "go" {
		n = 2
	}
	args := append(append(append([]string{}, command[1:n]...), "-o", path), command[n:]...)
	cmd := exec.Command(command[0], args...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, nil
}

func staticProgram(t testing.TB) string {
	lacks := ""
	if _, err := exec.LookPath("cc"); err != nil {
		lacks = "cc is missing"
	} else if _, err := os.Stat("/usr/include/rdma/ib_user_verbs.h"); err != nil {
		lacks = "linux-libc-dev is missing"
	}
	if lacks != "" && os.Getenv("CI") == "true" {
		t.Fatal(lacks)
	} else if lacks != "" {
		t.Skip("SKIP " + lacks)
	}
	p, err := static()
	require.NoError(t, err)
	return p
}

// notified is a site whose programs run under a supervisor.
func notified(t *testing.T, cred *syscall.Credential, nodes int, flags ...string) *site {
	t.Helper()
	s := newSite(t, cred)
	s.via = "seccomp"
	s.up(nodes, flags...)
	return s
}

// users are who runs a test: an ordinary user in any case. Under the race detector each
// run starts three slow processes; once is enough.
func users() map[string]*syscall.Credential {
	if underRace && os.Getuid() == 0 {
		return map[string]*syscall.Credential{"user": nobody}
	}
	if os.Getuid() != 0 {
		return map[string]*syscall.Credential{"user": nil}
	}
	return map[string]*syscall.Credential{"root": nil, "user": nobody}
}

func TestSeccompStaticProgram(t *testing.T) {
	prog := staticProgram(t)
	for who, cred := range users() {
		s := notified(t, cred, 1)
		for _, part := range []string{"loopback", "paths", "descriptors", "escaped", "forks", "threads", "signals", "limit"} {
			t.Run(who+"/"+part, func(t *testing.T) {
				out, err := s.try("n1", prog, part)
				require.NoError(t, err, "%s", out)
			})
		}
		s.empty()
	}
}

func TestSeccompPureGoProgram(t *testing.T) {
	prog, err := pureGo()
	require.NoError(t, err)
	s := notified(t, nil, 1)
	require.Regexp(t, `^rvt0: \d\d+ files, port active\n$`, s.run("n1", prog))
	s.empty()
}

func TestSeccompDistributionPrograms(t *testing.T) {
	need(t, "ibv_devinfo", "ibv_rc_pingpong")
	for _, abi := range []string{"rxe", "rvt"} {
		t.Run(abi, func(t *testing.T) {
			s := notified(t, nil, 2, "--abi", abi)
			require.Regexp(t, `hca_id:\s+rvt0`, s.run("n2", "ibv_devinfo", "-v"))
			clients := []string{"n1", "n2"}
			if underRace {
				clients = clients[1:]
			}
			for _, client := range clients {
				s.talk("n1", client, "ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "100", "-c")
				s.talk("n1", client, "ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "100", "-c", "-e")
			}
			s.talk("n1", "n2", "ibv_ud_pingpong", "-d", "rvt0", "-g", "0", "-n", "50", "-e")
			require.Regexp(t, `^crw-rw-rw-\s.*10,\s+58\s.*rdma_cm\ncrw-rw-rw-\s.*231, 192\s.*uverbs0\n$`, strings.TrimPrefix(s.run("n1", "ls", "-l", "/dev/infiniband"), "total 0\n"))
			s.empty()
		})
	}
}

// TestSeccompFamily is about exit statuses, signals and children.
func TestSeccompFamily(t *testing.T) {
	prog := staticProgram(t)
	s := notified(t, nil, 1)
	for _, c := range []struct {
		script string
		code   int
	}{
		{"exit 7", 7}, {"kill -9 $$", 128 + 9}, {prog + " loopback && " + prog + " loopback", 0},
		{"test -e /sys/class/infiniband/rvt0", 0}, {"(sleep 0.2; " + prog + " loopback) & exit 5", 5}, {"/nonexistent", 127},
	} {
		out, err := s.try("n1", "sh", "-c", c.script)
		require.Equal(t, c.code, exitCode(err), "%s: %s", c.script, out)
	}
	// Without a daemon one is started, for as long as anything of the program lives.
	alone := newSite(t, nil)
	out, err := alone.command(t.Context(), "exec", "--via", "seccomp", "--listen", "n1="+newAddress(), "--", "sh", "-c", prog+" loopback & exit 6").CombinedOutput()
	require.Equal(t, 6, exitCode(err), "%s", out)

	v := s.start("n1", "sh", "-c", "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.02; done")
	v.until("ready")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 5, exitCode(v.wait()), v.output())
	require.Equal(t, 1, strings.Count(v.output(), "got it"), v.output())
	s.empty()
}

// childOf finds the child of a process, and waits for it if need be.
func childOf(t *testing.T, pid int) int {
	t.Helper()
	child := 0
	require.Eventually(t, func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
		for _, list := range threads { // each thread has those that it has started
			b, _ := os.ReadFile(list)
			if f := strings.Fields(string(b)); len(f) > 0 {
				child, _ = strconv.Atoi(f[0])
			}
		}
		return child != 0
	}, longest, time.Millisecond)
	return child
}

// processesOf counts the processes that run a program.
func processesOf(prog string) int {
	n := 0
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && strings.TrimSuffix(exe, " (deleted)") == prog {
			n++
		}
	}
	return n
}

// TestSeccompKilled kills the three processes in turn, while the program has children
// and a device: nothing is left, nothing hangs.
func TestSeccompKilled(t *testing.T) {
	prog := staticProgram(t)
	s := notified(t, nil, 1)
	daemonPID := s.report().PID
	for _, stopped := range []bool{false, true} {
		for _, who := range []string{"launcher", "supervisor", "program"} {
			t.Run(fmt.Sprintf("%s/stopped=%v", who, stopped), func(t *testing.T) {
				v := s.start("n1", prog, "victim")
				v.until("ready")
				launcher := v.cmd.Process.Pid
				supervisor := childOf(t, launcher)
				program := childOf(t, supervisor)
				require.Equal(t, 3, processesOf(prog))
				if stopped {
					require.NoError(t, syscall.Kill(daemonPID, syscall.SIGSTOP))
					defer syscall.Kill(daemonPID, syscall.SIGCONT)
				}
				victim := map[string]int{"launcher": launcher, "supervisor": supervisor, "program": program}[who]
				require.NoError(t, syscall.Kill(victim, syscall.SIGKILL))
				if who == "program" { // its children live on, as they would without us
					require.Eventually(t, func() bool { return processesOf(prog) == 2 }, longest, time.Millisecond)
					require.NoError(t, syscall.Kill(launcher, syscall.SIGKILL))
				}
				err := v.wait()
				require.Error(t, err)
				if who == "supervisor" {
					require.Equal(t, 3, exitCode(err))
					require.Contains(t, v.output(), "supervisor of the program was killed")
				}
				require.Eventually(t, func() bool { return processesOf(prog) == 0 }, longest, time.Millisecond, "processes are left")
				require.NoError(t, syscall.Kill(daemonPID, syscall.SIGCONT))
				s.empty()
			})
		}
	}
	out, err := s.try("n1", prog, "loopback")
	require.NoError(t, err, "the node is clean: %s", out)
}

// TestSeccompSupervisorIsInterrupted sends signals to every thread of the supervisor while
// it answers calls, as its own runtime does now and then: every call still gets the
// answer that is meant for it.
func TestSeccompSupervisorIsInterrupted(t *testing.T) {
	s := notified(t, nil, 1)
	v := s.start("n1", staticProgram(t), "reopen")
	v.until("ready")
	supervisor := childOf(t, v.cmd.Process.Pid)
	for !v.ended() {
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", supervisor))
		for _, d := range threads {
			tid, _ := strconv.Atoi(d.Name())
			_ = unix.Tgkill(supervisor, tid, unix.SIGURG)
		}
	}
	require.NoError(t, v.wait(), "%s", v.output())
	s.empty()
}

// TestSeccompDaemonGoes kills the daemon: commands fail, files can still be opened.
func TestSeccompDaemonGoes(t *testing.T) {
	prog := staticProgram(t)
	s := notified(t, nil, 1)
	v := s.start("n1", "sh", "-c", prog+" victim & sleep 1000 & wait $!")
	v.until("ready")
	require.NoError(t, syscall.Kill(s.report().PID, syscall.SIGKILL))
	v.until("gone")
	require.NoError(t, v.cmd.Process.Kill())
	require.Error(t, v.wait())
	require.Eventually(t, func() bool { return processesOf(prog) == 0 }, longest, time.Millisecond, "processes are left")
}

// TestSeccompUnavailable says what is missing, with the exit status of an environment
// that does not do.
func TestSeccompUnavailable(t *testing.T) {
	deny := program(t, "seccomp_deny")
	s := notified(t, nil, 1)
	inner := []string{built.rvtsim, "exec", "--via", "seccomp", "--", "true"}
	for _, c := range []struct {
		prog []string
		says string
	}{
		{append([]string{built.rvtsim, "exec", "--via", "seccomp", "--"}, inner...), "under such a supervisor already"},
		{append([]string{deny, strconv.Itoa(unix.SYS_SECCOMP), "--"}, inner...), "does not allow the system call seccomp"},
		{append([]string{deny, strconv.Itoa(unix.SYS_PROCESS_VM_READV), "--"}, inner...), "process_vm_readv"},
		{[]string{built.rvtsim, "exec", "--via", "seccomp", "--", s.dir}, s.dir},
	} {
		cmd := exec.CommandContext(t.Context(), c.prog[0], c.prog[1:]...)
		cmd.Env = s.env
		out, err := cmd.CombinedOutput()
		require.Equal(t, 3, exitCode(err), "%s", out)
		require.Contains(t, string(out), c.says)
	}
	out, err := s.command(t.Context(), "exec", "--via", "telepathy", "--", "true").CombinedOutput()
	require.Equal(t, 2, exitCode(err), "%s", out)
}

// TestSeccompInContainer refuses what Docker's default profile refuses.
func TestSeccompInContainer(t *testing.T) {
	prog, deny := staticProgram(t), program(t, "seccomp_deny")
	s := notified(t, nil, 1)
	refused := []string{deny}
	for _, nr := range []int{unix.SYS_PIDFD_GETFD, unix.SYS_UNSHARE, unix.SYS_MOUNT, unix.SYS_SETNS, unix.SYS_BPF, unix.SYS_USERFAULTFD} {
		refused = append(refused, strconv.Itoa(nr))
	}
	for _, part := range []string{"descriptors", "forks", "threads"} {
		ctx, cancel := context.WithTimeout(t.Context(), longest)
		defer cancel()
		cmd := exec.CommandContext(ctx, deny, append(refused[1:], "--", built.rvtsim, "exec", "--via", "seccomp", "--", prog, part)...)
		cmd.Env = s.env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s: %s", part, out)
	}
	s.empty()
}

// TestSeccompOthersSeeTheProgram looks at what ls says of a program that a supervisor
// speaks for.
func TestSeccompOthersSeeTheProgram(t *testing.T) {
	prog := staticProgram(t)
	s := notified(t, nil, 1)
	v := s.start("n1", prog, "victim")
	v.until("ready")
	// The children attach at their first command, each in its own time.
	require.Eventually(t, func() bool {
		c := s.report().Nodes[0].Contexts
		return len(c) == 1 && len(c[0].Processes) == 3
	}, longest, 10*time.Millisecond, "the program and its two children")
	c := s.report().Nodes[0].Contexts
	require.Equal(t, childOf(t, childOf(t, v.cmd.Process.Pid)), c[0].Processes[0].PID)
	require.Equal(t, "seccomp_static.", c[0].Processes[0].Comm) // the kernel keeps 15 bytes
	require.NoError(t, v.cmd.Process.Kill())
	s.empty()
}

// BenchmarkLaunchers prints what calls cost: natively, under the supervisor, and with the
// preload library.
func BenchmarkLaunchers(b *testing.B) {
	prog := staticProgram(b)
	dir := b.TempDir()
	env := append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "XDG_CACHE_HOME="+dir)
	run := func(args ...string) string {
		cmd := exec.CommandContext(b.Context(), args[0], args[1:]...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		require.NoError(b, err, "%s", out)
		return string(out)
	}
	for _, c := range []struct {
		name string
		args []string
	}{
		{"native", []string{prog, "cost"}},
		{"seccomp", []string{built.rvtsim, "exec", "--via", "seccomp", "--listen", "n1=" + newAddress(), "--", prog, "cost", "device"}},
		{"preload", []string{built.rvtsim, "exec", "--listen", "n1=" + newAddress(), "--", filepath.Join(built.dir, "seccomp_static"), "cost", "device"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			var out string
			for b.Loop() {
				out = run(c.args...)
			}
			for line := range strings.Lines(out) {
				if f := strings.Fields(strings.TrimPrefix(line, "cost ")); len(f) > 2 {
					us, _ := strconv.ParseFloat(f[len(f)-2], 64)
					b.ReportMetric(us, "us/"+strings.Join(f[:len(f)-2], "-"))
				}
			}
			b.Log("\n" + out)
		})
	}
}
