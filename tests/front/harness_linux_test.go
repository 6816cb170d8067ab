package front

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/loopback"
)

// built is what TestMain makes: the command and the programs in C.
var built struct {
	dir      string
	rvtsim   string
	programs error // why the C programs are not there
	cm       error // the same for those of librdmacm and librpma
}

func TestMain(m *testing.M) {
	code, err := setUp(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "front:", err)
		code = 1
	}
	os.Exit(code)
}

func setUp(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("/tmp", "rvtfront")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // other users run programs from it
		return 0, err
	}
	built.dir, built.rvtsim = dir, filepath.Join(dir, "rvtsim")
	if flag.Parse(); *everywhere != "" {
		engine = *everywhere
	}
	build := []string{"build", "-o", built.rvtsim}
	if underRace {
		build = append(build, "-race", "-tags", "invariants")
	}
	if out, err := exec.Command("go", append(build, "../../cmd/rvtsim")...).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	if built.programs = compile(dir); built.programs == nil {
		built.cm = compileCM(dir)
	}
	return m.Run(), nil
}

// compile makes the C programs, and the preload library beside the command.
func compile(dir string) error {
	if _, err := exec.LookPath("cc"); err != nil {
		return errors.New("cc is missing")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		return errors.New("libibverbs-dev is missing")
	}
	for _, lib := range [][]string{{"shim", dir}, {"engine", "--source", "../..", dir}} {
		if out, err := exec.Command(built.rvtsim, lib...).CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	return compileAll(dir, "progs/*.c", "-libverbs", "-pthread", "-ldl")
}

// compileCM makes the C programs that use librdmacm and librpma.
func compileCM(dir string) error {
	for _, header := range []string{"/usr/include/rdma/rdma_cma.h", "/usr/include/librpma.h"} {
		if _, err := os.Stat(header); err != nil {
			return errors.New(header + " is missing")
		}
	}
	return compileAll(dir, "progs/cm/*.c", "-lrpma", "-lrdmacm", "-libverbs", "-pthread")
}

func compileAll(dir, pattern string, libs ...string) error {
	sources, _ := filepath.Glob(pattern)
	for _, src := range sources {
		name := strings.TrimSuffix(filepath.Base(src), ".c")
		args := append([]string{"-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", filepath.Join(dir, name), src}, libs...)
		out, err := exec.Command("cc", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", src, err, out)
		}
	}
	return nil
}

// missing skips a test for lack of something, by name. In CI nothing may be missing.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal(what)
	}
	t.Skip("SKIP " + what)
}

// program returns the path of a C program of ours.
func program(t *testing.T, name string) string {
	t.Helper()
	return binary(t, name, built.programs)
}

// cmProgram is program for those of librdmacm and librpma.
func cmProgram(t *testing.T, name string) string {
	t.Helper()
	return binary(t, name, errors.Join(built.programs, built.cm))
}

func binary(t *testing.T, name string, why error) string {
	t.Helper()
	if why != nil {
		if strings.HasSuffix(why.Error(), "is missing") {
			missing(t, why.Error())
		}
		t.Fatal(why)
	}
	return filepath.Join(built.dir, name)
}

// need skips the test unless the programs of the distribution are there.
func need(t *testing.T, names ...string) {
	t.Helper()
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			missing(t, n+" is missing")
		}
	}
	if _, err := exec.LookPath("cc"); err != nil {
		missing(t, "cc is missing")
	}
}

// site is a daemon with nodes at addresses of its own.
type site struct {
	t       *testing.T
	env     []string
	dir     string
	rvtsim  string // the command
	addrs   []string
	cred    *syscall.Credential // as whom to run everything; nil: as we are
	via     string              // exec --via; empty for what it does by itself
	netns   string              // name of a network namespace to run everything in; empty: ours
	engine  string              // who does the adapter's work: exec --engine
	because string              // why the daemon may serve programs here that could have the engine inside
}

// everywhere runs every test with the engine in one place.
var everywhere = flag.String("front.engine", "", "who does the adapter's work in every test: daemon or program; empty: as the test says")

