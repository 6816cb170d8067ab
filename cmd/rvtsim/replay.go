package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/replay"
	"github.com/rvtsim/rvtsim/qp"
)

type replayFlags struct {
	flows   string
	profile string
	json    bool
	verbose bool
}

func newReplay() *cobra.Command {
	var f replayFlags
	cmd := &cobra.Command{
		Use:   "replay CAPTURE...",
		Short: "Hold our engine against captures of real adapters",
		Long: `Replay takes captures (pcap or pcapng) of real RoCE v2 conversations and plays each
side once: our responder is fed the real requester's packets, our requester the
real responder's. What we send is compared with what the real adapter sent,
packet by packet and field by field, and so are the completions.

What the packets do not tell (QPNs, PSNs, keys, receives, memory) is read from
flows.json beside the capture, or from the file that --flows names. A capture
without an entry there is decoded and checked, not played.

Differences that the profile explains are listed by name. Any other difference
makes the exit code 1.`,
		Example: "  rvtsim replay tests/golden/soft-roce/rc_*.pcap\n  rvtsim replay --profile ibta -v tests/golden/soft-roce/rc_nak_send_too_long.pcap",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return runReplay(cmd.OutOrStdout(), args, f)
		},
	}
	cmd.Flags().StringVar(&f.flows, "flows", "", "flows file (default: flows.json beside each capture)")
	cmd.Flags().StringVar(&f.profile, "profile", "rxe", "profile of our device: ibta, rdmavt or rxe")
	cmd.Flags().BoolVar(&f.json, "json", false, "print machine-readable results")
	cmd.Flags().BoolVarP(&f.verbose, "verbose", "v", false, "print explained differences one by one")
	return cmd
}

func runReplay(out io.Writer, captures []string, f replayFlags) error {
	prof, ok := qp.ProfileByName(f.profile)
	if !ok {
		return usage(fmt.Errorf("replay: unknown profile %q: expected ibta, rdmavt or rxe", f.profile))
	}
	flowsOf := flowsFinder(f.flows)
	var results []*replay.Result
	for _, path := range captures {
		flows, err := flowsOf(path)
		if err != nil {
			return usage(fmt.Errorf("replay: %w", err))
		}
		r, err := replay.Run(path, flows, prof)
		if err != nil {
			return usage(fmt.Errorf("replay: %w", err))
		}
		results = append(results, r)
	}
	if f.json {
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		if err := enc.Encode(map[string]any{"profile": prof.Name, "captures": results}); err != nil {
			return envErr(err)
		}
	} else {
		printReplay(out, results, f)
	}
	for _, r := range results {
		if !r.OK() {
			return &exitError{Code: exitFail}
		}
	}
	return nil
}

// flowsFinder returns the flows for a capture. The file beside a capture may be
// missing; one that was named must exist.
func flowsFinder(named string) func(capture string) (map[string]replay.Flow, error) {
	cache := map[string]map[string]replay.Flow{}
	return func(capture string) (map[string]replay.Flow, error) {
		path := named
		if path == "" {
			path = filepath.Join(filepath.Dir(capture), "flows.json")
		}
		if flows, ok := cache[path]; ok {
			return flows, nil
		}
		flows, err := replay.LoadFlows(path)
		if errors.Is(err, os.ErrNotExist) && named == "" {
			err = nil
		}
		cache[path] = flows
		return flows, err
	}
}

// tally is one line of the table, and the sum of all.
type tally struct {
	packets, compared, completions, explained, unexplained int
}

func (t *tally) add(r *replay.Result) {
	t.packets += r.Packets
	for _, p := range r.Parts {
		t.compared += p.Compared
		t.completions += p.Completed
	}
	t.explained += r.Explained()
	t.unexplained += r.Unexplained() + len(r.Problems)
}

func printReplay(out io.Writer, results []*replay.Result, f replayFlags) {
	tw := table.NewWriter()
	tw.SetStyle(table.StyleLight)
	tw.AppendHeader(table.Row{"capture", "packets", "compared", "completions", "explained", "unexplained", ""})
	var sum tally
	reasons := map[string]int{}
	var details []string
	for _, r := range results {
		var t tally
		t.add(r)
		sum.add(r)
		verdict := "ok"
		switch {
		case !r.OK():
			verdict = "FAIL"
		case r.NotPlayed != "":
			verdict = "decoded only"
			details = append(details, r.Name+": decoded and checked, not played: "+r.NotPlayed)
		}
		tw.AppendRow(table.Row{r.Name, t.packets, t.compared, t.completions, t.explained, t.unexplained, verdict})
		details = append(details, replayDetails(r, f.verbose, reasons)...)
	}
	tw.AppendFooter(table.Row{fmt.Sprintf("%d captures", len(results)), sum.packets, sum.compared, sum.completions, sum.explained, sum.unexplained, ""})
	fmt.Fprintln(out, tw.Render())
	names := make([]string, 0, len(reasons))
	for n := range reasons {
		names = append(names, n)
	}
	slices.Sort(names)
	if len(names) > 0 {
		fmt.Fprintf(out, "\nDifferences that profile %s explains:\n", f.profile)
	}
	for _, n := range names {
		fmt.Fprintf(out, "  %4d  %s\n", reasons[n], n)
	}
	if len(details) > 0 {
		fmt.Fprintln(out)
	}
	for _, d := range details {
		fmt.Fprintln(out, d)
	}
}

// replayDetails lists the differences that need words and counts the others by name.
func replayDetails(r *replay.Result, verbose bool, reasons map[string]int) (lines []string) {
	for _, p := range r.Problems {
		lines = append(lines, r.Name+": "+p)
	}
	for _, p := range r.Parts {
		for _, d := range p.Diffs {
			line := fmt.Sprintf("%s: %s: %s: %s: ours %s, theirs %s", r.Name, p.Role, d.Where, d.Field, d.Ours, d.Theirs)
			if d.Why != "" {
				name, _, _ := strings.Cut(d.Why, ":")
				reasons[d.Why]++
				if !verbose {
					continue
				}
				line += " (" + name + ")"
			} else {
				line = "UNEXPLAINED " + line
			}
			lines = append(lines, line)
		}
	}
	return lines
}
