//go:build linux

// Versus measures unmodified verbs programs on rvtsim, with either engine, against UCX over
// TCP, in pairs: each round runs all of them one after the other on the same machine, and
// only the ratios of a round count. It prints a table and appends it to BENCHMARKS.md.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// measure is one row: what perftest and UCX are to do.
type measure struct {
	name string
	perf string // perftest program and arguments
	ucx  string // ucx_perftest arguments
	// column and unit of perftest's figure; lower says that less is better.
	column int
	ucxCol int
	unit   string
	lower  bool
	limit  float64 // what the ratio to UCX is to be
}

const (
	typical = 4 // perftest, latency: t_typical
	average = 3 // perftest, bandwidth: average
	rate    = 4 // perftest, bandwidth: million messages per second
	ucxHalf = 1 // ucx_perftest: 50th percentile
	ucxMB   = 5 // overall MB/s
	ucxRate = 7 // overall messages per second
)

var measures = []measure{
	{"send latency 64 B", "ib_send_lat -s 64 -n 5000", "-t tag_lat -s 64 -n 5000", typical, ucxHalf, "us", true, 1},
	{"write latency 64 B", "ib_write_lat -s 64 -n 5000", "-t tag_lat -s 64 -n 5000", typical, ucxHalf, "us", true, 1},
	{"read latency 64 B", "ib_read_lat -s 64 -n 5000", "-t tag_lat -s 64 -n 5000", typical, ucxHalf, "us", true, 1.6},
	{"write 1 MiB to put", "ib_write_bw -s 1048576 -n 500", "-t ucp_put_bw -s 1048576 -n 500", average, ucxMB, "MB/s", false, 3},
	{"write 64 KiB to put", "ib_write_bw -s 65536 -n 5000", "-t ucp_put_bw -s 65536 -n 5000", average, ucxMB, "MB/s", false, 3},
	{"send 64 KiB to tag", "ib_send_bw -s 65536 -n 5000", "-t tag_bw -s 65536 -n 5000", average, ucxMB, "MB/s", false, 1.5},
	{"read 64 KiB to tag", "ib_read_bw -s 65536 -n 5000", "-t tag_bw -s 65536 -n 5000", average, ucxMB, "MB/s", false, 1.5},
	{"write 4 KiB to put", "ib_write_bw -s 4096 -n 20000", "-t ucp_put_bw -s 4096 -n 20000", average, ucxMB, "MB/s", false, 2},
	{"send rate 64 B to tag", "ib_send_bw -s 64 -n 50000", "-t tag_bw -s 64 -n 50000", rate, ucxRate, "M/s", false, 4},
}

type bench struct {
	bin  string
	dir  string
	env  []string
	addr [2]string
}

func main() {
	pairs := flag.Int("pairs", 5, "rounds of each measurement")
	only := flag.String("only", "", "measure only what contains this")
	out := flag.String("o", "BENCHMARKS.md", "file to append the table to; empty for none")
	bin := flag.String("bin", "bin", "directory of rvtsim, the preload library and the engine")
	flag.Parse()
	if err := run(*pairs, *only, *out, *bin); err != nil {
		fmt.Fprintln(os.Stderr, "versus:", err)
		os.Exit(1)
	}
}

func run(pairs int, only, out, bin string) error {
	for _, p := range []string{"ib_send_lat", "ucx_perftest"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%w (Debian: perftest, ucx-utils)", err)
		}
	}
	b, err := newBench(bin)
	if err != nil {
		return err
	}
	defer b.close()
	w := table.NewWriter()
	w.AppendHeader(table.Row{"", "program", "daemon", "UCX tcp", "unit", "program : UCX, median (worst to best)", "daemon : UCX", "wanted"})
	for _, m := range measures {
		if !strings.Contains(m.name, only) {
			continue
		}
		row, err := b.row(m, pairs)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		w.AppendRow(row)
		fmt.Fprintln(os.Stderr, row...)
	}
	fmt.Println(w.Render())
	if out == "" {
		return nil
	}
	f, err := os.OpenFile(out, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "\n## %s, commit %s\n\n%s; %d pairs of each.\n\n%s\n", time.Now().UTC().Format("2006-01-02"), commit(), machine(), pairs, w.RenderMarkdown())
	return err
}

// row measures one thing pairs times.
func (b *bench) row(m measure, pairs int) (table.Row, error) {
	var program, daemon, ucx, ratio, old []float64
	for range pairs {
		p, err := b.perftest("program", m)
		if err != nil {
			return nil, err
		}
		d, err := b.perftest("daemon", m)
		if err != nil {
			return nil, err
		}
		u, err := b.ucx(m)
		if err != nil {
			return nil, err
		}
		program, daemon, ucx = append(program, p), append(daemon, d), append(ucx, u)
		ratio, old = append(ratio, p/u), append(old, d/u)
	}
	slices.Sort(ratio)
	worst, best := ratio[0], ratio[len(ratio)-1]
	want := fmt.Sprintf("at least %g", m.limit)
	if m.lower {
		worst, best = best, worst
		want = fmt.Sprintf("at most %g", m.limit)
	}
	return table.Row{m.name, short(median(program)), short(median(daemon)), short(median(ucx)), m.unit,
		fmt.Sprintf("%s (%s to %s)", short(median(ratio)), short(worst), short(best)), short(median(old)), want}, nil
}

