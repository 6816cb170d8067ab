package pyverbs

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/testdaemon"
	"github.com/rvtsim/rvtsim/uverbs"
)

const (
	// suite is where the package python3-pyverbs has its tests.
	suite = "/usr/share/doc/rdma-core/tests"
	// python is the interpreter that the bindings are built for.
	python = "/usr/bin/python3"
	// longest is how long one test may take. Slow ones take 1 s on an idle machine.
	longest = 60 * time.Second
	// maxBroken is after how many tests that hang or crash we give up.
	maxBroken = 5
)

//go:embed soft-roce-6.1.tsv
var softRoCE string

var full = flag.Bool("pyverbs.full", false, "each personality with the engine in the daemon and inside the program")

// outcome is how one test ended: ok, skip, ERROR, FAIL, absent, HANG or DIED.
type outcome struct {
	result, why string
}

// reference reads the table, in its order.
func reference(t *testing.T) (names []string, by map[string]outcome) {
	by = map[string]outcome{}
	for line := range strings.Lines(softRoCE) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 3)
		require.Len(t, f, 3, "%q", line)
		names = append(names, f[0])
		by[f[0]] = outcome{f[1], f[2]}
	}
	require.Len(t, by, len(names))
	return names, by
}

// need makes sure that everything is there.
func need(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"cc", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			testdaemon.Missing(t, tool)
		}
	}
	if err := exec.Command(python, "-c", "import pyverbs.device").Run(); err != nil {
		testdaemon.Missing(t, "python3-pyverbs")
	}
	if _, err := os.Stat(filepath.Join(suite, "run_tests.py")); err != nil {
		testdaemon.Missing(t, "the tests of python3-pyverbs ("+suite+")")
	}
}

// unpack copies the suite, whose longer files are compressed.
func unpack(t *testing.T, to string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(suite, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		if plain, packed := strings.CutSuffix(name, ".gz"); packed {
			z, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				return err
			}
			if b, err = io.ReadAll(z); err != nil {
				return err
			}
			name = plain
		}
		return os.WriteFile(filepath.Join(to, name), b, 0o644)
	}))
}

// site is a daemon with one node.
type site struct {
	*testdaemon.Daemon
	t     *testing.T
	tests string
	limit time.Duration // for one test
	// private: daemon and tests have a network of their own, where the loopback
	// address is the node's. The tests of rdmacm need that: they take the first address
	// of the node's network device, whatever the node is bound to.
	private bool
}

var lastSite byte

// isolate gives the calling goroutine, and what it starts, an empty network, if it may.
func isolate(t *testing.T) bool {
	t.Helper()
	runtime.LockOSThread() // for good: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		if os.Getenv("CI") == "true" {
			t.Fatal("no network namespace: ", err)
		}
		t.Logf("no network namespace (%v): the tests of rdmacm do not run", err)
		return false
	}
	out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return true
}

