//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/netlab"
	"github.com/rvtsim/rvtsim/internal/notify"
	"github.com/rvtsim/rvtsim/shim"
)

type execFlags struct {
	daemonFlags
	node   string
	socket string
	via    string
	why    bool
	engine string
}

func newExec() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec [--node NODE] -- PROG [ARG...]",
		Short: "Run a program that uses libibverbs on a node",
		Long: `Exec runs a program with the device of a node: what it opens below
/sys/class/infiniband and /dev/infiniband is the node's. The program and libibverbs
stay as they are; a library is preloaded. The adapter's work is done inside the program
where that is possible, else in the daemon, whose log says why. Into static programs
nothing can be preloaded: their system calls are answered instead, as with --via seccomp.

If no daemon is running, exec starts one for the life of the program, with one node
unless the flags of "rvtsim up" say otherwise.`,
		Example: "  rvtsim exec -- ibv_devinfo -v\n  rvtsim exec --node n2 -- ibv_rc_pingpong -d rvt0 -g 0 127.0.0.1",
		Args:    cobra.MinimumNArgs(1),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, args) },
	}
	f.add(cmd)
	cmd.Flags().StringVar(&f.node, "node", "", "the node (default the first)")
	cmd.Flags().StringVar(&f.name, "name", daemon.DefaultName, "name of the daemon")
	cmd.Flags().StringVar(&f.socket, "socket", "", "control socket of a daemon, also of another user; in place of --name")
	cmd.Flags().BoolVar(&f.why, "explain", false, "when the program has ended, say which calls were refused and which work failed, and why (without a daemon only; else rvtsim explain --node)")
	cmd.Flags().StringVar(&f.via, "via", "", "how the program gets to see the device: preload or seccomp (default preload, if the program allows it)")
	cmd.Flags().StringVar(&f.engine, "engine", "", "who does the adapter's work: the daemon, or the program itself, which is faster: daemon or program (default program, where it is possible)")
	return cmd
}

func (f *execFlags) run(cmd *cobra.Command, args []string) error {
	prog, err := exec.LookPath(args[0])
	if err != nil {
		return envErr(err)
	}
	lib, err := f.prepare(cmd.ErrOrStderr(), prog)
	if err != nil {
		return err
	}
	socket := f.socket
	if socket == "" {
		socket = daemon.SocketPath(f.name)
	}
	r, err := daemon.Ask(socket)
	switch {
	case err == nil:
	case errors.Is(err, daemon.ErrNotRunning) && os.Getenv(netlab.Marker) != "": // it was there a moment ago
		return envErr(fmt.Errorf("%s: the network of this namespace was taken down: %w", socket, err))
	case errors.Is(err, daemon.ErrNotRunning) && f.socket == "" && !cmd.Flags().Changed("name"):
		return f.runAlone(cmd, prog, args, lib)
	default:
		return envErr(fmt.Errorf("%s: %w", socket, err))
	}
	n, err := f.choose(r)
	if err != nil {
		return err
	}
	if err := enter(r, n); err != nil {
		return envErr(err)
	}
	return f.become(prog, args, lib, socket, n.Name)
}

// choose finds the node to run on.
func (f *execFlags) choose(r *daemon.Report) (*daemon.NodeReport, error) {
	var names []string
	for i := range r.Nodes {
		if f.node == "" || r.Nodes[i].Name == f.node {
			return &r.Nodes[i], nil
		}
		names = append(names, r.Nodes[i].Name)
	}
	return nil, usage(fmt.Errorf("--node %q: the daemon has %s", f.node, strings.Join(names, ", ")))
}

// environment is that of this process, with what the preload library must know.
func environment(lib preloads, socket, node string) []string {
	var env []string
	preload := lib.shim
	if lib.first != "" {
		preload = lib.first + ":" + preload
	}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		switch {
		case name == "LD_PRELOAD":
			for _, p := range strings.FieldsFunc(value, func(r rune) bool { return r == ':' || r == ' ' }) {
				if p != lib.shim && p != lib.first {
					preload += ":" + p
				}
			}
		case name == "RVTSIM_SOCKET" || name == "RVTSIM_NODE" || name == "RVTSIM_ROOT" || name == shim.EngineEnv || name == shim.NoEngineEnv:
		default:
			env = append(env, v)
		}
	}
	switch {
	case lib.engine != "":
		env = append(env, shim.EngineEnv+"="+lib.engine)
	case lib.lacks:
		env = append(env, shim.NoEngineEnv+"=1")
	}
	return append(env, "LD_PRELOAD="+preload, "RVTSIM_SOCKET="+socket, "RVTSIM_NODE="+node, "RVTSIM_ROOT="+daemon.ViewOf(socket, node))
}