func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

func short(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }

func newBench(bin string) (*bench, error) {
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	b := &bench{bin: filepath.Join(bin, "rvtsim")}
	if b.dir, err = os.MkdirTemp("/tmp", "rvtversus"); err != nil {
		return nil, err
	}
	b.env = append(os.Environ(), "XDG_RUNTIME_DIR="+b.dir)
	n := os.Getpid()
	args := []string{"up", "--nodes", "2"}
	for i := range b.addr {
		b.addr[i] = fmt.Sprintf("127.%d.%d.%d", 2+(n>>14)%90, (n>>7)&127, 1+(2*n+i)%254)
		args = append(args, "--listen", fmt.Sprintf("n%d=%s", i+1, b.addr[i]))
	}
	if text, err := b.rvtsim(context.Background(), args...).CombinedOutput(); err != nil {
		b.close()
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	return b, nil
}

func (b *bench) rvtsim(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, b.bin, args...)
	c.Env = b.env
	return c
}

func (b *bench) close() {
	_ = b.rvtsim(context.Background(), "down").Run()
	_ = os.RemoveAll(b.dir)
}

// longest is how long one measurement may take.
const longest = 2 * time.Minute

func (b *bench) perftest(engine string, m measure) (float64, error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	prog := append(strings.Fields(m.perf), "-d", "rvt0", "-x", "0", "-F", "-p", port)
	side := func(node string, more ...string) func(context.Context) *exec.Cmd {
		args := append([]string{"exec", "--engine", engine, "--node", node, "--"}, append(prog, more...)...)
		return func(ctx context.Context) *exec.Cmd { return b.rvtsim(ctx, args...) }
	}
	return pair(port, side("n1"), side("n2", b.addr[0]), "#bytes", m.column)
}

func (b *bench) ucx(m measure) (float64, error) {
	port, err := freePort()
	if err != nil {
		return 0, err
	}
	side := func(args ...string) func(context.Context) *exec.Cmd {
		return func(ctx context.Context) *exec.Cmd {
			c := exec.CommandContext(ctx, "ucx_perftest", args...)
			c.Env = append(os.Environ(), "UCX_TLS=tcp", "UCX_NET_DEVICES=lo")
			return c
		}
	}
	v, err := pair(port, side("-p", port), side(append([]string{"127.0.0.1", "-p", port, "-f"}, strings.Fields(m.ucx)...)...), "| # iterations", m.ucxCol)
	if m.ucxCol == ucxRate {
		v /= 1e6
	}
	return v, err
}

// pair runs a server and a client and returns a column of the client's line of figures,
// which follows its header.
func pair(port string, server, client func(context.Context) *exec.Cmd, header string, column int) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	s := server(ctx)
	var said bytes.Buffer
	s.Stdout, s.Stderr = &said, &said
	if err := s.Start(); err != nil {
		return 0, err
	}
	defer func() { cancel(); _ = s.Wait() }()
	if err := listening(ctx, port); err != nil {
		return 0, fmt.Errorf("%w\n%s", err, said.String())
	}
	out, err := client(ctx).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, out)
	}
	_, rest, ok := strings.Cut(string(out), header)
	for line := range strings.Lines(rest) {
		f := strings.Fields(line)
		if len(f) <= column {
			continue
		}
		if _, err := strconv.ParseFloat(f[0], 64); err != nil {
			continue
		}
		return strconv.ParseFloat(f[column], 64)
	}
	return 0, fmt.Errorf("no figures (header found: %t) in\n%s", ok, out)
}

// listening waits until somebody listens on a TCP port. Connecting would be taken for the
// peer.
func listening(ctx context.Context, port string) error {
	n, err := strconv.Atoi(port)
	if err != nil {
		return err
	}
	want := fmt.Sprintf(":%04X ", n)
	for ctx.Err() == nil {
		for _, f := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
			b, _ := os.ReadFile(f)
			for line := range strings.Lines(string(b)) {
				if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1]+" ", want) && f[3] == "0A" {
					return nil
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("the server does not listen")
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

func commit() string {
	out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

// machine describes the machine in a line.
func machine() string {
	model := runtime.GOARCH
	if f, err := os.Open("/proc/cpuinfo"); err == nil {
		b, _ := io.ReadAll(f)
		f.Close()
		if _, rest, ok := strings.Cut(string(b), "model name\t: "); ok {
			model, _, _ = strings.Cut(rest, "\n")
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%s, %d CPUs, Linux %s, load %s", model, runtime.NumCPU(), strings.TrimSpace(string(kernel)), strings.Fields(string(load) + " ?")[0])
}
