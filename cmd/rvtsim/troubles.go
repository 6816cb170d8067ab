//go:build linux

package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/internal/daemon"
)

// addNodeExplain lets explain tell what the programs of a daemon's node ran into.
func addNodeExplain(cmd *cobra.Command) {
	var node, name string
	cmd.Flags().StringVar(&node, "node", "", "tell what the programs on `NODE` of a daemon ran into")
	cmd.Flags().StringVar(&name, "name", daemon.DefaultName, "name of the daemon, for --node")
	words := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if node == "" {
			return words(cmd, args)
		}
		if len(args) > 0 {
			return usage(fmt.Errorf("explain: --node %s explains what happened there; it takes no arguments", node))
		}
		r, err := daemon.Ask(daemon.SocketPath(name))
		if err != nil {
			return envErr(fmt.Errorf("daemon %q: %w", name, err))
		}
		var names []string
		for i := range r.Nodes {
			n := &r.Nodes[i]
			if n.Name == node {
				printTroubles(cmd.OutOrStdout(), n)
				return nil
			}
			names = append(names, n.Name)
		}
		return usage(fmt.Errorf("--node %q: the daemon has %s", node, strings.Join(names, ", ")))
	}
}

// printTroubles tells everything, oldest first.
func printTroubles(w io.Writer, n *daemon.NodeReport) {
	if len(n.Tight) > 0 {
		defer fmt.Fprintf(w, "\nQueues on node %s that were full once, or nearly: one more of a post, or of a completion, may fail:\n  - %s\n", n.Name, strings.Join(n.Tight, "\n  - "))
	}
	counts := explain.DropCounts(n.Drops)
	if drops := explain.Drops("node "+n.Name, &counts); drops != "" {
		defer fmt.Fprintf(w, "\n%s\n", drops)
	}
	if len(n.Troubles) == 0 {
		fmt.Fprintf(w, "node %s: no call was refused, and no work or connection failed\n", n.Name)
		return
	}
	for i, t := range n.Troubles {
		if i > 0 {
			fmt.Fprintln(w)
		}
		who := "a program"
		if t.Comm != "" {
			who = fmt.Sprintf("%s (pid %d)", t.Comm, t.PID)
		}
		times := ""
		if t.Count > 1 {
			times = fmt.Sprintf(", %d times", t.Count)
		}
		fmt.Fprintf(w, "%s  %s  %s%s\n", t.At.Format("15:04:05.000"), who, kinds[t.Kind], times)
		fmt.Fprintln(w, "  "+strings.ReplaceAll(t.Text, "\n", "\n  "))
	}
}

// kinds of trouble in words.
var kinds = map[string]string{
	daemon.TroubleRefused:     "a call was refused",
	daemon.TroubleFailed:      "work failed",
	daemon.TroubleFlushed:     "work came back",
	daemon.TroubleUnconnected: "it did not connect",
	daemon.TroubleMisuse:      "misuse",
}