// become replaces this process with the program.
func (f *execFlags) become(prog string, args []string, lib preloads, socket, node string) error {
	if f.via == viaSeccomp {
		return runNotified(prog, args, socket, node)
	}
	err := syscall.Exec(prog, args, environment(lib, socket, node))
	return envErr(&os.PathError{Op: "exec", Path: prog, Err: err})
}

// runAlone runs the program on a daemon of its own, inside this process.
func (f *execFlags) runAlone(cmd *cobra.Command, prog string, args []string, lib preloads) error {
	f.name = daemon.PrivateName()
	d, err := f.startAlone()
	if err != nil {
		return err
	}
	defer d.Close()
	r := d.Report()
	n, err := f.choose(&r)
	if err != nil {
		return err
	}
	if f.engine == engineProgram && f.strict != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), "rvtsim: the daemon serves the program: the node is strict")
	}
	defer f.tell(cmd.ErrOrStderr(), d)
	if f.via == viaSeccomp {
		return runNotified(prog, args, d.Socket(), n.Name)
	}
	return runChild(prog, args, environment(lib, d.Socket(), n.Name))
}

// tell reports what the program ran into: everything if the user asked for it, else the
// misuse that strict mode found.
func (f *execFlags) tell(w io.Writer, d *daemon.Daemon) {
	for _, n := range d.Settled().Nodes {
		kept := n.Troubles[:0]
		for _, t := range n.Troubles {
			if f.why || t.Kind == daemon.TroubleMisuse {
				kept = append(kept, t)
			}
		}
		n.Troubles = kept
		if !f.why {
			n.Drops = nil
		}
		if len(kept) > 0 || f.why {
			printTroubles(w, &n)
		}
	}
}

// runNotified runs a program without preloading anything, and ends as it ends.
func runNotified(prog string, args []string, socket, node string) error {
	code, err := notify.Run(notify.Config{
		Prog: prog, Args: args, Env: os.Environ(), Socket: socket, Node: node, Root: daemon.ViewOf(socket, node),
	})
	switch {
	case err != nil:
		return envErr(err)
	case code != 0:
		return &exitError{Code: code}
	}
	return nil
}

// startAlone starts the daemon. If nobody has said which address to use, another one
// of the loopback network will do.
func (f *execFlags) startAlone() (*daemon.Daemon, error) {
	c, err := f.config()
	if err != nil {
		return nil, err
	}
	for i := range c.Nodes {
		c.Nodes[i].Sites = f.why && f.engine != engineProgram && f.via == viaPreload
	}
	free := f.nodes <= 1 && len(f.listen) == 0
	for i := 1; ; i++ {
		d, err := daemon.Start(c)
		if err == nil {
			return d, nil
		}
		if !free || !errors.Is(err, syscall.EADDRINUSE) || i == maxNodes {
			return nil, envErr(err)
		}
		a := &c.Nodes[0].Address
		*a = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}), a.Port())
	}
}

// runChild runs a program, passes signals on to it, and ends as it ends.
func runChild(prog string, args, env []string) error {
	child := exec.Command(prog)
	child.Args, child.Env = args, env
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	defer signal.Stop(signals)
	if err := child.Start(); err != nil {
		return envErr(err)
	}
	done := make(chan error, 1)
	go func() { done <- child.Wait() }()
	for {
		select {
		case s := <-signals:
			if s != syscall.SIGINT && s != syscall.SIGQUIT || !inForeground() {
				_ = child.Process.Signal(s)
			}
		case err := <-done:
			return statusOf(err)
		}
	}
}

// inForeground reports whether what is typed at the terminal, ^C say, reaches this
// process, and so the child too.
func inForeground() bool {
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// statusOf is the exit status of a program, 128 plus the signal that ended it.
func statusOf(err error) error {
	var e *exec.ExitError
	if !errors.As(err, &e) {
		return err
	}
	code := e.ExitCode()
	if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		code = 128 + int(ws.Signal())
	}
	return &exitError{Code: code}
}

// newEngine compiles the engine that programs can have inside.
func newEngine() *cobra.Command {
	var source string
	cmd := &cobra.Command{
		Use:   "engine DIR",
		Short: "Compile the engine for exec --engine program into a directory",
		Long: `Engine compiles the library that "rvtsim exec --engine program" loads into a program. It
is looked for beside rvtsim, so DIR is best the directory that rvtsim is in. Go and a C
compiler are needed.`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := shim.BuildEngine(args[0], source); err != nil {
				return envErr(err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&source, "source", "", "directory of rvtsim's source (default: it is fetched, in the version that is installed)")
	return cmd
}

// newShim is for make: it compiles the preload library into a directory.
func newShim() *cobra.Command {
	return &cobra.Command{
		Use:    "shim DIR",
		Short:  "Compile the preload library into a directory",
		Args:   cobra.ExactArgs(1),
		Hidden: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := shim.Build(args[0]); err != nil {
				return envErr(err)
			}
			return nil
		},
	}
}