// up builds the command and starts a daemon on an address of its own.
func up(t *testing.T, abi string) *site {
	t.Helper()
	private := isolate(t)
	d := testdaemon.New(t, testdaemon.Build(t, t.TempDir()))
	s := &site{Daemon: d, t: t, tests: filepath.Join(d.Dir, "tests"), limit: longest, private: private}
	require.NoError(t, os.Mkdir(s.tests, 0o755))
	unpack(t, s.tests)
	s.Env = append(s.Env, "PYTHONDONTWRITEBYTECODE=1")
	lastSite++
	pid := uint32(os.Getpid())
	addr := netip.AddrFrom4([4]byte{127, 101 + byte(pid>>16)%100, byte(pid >> 8), byte(pid)<<1 | lastSite&1})
	if private {
		addr = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	s.Up(t, "--nodes", "1", "--listen", "n1="+addr.String(), "--abi", abi)
	return s
}

// run runs tests until all have a result. One that hangs or takes the interpreter with
// it costs that test only.
func (s *site) run(names []string) map[string]outcome {
	got := map[string]outcome{}
	broken := 0
	names = slices.Clone(names)
	names = slices.DeleteFunc(names, func(name string) bool {
		if s.private || !strings.Contains(name, ".test_rdmacm.") {
			return false
		}
		got[name] = outcome{"absent", "it needs a network of its own"}
		return true
	})
	for len(names) > 0 {
		n, err := s.stretch(names, got)
		if err != nil {
			got[names[n]] = outcome{"DIED", err.Error()}
			if errors.Is(err, os.ErrDeadlineExceeded) {
				got[names[n]] = outcome{"HANG", "after " + s.limit.String()}
			}
			n++
			if broken++; broken > maxBroken {
				s.t.Errorf("too many tests hang or crash; not run: %v", names[n:])
				return got
			}
		}
		names = names[n:]
	}
	return got
}

// stretch runs tests in one interpreter, up to the first that breaks it, and returns
// how many ended properly.
func (s *site) stretch(names []string, got map[string]outcome) (done int, err error) {
	fifo := filepath.Join(s.Dir, "report")
	_ = os.Remove(fifo)
	require.NoError(s.t, syscall.Mkfifo(fifo, 0o600))
	r, err := os.OpenFile(fifo, os.O_RDWR, 0)
	require.NoError(s.t, err)
	defer r.Close()
	worker, err := filepath.Abs("worker.py")
	require.NoError(s.t, err)
	cmd := s.Command(s.t.Context(), "exec", "--engine", s.Engine, "--node", "n1", "--", python, worker, s.tests, fifo)
	cmd.Stdin = strings.NewReader(strings.Join(names, "\n"))
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	// Tests fork: all of them must end.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = 10 * time.Second
	require.NoError(s.t, cmd.Start())
	ended := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		_ = r.SetReadDeadline(time.Now().Add(time.Second)) // what it still said is in the FIFO
		ended <- err
	}()
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil || strings.HasPrefix(line, "end\t") {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			return done, s.why(err, ended, &said)
		}
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		if f[0] == "start" {
			_ = r.SetReadDeadline(time.Now().Add(s.limit))
			continue
		}
		require.Equal(s.t, names[done], f[0])
		got[f[0]] = outcome{f[1], f[3]}
		done++
	}
}

// why says why an interpreter stopped reporting.
func (s *site) why(read error, ended chan error, said *bytes.Buffer) error {
	select {
	case err := <-ended: // by itself: nobody has killed it before
		if read != nil {
			s.t.Logf("the interpreter ended: %v\n%s", err, said)
			return fmt.Errorf("the interpreter ended: %v", err)
		}
	default:
		<-ended
	}
	return read
}

// judge compares results with the table and counts.
func judge(t *testing.T, abi string, names []string, want, got map[string]outcome) (ahead int) {
	count := map[string]int{}
	for _, name := range names {
		w, g := want[name], got[name]
		count[g.result]++
		switch {
		case g.result == "absent":
			t.Logf("%s: not run: %s", name, g.why)
		case g.result == "ok" && w.result != "ok":
			ahead++
			t.Logf("%s: ahead: passes; soft-RoCE: %s %s", name, w.result, w.why)
		case g.result == "ok":
		case g.result == "skip" && (w.result != "ok" || abi == uverbs.ABIRVT):
		case g.result == "ERROR" && w.result == "ERROR":
			t.Logf("%s: fails as on soft-RoCE: %s", name, g.why)
		default:
			t.Errorf("%s: %s: %s (soft-RoCE: %s %s)", name, g.result, g.why, w.result, w.why)
		}
	}
	t.Logf("%s: %d ok (%d of them ahead of soft-RoCE), %d skipped, %d not run, %d fail as there",
		abi, count["ok"], ahead, count["skip"], count["absent"], count["ERROR"])
	return ahead
}

// TestSuite runs the suite on both personalities. Skips of rvt are those of its
// provider library, which has less than soft-RoCE's; so many must pass all the same.
func TestSuite(t *testing.T) {
	need(t)
	type row struct {
		abi, engine string
		ok, ahead   int // at least
	}
	rows := []row{{uverbs.ABIRXE, "program", 94, 8}, {uverbs.ABIRVT, "daemon", 60, 1}}
	if *full {
		rows = append(rows, row{uverbs.ABIRXE, "daemon", 94, 8}, row{uverbs.ABIRVT, "program", 60, 1})
	}
	for _, c := range rows {
		t.Run(c.abi+"/"+c.engine, func(t *testing.T) {
			if testing.Short() && c.abi == uverbs.ABIRVT {
				t.Skip("short")
			}
			names, want := reference(t)
			s := up(t, c.abi)
			if s.Engine = c.engine; s.Engine == "program" {
				testdaemon.BuildEngine(t, s.Exe)
			}
			if s.private {
				c.ok += 10 // of rdmacm
			}
			got := s.run(names)
			ahead := judge(t, c.abi, names, want, got)
			ok := 0
			for _, g := range got {
				if g.result == "ok" {
					ok++
				}
			}
			require.GreaterOrEqual(t, ok, c.ok, "tests that pass")
			require.GreaterOrEqual(t, ahead, c.ahead, "tests that pass here only")
		})
	}
}

