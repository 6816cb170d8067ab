//go:build linux

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

func newDown() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Stop the daemon that up has started",
		Long: `Down stops a daemon. Programs that are attached get the event that their device has
failed, and errors from then on.`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := daemon.Stop(daemon.SocketPath(name)); err != nil {
				return envErr(fmt.Errorf("daemon %q: %w", name, err))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", daemon.DefaultName, "name of the daemon")
	return cmd
}
