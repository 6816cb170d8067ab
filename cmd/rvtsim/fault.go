//go:build linux

package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/topology"
)

func newFault() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "fault ACTION [KEY=VALUE...]",
		Short: "Let something go wrong in a running network, or right again",
		Long: `Fault changes a network that runs: its links, its nodes, and what the queue pairs,
queues and memory regions of programs meet. Keys and values are those of the faults of
a topology file, written in YAML; a node and perhaps a queue pair stand where a file
has a flow. "rvtsim ls" shows the links that are not perfect.

Actions, and the keys that they take:

` + topology.LiveHelp(),
		Example: "  rvtsim fault set_impairment loss=5%\n  rvtsim fault set_impairment from=n1 to=n2 'rules=[{action: drop, opcode: ACKNOWLEDGE, nth: 3}]'\n" +
			"  rvtsim fault partition 'between=[n1, n2]'\n  rvtsim fault heal\n  rvtsim fault complete_with node=n1 qpn=0x11 status=RETRY_EXC_ERR",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			text, err := faultText(args)
			if err != nil {
				return usage(err)
			}
			done, err := daemon.Inject(daemon.SocketPath(name), text)
			var refused *daemon.FaultError
			switch {
			case errors.As(err, &refused):
				return usage(err)
			case err != nil:
				return envErr(fmt.Errorf("daemon %q: %w", name, err))
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", args[0], done)
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", daemon.DefaultName, "name of the daemon")
	return cmd
}

// faultText makes a YAML mapping of the arguments.
func faultText(args []string) (string, error) {
	keys := []string{"action: " + args[0]}
	for _, a := range args[1:] {
		k, v, ok := strings.Cut(a, "=")
		if !ok {
			return "", fmt.Errorf("%q: want KEY=VALUE", a)
		}
		keys = append(keys, k+": "+v)
	}
	return "{" + strings.Join(keys, ", ") + "}", nil
}
