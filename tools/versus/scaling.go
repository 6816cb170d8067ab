//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
)

// Scaling: more queue pairs in one program, more programs on each of two nodes, a quiet
// program beside one that saturates, and programs that do nothing. Figures of one family
// are taken in turns, so that the machine's moods fall on all of them.

// family is a row of figures, one for each size, to be compared with the best of them.
type family struct {
	name, unit string
	sizes      []int
	take       func(b *bench, size int) (float64, error)
}

var families = []family{
	{"write 64 KiB, queue pairs of a program", "MB/s", []int{1, 10, 100, 1000}, func(b *bench, n int) (float64, error) {
		return b.perftest("program", &measure{perf: fmt.Sprintf("ib_write_bw -s 65536 -t 16 -q %d -n %d", n, batches(20000/n)), column: average})
	}},
	{"send 64 B, queue pairs of a program", "M/s", []int{1, 10, 100, 1000}, func(b *bench, n int) (float64, error) {
		return b.perftest("program", &measure{perf: fmt.Sprintf("ib_send_bw -s 64 -t 16 -r 64 -q %d -n %d", n, batches(200000/n)), column: rate})
	}},
	{"send 64 KiB, programs on each node", "MB/s", []int{1, 2, 4, 8, 25}, func(b *bench, n int) (float64, error) {
		return b.together(n, "ib_send_bw -s 65536 -t 16 -r 64 -e", 200000/n, 65536/1e6)
	}},
	{"send 64 B, programs on each node", "M/s", []int{1, 2, 4, 8, 25}, func(b *bench, n int) (float64, error) {
		return b.together(n, "ib_send_bw -s 64 -t 128 -e", 5000000/n, 1/1e6)
	}},
}

// batches rounds a number of messages down to whole batches of perftest's, which asks for a
// completion for each 16, one batch at least. It counts a shorter last one as 16 too, and with
// many queue pairs believes that it has all completions while some of its sends wait for them:
// it polls no more, and never ends (1,000 queue pairs, 200 messages: three runs of four).
func batches(n int) int { return max(n/16*16, 16) }

// runScaling prints the table and appends it to the file.
func runScaling(o *options) error {
	b, err := newBench(o)
	if err != nil {
		return err
	}
	defer b.close()
	w := table.NewWriter()
	w.AppendHeader(table.Row{"", "size", "figure", "unit", "of the best"})
	add := func(rows ...table.Row) {
		for _, r := range rows {
			w.AppendRow(r)
			fmt.Fprintln(os.Stderr, r...)
		}
	}
	for _, f := range families {
		if !strings.Contains(f.name, o.only) {
			continue
		}
		rows, err := b.family(&f, o.pairs)
		if err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		add(rows...)
	}
	for name, take := range map[string]func(*options) ([]table.Row, error){"quiet": b.beside, "memory": b.memory, "idle": b.idle} {
		if !strings.Contains(name, o.only) {
			continue
		}
		rows, err := take(o)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		add(rows...)
	}
	about := fmt.Sprintf("Scaling, engine in the program; %s; %d rounds, medians, smallest and largest in brackets; %s.", machine(), o.pairs, b.company())
	return publish(w, about, o.out)
}

func (b *bench) family(f *family, rounds int) ([]table.Row, error) {
	all := make([][]float64, len(f.sizes))
	for range rounds {
		for i, n := range f.sizes {
			v, err := f.take(b, n)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", n, err)
			}
			all[i] = append(all[i], v)
		}
	}
	best := 0.0
	for _, v := range all {
		best = max(best, median(v))
	}
	var rows []table.Row
	for i, n := range f.sizes {
		rows = append(rows, table.Row{f.name, n, spread(all[i]), f.unit, fmt.Sprintf("%.0f %%", 100*median(all[i])/best)})
	}
	return rows, nil
}

// fewMessages are sent to see how long programs take to start and to end.
const fewMessages = 160

// together runs n pairs of programs at once, each with so many messages to send, and returns
// how many go through in a second, times unit. They sleep on events, which perftest cannot do
// for a given time, and many of them start one after the other while the first ones already
// send, so the sum of their own figures says little: it is the time for all of them that
// counts, less what they take with a few messages.
func (b *bench) together(n int, perf string, messages int, unit float64) (float64, error) {
	few, err := b.lasts(n, fmt.Sprintf("%s -n %d", perf, fewMessages))
	if err != nil {
		return 0, err
	}
	all, err := b.lasts(n, fmt.Sprintf("%s -n %d", perf, messages))
	if err != nil {
		return 0, err
	}
	if all <= few {
		return 0, fmt.Errorf("%d pairs took %v for %d messages each and %v for %d: the machine is too busy", n, all, messages, few, fewMessages)
	}
	return unit * float64(n*(messages-fewMessages)) / (all - few).Seconds(), nil
}

// lasts is how long n pairs of programs take from the first start to the last end.
func (b *bench) lasts(n int, perf string) (time.Duration, error) {
	errs := make([]error, n)
	b.await()
	start := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			_, errs[i] = b.perftest("program", &measure{perf: perf, column: average, now: true})
		})
	}
	wg.Wait()
	return time.Since(start), errors.Join(errs...)
}

// beside measures the latency of a program alone, and beside a pair that saturates.
func (b *bench) beside(o *options) ([]table.Row, error) {
	const name = "send latency 64 B of a quiet program"
	columns := []struct {
		name   string
		column int
	}{{"typical", typical}, {"99th percentile", 7}}
	var rows []table.Row
	for _, busy := range []bool{false, true} {
		for _, c := range columns {
			var v []float64
			for range o.pairs {
				x, err := b.quiet(busy, c.column)
				if err != nil {
					return nil, err
				}
				v = append(v, x)
			}
			where := "alone"
			if busy {
				where = "beside a stream of 64 KiB"
			}
			rows = append(rows, table.Row{name + ", " + c.name, where, spread(v), "us", ""})
		}
	}
	return rows, nil
}

