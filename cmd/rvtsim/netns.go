//go:build linux

package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/netlab"
	"github.com/rvtsim/rvtsim/internal/topology"
)

func newNetns() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "netns",
		Short: "Nodes in network namespaces of their own, joined by a switch or a router",
		Long: `Netns gives each node a network namespace with a device of its own, as if it were a
machine: its programs have its addresses, its routes, its port space, and what goes
between nodes can be captured. The machine's own network is not touched.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newNetnsUp(), newNetnsDown())
	return cmd
}

func newNetnsUp() *cobra.Command {
	f := daemonFlags{netns: true, wire: daemon.WireMemory}
	cmd := &cobra.Command{
		Use:   "up [FILE]",
		Short: "Make the namespaces and start a daemon with a node in each",
		Long: `Up makes one network namespace for each node of a topology file (or for --nodes N),
joins them with a switch, or with a router if the file says "network: {form: routed}",
and starts a daemon whose nodes are in them. A node has the address of the file, or
10.77.0.N, and fd77::N; its device is called eth0 unless the file's netdev says
otherwise. "rvtsim exec --node NODE -- PROG" runs any program in the
node's namespace.

Who is not root gets a user namespace in which this is permitted. The namespaces have
no names and live as long as the daemon and the programs in them.`,
		Example: "  rvtsim netns up --nodes 3\n  rvtsim netns up examples/two-nodes.yaml\n  rvtsim exec --node n1 -- ip addr",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.file = args[0]
			}
			for _, other := range []string{"listen", "netdev"} {
				if cmd.Flags().Changed(other) {
					return usage(fmt.Errorf("--%s: the nodes of netns up have devices of their own", other))
				}
			}
			return f.upInBackground(cmd.OutOrStdout())
		},
	}
	f.add(cmd)
	_, _ = cmd.Flags().MarkHidden("listen"), cmd.Flags().MarkHidden("netdev")
	cmd.Flags().StringVar(&f.name, "name", daemon.DefaultName, "name of the daemon, for exec, ls and down")
	return cmd
}

func newNetnsDown() *cobra.Command {
	var name string
	cmd := &cobra.Command{
		Use:   "down",
		Short: "End the programs in the namespaces, the daemon, and all that up has made",
		Long: `Down ends the programs that run in the namespaces, stops the daemon, and removes
everything that "netns up" has made, also when the daemon was killed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			n, err := daemon.Kept(name)
			if err != nil {
				return envErr(err)
			}
			if n == nil {
				_ = daemon.Sweep(name) // of one that was killed before it could write its network down
				return envErr(fmt.Errorf("network %q: there is none", name))
			}
			programs := netlab.Programs(n.Inodes, n.ID)
			for _, p := range programs {
				fmt.Fprintf(cmd.OutOrStdout(), "ended %s (process %d)\n", p.Comm, p.PID)
			}
			netlab.End(programs)
			if err := stopForGood(name); err != nil {
				return envErr(fmt.Errorf("daemon %q: %w", name, err))
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&name, "name", daemon.DefaultName, "name of the daemon")
	return cmd
}

// stopForGood ends a daemon and removes what is left of it. One that is only starting is
// asked until it answers, or has ended.
func stopForGood(name string) error {
	for end := time.Now().Add(downFor); ; time.Sleep(20 * time.Millisecond) {
		err := daemon.Stop(daemon.SocketPath(name))
		// One that is killed at this moment may still have answered the call, by closing it.
		if err == nil || errors.Is(err, daemon.ErrNotRunning) {
			err = daemon.Sweep(name)
		}
		if !errors.Is(err, daemon.ErrRunning) || time.Now().After(end) {
			return err
		}
	}
}

// downFor is how long down waits for a daemon that starts.
const downFor = 5 * time.Second

// buildNetwork makes the namespaces, and moves the nodes there. The function that it
// returns undoes it.
func (f *daemonFlags) buildNetwork(c *daemon.Config) (down func(), err error) {
	t := c.Topology
	if t == nil {
		t = plainTopology(c)
	}
	if left, err := daemon.Kept(c.Name); err == nil && left != nil {
		if p := netlab.Programs(left.Inodes, left.ID); len(p) > 0 {
			return nil, fmt.Errorf("network %q is there, with %s (process %d) in it; \"rvtsim netns down\" ends it", c.Name, p[0].Comm, p[0].PID)
		}
	}
	nodes, err := netlab.Plan(t)
	if err != nil {
		return nil, err
	}
	net, err := netlab.Up(nodes)
	if err != nil {
		return nil, err
	}
	for i := range c.Nodes {
		n := &c.Nodes[i]
		n.Netdev, n.Netns, n.MTU = nodes[i].Netdev, net.Path(i), ib.MTU4096
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	rec := daemon.Network{ID: hex.EncodeToString(id[:])}
	if rec.Inodes, err = net.Inodes(); err != nil {
		net.Close()
		return nil, err
	}
	c.Network = rec
	return func() {
		if len(netlab.Programs(rec.Inodes, rec.ID)) == 0 {
			rec.Forget(c.Name) // else netns down ends them
		}
		net.Close()
	}, nil
}

// plainTopology describes nodes that no file describes.
func plainTopology(c *daemon.Config) *topology.File {
	t := &topology.File{}
	for _, n := range c.Nodes {
		t.Nodes = append(t.Nodes, topology.Node{Name: n.Name, Address: n.Address, MTU: ib.MTU1024})
	}
	return t
}

// enter moves this process into the namespaces of a node, by starting it anew there. It
// returns when it is there already, or if there is nowhere to go.
func enter(r *daemon.Report, n *daemon.NodeReport) error {
	if n.Netns == "" {
		return nil
	}
	same, err := inNetns(n.Netns)
	if err != nil || same {
		return err
	}
	env := append(os.Environ(), daemon.DirEnv+"="+daemon.Dir(), netlab.Marker+"="+r.Network)
	const self = "/proc/self/exe"
	if r.UserNS != daemon.OwnUserNS() {
		// Only a process with a single thread may change its user namespace, which this
		// one is not.
		nsenter, err := exec.LookPath("nsenter")
		if err != nil {
			return errors.New("missing tool: nsenter (apt-get install util-linux), to enter the user namespace of the nodes")
		}
		exe, err := os.Executable()
		if err != nil {
			return err
		}
		args := append([]string{"nsenter", "--preserve-credentials", "--user=/proc/" + strconv.Itoa(r.PID) + "/ns/user", "--net=" + n.Netns, "--", exe}, os.Args[1:]...)
		return os.NewSyscallError("execve", syscall.Exec(nsenter, args, env))
	}
	runtime.LockOSThread()
	f, err := os.Open(n.Netns)
	if err != nil {
		return err
	}
	if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespace of node %s: %w", n.Name, err)
	}
	return os.NewSyscallError("execve", syscall.Exec(self, os.Args, env))
}

// inNetns reports whether this process is in a network namespace.
func inNetns(path string) (bool, error) {
	var own, there unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &own); err != nil {
		return false, err
	}
	if err := unix.Stat(path, &there); err != nil {
		return false, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	return own.Ino == there.Ino, nil
}
