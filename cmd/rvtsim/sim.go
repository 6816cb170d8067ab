package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/simreport"
	"github.com/rvtsim/rvtsim/internal/sweep"
	"github.com/rvtsim/rvtsim/internal/topology"
)

type simFlags struct {
	nodes    int
	seeds    string
	check    string
	duration time.Duration
	jobs     int
	html     string
	json     string
	csv      string
	until    string
	trace    bool
	packets  int
	shrink   string
	set      map[string]string
	sweep    string
	nats     string
	worker   bool
	patience time.Duration
}

func newSim() *cobra.Command {
	var f simFlags
	cmd := &cobra.Command{
		Use:   "sim FILE | --sweep FILE | --worker",
		Short: "Simulate a topology at scale, in virtual time",
		Long: `Sim carries a topology file out in virtual time, once for each seed, several seeds
at a time. It prints how long work requests and flows took, the use of each port, and
what losses cost, and writes the same as a page with plots, as JSON and as CSV.

The digest that it prints for each seed condenses every packet and completion of the
run. It is the same on every machine.

A check that fails is printed with a command that repeats it. --until stops at a moment
and --trace shows the last packets before it. --shrink looks for the smallest file that
still fails in the same way.

--sweep runs one simulation for each combination of seeds and parameters that a file
names: alone, or with --nats spread over workers on any machine, which "rvtsim sim
--worker --nats URL" starts there. They meet at servers of NATS JetStream. A worker that
vanishes loses nothing: its job is given to another.`,
		Example: "  rvtsim sim examples/incast.yaml --nodes 101 --html incast.html\n" +
			"  rvtsim sim examples/chaos.yaml --seed 1..20 --check all\n" +
			"  rvtsim sim examples/incast.yaml --until 100us --trace\n" +
			"  rvtsim sim --sweep examples/sweeps/incast.yaml",
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := f.checkFlags(cmd, len(args) == 1); err != nil {
				return usage(err)
			}
			switch {
			case (len(args) == 1) == (f.sweep != "" || f.worker) || f.sweep != "" && f.worker:
				return usage(errors.New("sim: want one of a topology file, --sweep FILE, and --worker"))
			case f.worker:
				return runWorker(ctx, cmd.OutOrStdout(), &f)
			case f.sweep != "":
				return runSweep(ctx, cmd.OutOrStdout(), &f)
			}
			return runSim(ctx, cmd.OutOrStdout(), args[0], &f)
		},
	}
	fs := cmd.Flags()
	fs.IntVar(&f.nodes, "nodes", 0, "nodes in all: the only group of the file grows or shrinks")
	fs.StringVar(&f.seeds, "seed", "", "seed `S`, or seeds S..T, in place of the file's")
	fs.StringVar(&f.check, "check", string(runner.CheckData), "`WHAT` to check: none, data (expectations and contents), all (every queue pair after every event as well; slow)")
	fs.DurationVar(&f.duration, "for", 0, "let traffic go on without end and stop it after `DURATION` of virtual time")
	fs.IntVar(&f.jobs, "jobs", runtime.GOMAXPROCS(0), "seeds that run at a time")
	fs.StringVar(&f.html, "html", "", "write a page with plots to `FILE`")
	fs.StringVar(&f.json, "json", "", "write results to `FILE` as JSON; - is the standard output")
	fs.StringVar(&f.csv, "csv", "", "write traffic.csv, flows.csv, ports.csv and series.csv into `DIR`")
	fs.StringVar(&f.until, "until", "", "stop at `EVENT`: a time such as 1.5ms, the number of an event, or the first "+strings.Join(runner.MomentNames, ", "))
	fs.BoolVar(&f.trace, "trace", false, "print the last packets before the end")
	fs.IntVar(&f.packets, "packets", 30, "how many packets --trace prints")
	fs.StringToStringVar(&f.set, "set", nil, "replace a value of the file, by its path: network.loss=1%")
	fs.StringVar(&f.sweep, "sweep", "", "run the sweep of `FILE`")
	fs.StringVar(&f.nats, "nats", "", "`URL` of NATS servers that have JetStream, where workers meet; without it a sweep is done by this command alone")
	fs.BoolVar(&f.worker, "worker", false, "work for sweeps of others, until interrupted")
	fs.DurationVar(&f.patience, "patience", sweep.DefaultPatience, "how long a worker may be silent before its job goes to another")
	fs.StringVar(&f.shrink, "shrink", "", "if a seed fails, write the smallest file that fails in the same way to `FILE`")
	return cmd
}

// simJob is what the command line asks for.
type simJob struct {
	path   string
	flags  *simFlags
	file   *topology.File
	seeds  seedRange
	checks runner.Checks
	until  *runner.Moment
}

// seedRange is a run of seeds, both ends included.
type seedRange struct{ first, last uint64 }

