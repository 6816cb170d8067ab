package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/conform"
	"github.com/rvtsim/rvtsim/qp"
)

type conformFlags struct {
	profile string
	run     string
	json    string
	junit   string
	verbose bool
	client  string
	expect  string
	foreign bool
}

func newConform() *cobra.Command {
	var f conformFlags
	cmd := &cobra.Command{
		Use:   "conform",
		Short: "Run the verbs conformance suite on a device in virtual time",
		Long: `Conform runs each case of the suite on a fresh device of one profile, in virtual
time, and compares what it answered with what a real Linux soft-RoCE device
answered: return values, completions, states, asynchronous events, memory.

  pass       the same as the reference
  explained  differs, as the profile is to, by a rule of the specification
  FAIL       differs and nothing explains it

Any FAIL makes the exit code 1.

With --client the cases are carried out by a program over libibverbs instead, in real
time, on the device that it finds: tests/conform/client/client.c. --profile says which answers
are expected of that device.`,
		Example: "  rvtsim conform --profile rxe\n  rvtsim conform --run 'loc_|rem_' -v\n  rvtsim conform --junit conform.xml --json conform.json\n  rvtsim conform --profile rxe --foreign --client './client -d rxe0'",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runConform(cmd.OutOrStdout(), cmd.ErrOrStderr(), f) },
	}
	cmd.Flags().StringVar(&f.profile, "profile", "ibta", "profile of the device: ibta, rdmavt or rxe")
	cmd.Flags().StringVar(&f.run, "run", "", "only cases whose name matches this regular expression")
	cmd.Flags().StringVar(&f.json, "json", "", "write the results as JSON to this file (- for standard output)")
	cmd.Flags().StringVar(&f.junit, "junit", "", "write the results as JUnit XML to this file")
	cmd.Flags().StringVar(&f.client, "client", "", "carry the cases out with this `COMMAND`, a program over libibverbs")
	cmd.Flags().StringVar(&f.expect, "expect", "", "read more expected differences from this file, of the device behind --client")
	cmd.Flags().BoolVar(&f.foreign, "foreign", false, "the device behind --client is not of rvtsim: vendor_err may be anything")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print each explained difference, and the requirements one by one")
	return cmd
}

func runConform(out, errout io.Writer, f conformFlags) error {
	prof, ok := qp.ProfileByName(f.profile)
	if !ok {
		return usage(fmt.Errorf("conform: unknown profile %q: expected ibta, rdmavt or rxe", f.profile))
	}
	var keep func(string) bool
	if f.run != "" {
		re, err := regexp.Compile(f.run)
		if err != nil {
			return usage(fmt.Errorf("conform: --run: %w", err))
		}
		keep = re.MatchString
	}
	rep, err := conformReport(errout, prof, f, keep)
	if err != nil {
		return err
	}
	if len(rep.Results) == 0 {
		return usage(fmt.Errorf("conform: no case matches %q", f.run))
	}
	if f.json != "-" {
		printConform(out, rep, f.verbose)
	}
	if err := writeConform(out, rep, f); err != nil {
		return envErr(fmt.Errorf("conform: %w", err))
	}
	if !rep.OK() {
		return &exitError{Code: exitFail}
	}
	return nil
}

// conformReport runs the suite on a device of ours, or on a client's.
func conformReport(errout io.Writer, prof qp.Profile, f conformFlags, keep func(string) bool) (*conform.Report, error) {
	if f.client == "" {
		if f.expect != "" {
			return nil, usage(errors.New("conform: --expect is about the device of a --client"))
		}
		rep, err := conform.RunProfile(prof, keep)
		if err != nil {
			return nil, usage(err)
		}
		return rep, nil
	}
	s, err := conform.Load(prof.Name)
	if err != nil {
		return nil, usage(err)
	}
	if f.expect != "" {
		text, err := os.ReadFile(f.expect)
		if err != nil {
			return nil, usage(err)
		}
		if err := s.Expect(filepath.Base(f.expect), string(text)); err != nil {
			return nil, usage(err)
		}
	}
	cmd := exec.Command("sh", "-c", f.client)
	cmd.Stderr = errout
	c, err := conform.StartClient(cmd)
	if err != nil {
		return nil, envErr(err)
	}
	defer c.Close()
	s.Repeat, s.Foreign = 2, f.foreign
	rep, err := s.Run(c.Fresh, keep)
	if err != nil {
		return nil, envErr(err)
	}
	return rep, nil
}

// writeConform writes the files that were asked for.
func writeConform(out io.Writer, rep *conform.Report, f conformFlags) error {
	asJSON := func(w io.Writer) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(map[string]any{"profile": rep.Profile, "cases": rep.Results, "requirements": rep.Requirements()})
	}
	if f.json == "-" {
		if err := asJSON(out); err != nil {
			return err
		}
	} else if f.json != "" {
		if err := toFile(f.json, asJSON); err != nil {
			return err
		}
	}
	if f.junit != "" {
		return toFile(f.junit, rep.WriteJUnit)
	}
	return nil
}

// toFile writes a file and reports also what goes wrong when it is closed.
func toFile(path string, write func(io.Writer) error) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	err = write(file)
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return err
}

func printConform(out io.Writer, rep *conform.Report, verbose bool) {
	tw := table.NewWriter()
	tw.SetStyle(table.StyleLight)
	tw.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: 44, WidthMaxEnforcer: text.WrapSoft}, {Number: 4, WidthMax: 40, WidthMaxEnforcer: text.WrapSoft}})
	tw.AppendHeader(table.Row{"case", "", "what", "requirements"})
	for _, c := range rep.Results {
		tw.AppendRow(table.Row{c.Case, verdict(c.Verdict), c.What, strings.Join(c.Reqs, " ")})
	}
	fmt.Fprintln(out, tw.Render())
	reqs := rep.Requirements()
	if verbose {
		printRequirements(out, reqs)
	}
	for _, c := range rep.Results {
		if c.Verdict == conform.Fail || verbose && c.Verdict == conform.Explained {
			fmt.Fprintf(out, "\n%s %s: %s\n", verdict(c.Verdict), c.Case, c.What)
			for _, line := range c.Explain(verbose) {
				fmt.Fprintln(out, "  "+line)
			}
		}
	}
	count := map[conform.Verdict]int{}
	for _, r := range reqs {
		count[r.Verdict]++
	}
	fmt.Fprintf(out, "\nprofile %s: %d cases: %d pass, %d explained, %d fail, %d skipped\n", rep.Profile, len(rep.Results),
		rep.Count(conform.Pass), rep.Count(conform.Explained), rep.Count(conform.Fail), rep.Count(conform.Skip))
	fmt.Fprintf(out, "%d requirements shown: %d pass, %d with explained differences, %d fail\n", len(reqs), count[conform.Pass], count[conform.Explained], count[conform.Fail])
}

func printRequirements(out io.Writer, reqs []conform.Requirement) {
	tw := table.NewWriter()
	tw.SetStyle(table.StyleLight)
	tw.SetColumnConfigs([]table.ColumnConfig{{Number: 3, WidthMax: 80, WidthMaxEnforcer: text.WrapSoft}})
	tw.AppendHeader(table.Row{"requirement", "", "cases"})
	for _, r := range reqs {
		tw.AppendRow(table.Row{r.ID, verdict(r.Verdict), strings.Join(r.Cases, " ")})
	}
	fmt.Fprintf(out, "\n%s\n", tw.Render())
}

// verdict makes a failure easy to find.
func verdict(v conform.Verdict) string {
	if v == conform.Fail {
		return "FAIL"
	}
	return string(v)
}
