package front

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

// pidOf is the process of a running program, which has replaced rvtsim exec.
func (r *running) pid() int { return r.cmd.Process.Pid }

func TestLs(t *testing.T) {
	s := up(t, 2)
	v := s.start("n2", program(t, "victim"))
	v.until("ready")
	r := s.report()
	require.Len(t, r.Nodes, 2)
	require.Empty(t, r.Nodes[0].Contexts)
	require.Len(t, r.Nodes[1].Contexts, 1)
	c := r.Nodes[1].Contexts[0]
	require.Equal(t, v.pid(), c.Processes[0].PID)
	require.Equal(t, "victim", c.Processes[0].Comm)
	require.Len(t, c.QPs, 2)
	require.Equal(t, []string{"RC", "RTS"}, []string{c.QPs[0].Type, c.QPs[0].State})
	require.Equal(t, c.QPs[1].QPN, c.QPs[0].DestQPN)
	require.Equal(t, "::ffff:"+s.addrs[1], c.QPs[0].Remote)
	require.GreaterOrEqual(t, c.Objects, 6)

	out, err := s.command(t.Context(), "ls").CombinedOutput()
	require.NoError(t, err)
	for _, want := range []string{"n1", s.addrs[1] + ":4791", "victim", "RTS", fmt.Sprint(v.pid())} {
		require.Contains(t, string(out), want)
	}
	require.NotContains(t, string(out), "stopped")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGSTOP))
	require.Eventually(t, func() bool {
		out, err = s.command(t.Context(), "ls").CombinedOutput()
		return err == nil && strings.Contains(string(out), "victim (stopped)")
	}, longest, time.Millisecond)
	require.NoError(t, v.cmd.Process.Kill())
	s.empty()
}

// openFiles is how many descriptors the daemon has.
func openFiles(t *testing.T, pid int) int {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	require.NoError(t, err)
	return len(all)
}

// statusOf reads a number from a process's status: kilobytes, or a count.
func statusOf(t *testing.T, pid int, name string) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			require.NoError(t, err)
			return n
		}
	}
	t.Fatal(name)
	return 0
}

// deaths is how many programs TestKilledPrograms kills; make deaths kills a thousand.
var deaths = flag.Int("front.deaths", 32, "how many programs are killed")

// TestKilledPrograms kills programs, each in the middle of traffic, four at a time.
// Nothing is left of them in the daemon: no objects, descriptors, threads, nor memory.
func TestKilledPrograms(t *testing.T) {
	s := up(t, 1)
	pid := s.report().PID
	kill := func(n int) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range n {
					v := s.start("n1", program(t, "victim"))
					v.until("ready")
					_ = v.cmd.Process.Signal(syscall.SIGKILL)
					_ = v.wait()
				}
			}()
		}
		wg.Wait()
		s.empty()
	}
	kill(3)
	files, memory, threads := openFiles(t, pid), statusOf(t, pid, "VmRSS"), statusOf(t, pid, "Threads")
	if engine == "program" {
		files += 4 // sockets at the node's address stay open: as many as there were programs at a time
	}
	kill(len(fewer(2, make([]struct{}, *deaths/4))))
	require.Eventually(t, func() bool { return openFiles(t, pid) <= files }, 10*time.Second, 10*time.Millisecond, "descriptors leak")
	// A connection has a thread while it waits, and Go keeps some for later.
	require.LessOrEqual(t, statusOf(t, pid, "Threads"), threads+8)
	grown := statusOf(t, pid, "VmRSS") - memory
	t.Logf("%d deaths: the daemon has grown by %d kB", *deaths, grown)
	require.Less(t, grown, 32<<10, "memory leaks")
	out, err := s.try("n1", program(t, "events"))
	require.NoError(t, err, "the node is clean: %s", out)
}

// TestPeerIsKilled kills the server in the middle of traffic, again and again if many
// deaths are wanted: the client's requests run out of retries.
func TestPeerIsKilled(t *testing.T) {
	need(t, "ib_write_bw")
	s := up(t, 2)
	for range 1 + *deaths/50 {
		port := freePort(t)
		prog := []string{"ib_write_bw", "-d", "rvt0", "-x", "0", "-F", "-D", "30", "-p", port}
		server := s.start("n1", prog...)
		server.listening(port)
		before := s.report().Nodes[1].SentPackets
		client := s.start("n2", append(prog, s.addrs[0])...)
		require.Eventually(t, func() bool { return s.report().Nodes[1].SentPackets > before+200 }, longest, 10*time.Millisecond, "no traffic")
		require.NoError(t, server.cmd.Process.Signal(syscall.SIGKILL))
		require.Error(t, client.wait(), "%s", client.output())
		require.Contains(t, client.output(), "Failed status 12", "IBV_WC_RETRY_EXC_ERR")
		s.empty()
	}
}

