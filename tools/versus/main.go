//go:build linux

// Versus measures unmodified verbs programs on rvtsim against UCX and libfabric over TCP, in
// pairs: each round runs all of them one after the other on the same machine, and only the
// ratios of a round count. It prints a table and appends it to BENCHMARKS.md.
//
// Before each run it waits for the machine to be calm. If that does not come the run is made
// all the same, and the table says how many were.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math"
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

// measure is one row: what perftest and its rivals are to do.
type measure struct {
	name     string
	perf     string // perftest program and arguments
	messages int    // of perftest
	column   int    // of perftest's figure
	ucx      string // ucx_perftest arguments
	ucxCol   int
	fi       string // fi_pingpong arguments, if it is measured
	unit     string
	lower    bool    // less is better
	limit    float64 // what the ratio to UCX is to be
	now      bool    // do not wait for a calm machine
}

const (
	typical = 4 // perftest, latency: t_typical
	average = 3 // perftest, bandwidth: average
	rate    = 4 // perftest, bandwidth: million messages per second
	ucxHalf = 1 // ucx_perftest: 50th percentile
	ucxMB   = 5 // overall MB/s
	ucxRate = 7 // overall messages per second
	fiXfer  = 6 // fi_pingpong: us per transfer
)

func latency(name, program string, messages int, limit float64) measure {
	return measure{name: name + " latency 64 B", perf: program + " -s 64 -n 5000", messages: messages, column: typical,
		ucx: "-t tag_lat -s 64 -n 20000", ucxCol: ucxHalf, fi: "-e msg -S 64 -I 5000", unit: "us", lower: true, limit: limit}
}

func bandwidth(name, program, size string, messages int, test string, limit float64) measure {
	args := fmt.Sprintf(" -s %s -n %d", size, messages)
	return measure{name: name, perf: program + args, messages: messages, column: average,
		ucx: "-t " + test + args, ucxCol: ucxMB, unit: "MB/s", limit: limit}
}

const (
	put = "ucp_put_bw"
	tag = "tag_bw"
)

var measures = []measure{
	latency("send", "ib_send_lat", 10000, 1), // there and back
	latency("write", "ib_write_lat", 10000, 1),
	latency("read", "ib_read_lat", 5000, 1.6),
	bandwidth("write 4 KiB to put", "ib_write_bw", "4096", 50000, put, 2),
	bandwidth("write 64 KiB to put", "ib_write_bw", "65536", 10000, put, 3),
	bandwidth("write 1 MiB to put", "ib_write_bw", "1048576", 1000, put, 3),
	bandwidth("send 64 KiB to tag", "ib_send_bw", "65536", 10000, tag, 1.5),
	bandwidth("read 64 KiB to tag", "ib_read_bw", "65536", 10000, tag, 1.5),
	bandwidth("send 1 MiB to tag", "ib_send_bw", "1048576", 1000, tag, 1.5),
	bandwidth("read 1 MiB to tag", "ib_read_bw", "1048576", 1000, tag, 1.5),
	{name: "send rate 64 B to tag", perf: "ib_send_bw -s 64 -n 500000", messages: 500000, column: rate,
		ucx: "-t tag_bw -s 64 -n 500000", ucxCol: ucxRate, unit: "M/s", limit: 4},
}

type bench struct {
	bin     string
	dir     string
	env     []string
	addr    [2]string
	restive int // runs that were made on a machine that was not calm
	spin    []*exec.Cmd
}

// options are those of the command line.
type options struct {
	pairs          int
	only, out, bin string
	daemon         bool
	softRoCE       bool
	scaling        bool
	accel          string
	wire           string
	beside         int
}