func (s seedRange) n() uint64 { return s.last - s.first + 1 }

const mostSeeds = 1 << 20

func parseSeeds(s string) (seedRange, error) {
	lo, hi, several := strings.Cut(s, "..")
	if !several {
		hi = lo
	}
	first, err1 := strconv.ParseUint(lo, 0, 64)
	last, err2 := strconv.ParseUint(hi, 0, 64)
	if err1 != nil || err2 != nil || last < first || last-first >= mostSeeds {
		return seedRange{}, fmt.Errorf("--seed %q: want a number, or S..T with S not above T and at most %d seeds", s, mostSeeds)
	}
	return seedRange{first, last}, nil
}

func parseMoment(s string) (*runner.Moment, error) {
	if s == "" {
		return nil, nil
	}
	if slices.Contains(runner.MomentNames, s) {
		return &runner.Moment{What: s}, nil
	}
	if n, err := strconv.ParseUint(s, 10, 64); err == nil && n > 0 {
		return &runner.Moment{Event: n}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 {
		return &runner.Moment{At: d}, nil
	}
	return nil, fmt.Errorf("--until %q: want a time such as 1.5ms, the number of an event, or one of %s", s, strings.Join(runner.MomentNames, ", "))
}

func newSimJob(path string, f *simFlags) (*simJob, error) {
	file, err := topology.LoadWith(path, topology.Options{Nodes: f.nodes, Set: f.set})
	if err != nil {
		return nil, err
	}
	j := &simJob{path: path, flags: f, file: file, checks: runner.Checks(f.check), seeds: seedRange{file.Seed, file.Seed}}
	if f.duration > 0 {
		j.file = file.For(f.duration)
	}
	if f.seeds != "" {
		if j.seeds, err = parseSeeds(f.seeds); err != nil {
			return nil, err
		}
	}
	if j.until, err = parseMoment(f.until); err != nil {
		return nil, err
	}
	if !slices.Contains([]runner.Checks{runner.CheckNone, runner.CheckData, runner.CheckAll}, j.checks) {
		return nil, fmt.Errorf("--check %q: want none, data or all", f.check)
	}
	if (j.until != nil || f.trace) && j.seeds.n() > 1 {
		return nil, errors.New("--until and --trace look into one run: want one seed")
	}
	return j, nil
}

// checkFlags tests the flags that need no file. single says that a topology file is run.
func (f *simFlags) checkFlags(cmd *cobra.Command, single bool) error {
	fs := cmd.Flags()
	least := 1
	if f.sweep != "" && f.nats != "" {
		least = 0 // all the work is for others
	}
	for _, c := range []struct {
		name  string
		ok    bool
		least int
	}{
		{"jobs", f.jobs >= least, least},
		{"nodes", f.nodes > 0, 1},
		{"packets", f.packets > 0, 1},
		{"for", f.duration > 0, 1},
		{"patience", f.patience > 0, 1},
	} {
		if fs.Changed(c.name) && !c.ok {
			return fmt.Errorf("--%s %s: want %d or more", c.name, fs.Lookup(c.name).Value, c.least)
		}
	}
	if single && (f.nats != "" || fs.Changed("patience")) {
		return errors.New("--nats and --patience are for --sweep and --worker: want one of them, or neither with a topology file")
	}
	for _, path := range []string{f.html, f.json, f.shrink} {
		if dir := filepath.Dir(path); path != "" {
			if _, err := os.Stat(dir); err != nil {
				return fmt.Errorf("%s cannot be written: %w", path, err)
			}
		}
	}
	return nil
}

func runSim(ctx context.Context, out io.Writer, path string, f *simFlags) error {
	j, err := newSimJob(path, f)
	if err != nil {
		return usage(err)
	}
	results, trace, err := j.runAll(ctx)
	if err != nil {
		return runError(ctx, err)
	}
	if err := j.write(out, results); err != nil {
		return envErr(err)
	}
	if f.json == "-" {
		out = os.Stderr // the standard output is JSON and nothing else
	}
	if len(trace) > 0 {
		fmt.Fprintf(out, "\nthe last %d packets that were taken or dropped:\n", len(trace))
		for _, line := range trace {
			fmt.Fprintln(out, line)
		}
	}
	return j.judge(ctx, out, results)
}

// runAll runs every seed and returns the results in the order of the seeds.
func (j *simJob) runAll(ctx context.Context) (results []*simreport.Result, trace []string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results = make([]*simreport.Result, j.seeds.n())
	bar := newSimProgress(j.seeds.n())
	defer bar.close()
	var next atomic.Uint64
	var wg sync.WaitGroup
	for range min(uint64(j.flags.jobs), j.seeds.n()) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < j.seeds.n() && ctx.Err() == nil; i = next.Add(1) - 1 {
				r, lines, err := j.runSeed(ctx, j.seeds.first+i, bar)
				if err != nil {
					cancel(err)
					return
				}
				results[i] = r
				if j.seeds.n() == 1 {
					trace = lines
				}
			}
		})
	}
	wg.Wait()
	return results, trace, context.Cause(ctx)
}

