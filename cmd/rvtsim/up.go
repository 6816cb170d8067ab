//go:build linux

package main

import (
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

func newUp() *cobra.Command {
	var f daemonFlags
	var foreground, ready bool
	cmd := &cobra.Command{
		Use:   "up [FILE]",
		Short: "Start nodes for unmodified programs",
		Long: `Up starts a daemon with one or more nodes, each with a device rvt0, for programs
that use libibverbs as it is. Start these with "rvtsim exec". FILE is a topology file:
its nodes are started, and packets between them take the time, find the queues, and are
lost, repeated and damaged as it says of its network, links and switches. Its faults
happen at their times, counted from the start of the daemon; "rvtsim fault" lets more go
wrong later. Its traffic and expectations are for "rvtsim run" and "rvtsim sim".

Without --foreground the daemon goes on in the background until "rvtsim down". Its log
is in the directory of its control socket, which is printed.`,
		Example: "  rvtsim up --nodes 2\n  rvtsim up --netdev eth0\n  rvtsim up --nodes 2 --listen n1=10.0.0.1 --listen n2=10.0.0.2\n  rvtsim up examples/two-nodes.yaml",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.file = args[0]
			}
			if !foreground {
				return f.upInBackground(cmd.OutOrStdout())
			}
			if ready {
				closeInherited()
			}
			if err := f.upHere(cmd, ready); err != nil {
				return tell(ready, err)
			}
			return nil
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.name, "name", daemon.DefaultName, "name of the daemon, for exec, ls and down")
	cmd.Flags().BoolVar(&foreground, "foreground", false, "stay in the foreground, log to standard error")
	cmd.Flags().BoolVar(&ready, "ready", false, "report to the parent process")
	cmd.Flags().BoolVar(&f.netns, "netns", false, "give each node a network namespace; see netns up")
	_ = cmd.Flags().MarkHidden("ready")
	_ = cmd.Flags().MarkHidden("netns")
	return cmd
}

// upInBackground starts a daemon and says what its nodes are.
func (f *daemonFlags) upInBackground(w io.Writer) error {
	if _, err := f.config(); err != nil {
		return err
	}
	if err := startBackground(f); err != nil {
		return err
	}
	r, err := daemon.Ask(daemon.SocketPath(f.name))
	if err != nil {
		return envErr(err)
	}
	printUp(w, r)
	return nil
}

// upHere runs a daemon in this process until somebody ends it.
func (f *daemonFlags) upHere(cmd *cobra.Command, ready bool) error {
	c, err := f.config()
	if err != nil {
		return err
	}
	if f.netns {
		down, err := f.buildNetwork(&c)
		if err != nil {
			return envErr(err)
		}
		defer down()
	}
	return runDaemon(cmd.Context(), c, cmd.ErrOrStderr(), func(d *daemon.Daemon) error {
		if ready {
			return tell(true, nil)
		}
		r := d.Report()
		printUp(cmd.OutOrStdout(), &r)
		return nil
	})
}

// told says that the parent has been told.
var told bool

// tell passes the outcome of starting to the parent, once, and returns it. A parent who is
// gone is an error: nobody knows then that there is a daemon.
func tell(ready bool, err error) error {
	if !ready || told {
		return err
	}
	told = true
	w := os.NewFile(readyFD, "ready")
	defer w.Close()
	if err != nil {
		fmt.Fprintln(w, err)
		return err
	}
	_, err = fmt.Fprintln(w)
	return err
}

func printUp(w io.Writer, r *daemon.Report) {
	for _, n := range r.Nodes {
		fmt.Fprintf(w, "%s\t%s\t%s\tGID 0 %s\n", n.Name, whereabouts(&n), n.Device, n.GID)
		for i, g := range n.GIDs[min(1, len(n.GIDs)):] {
			if g != "" {
				fmt.Fprintf(w, "\tGID %d %s\n", i+1, g)
			}
		}
	}
	fmt.Fprintf(w, "control socket %s\n", r.Socket)
}

// whereabouts is the address of a node and its network device.
func whereabouts(n *daemon.NodeReport) string {
	if n.Netdev == "" {
		return n.Address
	}
	return n.Netdev + " " + n.Address
}