// engine is who does the adapter's work in the test that runs: exec --engine.
var engine = "daemon"

// onWire runs every test with one wire between programs that have the engine inside.
var onWire = flag.String("front.wire", "", "what carries packets between engines in programs in every test: memory or udp; empty: one for half of the tests each, by their names")

// wireOf is what carries packets in a test: up --wire.
func wireOf(t *testing.T) string {
	if *onWire != "" {
		return *onWire
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(t.Name()))
	return []string{"memory", "udp"}[h.Sum32()%2]
}

var lastAddress atomic.Uint32

// newAddress returns an address of the loopback network that no other test uses.
func newAddress() string {
	n := uint32(os.Getpid())<<7 + lastAddress.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 1+byte(n>>16)%100, byte(n>>8), byte(n))
}

// newSite prepares a place for daemons without starting one.
func newSite(t *testing.T, cred *syscall.Credential) *site {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "rvt")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &site{t: t, dir: dir, rvtsim: built.rvtsim, cred: cred, engine: engine}
	require.NoError(t, os.Chmod(dir, 0o711))
	if cred != nil {
		require.NoError(t, os.Chown(dir, int(cred.Uid), int(cred.Gid)))
	}
	s.env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir, "XDG_CACHE_HOME="+filepath.Join(dir, "cache"))
	return s
}

// up starts a daemon with so many nodes.
func up(t *testing.T, nodes int, flags ...string) *site {
	t.Helper()
	s := newSite(t, nil)
	s.up(nodes, flags...)
	return s
}

func (s *site) up(nodes int, flags ...string) {
	s.t.Helper()
	for range nodes {
		s.addrs = append(s.addrs, newAddress())
	}
	s.launch(flags...)
}

// upAt starts a daemon with one node at an address.
func (s *site) upAt(addr string, flags ...string) {
	s.t.Helper()
	s.addrs = []string{addr}
	s.launch(flags...)
}

func (s *site) launch(flags ...string) {
	s.t.Helper()
	args := []string{"up", "--nodes", strconv.Itoa(len(s.addrs)), "--wire", wireOf(s.t)}
	for i, a := range s.addrs {
		args = append(args, "--listen", fmt.Sprintf("n%d=%s", i+1, a))
	}
	s.begin(append(args, flags...)...)
}

// begin runs the command that starts the daemon.
func (s *site) begin(args ...string) {
	s.t.Helper()
	out, err := s.command(s.t.Context(), args...).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	require.Contains(s.t, string(out), s.addrs[0]+":4791")
	s.t.Cleanup(func() {
		out, err := s.command(context.Background(), "down").CombinedOutput()
		if err != nil && !strings.Contains(string(out), daemon.ErrNotRunning.Error()) {
			s.t.Errorf("down: %v\n%s", err, out)
		}
		log, _ := os.ReadFile(filepath.Join(s.dir, "rvtsim", "default.log"))
		if why := crash(log); why != "" {
			s.t.Errorf("the daemon went wrong:\n%s", why)
		}
		s.whereItRan(string(log))
		if s.t.Failed() {
			s.t.Logf("log of the daemon:\n%s", log)
		}
	})
}

// imperfect is why the daemon serves programs where packets suffer.
const imperfect = "the node's network is imperfect"

// whereItRan makes sure that the programs had the engine where the test wants it.
func (s *site) whereItRan(log string) {
	s.t.Helper()
	for line := range strings.Lines(log) {
		_, why, fell := strings.Cut(line, "because=")
		switch {
		case s.via == "" && s.engine == "daemon" && strings.Contains(line, "engine=program"):
			s.t.Errorf("a program had the engine inside: %s", line)
		case strings.Contains(line, "comm=forks ") && strings.Contains(why, "in a child of fork"):
		case fell && (s.because == "" || !strings.Contains(why, s.because)):
			s.t.Errorf("a program had no engine inside: %s", line)
			return // one says it all
		}
	}
}

