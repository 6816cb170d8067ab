package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/shrink"
	"github.com/rvtsim/rvtsim/internal/simreport"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// shrinkFor bounds how long a failure is shrunk.
const shrinkFor = 2 * time.Minute

// shrinkTo writes the smallest file that fails as the seed does.
func (j *simJob) shrinkTo(ctx context.Context, out io.Writer, seed uint64) error {
	kind := ""
	kinds := func(ctx context.Context, f *topology.File) []string {
		o, err := runner.RunVirtual(ctx, f, runner.Options{Seed: &f.Seed, Checks: j.checks, Measure: true})
		if err != nil {
			return nil
		}
		return simreport.Collect(o, j.checks, 0).Kinds
	}
	f := j.file.WithSeed(seed)
	all := kinds(ctx, f)
	if len(all) == 0 {
		return runError(ctx, fmt.Errorf("seed %d does not fail again", seed))
	}
	kind = all[0]
	s := shrink.Shrinker{Fails: func(ctx context.Context, f *topology.File) bool { return slices.Contains(kinds(ctx, f), kind) }}
	tried := 0
	show := report.IsTerminal(os.Stderr)
	s.Progress = func(n int, f *topology.File) {
		tried = n
		if show {
			fmt.Fprintf(os.Stderr, "\rshrinking: %d tried, %d nodes, %d flows, %d faults  ", n, len(f.Nodes), len(f.Flows), len(f.Faults))
		}
	}
	short, cancel := context.WithTimeout(ctx, shrinkFor)
	defer cancel()
	small, ok := s.Run(short, f)
	if show {
		fmt.Fprintln(os.Stderr)
	}
	if !ok {
		return runError(ctx, fmt.Errorf("seed %d does not fail when its patterns are written out, so it cannot be shrunk", seed))
	}
	comment := fmt.Sprintf("Made smaller from %s, seed %d. It fails with %q:\n\n  rvtsim sim %s", j.path, seed, kind, j.flags.shrink)
	if j.checks != runner.CheckData {
		comment += " --check " + string(j.checks)
	}
	if err := os.WriteFile(j.flags.shrink, small.Marshal(comment), 0o644); err != nil {
		return envErr(err)
	}
	fmt.Fprintf(out, "\nshrunk to %d nodes, %d flows, %d faults (%d files tried): %s\n", len(small.Nodes), len(small.Flows), len(small.Faults), tried, j.flags.shrink)
	return nil
}