func TestStoppedProgramHoldsUpNobody(t *testing.T) {
	s := up(t, 1)
	v := s.start("n1", program(t, "victim"))
	v.until("ready")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGSTOP))
	for range 3 {
		out, err := s.try("n1", program(t, "events"))
		require.NoError(t, err, "%s", out)
	}
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGCONT))
	require.Len(t, s.report().Nodes[0].Contexts, 1)
	require.NoError(t, v.cmd.Process.Kill())
	s.empty()
}

// TestDaemonGoes ends the daemon under programs that wait for events, and under programs
// that only poll: both learn of it, and get errors from then on.
func TestDaemonGoes(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, abi := range []string{"rxe", "rvt"} {
			t.Run(signal.String()+"/"+abi, func(t *testing.T) {
				s := up(t, 1, "--abi", abi)
				waits := s.start("n1", program(t, "victim"), "wait")
				polls := []*running{s.start("n1", program(t, "victim"), "poll"), s.start("n1", program(t, "victim"), "sends")}
				waits.until("ready")
				for _, p := range polls {
					p.until("polls")
				}
				require.NoError(t, syscall.Kill(s.report().PID, signal))
				require.NoError(t, waits.wait(), "%s", waits.output())
				require.Contains(t, waits.output(), "fatal")
				for _, p := range polls {
					require.NoError(t, p.wait(), "%s", p.output())
					require.Contains(t, p.output(), "noticed")
				}
			})
		}
	}
}

func TestManyProgramsAtOnce(t *testing.T) {
	s := up(t, 2)
	var wg sync.WaitGroup
	for i := range fewer(10, make([]struct{}, 50)) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if out, err := s.try(fmt.Sprintf("n%d", 1+i%2), program(t, "events")); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		}()
	}
	wg.Wait()
	s.empty()
}

// nobody are the rights of a user who has none.
var nobody = &syscall.Credential{Uid: 65534, Gid: 65534}

func TestOrdinaryUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP the whole suite runs as an ordinary user already")
	}
	need(t, "ibv_rc_pingpong")
	s := newSite(t, nobody)
	s.up(2)
	s.talk("n1", "n2", "ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "50", "-c", "-e")
	out, err := s.try("n1", program(t, "forks"))
	require.NoError(t, err, "%s", out)
	s.empty()
}

// TestOtherUsers lets programs of one user use the daemon of another, who has no rights
// over them but what they pass on.
func TestOtherUsers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP needs root to become several users")
	}
	stranger := &syscall.Credential{Uid: 65533, Gid: 65533}
	for _, c := range []struct {
		name  string
		flags []string
		ok    bool
	}{{"refused", nil, false}, {"by uid", []string{"--allow-uid", "65533"}, true}, {"any", []string{"--allow-any"}, true}, {"another uid", []string{"--allow-uid", "65532"}, false}} {
		t.Run(c.name, func(t *testing.T) {
			s := newSite(t, nobody)
			s.up(1, c.flags...)
			guest := newSite(t, stranger)
			socket := filepath.Join(s.dir, "rvtsim", "default.sock")
			cmd := guest.command(t.Context(), "exec", "--engine", s.engine, "--socket", socket, "--", program(t, "forks"))
			out, err := cmd.CombinedOutput()
			if c.ok {
				require.NoError(t, err, "%s", out)
				return
			}
			require.Error(t, err, "%s", out)
			require.Equal(t, 3, exitCode(err), "%s", out)
		})
	}
}

// TestDaemonInheritsNothing starts a daemon from a process that has a pipe open, as shells
// and CI jobs have: whoever reads it must see its end when that process ends.
func TestDaemonInheritsNothing(t *testing.T) {
	s := newSite(t, nil)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	cmd := s.command(t.Context(), "up", "--listen", "n1="+newAddress())
	cmd.ExtraFiles = []*os.File{w, w} // descriptors 3 and 4
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() { _ = s.command(context.Background(), "down").Run() })
	require.NoError(t, w.Close())
	require.NoError(t, r.SetReadDeadline(time.Now().Add(20*time.Second)))
	_, err = r.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF, "the daemon holds the pipe")
	require.Len(t, s.report().Nodes, 1)
}

func TestExecWithoutDaemon(t *testing.T) {
	need(t, "ibv_devinfo")
	s := newSite(t, nil)
	run := func(args ...string) (string, error) {
		out, err := s.command(t.Context(), args...).CombinedOutput()
		return string(out), err
	}
	out, err := run("exec", "--listen", "n1="+newAddress(), "--", "ibv_devinfo")
	require.NoError(t, err, out)
	require.Contains(t, out, "rvt0")
	out, err = run("exec", "--", "sh", "-c", "ibv_devices | grep -q rvt0 && exit 7")
	require.Equal(t, 7, exitCode(err), out)
	out, err = run("exec", "--", "sh", "-c", "kill -9 $$")
	require.Equal(t, 128+9, exitCode(err), out)
	left, err := filepath.Glob(filepath.Join(s.dir, "rvtsim", "exec-*.sock"))
	require.NoError(t, err)
	require.Empty(t, left, "nothing is left of daemons that lived for one program")

	v := s.start("n1", "sh", "-c", "trap 'echo got it; exit 5' TERM; echo ready; while :; do sleep 0.02; done")
	v.until("ready")
	require.NoError(t, v.cmd.Process.Signal(syscall.SIGTERM))
	require.Equal(t, 5, exitCode(v.wait()), v.output())
	require.Contains(t, v.output(), "got it")
}