// TestWithoutIoctl runs the tests that are mostly commands with write() only, as on a
// kernel older than the ioctl interface.
func TestWithoutIoctl(t *testing.T) {
	need(t)
	var some []string
	names, want := reference(t)
	for _, name := range names {
		for _, module := range []string{"addr", "cq", "cq_events", "device", "mr", "pd", "qp"} {
			if strings.HasPrefix(name, "tests.test_"+module+".") {
				some = append(some, name)
			}
		}
	}
	require.Greater(t, len(some), 80)
	s := up(t, uverbs.ABIRXE)
	require.Equal(t, "EPROTONOSUPPORT", s.probe())
	s.Env = append(s.Env, "RVTSIM_IOCTL=off")
	require.Equal(t, "ENOTTY", s.probe())
	judge(t, uverbs.ABIRXE, some, want, s.run(some))
}

// probe returns the error of an ioctl for a method that no device has.
func (s *site) probe() string {
	const program = `import errno, fcntl, os, struct, sys
fd = os.open('/dev/infiniband/uverbs0', os.O_RDWR)
try: fcntl.ioctl(fd, 0xc0181b01, struct.pack('=HHHHQII', 24, 999, 0, 0, 0, 14, 0))
except OSError as e: print(errno.errorcode[e.errno])`
	out, err := s.Command(s.t.Context(), "exec", "--engine", s.Engine, "--node", "n1", "--", python, "-c", program).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	return strings.TrimSpace(string(out))
}

// TestRunner runs a suite that hangs, dies, fails and lacks tests.
func TestRunner(t *testing.T) {
	need(t)
	s := up(t, uverbs.ABIRXE)
	s.tests, s.limit = filepath.Join(s.Dir, "odd", "tests"), 5*time.Second
	require.NoError(t, os.MkdirAll(s.tests, 0o755))
	for name, text := range map[string]string{
		"__init__.py":    "",
		"args_parser.py": "class P:\n    def parse_args(self): pass\nparser = P()\n",
		"test_odd.py": `import os, time, unittest
class Odd(unittest.TestCase):
    def test_fail(self): self.assertTrue(False)
    def test_error(self): raise Exception('no')
    def test_hang(self):
        os.fork()
        time.sleep(1000)
    def test_die(self): os.abort()
    def test_skip(self): self.skipTest('not here')
    def test_ok(self): pass
`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(s.tests, name), []byte(text), 0o644))
	}
	var names []string
	for _, n := range []string{"ok", "hang", "fail", "die", "error", "skip", "gone"} {
		names = append(names, "tests.test_odd.Odd.test_"+n)
	}
	got := s.run(names)
	results := ""
	for _, n := range names {
		results += got[n].result + " "
	}
	require.Equal(t, "ok HANG FAIL DIED ERROR skip absent ", results)
}

// TestErrorFlow runs tests of completions with errors. rdma-core's suite has none; these have
// its form. (Field report core-803.)
func TestErrorFlow(t *testing.T) {
	need(t)
	s := up(t, uverbs.ABIRXE)
	src, err := os.ReadFile("test_error_flow.py")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(s.tests, "test_error_flow.py"), src, 0o644))
	var names []string
	for _, name := range regexp.MustCompile(`def (test_\w+)`).FindAllStringSubmatch(string(src), -1) {
		names = append(names, "tests.test_error_flow.ErrorFlowTest."+name[1])
	}
	require.Len(t, names, 8)
	for name, o := range s.run(names) {
		require.Equal(t, "ok", o.result, "%s: %s", name, o.why)
	}
}