func (b *bench) quiet(busy bool, column int) (float64, error) {
	b.await()
	done := make(chan error, 1)
	if busy {
		go func() {
			_, err := b.perftest("program", &measure{perf: "ib_send_bw -s 65536 -t 16 -r 64 -e -n 200000", column: average, now: true})
			done <- err
		}()
		time.Sleep(2 * time.Second) // it has begun, and lasts
	} else {
		done <- nil
	}
	v, err := b.perftest("program", &measure{perf: "ib_send_lat -s 64 -n 2000", column: column, now: true})
	if err2 := <-done; err == nil {
		err = err2
	}
	return v, err
}

// With many queue pairs and a number of messages that is no multiple of 16, the batch in
// which it asks for completions, perftest may stop polling before all is done: hence 160.

// memory is what a program takes with so many queue pairs, and so what one more takes.
func (b *bench) memory(*options) ([]table.Row, error) {
	var rows []table.Row
	var first, last float64
	sizes := []int{1, 10, 100, 1000}
	for _, n := range sizes {
		peak, err := b.peak(fmt.Sprintf("ib_send_bw -s 64 -t 16 -r 16 -q %d -n 160 -d rvt0 -x 0 -F", n))
		if err != nil {
			return nil, err
		}
		if n == 1 {
			first = peak
		}
		last = peak
		rows = append(rows, table.Row{"peak memory of a server, queue pairs", n, short(peak), "MiB", ""})
	}
	each := (last - first) * 1024 / float64(sizes[len(sizes)-1]-1)
	return append(rows, table.Row{"  of it for each queue pair and perftest's own buffers", "", short(each), "KiB", ""}), nil
}

// peak runs a pair of programs and returns the server's peak of resident memory in MiB.
func (b *bench) peak(prog string) (float64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	on := func(node string, more ...string) side {
		return func(ctx context.Context, port string) *exec.Cmd {
			args := append([]string{"exec", "--engine", "program", "--node", node, "--"}, strings.Fields(prog)...)
			return b.rvtsim(ctx, append(append(args, "-p", port), more...)...)
		}
	}
	s, err := serve(ctx, on("n1"))
	if err != nil {
		return 0, err
	}
	pid, stop, highest := program(s.Process.Pid), make(chan struct{}), make(chan float64)
	go func() {
		peak := 0.0
		for tick := time.Tick(5 * time.Millisecond); ; <-tick {
			peak = max(peak, statusKiB(pid, "VmHWM:")/1024)
			select {
			case <-stop:
				highest <- peak
				return
			default:
			}
		}
	}()
	out, err := on("n2", b.addr[0])(ctx, s.port).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	close(stop)
	peak := <-highest
	if err != nil {
		_ = s.Process.Kill()
	}
	<-s.ended
	return peak, err
}

// idle is the time of processors that a daemon and a program take that do nothing: a
// perftest server has its device open while it waits for its client.
func (b *bench) idle(*options) ([]table.Row, error) {
	const seconds = 10
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	s, err := serve(ctx, func(ctx context.Context, port string) *exec.Cmd {
		return b.rvtsim(ctx, "exec", "--engine", "program", "--node", "n1", "--", "ib_send_lat", "-d", "rvt0", "-x", "0", "-p", port)
	})
	if err != nil {
		return nil, err
	}
	defer func() { cancel(); <-s.ended }()
	daemon, err := b.daemonPID()
	if err != nil {
		return nil, err
	}
	pids := []int{daemon, program(s.Process.Pid)}
	defer func() {
		if p, err := os.FindProcess(pids[1]); err == nil {
			_ = p.Kill()
		}
	}()
	time.Sleep(time.Second) // what starting left to be done
	before := []float64{used(pids[0]), used(pids[1])}
	time.Sleep(seconds * time.Second)
	var rows []table.Row
	for i, name := range []string{"an idle daemon", "an idle program"} {
		rows = append(rows, table.Row{"processor time of " + name, fmt.Sprintf("%d s", seconds), short(used(pids[i]) - before[i]), "ms", ""})
	}
	return rows, nil
}

// daemonPID asks the daemon who it is.
func (b *bench) daemonPID() (int, error) {
	var r struct {
		PID int `json:"pid"`
	}
	err := b.list(&r)
	return r.PID, err
}

// program returns the process that rvtsim exec runs a program in: a child of its own, or
// itself.
func program(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	for _, task := range tasks(pid) { // Go starts programs from any of its threads
		if len(bytes.TrimSpace(text)) > 0 {
			break
		}
		text, _ = os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/children", pid, task))
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(text)), " ")
	if n, err := strconv.Atoi(first); err == nil {
		return n
	}
	return pid
}

func tasks(pid int) (names []string) {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// statusKiB is a line of /proc/PID/status.
func statusKiB(pid int, key string) float64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	f := strings.Fields(string(text))
	if i := slices.Index(f, key); i >= 0 && i+1 < len(f) {
		v, _ := strconv.ParseFloat(f[i+1], 64)
		return v
	}
	return 0
}

// used is the processor time of a process in milliseconds, as the scheduler counts it.
func used(pid int) (ms float64) {
	for _, task := range tasks(pid) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/schedstat", pid, task))
		first, _, _ := strings.Cut(string(text), " ")
		ns, _ := strconv.ParseFloat(first, 64)
		ms += ns / 1e6
	}
	return ms
}