// crash is the beginning of what the runtime has written into a log when the process went
// wrong; empty if it did not. The beginning says why, and is the first to get lost in a long
// list of goroutines.
func crash(log []byte) string {
	at := -1
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:", "unexpected fault address", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGQUIT", "runtime:"} {
		if i := bytes.Index(log, []byte(bad)); i >= 0 && (at < 0 || i < at) {
			at = i
		}
	}
	if at < 0 {
		return ""
	}
	at = bytes.LastIndexByte(log[:at], '\n') + 1
	lines := bytes.SplitN(log[at:], []byte("\n"), 100)
	return string(bytes.Join(lines[:len(lines)-1], []byte("\n")))
}

// command is rvtsim with arguments.
func (s *site) command(ctx context.Context, args ...string) *exec.Cmd {
	prog := append([]string{s.rvtsim}, args...)
	if s.netns != "" {
		prog = append([]string{"ip", "netns", "exec", s.netns}, prog...)
	}
	cmd := exec.CommandContext(ctx, prog[0], prog[1:]...)
	cmd.Env = s.env
	cmd.WaitDelay = 10 * time.Second
	if s.cred != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.cred}
	}
	return cmd
}

// exec is the command line that runs a program on a node.
func (s *site) exec(node string, prog []string) []string {
	args := []string{"exec", "--node", node}
	if s.via != "" {
		args = append(args, "--via", s.via)
	} else {
		args = append(args, "--engine", s.engine)
	}
	return append(append(args, "--"), prog...)
}

// longest is how long a program may take, on a machine that is busy with other tests.
const longest = 60 * time.Second

// run runs a program on a node and returns its output. It must succeed.
func (s *site) run(node string, prog ...string) string {
	s.t.Helper()
	out, err := s.try(node, prog...)
	require.NoError(s.t, err, "%s\n%s", strings.Join(prog, " "), out)
	return out
}

func (s *site) try(node string, prog ...string) (string, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), longest)
	defer cancel()
	out, err := s.command(ctx, s.exec(node, prog)...).CombinedOutput()
	if ctx.Err() != nil {
		err = fmt.Errorf("still running after %v: %w", longest, err)
	}
	if prog[0] == "rping" && bytes.Contains(out, []byte("DISCONNECT EVENT")) && bytes.Contains(out, []byte("rdma_get_cm_event: Bad file descriptor")) {
		// A race of rping's own: its main thread, done with everything, closes the channel
		// while its other thread is on the way back to it from the last event.
		err = nil
	}
	return string(out), err
}

// running is a program under way.
type running struct {
	t    *testing.T
	cmd  *exec.Cmd
	mu   sync.Mutex
	out  bytes.Buffer
	line chan string // lines of standard output, as they come
	done chan error
	over atomic.Bool // the program has ended
}

func (s *site) start(node string, prog ...string) *running {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	cmd := s.command(ctx, s.exec(node, prog)...)
	r := &running{t: s.t, cmd: cmd, line: make(chan string, 1000), done: make(chan error, 1)}
	p, err := cmd.StdoutPipe()
	require.NoError(s.t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(s.t, cmd.Start())
	go func() {
		defer cancel()
		for sc := bufio.NewScanner(p); sc.Scan(); {
			r.mu.Lock()
			r.out.WriteString(sc.Text() + "\n")
			r.mu.Unlock()
			select {
			case r.line <- sc.Text():
			default:
			}
		}
		close(r.line)
		err := cmd.Wait()
		r.over.Store(true)
		r.done <- err
	}()
	s.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return r
}

func (r *running) output() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.out.String()
}

// ended reports whether the program has ended.
func (r *running) ended() bool { return r.over.Load() }

// until waits for a line of output.
func (r *running) until(want string) {
	r.t.Helper()
	for line := range r.line {
		if strings.Contains(line, want) {
			return
		}
	}
	r.t.Fatalf("ended without saying %q:\n%s", want, r.output())
}

// wait waits for the end of the program.
func (r *running) wait() error {
	select {
	case err := <-r.done:
		return err
	case <-time.After(longest + 10*time.Second):
		r.t.Errorf("does not end:\n%s", r.output())
		return errors.New("does not end")
	}
}

