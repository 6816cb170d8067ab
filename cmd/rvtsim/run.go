package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"github.com/rvtsim/rvtsim/fabric/pcap"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/topology"
)

type runFlags struct {
	virtual bool
	seed    uint64
	pcap    string
	json    bool
	verbose bool
}

func newRun() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run FILE",
		Short: "Run the nodes and the traffic that a file describes",
		Long: `Run starts the nodes of a topology file, lets them exchange the traffic it
describes, injects its faults, and compares the outcome with its expectations.

Each node is a software adapter with a UDP socket of its own, port 4791 of its
address. With --virtual the same file runs in virtual time on a simulated network,
and its output is the same each time for the same seed.

The exit code is 0 if every expectation holds and 1 if one does not.`,
		Example: "  rvtsim run examples/two-nodes.yaml\n  rvtsim run examples/two-nodes.yaml --virtual --seed 7\n  rvtsim run examples/lossy.yaml --pcap lossy.pcapng",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			var seed *uint64
			if cmd.Flags().Changed("seed") {
				seed = &f.seed
			}
			return runFile(ctx, cmd.OutOrStdout(), args[0], f, seed)
		},
	}
	cmd.Flags().BoolVar(&f.virtual, "virtual", false, "run in virtual time")
	cmd.Flags().Uint64Var(&f.seed, "seed", 1, "seed of everything random, in place of the file's")
	cmd.Flags().StringVar(&f.pcap, "pcap", "", "write a capture (pcapng) of every packet sent to `FILE`")
	cmd.Flags().BoolVar(&f.json, "json", false, "print machine-readable results")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "list the expectations that hold, too")
	return cmd
}

func newValidate() *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check topology files without running them",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, path := range args {
				if _, err := topology.Load(path); err != nil {
					errs = append(errs, err)
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: ok\n", path)
			}
			if len(errs) > 0 {
				return usage(errors.Join(errs...))
			}
			return nil
		},
	}
}

func runFile(ctx context.Context, out io.Writer, path string, f runFlags, seed *uint64) error {
	file, err := topology.Load(path)
	if err != nil {
		return usage(err)
	}
	opts := runner.Options{Seed: seed}
	if f.pcap != "" {
		w, err := pcap.Create(f.pcap)
		if err != nil {
			return envErr(err)
		}
		defer w.Close() // the error of the successful path is returned below
		opts.Sink = w
		defer func() { opts.Sink = nil }()
	}
	bar := newProgress(f.json)
	opts.Progress = bar.update
	start := runner.RunUDP
	if f.virtual {
		start = runner.RunVirtual
	}
	o, err := start(ctx, file, opts)
	bar.close()
	if err != nil {
		return runError(ctx, err)
	}
	if w, ok := opts.Sink.(*pcap.Writer); ok {
		if err := w.Close(); err != nil {
			return envErr(err)
		}
	}
	return printRun(out, o, f)
}

// runError sorts what ended a run before its time.
func runError(ctx context.Context, err error) error {
	var env *runner.EnvError
	var outside *envProblem
	switch {
	case errors.As(err, &env), errors.As(err, &outside) && ctx.Err() == nil:
		return envErr(err)
	case ctx.Err() != nil:
		return &exitError{exitFail, errors.New("interrupted")}
	}
	return usage(err)
}

func printRun(out io.Writer, o *runner.Outcome, f runFlags) error {
	r := o.Report()
	var err error
	if f.json {
		err = report.WriteJSON(out, r)
	} else {
		err = report.WriteText(out, r, report.TextOptions{Color: report.IsTerminal(out), AllChecks: f.verbose})
		for _, s := range o.Stories(r, f.verbose) {
			fmt.Fprintf(out, "\n%s\n", s)
		}
		for _, n := range o.Notes {
			fmt.Fprintf(out, "note: %s\n", n)
		}
	}
	if err != nil {
		return envErr(err)
	}
	for _, s := range o.Stuck {
		fmt.Fprintln(os.Stderr, s)
	}
	if !r.OK() || len(o.Stuck) > 0 {
		return &exitError{Code: exitFail}
	}
	return nil
}

// progress shows a bar on a terminal once a run takes more than a second.
type progress struct {
	start time.Time
	show  bool
	pool  *mpb.Progress
	bar   *mpb.Bar
}

func newProgress(quiet bool) *progress {
	return &progress{start: time.Now(), show: !quiet && report.IsTerminal(os.Stderr)}
}

func (p *progress) update(done, total uint64) {
	if !p.show || total == 0 || p.bar == nil && time.Since(p.start) < time.Second {
		return
	}
	if p.bar == nil {
		p.pool = mpb.New(mpb.WithOutput(os.Stderr), mpb.WithWidth(40))
		p.bar = p.pool.AddBar(int64(total), mpb.BarRemoveOnComplete(),
			mpb.PrependDecorators(decor.Name("completions "), decor.CountersNoUnit("%d of %d")),
			mpb.AppendDecorators(decor.Percentage(), decor.Name(" "), decor.AverageETA(decor.ET_STYLE_GO)))
	}
	p.bar.SetCurrent(int64(min(done, total)))
}

func (p *progress) close() {
	if p.bar != nil {
		p.bar.Abort(true)
		p.pool.Wait()
	}
}
