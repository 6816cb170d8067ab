package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/internal/netlab/nstest"
)

// TestMain lets the test binary stand in for the program: the tests run it as a
// process of its own, with everything that a user sees.
func TestMain(m *testing.M) {
	if os.Getenv("RVTSIM_TEST_MAIN") == "1" {
		os.Exit(run(os.Args[1:]))
	}
	nstest.Main(m) // addresses and ports of its own
}

// result is what a command line did.
type result struct {
	code        int
	out, errout string
}

// rvtsim runs a command line in the repository's root.
func rvtsim(t *testing.T, args ...string) result {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe, args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "RVTSIM_TEST_MAIN=1")
	var out, errout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errout
	err = cmd.Run()
	r := result{out: out.String(), errout: errout.String()}
	var exit *exec.ExitError
	if err != nil {
		require.ErrorAs(t, err, &exit)
		r.code = exit.ExitCode()
	}
	return r
}

// onAddresses writes a copy of an example whose nodes have addresses of this test's
// own, so that tests and a daemon do not meet.
func onAddresses(t *testing.T, example string, last byte) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("../..", example))
	require.NoError(t, err)
	s := string(b)
	for i, from := range []string{"127.0.0.1", "127.0.0.2"} {
		to := "127.77." + strconv.Itoa(int(last)) + "." + strconv.Itoa(i+1)
		s = strings.ReplaceAll(s, "address: "+from+"\n", "address: "+to+"\n")
	}
	path := filepath.Join(t.TempDir(), filepath.Base(example))
	require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
	return path
}

func TestVirtualRunsAreEqual(t *testing.T) {
	files := []string{"examples/errors.yaml", "examples/lossy.yaml", "examples/strict.yaml", "examples/two-nodes.yaml"}
	if invariants.Race {
		files = files[:2] // virtual time has no second goroutine to race with
	}
	for _, file := range files {
		a := rvtsim(t, "run", file, "--virtual", "--seed", "7")
		b := rvtsim(t, "run", file, "--virtual", "--seed", "7")
		require.Equal(t, exitOK, a.code, a.out+a.errout)
		require.Equal(t, a, b)
		c := rvtsim(t, "run", file, "--virtual", "--seed", "8")
		require.Equal(t, exitOK, c.code, c.out+c.errout)
		require.NotEqual(t, a.out, c.out, "another seed is another run")
	}
}

func TestRunOnSockets(t *testing.T) {
	for i, file := range []string{"examples/two-nodes.yaml", "examples/lossy.yaml", "examples/errors.yaml", "examples/strict.yaml"} {
		r := rvtsim(t, "run", onAddresses(t, file, byte(10+i)))
		require.Equal(t, exitOK, r.code, r.out+r.errout)
		require.Contains(t, r.out, "node n1")
	}
}

func TestJSON(t *testing.T) {
	r := rvtsim(t, "run", "examples/two-nodes.yaml", "--virtual", "--json")
	require.Equal(t, exitOK, r.code)
	var v map[string]any
	require.NoError(t, json.Unmarshal([]byte(r.out), &v))
	require.Len(t, v["nodes"], 2)
}

func TestFailedExpectation(t *testing.T) {
	b, err := os.ReadFile("../../examples/lossy.yaml")
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "strict.yaml")
	s := strings.Replace(string(b), "retransmissions: 1..", "retransmissions: 0", 1)
	require.NoError(t, os.WriteFile(path, []byte(s), 0o600))
	r := rvtsim(t, "run", path, "--virtual")
	require.Equal(t, exitFail, r.code)
	require.Contains(t, r.out, "FAIL")
	require.Contains(t, r.out, "retransmissions")
}

func TestBadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bad.yaml")
	require.NoError(t, os.WriteFile(path, []byte("version: 1\nnodes:\n  - name: a\n    adress: 127.0.0.1\ntraffic:\n  - op: sendd\n"), 0o600))
	for _, cmd := range []string{"run", "validate"} {
		r := rvtsim(t, cmd, path)
		require.Equal(t, exitUsage, r.code)
		require.Contains(t, r.errout, path+":4:5: ")
		require.Contains(t, r.errout, `did you mean "address"?`)
		require.Contains(t, r.errout, path+":6:9: ")
		require.Contains(t, r.errout, `unknown operation "sendd"`)
		require.Empty(t, r.out)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"run"}, {"run", "a", "b"}, {"bogus"}, {"run", "--bogus", "x"}, {"replay"}, {"replay", "--profile", "x", "y"}, {"run", "/nonexistent.yaml"}} {
		r := rvtsim(t, args...)
		require.Equal(t, exitUsage, r.code, "%v: %s", args, r.errout)
		require.NotEmpty(t, r.errout)
	}
	r := rvtsim(t, "help")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.out, "replay")
	require.Equal(t, exitOK, rvtsim(t, "version").code)
}

