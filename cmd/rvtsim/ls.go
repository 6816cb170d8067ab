//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

func newLs() *cobra.Command {
	var name string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List nodes, devices, the programs attached, and their queue pairs",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			r, err := daemon.Ask(daemon.SocketPath(name))
			if err != nil {
				return envErr(fmt.Errorf("daemon %q: %w", name, err))
			}
			if asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			return printLs(cmd.OutOrStdout(), r)
		},
	}
	cmd.Flags().StringVar(&name, "name", daemon.DefaultName, "name of the daemon")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print machine-readable output")
	return cmd
}

func printLs(w io.Writer, r *daemon.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "NODE\tADDRESS\tDEVICE\tSTATE\tMTU\tPROFILE\tSENT\tRECEIVED\tRESENT\tDROPPED")
	for _, n := range r.Nodes {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%d\t%s\t%d\t%d\t%d\t%d\n", n.Name, whereabouts(&n), n.Device, n.State, n.MTU, n.Profile,
			n.SentPackets, n.ReceivedPackets, n.Retransmitted, n.DroppedPackets)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	t.Init(w, 0, 8, 2, ' ', 0)
	rows := 0
	for _, n := range r.Nodes {
		for _, c := range n.Contexts {
			for _, p := range c.Processes {
				if rows++; rows == 1 {
					fmt.Fprintln(t, "\nNODE\tPID\tPROGRAM\tUID\tOBJECTS\tQPS")
				}
				what := p.Comm
				if p.Stopped {
					what += " (stopped)"
				}
				fmt.Fprintf(t, "%s\t%d\t%s\t%d\t%d\t%d\n", n.Name, p.PID, what, p.UID, c.Objects, len(c.QPs))
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if err := printQPs(w, r); err != nil {
		return err
	}
	printFaults(w, r)
	for _, n := range r.Nodes {
		k := 0
		for i := range n.Troubles {
			if n.Troubles[i].Kind != daemon.TroubleFlushed { // what ends a connection is not wrong
				k++
			}
		}
		if k > 0 {
			fmt.Fprintf(w, "\n%s: %s; rvtsim explain --node %s tells\n", n.Name, counted(k, "thing", "went wrong"), n.Name)
		}
	}
	return nil
}

// printFaults lists what is wrong with the network, and what will be.
func printFaults(w io.Writer, r *daemon.Report) {
	for i, text := range r.Faults {
		if i == 0 {
			fmt.Fprintln(w, "\nFAULTS")
		}
		fmt.Fprintln(w, text)
	}
	s := r.Schedule
	if s == nil {
		return
	}
	fmt.Fprintf(w, "\nschedule %s: %d of %d faults done", s.File, s.Done, s.Faults)
	if s.Failed > 0 {
		fmt.Fprintf(w, ", %d of them in vain", s.Failed)
	}
	if !s.Over {
		fmt.Fprintf(w, ", the next in %s", s.NextIn.Round(time.Millisecond))
	}
	fmt.Fprintln(w)
	for _, why := range s.Why {
		fmt.Fprintln(w, "  "+why)
	}
}

func counted(n int, what, did string) string {
	if n == 1 {
		return "1 " + what + " " + did
	}
	return fmt.Sprintf("%d %ss %s", n, what, did)
}

func printQPs(w io.Writer, r *daemon.Report) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	rows := 0
	for _, n := range r.Nodes {
		for _, c := range n.Contexts {
			for _, q := range c.QPs {
				if rows++; rows == 1 {
					fmt.Fprintln(t, "\nNODE\tPID\tQP\tTYPE\tSTATE\tPEER")
				}
				peer := "-"
				if q.DestQPN != 0 {
					peer = fmt.Sprintf("%s qp %#x", q.Remote, q.DestQPN)
				}
				fmt.Fprintf(t, "%s\t%d\t%#x\t%s\t%s\t%s\n", n.Name, c.Processes[0].PID, q.QPN, q.Type, q.State, peer)
			}
		}
	}
	return t.Flush()
}