func (j *simJob) runSeed(ctx context.Context, seed uint64, bar *simProgress) (*simreport.Result, []string, error) {
	last, share := uint64(0), 0.0
	o := runner.Options{Seed: &seed, Checks: j.checks, Measure: true, Until: j.until}
	if j.flags.trace {
		o.Trace = j.flags.packets
	}
	o.Progress = func(done, total uint64) {
		if total > 0 {
			share = float64(done) / float64(total)
		}
	}
	o.Events = func(n uint64, now time.Duration) {
		if d := j.file.Duration; d > 0 {
			share = max(share, min(float64(now)/float64(d), 1))
		}
		bar.update(n-last, share)
		last = n
	}
	start := time.Now()
	out, err := runner.RunVirtual(ctx, j.file, o)
	if err != nil {
		return nil, nil, err
	}
	bar.seedDone()
	return simreport.Collect(out, j.checks, time.Since(start)), out.Trace, nil
}

// write prints the summary and writes the files that were asked for.
func (j *simJob) write(out io.Writer, results []*simreport.Result) error {
	if j.flags.json != "-" {
		for i, r := range results {
			if len(results) > 1 {
				state := "ok"
				if !r.OK {
					state = "FAILED"
				}
				fmt.Fprintf(out, "seed %-6d  %-6s  digest %s  %s of virtual time, %s events in %s\n", r.Seed, state, r.Digest, report.Duration(r.Elapsed), report.Count(r.Events), report.Duration(r.Wall))
				continue
			}
			if i == 0 {
				simreport.WriteText(out, r)
			}
		}
	}
	files := map[string]func(io.Writer) error{}
	if j.flags.html != "" {
		files[j.flags.html] = func(w io.Writer) error { return simreport.WriteHTML(w, results) }
	}
	switch j.flags.json {
	case "":
	case "-":
		if err := simreport.WriteJSON(out, results); err != nil {
			return err
		}
	default:
		files[j.flags.json] = func(w io.Writer) error { return simreport.WriteJSON(w, results) }
	}
	if dir := j.flags.csv; dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for _, kind := range simreport.CSVKinds {
			files[filepath.Join(dir, kind+".csv")] = func(w io.Writer) error { return simreport.WriteCSV(w, kind, results) }
		}
	}
	for path, write := range files {
		if err := writeFile(path, write); err != nil {
			return err
		}
	}
	return nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}

// judge prints what failed and how to see it again, and shrinks the first failure if
// that was asked for.
func (j *simJob) judge(ctx context.Context, out io.Writer, results []*simreport.Result) error {
	failed := 0
	var first *simreport.Result
	for _, r := range results {
		if r.OK {
			continue
		}
		if failed++; first == nil {
			first = r
		}
		if failed > mostFailures {
			continue
		}
		fmt.Fprintf(out, "\nFAILED seed %d\n", r.Seed)
		for _, p := range r.Problems {
			fmt.Fprintf(out, "  %s\n", p)
		}
		fmt.Fprintf(out, "repeat it:   %s\n", j.command(r.Seed))
		if j.flags.shrink == "" {
			fmt.Fprintf(out, "shrink it:   %s --shrink small.yaml\n", j.command(r.Seed))
		}
	}
	if first == nil {
		return nil
	}
	if len(results) > 1 {
		fmt.Fprintf(out, "\n%d of %d seeds failed\n", failed, len(results))
	}
	if j.flags.shrink != "" {
		if err := j.shrinkTo(ctx, out, first.Seed); err != nil {
			return err
		}
	}
	return &exitError{Code: exitFail}
}

// mostFailures is of how many seeds the problems are printed.
const mostFailures = 5

// shellWord quotes what a shell would not take as one word.
func shellWord(s string) string {
	special := func(r rune) bool {
		return !strings.ContainsRune("%+,-./:=@_", r) && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	if s != "" && strings.IndexFunc(s, special) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// command repeats one seed.
func (j *simJob) command(seed uint64) string {
	c := "rvtsim sim " + shellWord(j.path) + " --seed " + strconv.FormatUint(seed, 10)
	if j.flags.nodes > 0 {
		c += " --nodes " + strconv.Itoa(j.flags.nodes)
	}
	for _, k := range slices.Sorted(maps.Keys(j.flags.set)) {
		c += " --set " + shellWord(k+"="+j.flags.set[k])
	}
	if j.flags.duration > 0 {
		c += " --for " + j.flags.duration.String()
	}
	if j.checks != runner.CheckData {
		c += " --check " + string(j.checks)
	}
	return c
}