func TestPortInUse(t *testing.T) {
	path := onAddresses(t, "examples/two-nodes.yaml", 20)
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 77, 20, 2), Port: 4791})
	require.NoError(t, err)
	defer c.Close()
	r := rvtsim(t, "run", path)
	require.Equal(t, exitEnv, r.code)
	require.Contains(t, r.errout, "node n2")
	require.Contains(t, r.errout, "127.77.20.2:4791 is in use")
}

// TestGarbage: bytes that are no packets are dropped and counted, and traffic goes on.
func TestGarbage(t *testing.T) {
	path := onAddresses(t, "examples/two-nodes.yaml", 30)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		c, err := net.DialUDP("udp4", nil, &net.UDPAddr{IP: net.IPv4(127, 77, 30, 1), Port: 4791})
		if err != nil {
			return
		}
		defer c.Close()
		tick := time.NewTicker(100 * time.Microsecond) // a nuisance, not a flood that fills the socket
		defer tick.Stop()
		for seed := byte(0); ; seed++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			b := make([]byte, int(seed)%60)
			for i := range b {
				b[i] = seed * byte(i+7)
			}
			_, _ = c.Write(b) // refused while nobody listens
		}
	}()
	r := rvtsim(t, "run", path)
	close(stop)
	<-done
	require.Equal(t, exitOK, r.code, r.out+r.errout)
	require.Contains(t, r.out, "bad_icrc")
	require.Contains(t, r.out, "too_short")
}

// TestCapture: tshark finds RoCE v2 in what --pcap writes, every packet with an ICRC
// and none malformed but the tiny ones that it takes for another protocol.
func TestCapture(t *testing.T) {
	if _, err := exec.LookPath("tshark"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("missing tool: tshark")
		}
		t.Skip("missing tool: tshark")
	}
	path := filepath.Join(t.TempDir(), "lossy.pcapng")
	r := rvtsim(t, "run", "examples/lossy.yaml", "--virtual", "--pcap", path)
	require.Equal(t, exitOK, r.code, r.out+r.errout)
	count := func(filter string) int {
		out, err := exec.Command("tshark", "-r", path, "-Y", filter, "-T", "fields", "-e", "frame.number").Output()
		require.NoError(t, err)
		return bytes.Count(out, []byte("\n"))
	}
	all := count("frame")
	require.Greater(t, all, 1000)
	require.Equal(t, all, count("infiniband.bth"))
	require.Equal(t, 0, count("_ws.malformed && udp.length > 40"))
	require.Less(t, count("_ws.malformed"), all/100)
}

func TestReplayCommand(t *testing.T) {
	files, err := filepath.Glob("../../tests/golden/soft-roce/*.pcap")
	require.NoError(t, err)
	for i := range files {
		files[i] = strings.TrimPrefix(files[i], "../../")
	}
	r := rvtsim(t, append([]string{"replay"}, files...)...)
	require.Equal(t, exitOK, r.code, r.out)
	require.Contains(t, r.out, "74 CAPTURES")
	r = rvtsim(t, append([]string{"replay", "--json", "--profile", "rdmavt"}, files...)...)
	require.Equal(t, exitOK, r.code)
	require.True(t, json.Valid([]byte(r.out)))
}

// TestReplayFindsDifferences: a capture that claims another key does not pass.
func TestReplayFindsDifferences(t *testing.T) {
	dir := t.TempDir()
	copyFile(t, "../../tests/golden/soft-roce/rc_write_small.pcap", filepath.Join(dir, "rc_write_small.pcap"))
	b, err := os.ReadFile("../../tests/golden/soft-roce/flows.json")
	require.NoError(t, err)
	var flows map[string]map[string]map[string]any
	require.NoError(t, json.Unmarshal(b, &flows))
	flows["rc_write_small"]["server"]["rkey"] = 12345
	b, err = json.Marshal(flows)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "flows.json"), b, 0o600))
	r := rvtsim(t, "replay", filepath.Join(dir, "rc_write_small.pcap"))
	require.Equal(t, exitFail, r.code, r.out)
	require.Contains(t, r.out, "UNEXPLAINED")
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	src, err := os.Open(from)
	require.NoError(t, err)
	defer src.Close()
	dst, err := os.Create(to)
	require.NoError(t, err)
	defer dst.Close()
	_, err = io.Copy(dst, src)
	require.NoError(t, err)
}

// TestStories: a flow that fails is explained, with what its peer knows.
func TestStories(t *testing.T) {
	quiet := rvtsim(t, "run", "examples/errors.yaml", "--virtual")
	require.NotContains(t, quiet.out, "What to look at", "what was expected needs no explanation")
	r := rvtsim(t, "run", "examples/errors.yaml", "--virtual", "-v")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.out, "flow receive-too-small: qp 0x14 is in ERR: the peer answered NAK invalid request.")
	require.Contains(t, r.out, "The peer, n2, which runs here as well:")
	require.Contains(t, r.out, "What to look at:")
}
