package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/internal/sweep"
)

// serve starts a server with JetStream on a free port of the loopback interface. o holds
// what is special about it.
func serve(t *testing.T, o server.Options) *server.Server {
	o.Host, o.Port, o.JetStream, o.StoreDir, o.NoSigs, o.NoLog = "127.0.0.1", server.RANDOM_PORT, true, t.TempDir(), true, true
	s, err := server.NewServer(&o)
	require.NoError(t, err)
	go s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	return s
}

// cluster starts three servers that know each other.
func cluster(t *testing.T) (servers []*server.Server, urls string) {
	var routes []*url.URL
	var list []string
	var ports [3]int // of the routes; each server must know the others before it starts
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		ports[i] = l.Addr().(*net.TCPAddr).Port
		routes = append(routes, &url.URL{Scheme: "nats-route", Host: l.Addr().String()})
		require.NoError(t, l.Close())
	}
	for i := range 3 {
		servers = append(servers, serve(t, server.Options{
			ServerName: fmt.Sprintf("s%d", i), Cluster: server.ClusterOpts{Name: "rvtsim-test", Host: "127.0.0.1", Port: ports[i]}, Routes: routes,
		}))
	}
	for _, s := range servers {
		require.True(t, s.ReadyForConnections(60*time.Second))
		list = append(list, s.ClientURL())
	}
	require.Eventually(t, func() bool {
		for _, s := range servers {
			if !s.JetStreamIsCurrent() || s.NumRoutes() == 0 {
				return false
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond, "the cluster comes together")
	return servers, strings.Join(list, ",")
}

// worker is a process that works for sweeps; lines is what it prints.
type worker struct {
	cmd   *exec.Cmd
	lines chan string
}

func startWorker(t *testing.T, urls string) *worker {
	exe, err := os.Executable()
	require.NoError(t, err)
	w := &worker{exec.Command(exe, "sim", "--worker", "--nats", urls, "--patience", "1s", "--jobs", "1"), make(chan string, 1000)}
	w.cmd.Env = append(os.Environ(), "RVTSIM_TEST_MAIN=1")
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, w.cmd.Start())
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			w.lines <- s.Text()
		}
		close(w.lines)
	}()
	t.Cleanup(w.kill)
	return w
}

// kill ends the process at once, whatever it is doing.
func (w *worker) kill() {
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// did waits until the worker has stored n results.
func (w *worker) did(t *testing.T, n int) {
	deadline := time.After(60 * time.Second)
	for n > 0 {
		select {
		case line, ok := <-w.lines:
			require.True(t, ok, "the worker ended")
			if strings.HasPrefix(line, "done: ") {
				n--
			}
		case <-deadline:
			t.Fatal("the worker did nothing")
		}
	}
}

// sweepFile writes a sweep whose points take a while.
func sweepFile(t *testing.T) string {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("top.yaml", `version: 1
nodes: [{name: n, count: 4, address: 10.0.0.1}]
network: {latency: 2us, bandwidth: 100Gbps, loss: 0%}
traffic: [{name: f, pattern: permutation, from: n, op: send, size: 512, count: 2000, timeout: 1ms}]
`)
	return write("sweep.yaml", "version: 1\ntopology: top.yaml\nseeds: 5\nnodes: [4, 9]\nvary: {network.loss: [0%, 1%]}\n")
}

func points(t *testing.T, r result) (list []sweep.Result) {
	require.Equal(t, exitOK, r.code, r.out+r.errout)
	require.NoError(t, json.Unmarshal([]byte(r.out), &list))
	return list
}

// TestSweepSurvivesItsWorkers: workers are killed while they work, a server of the
// cluster goes away, and the results are those of an undisturbed run, each once.
func TestSweepSurvivesItsWorkers(t *testing.T) {
	if invariants.Race {
		t.Skip("the plain pass runs it; what runs here are other processes")
	}
	path := sweepFile(t)
	want := points(t, rvtsim(t, "sim", "--sweep", path, "--json", "-"))
	require.Len(t, want, 20)

	servers, urls := cluster(t)
	a, b := startWorker(t, urls), startWorker(t, urls)
	finished := make(chan result, 1)
	go func() {
		finished <- rvtsim(t, "sim", "--sweep", path, "--json", "-", "--nats", urls, "--patience", "1s", "--jobs", "0")
	}()
	a.did(t, 2)
	a.kill()
	b.did(t, 2)
	servers[2].Shutdown()
	b.kill()
	c := startWorker(t, urls)
	c.did(t, 1)
	var r result
	select {
	case r = <-finished:
	case <-time.After(2 * time.Minute):
		t.Fatal("the sweep does not end")
	}
	require.Equal(t, want, points(t, r))
}

// TestSweepSurvivesAHang: a worker stops in the middle of a job and says nothing more; its
// job is done by another. When it goes on, its late result changes nothing.
func TestSweepSurvivesAHang(t *testing.T) {
	if invariants.Race {
		t.Skip("the plain pass runs it; what runs here are other processes")
	}
	path := sweepFile(t)
	alone := serve(t, server.Options{ServerName: "alone"})
	require.True(t, alone.ReadyForConnections(60*time.Second))
	submit := func(jobs string) []sweep.Result {
		return points(t, rvtsim(t, "sim", "--sweep", path, "--json", "-", "--nats", alone.ClientURL(), "--patience", "1s", "--jobs", jobs))
	}
	hung := startWorker(t, alone.ClientURL())
	first := make(chan []sweep.Result, 1)
	go func() { first <- submit("0") }()
	hung.did(t, 2)
	require.NoError(t, hung.cmd.Process.Signal(syscall.SIGSTOP))
	startWorker(t, alone.ClientURL())
	var got []sweep.Result
	select {
	case got = <-first:
	case <-time.After(2 * time.Minute):
		t.Fatal("the sweep waits for the worker that hangs")
	}
	require.Len(t, got, 20)
	require.NoError(t, hung.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, got, submit("0"), "once more, with the worker that hung and its late result")
	hung.did(t, 1)
}

func TestSweepProblems(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	write("top.yaml", "version: 1\nnodes: [{name: n, count: 4}]\nnetwork: {latency: 2us}\n")
	for text, want := range map[string]string{
		"version: 1\n":                                                   `1:1: key "topology" is missing; expected path`,
		"version: 1\ntopology: no.yaml\n":                                "no such file",
		"version: 1\ntopology: top.yaml\nseeds: 0\n":                     `3:8: seeds: found "0"; expected a whole number from 1 to 1048576`,
		"version: 1\ntopology: top.yaml\nsead: 1\n":                      `unknown key "sead"; expected one of version, name, topology, first_seed, seeds, nodes, vary, for, check`,
		"version: 1\ntopology: top.yaml\nvary: {network.loss: [1%]}\n":   `top.yaml:3:10: network.loss: found no value to replace with "1%"`,
		"version: 1\ntopology: top.yaml\nvary: {network.latency: [5]}\n": `top.yaml:3:20: network.latency: found "5"; expected a duration`,
		"version: 1\ntopology: top.yaml\nvary: {network.latency: []}\n":  "found 0 points; expected 1 to 1048576",
	} {
		r := rvtsim(t, "sim", "--sweep", write("s.yaml", text))
		require.Equal(t, exitUsage, r.code, text)
		require.Contains(t, r.errout, want, text)
	}
	require.Equal(t, exitUsage, rvtsim(t, "sim", "--worker").code)
	require.Equal(t, exitUsage, rvtsim(t, "sim").code)
	require.Equal(t, exitEnv, rvtsim(t, "sim", "--worker", "--nats", "nats://127.0.0.1:1").code)
}