func main() {
	var o options
	flag.IntVar(&o.pairs, "pairs", 5, "rounds of each measurement")
	flag.StringVar(&o.only, "only", "", "measure only what contains this")
	flag.StringVar(&o.out, "o", "BENCHMARKS.md", "file to append the table to; empty for none")
	flag.StringVar(&o.bin, "bin", "bin", "directory of rvtsim, the preload library and the engine")
	flag.BoolVar(&o.daemon, "daemon", false, "measure the engine in the daemon as well")
	flag.BoolVar(&o.softRoCE, "softroce", false, "measure against Linux soft-RoCE instead, both in one virtual machine")
	flag.BoolVar(&o.scaling, "scaling", false, "measure many queue pairs and programs, quiet ones and idle ones")
	flag.StringVar(&o.accel, "accel", "tcg", "what runs that machine's processors: tcg or kvm")
	flag.StringVar(&o.wire, "wire", "memory", "what carries our packets: memory or udp, as in rvtsim up --wire")
	flag.IntVar(&o.beside, "beside", 0, "measure beside so many processes that only spin, instead of on a calm machine")
	flag.Parse()
	what := run
	switch {
	case o.softRoCE:
		what = runSoftRoCE
	case o.scaling:
		what = runScaling
	}
	if err := what(&o); err != nil {
		fmt.Fprintln(os.Stderr, "versus:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	for _, p := range []string{"ib_send_lat", "ucx_perftest"} {
		if _, err := exec.LookPath(p); err != nil {
			return fmt.Errorf("%w (Debian: perftest, ucx-utils)", err)
		}
	}
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer b.close()
	w := table.NewWriter()
	w.AppendHeader(table.Row{"", "rvtsim", "UCX tcp", "fi_pingpong tcp", "daemon", "unit", "rvtsim : UCX, median (worst to best)", "wanted", "send + receive calls a message"})
	for _, m := range measures {
		if !strings.Contains(m.name, o.only) {
			continue
		}
		row, err := b.row(&m, o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		w.AppendRow(row)
		fmt.Fprintln(os.Stderr, row...)
	}
	about := fmt.Sprintf("Our packets by %s. %s; %d pairs of each, smallest and largest figure in brackets; %s. Calls are those of both sides that moved packets; a poll in vain is one, too.",
		o.wire, machine(), o.pairs, b.company())
	return publish(w, about, o.out)
}

// publish prints a table and appends it to a file.
func publish(w table.Writer, about, name string) error {
	fmt.Printf("%s\n%s\n", w.Render(), about)
	if name == "" {
		return nil
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "\n## %s, commit %s\n\n%s\n\n%s\n", time.Now().UTC().Format("2006-01-02"), commit(), about, w.RenderMarkdown())
	return err
}

// row measures one thing in rounds.
func (b *bench) row(m *measure, o *options) (table.Row, error) {
	var ours, ucx, fi, daemon, ratio []float64
	calls := [2]float64{}
	for range o.pairs {
		before, err := b.calls()
		if err != nil {
			return nil, err
		}
		p, err := b.perftest("program", m)
		if err != nil {
			return nil, err
		}
		after, err := b.calls()
		if err != nil {
			return nil, err
		}
		for i := range calls {
			calls[i] += (after[i] - before[i]) / float64(m.messages*o.pairs)
		}
		u, err := b.ucx(m)
		if err != nil {
			return nil, err
		}
		ours, ucx, ratio = append(ours, p), append(ucx, u), append(ratio, p/u)
		if o.daemon {
			if p, err = b.perftest("daemon", m); err != nil {
				return nil, err
			}
			daemon = append(daemon, p)
		}
		if _, err := exec.LookPath("fi_pingpong"); err == nil && m.fi != "" {
			if p, err = b.fabric(m); err != nil {
				return nil, err
			}
			fi = append(fi, p)
		}
	}
	return table.Row{m.name, spread(ours), spread(ucx), spread(fi), spread(daemon), m.unit, m.ratios(ratio), m.want(),
		fmt.Sprintf("%s + %s", short(calls[0]), short(calls[1]))}, nil
}

// ratios is the median of ratios, with the worst and the best.
func (m *measure) ratios(r []float64) string {
	worst, best := slices.Min(r), slices.Max(r)
	if m.lower {
		worst, best = best, worst
	}
	return fmt.Sprintf("%s (%s to %s)", short(median(r)), short(worst), short(best))
}

func (m *measure) want() string {
	if m.lower {
		return fmt.Sprintf("at most %g", m.limit)
	}
	return fmt.Sprintf("at least %g", m.limit)
}

// calls returns how often both nodes have called the kernel to send and to receive.
func (b *bench) calls() (n [2]float64, err error) {
	var r struct {
		Nodes []struct {
			Send    float64 `json:"send_calls"`
			Receive float64 `json:"receive_calls"`
		} `json:"nodes"`
	}
	if err := b.list(&r); err != nil {
		return n, err
	}
	for _, x := range r.Nodes {
		n[0] += x.Send
		n[1] += x.Receive
	}
	return n, nil
}

// list reads what the daemon says of itself.
func (b *bench) list(into any) error {
	text, err := b.rvtsim(context.Background(), "ls", "--json").Output()
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		return fmt.Errorf("rvtsim ls: %w", err)
	}
	return nil
}

// Calm is a machine whose processors idle for this part of an instant.
const (
	calmPart    = 0.9
	calmInstant = 250 * time.Millisecond
	calmTries   = 20
)

// await waits for a calm machine, not for ever, and not at all beside processes that spin.
func (b *bench) await() {
	if len(b.spin) > 0 {
		return
	}
	for range calmTries {
		idle, all := jiffies()
		time.Sleep(calmInstant)
		idle2, all2 := jiffies()
		if all2 == all || (idle2-idle)/(all2-all) >= calmPart {
			return
		}
	}
	b.restive++
}

// jiffies returns the time that the processors were idle, and in all.
func jiffies() (idle, all float64) {
	text, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(text), "\n")
	for i, f := range strings.Fields(line) {
		v, err := strconv.ParseFloat(f, 64)
		if err != nil || i > 8 { // the name, and what is counted twice
			continue
		}
		if all += v; i == 4 || i == 5 {
			idle += v
		}
	}
	return idle, all
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// spread is the median with the smallest and the largest value.
func spread(v []float64) string {
	if len(v) == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s to %s)", short(median(v)), short(slices.Min(v)), short(slices.Max(v)))
}