// freePort finds a TCP port for programs to meet at.
func freePort(t *testing.T) string {
	t.Helper()
	port, err := loopback.Port()
	require.NoError(t, err)
	return port
}

// listening waits until somebody listens on a TCP port. Connecting to see would take
// the connection that the program expects from its peer.
func (r *running) listening(port string) {
	r.t.Helper()
	r.listeningIn("", port)
}

// listeningIn is listening for a program in a network namespace.
func (r *running) listeningIn(netns, port string) {
	r.t.Helper()
	read := func(file string) []byte {
		if netns == "" {
			b, _ := os.ReadFile(strings.Replace(file, "/proc/", fmt.Sprintf("/proc/%d/", r.cmd.Process.Pid), 1))
			return b
		}
		b, _ := exec.Command("ip", "netns", "exec", netns, "cat", file).Output()
		return b
	}
	for deadline := time.Now().Add(longest); ; <-time.After(5 * time.Millisecond) {
		for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			if loopback.Listeners(string(read(f)), port) != nil {
				return
			}
		}
		if r.ended() {
			r.t.Fatalf("ended without listening (%v): %s", <-r.done, r.output())
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("does not listen: %s\n%s", r.output(), whereabouts(r.cmd.Process.Pid))
		}
	}
}

// whereabouts says where the threads of a process and of its descendants are.
func whereabouts(pid int) string {
	var b strings.Builder
	dir := fmt.Sprintf("/proc/%d", pid)
	name, _ := os.ReadFile(dir + "/comm")
	fmt.Fprintf(&b, "process %d, %s\n", pid, bytes.TrimSpace(name))
	threads, _ := os.ReadDir(dir + "/task")
	var children string
	for _, t := range threads {
		read := func(file string) string {
			text, err := os.ReadFile(filepath.Join(dir, "task", t.Name(), file))
			if err != nil {
				return err.Error()
			}
			return strings.TrimSpace(string(text))
		}
		fmt.Fprintf(&b, "  thread %s: system call %s, waits in %s\n", t.Name(), read("syscall"), read("wchan"))
		children += read("children") + " "
	}
	for _, c := range strings.Fields(children) {
		if child, err := strconv.Atoi(c); err == nil {
			b.WriteString(whereabouts(child))
		}
	}
	return b.String()
}

// report is what ls says.
func (s *site) report() *daemon.Report {
	s.t.Helper()
	out, err := s.command(s.t.Context(), "ls", "--json").Output()
	require.NoError(s.t, err)
	var r daemon.Report
	require.NoError(s.t, json.Unmarshal(out, &r))
	return &r
}

// empty waits until nothing is left of any program.
func (s *site) empty() {
	s.t.Helper()
	var r *daemon.Report
	ok := func() bool {
		r = s.report()
		for _, n := range r.Nodes {
			if len(n.Contexts) > 0 {
				return false
			}
		}
		return true
	}
	require.Eventually(s.t, ok, 20*time.Second, 10*time.Millisecond, "contexts are left: %+v", r)
}

// exitCode is what a program that has ended returned.
func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	if err != nil {
		return -1
	}
	return 0
}

// fewer leaves all but the first n out when the race detector watches the daemon, which
// is some ten times slower then, and in the second run, with the engine inside.
func fewer[T any](n int, list []T) []T {
	if underRace || (engine == "program" && *everywhere == "") {
		return list[:min(n, len(list))]
	}
	return list
}

func TestCrash(t *testing.T) {
	require.Empty(t, crash([]byte("time=1 level=INFO msg=attach\n")))
	got := crash([]byte("time=1 level=INFO msg=attach\nSIGBUS: bus error\ngoroutine 1\n" + strings.Repeat("x\n", 1000)))
	require.True(t, strings.HasPrefix(got, "SIGBUS: bus error\ngoroutine 1\nx"), got)
	require.Less(t, len(got), 300)
	require.Equal(t, "fatal error: all", crash([]byte("fatal error: all\n")))
}
