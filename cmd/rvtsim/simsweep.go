package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/simreport"
	"github.com/rvtsim/rvtsim/internal/sweep"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// runSweep carries the points of a sweep out, alone or with others, and prints the results.
func runSweep(ctx context.Context, out io.Writer, f *simFlags) error {
	s, text, err := topology.LoadSweep(f.sweep)
	if err != nil {
		return usage(err)
	}
	task, err := sweep.NewTask(s, text)
	if err != nil {
		return usage(err)
	}
	update, closeBar := sweepProgress(len(task.Points))
	var results []*sweep.Result
	if f.nats == "" {
		results, err = sweep.Local(ctx, task, f.jobs, update)
	} else {
		results, err = sweepTogether(ctx, task, f, update)
	}
	closeBar()
	if err != nil {
		return runError(ctx, &envProblem{err})
	}
	return printSweep(out, s, results, f)
}

// sweepTogether queues the points on NATS servers and works on them with whoever else does.
func sweepTogether(ctx context.Context, task *sweep.Task, f *simFlags, update func(done, total int)) ([]*sweep.Result, error) {
	hub, err := sweep.Connect(ctx, f.nats, f.patience)
	if err != nil {
		return nil, err
	}
	defer hub.Close()
	work, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var workErr error
	wg.Go(func() { workErr = hub.Work(work, f.jobs, nil) })
	results, err := hub.Submit(ctx, task, update)
	stop()
	wg.Wait()
	if err != nil {
		return nil, errors.Join(err, workErr)
	}
	return results, nil
}

// envProblem is an error of the environment.
type envProblem struct{ error }

// runWorker works for sweeps until it is interrupted.
func runWorker(ctx context.Context, out io.Writer, f *simFlags) error {
	if f.nats == "" {
		return usage(errors.New("--worker: want --nats URL, where the work is"))
	}
	hub, err := sweep.Connect(ctx, f.nats, f.patience)
	if err != nil {
		return envErr(err)
	}
	defer hub.Close()
	fmt.Fprintf(out, "working for %s, %d at a time\n", f.nats, f.jobs)
	var mu sync.Mutex
	err = hub.Work(ctx, f.jobs, func(name string, p topology.Point) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(out, "done: %s %s\n", name, pointText(p))
	})
	if err != nil && ctx.Err() == nil {
		return envErr(err)
	}
	return nil
}

// pointText names a point: "seed 3, 17 nodes, network.loss=1%".
func pointText(p topology.Point) string {
	s := "seed " + strconv.FormatUint(p.Seed, 10)
	if p.Nodes > 0 {
		s += ", " + strconv.Itoa(p.Nodes) + " nodes"
	}
	for _, k := range slices.Sorted(maps.Keys(p.Set)) {
		s += ", " + k + "=" + p.Set[k]
	}
	return s
}

func sweepProgress(total int) (update func(done, total int), done func()) {
	if !report.IsTerminal(os.Stderr) {
		return nil, func() {}
	}
	pool := mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
	bar := pool.AddBar(int64(total), mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name("points "), decor.CountersNoUnit("%d of %d")),
		mpb.AppendDecorators(decor.Percentage(), decor.Name(" ETA "), decor.AverageETA(decor.ET_STYLE_GO)))
	return func(done, _ int) { bar.SetCurrent(int64(done)) }, func() { bar.Abort(true); pool.Wait() }
}

// printSweep prints a line for each setting, over its seeds, and what failed.
func printSweep(out io.Writer, s *topology.Sweep, results []*sweep.Result, f *simFlags) error {
	if f.json != "" {
		write := func(w io.Writer) error {
			e := json.NewEncoder(w)
			e.SetEscapeHTML(false)
			return e.Encode(results)
		}
		if f.json == "-" {
			if err := write(out); err != nil {
				return envErr(err)
			}
		} else if err := writeFile(f.json, write); err != nil {
			return envErr(err)
		}
	}
	failed := 0
	if f.json != "-" {
		fmt.Fprintf(out, "sweep %s: %d points, %d seeds each\n\n", s.Name, len(results), s.Seeds)
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
		fmt.Fprintln(w, "setting\ttraffic\tok\trate\tp50\tp99\tmax\tlast flow\tresent\tdigests\t")
		for i := 0; i < len(results); i += s.Seeds {
			sweepLines(w, results[i:i+s.Seeds])
		}
		if err := w.Flush(); err != nil {
			return envErr(err)
		}
	}
	for _, r := range results {
		if r.Error == "" && r.Sim.OK {
			continue
		}
		if failed++; failed > mostFailures || f.json == "-" {
			continue
		}
		fmt.Fprintf(out, "\nFAILED %s\n", pointText(r.Point))
		if r.Error != "" {
			fmt.Fprintf(out, "  %s\n", r.Error)
			continue
		}
		for _, p := range r.Sim.Problems {
			fmt.Fprintf(out, "  %s\n", p)
		}
	}
	if failed > 0 {
		if f.json != "-" {
			fmt.Fprintf(out, "\n%d of %d points failed\n", failed, len(results))
		}
		return &exitError{Code: exitFail}
	}
	return nil
}

// sweepLines prints one setting: for each entry of traffic the median over the seeds.
func sweepLines(w io.Writer, rs []*sweep.Result) {
	var sims []*simreport.Result
	digests := uint64(0)
	for _, r := range rs {
		if r.Sim != nil {
			sims = append(sims, r.Sim)
			d, _ := strconv.ParseUint(r.Sim.Digest, 16, 64)
			digests = digests*0x9e3779b97f4a7c15 + d
		}
	}
	if len(sims) == 0 {
		return
	}
	_, setting, _ := strings.Cut(pointText(rs[0].Point), ", ")
	for i := range sims[0].Traffic {
		over := func(get func(*simreport.Traffic) int64) int64 {
			var v []int64
			for _, s := range sims {
				v = append(v, get(&s.Traffic[i]))
			}
			slices.Sort(v)
			return v[len(v)/2]
		}
		latency := func(get func(*simreport.Spread) int64) string {
			return report.Duration(time.Duration(over(func(t *simreport.Traffic) int64 {
				if t.Latency == nil {
					return 0
				}
				return get(t.Latency)
			})))
		}
		ok := over(func(t *simreport.Traffic) int64 { return int64(t.Succeeded) })
		finish := over(func(t *simreport.Traffic) int64 {
			if t.Finish == nil {
				return 0
			}
			return t.Finish.Max
		})
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d\t%016x\t\n", setting, sims[0].Traffic[i].Name, ok,
			report.Rate(over(func(t *simreport.Traffic) int64 { return t.RateBPS })),
			latency(func(s *simreport.Spread) int64 { return s.P50 }), latency(func(s *simreport.Spread) int64 { return s.P99 }), latency(func(s *simreport.Spread) int64 { return s.Max }),
			report.Duration(time.Duration(finish)), over(func(t *simreport.Traffic) int64 { return int64(t.Resent) }), digests)
	}
}