func TestCommandLine(t *testing.T) {
	s := up(t, 1)
	other := newSite(t, nil)
	for _, c := range []struct {
		site *site
		args []string
		code int
		says string
	}{
		{s, []string{"up"}, 3, "running already"},
		{other, []string{"up", "--listen", "n1=" + s.addrs[0]}, 3, "in use"},
		{other, []string{"up", "--foreground", "--listen", "n1=" + s.addrs[0]}, 3, "in use"},
		{other, []string{"up", "--listen", "n1=192.0.2.77"}, 3, "not an address of this machine"},
		{other, []string{"up", "--nodes", "-1"}, 2, "--nodes"},
		{other, []string{"up", "--nodes", "251"}, 2, "--nodes"},
		{other, []string{"up", "--listen", "n2=127.0.0.9"}, 2, `no node "n2"`},
		{other, []string{"up", "--listen", "n1"}, 2, "NODE=ADDR"},
		{other, []string{"up", "--listen", "n1=localhost"}, 2, "not an IP address"},
		{other, []string{"up", "--abi", "mlx5"}, 2, "rxe or rvt"},
		{other, []string{"up", "--profile", "x"}, 2, "--profile"},
		{other, []string{"up", "nonexistent.yaml"}, 2, "nonexistent.yaml"},
		{other, []string{"up", "--name", "../x"}, 2, "name"},
		{other, []string{"ls"}, 3, "no daemon is running"},
		{other, []string{"down"}, 3, "no daemon is running"},
		{other, []string{"exec", "--name", "x", "--", "true"}, 3, "no daemon is running"},
		{s, []string{"exec", "--node", "n7", "--", "true"}, 2, "n7"},
		{s, []string{"exec", "--", "/nonexistent/program"}, 3, "nonexistent"},
		{s, []string{"exec"}, 2, "at least 1 arg"},
	} {
		out, err := c.site.command(t.Context(), c.args...).CombinedOutput()
		require.Equal(t, c.code, exitCode(err), "%v: %s", c.args, out)
		require.Contains(t, string(out), c.says, c.args)
	}
}

func TestTopologyFile(t *testing.T) {
	s := newSite(t, nil)
	a, b := newAddress(), newAddress()
	file := filepath.Join(s.dir, "t.yaml")
	text := fmt.Sprintf("version: 1\nnodes:\n  - {name: left, address: %s, mtu: 1024}\n  - {name: right, address: %s, profile: rxe}\n", a, b)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	out, err := s.command(t.Context(), "up", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	r := s.report()
	require.Len(t, r.Nodes, 2)
	require.Equal(t, []string{"left", a + ":4791"}, []string{r.Nodes[0].Name, r.Nodes[0].Address})
	require.Equal(t, 1024, r.Nodes[0].MTU)
	require.Equal(t, "rxe", r.Nodes[1].Profile)
	out, err = s.command(t.Context(), "down").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestLossyNetwork runs a program over links that lose packets.
func TestLossyNetwork(t *testing.T) {
	need(t, "ib_write_bw")
	s := newSite(t, nil)
	s.addrs = []string{newAddress(), newAddress()}
	file := filepath.Join(s.dir, "t.yaml")
	text := fmt.Sprintf("version: 1\nseed: 7\nnodes:\n  - {name: n1, address: %s}\n  - {name: n2, address: %s}\nnetwork: {loss: 0.01}\n", s.addrs[0], s.addrs[1])
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	s.because = imperfect
	out, err := s.command(t.Context(), "up", file).CombinedOutput()
	require.NoError(t, err, "%s", out)
	s.talk("n1", "n2", "ib_write_bw", "-d", "rvt0", "-x", "0", "-F", "-n", "100")
	require.NotZero(t, s.report().Nodes[1].Retransmitted)
	s.empty()
	out, err = s.command(t.Context(), "down").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// TestPreloadIsKept keeps what the user preloads himself.
func TestPreloadIsKept(t *testing.T) {
	s := up(t, 1)
	s.env = append(s.env, "LD_PRELOAD=libpthread.so.0")
	out := s.run("n1", "sh", "-c", "echo $LD_PRELOAD; echo $RVTSIM_NODE; echo $RVTSIM_ROOT")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Regexp(t, `^\S*shim-\S+\.so:libpthread\.so\.0$`, lines[0])
	require.Equal(t, "n1", lines[1])
	require.Equal(t, daemon.ViewOf(filepath.Join(s.dir, "rvtsim", "default.sock"), "n1"), lines[2])
}