func short(v float64) string {
	if math.Abs(v) >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func newBench(o *options) (*bench, error) {
	bin, err := filepath.Abs(o.bin)
	if err != nil {
		return nil, err
	}
	b := &bench{bin: filepath.Join(bin, "rvtsim")}
	if b.dir, err = os.MkdirTemp("/tmp", "rvtversus"); err != nil {
		return nil, err
	}
	b.env = append(os.Environ(), "XDG_RUNTIME_DIR="+b.dir)
	n := os.Getpid()
	args := []string{"up", "--nodes", "2", "--wire", o.wire}
	for i := range b.addr {
		b.addr[i] = fmt.Sprintf("127.%d.%d.%d", 2+(n>>14)%90, (n>>7)&127, 1+(2*n+i)%254)
		args = append(args, "--listen", fmt.Sprintf("n%d=%s", i+1, b.addr[i]))
	}
	if text, err := b.rvtsim(context.Background(), args...).CombinedOutput(); err != nil {
		b.close()
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	for range o.beside {
		c := exec.Command("sh", "-c", spinning)
		if err := c.Start(); err != nil {
			b.close()
			return nil, err
		}
		b.spin = append(b.spin, c)
	}
	return b, nil
}

// spinning ends soon after the process that started it, however that ended.
const spinning = "while kill -0 $PPID 2>/dev/null; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done"

// company says what else the machine did.
func (b *bench) company() string {
	if len(b.spin) > 0 {
		return fmt.Sprintf("beside %d processes that spin", len(b.spin))
	}
	return fmt.Sprintf("%d runs on a machine that was not calm", b.restive)
}

func (b *bench) rvtsim(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, b.bin, args...)
	c.Env = b.env
	return c
}

func (b *bench) close() {
	for _, c := range b.spin {
		_ = c.Process.Kill()
		_ = c.Wait()
	}
	_ = b.rvtsim(context.Background(), "down").Run()
	_ = os.RemoveAll(b.dir)
}

// longest is how long one measurement may take.
const longest = 2 * time.Minute

func (b *bench) perftest(engine string, m *measure) (float64, error) {
	on := func(node string, more ...string) side {
		return func(ctx context.Context, port string) *exec.Cmd {
			prog := append(strings.Fields(m.perf), "-d", "rvt0", "-x", "0", "-F", "-p", port)
			args := append([]string{"exec", "--engine", engine, "--node", node, "--"}, append(prog, more...)...)
			return b.rvtsim(ctx, args...)
		}
	}
	if !m.now {
		b.await()
	}
	return b.pair(on("n1"), on("n2", b.addr[0]), "#bytes", m.column)
}

func (b *bench) ucx(m *measure) (float64, error) {
	with := func(args ...string) side {
		return func(ctx context.Context, port string) *exec.Cmd {
			c := exec.CommandContext(ctx, "ucx_perftest", append(args, "-p", port)...)
			c.Env = append(os.Environ(), "UCX_TLS=tcp", "UCX_NET_DEVICES=lo")
			return c
		}
	}
	b.await()
	v, err := b.pair(with(), with(append([]string{"127.0.0.1", "-f"}, strings.Fields(m.ucx)...)...), "| # iterations", m.ucxCol)
	if m.ucxCol == ucxRate {
		v /= 1e6
	}
	return v, err
}

func (b *bench) fabric(m *measure) (float64, error) {
	common := append([]string{"-p", "tcp"}, strings.Fields(m.fi)...)
	server := func(ctx context.Context, port string) *exec.Cmd {
		return exec.CommandContext(ctx, "fi_pingpong", append(slices.Clone(common), "-B", port)...)
	}
	client := func(ctx context.Context, port string) *exec.Cmd {
		return exec.CommandContext(ctx, "fi_pingpong", append(slices.Clone(common), "-P", port, "127.0.0.1")...)
	}
	b.await()
	return b.pair(server, client, "bytes", fiXfer)
}

// side is a program of a pair, which meets its peer at a TCP port.
type side func(ctx context.Context, port string) *exec.Cmd

// pair runs a server and a client and returns a column of the client's line of figures,
// which follows its header.
func (b *bench) pair(server, client side, header string, column int) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	s, err := serve(ctx, server)
	if err != nil {
		return 0, err
	}
	defer func() { cancel(); <-s.ended }()
	out, err := client(ctx, s.port).CombinedOutput()
	if err != nil {
		cancel()
		<-s.ended // it writes no more
		return 0, fmt.Errorf("%w\n%s\nThe server said:\n%s", err, out, s.said.String())
	}
	select { // a server that is killed does not say what it has counted
	case <-s.ended:
	case <-time.After(serverTime):
	}
	return figure(string(out), header, column)
}

// figure returns a column of the line of figures that follows its header.
func figure(out, header string, column int) (float64, error) {
	_, rest, ok := strings.Cut(out, header)
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

// serverTime is what a server gets to end after its client. One of UCX or libfabric may
// stay for the next client.
const serverTime = 2 * time.Second

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
