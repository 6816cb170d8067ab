//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/netlab"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/wire"
)

// daemonCommands are the commands for unmodified programs.
func daemonCommands() []*cobra.Command {
	return []*cobra.Command{newUp(), newNetns(), newFault(), newExec(), newLs(), newDown(), newEngine(), newShim()}
}

// daemonFlags say what a daemon is to be. They are shared by up and exec.
type daemonFlags struct {
	file     string
	nodes    int
	listen   []string
	netdev   []string
	netns    bool
	name     string
	abi      string
	wire     string
	profile  string
	allowUID []int
	allowAny bool
	strict   string
}

func (f *daemonFlags) add(cmd *cobra.Command) {
	fl := cmd.Flags()
	fl.IntVar(&f.nodes, "nodes", 0, "number of nodes, n1 at 127.0.0.1, n2 at 127.0.0.2 and so on (default 1, or those of FILE)")
	fl.StringArrayVar(&f.listen, "listen", nil, "bind a node to another address: `NODE=ADDR[:PORT]`; may be repeated")
	fl.StringArrayVar(&f.netdev, "netdev", nil, "bind a node to a network device, to all its addresses and its state: `[NODE=]DEVICE`, without NODE the first; may be repeated")
	fl.StringVar(&f.abi, "abi", "rxe", "which driver programs believe to see: rxe or rvt")
	fl.StringVar(&f.wire, "wire", daemon.WireMemory, "what carries packets between programs that have the engine inside: shared memory where it can, which is faster, or udp always, where tcpdump sees them: memory or udp")
	fl.StringVar(&f.profile, "profile", "ibta", "whose choices the devices follow where the sources differ: ibta, rdmavt or rxe")
	fl.IntSliceVar(&f.allowUID, "allow-uid", nil, "let programs of these users attach too; a program that attaches trusts the daemon with its memory")
	fl.StringVar(&f.strict, "strict", "", "look for misuse of the API by the programs: all `CHECKS`, or those named, with commas between them; see docs/strict.md")
	fl.Lookup("strict").NoOptDefVal = "all"
	fl.BoolVar(&f.allowAny, "allow-any", false, "let programs of every user attach")
}

// args are the flags as a command line, for the daemon in the background.
func (f *daemonFlags) args() []string {
	args := []string{"--nodes", strconv.Itoa(f.nodes), "--name", f.name, "--abi", f.abi, "--wire", f.wire, "--profile", f.profile}
	for _, l := range f.listen {
		args = append(args, "--listen", l)
	}
	for _, l := range f.netdev {
		args = append(args, "--netdev", l)
	}
	for _, u := range f.allowUID {
		args = append(args, "--allow-uid", strconv.Itoa(u))
	}
	if f.allowAny {
		args = append(args, "--allow-any")
	}
	if f.strict != "" {
		args = append(args, "--strict="+f.strict)
	}
	if f.netns {
		args = append(args, "--netns")
	}
	if f.file != "" {
		args = append(args, "--", f.file)
	}
	return args
}

// maxNodes bounds --nodes: each node has threads and a socket of its own.
const maxNodes = 250

// config turns flags and file into a configuration. What is wrong with them is a usage
// error.
func (f *daemonFlags) config() (daemon.Config, error) {
	c := daemon.Config{Name: f.name, ABI: f.abi, Wire: f.wire, AllowUIDs: f.allowUID, AllowAny: f.allowAny}
	prof, err := profileOf(topology.Profile(f.profile))
	if err != nil {
		return c, usage(err)
	}
	if f.nodes < 0 || f.nodes > maxNodes {
		return c, usage(fmt.Errorf("--nodes %d: want 1 to %d", f.nodes, maxNodes))
	}
	if f.file != "" {
		if f.nodes != 0 {
			return c, usage(errors.New("--nodes cannot be combined with a topology file, which lists the nodes"))
		}
		if c.Nodes, c.Topology, err = nodesOf(f.file); err != nil {
			return c, usage(err)
		}
	}
	for i := range max(f.nodes, 1) {
		if f.file != "" {
			break
		}
		n := daemon.DefaultNode("n"+strconv.Itoa(i+1), netip.AddrFrom4([4]byte{127, 0, 0, byte(i + 1)}))
		n.Profile = prof
		c.Nodes = append(c.Nodes, n)
	}
	for _, l := range f.listen {
		if err := bindNode(&c, l); err != nil {
			return c, usage(err)
		}
	}
	if f.strict != "" {
		checks, err := strict.ParseChecks(f.strict)
		if err != nil {
			return c, usage(fmt.Errorf("--strict: %w", err))
		}
		for i := range c.Nodes {
			c.Nodes[i].Strict, c.Nodes[i].Seed = checks, uint64(i)+1
		}
	}
	for _, l := range f.netdev {
		if err := bindNetdev(&c, l); err != nil {
			return c, usage(err)
		}
	}
	if err := c.Validate(); err != nil {
		return c, usage(err)
	}
	return c, nil
}

func profileOf(p topology.Profile) (qp.Profile, error) {
	switch p {
	case topology.ProfileIBTA:
		return qp.ProfileIBTA, nil
	case topology.ProfileRDMAVT:
		return qp.ProfileRDMAVT, nil
	case topology.ProfileRXE:
		return qp.ProfileRXE, nil
	}
	return qp.Profile{}, fmt.Errorf("--profile %q: want ibta, rdmavt or rxe", p)
}

// nodesOf reads the nodes of a topology file.
func nodesOf(path string) ([]daemon.NodeConfig, *topology.File, error) {
	t, err := topology.LoadWith(path, topology.Options{Live: true})
	if err != nil {
		return nil, nil, err
	}
	var nodes []daemon.NodeConfig
	for i := range t.Nodes {
		n := &t.Nodes[i]
		prof, err := profileOf(n.Profile)
		if err != nil {
			return nil, nil, err
		}
		l := rvt.DefaultLimits()
		l.MaxQP, l.MaxQPWR, l.MaxCQE, l.MaxSGE = n.Limits.MaxQP, n.Limits.MaxQPWR, n.Limits.MaxCQE, n.Limits.MaxSGE
		l.MaxResRdAtom = n.Limits.MaxResRdAtomic
		l.MaxInline, l.MaxSRQWR = n.Limits.MaxInline, n.Limits.MaxSRQWR
		l.MaxQPRdAtom, l.MaxQPInitRdAtom = n.Limits.MaxRdAtomic, n.Limits.MaxRdAtomic
		nodes = append(nodes, daemon.NodeConfig{Name: n.Name, Address: n.Address, Netdev: n.Netdev, Bandwidth: uint64(t.Network.Bandwidth), Profile: prof, MTU: n.MTU, Limits: l, DistinctKeys: n.DistinctKeys, Congestion: n.DCQCN, Strict: n.Strict, Seed: fabric.Mix(t.Seed, uint64(i))})
	}
	return nodes, t, nil
}

// bindNode applies one --listen.
func bindNode(c *daemon.Config, arg string) error {
	name, addr, ok := strings.Cut(arg, "=")
	if !ok {
		return fmt.Errorf("--listen %q: want NODE=ADDR[:PORT]", arg)
	}
	i := slices.IndexFunc(c.Nodes, func(n daemon.NodeConfig) bool { return n.Name == name })
	if i < 0 {
		return fmt.Errorf("--listen %q: there is no node %q", arg, name)
	}
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		a, err := netip.ParseAddr(strings.Trim(addr, "[]"))
		if err != nil {
			return fmt.Errorf("--listen %q: %q is not an IP address with or without a port", arg, addr)
		}
		ap = netip.AddrPortFrom(a, wire.UDPPort)
	}
	c.Nodes[i].Address = ap
	return nil
}

// bindNetdev applies one --netdev.
func bindNetdev(c *daemon.Config, arg string) error {
	name, dev, ok := strings.Cut(arg, "=")
	i := 0
	if ok {
		i = slices.IndexFunc(c.Nodes, func(n daemon.NodeConfig) bool { return n.Name == name })
	} else {
		dev = arg
	}
	switch {
	case i < 0:
		return fmt.Errorf("--netdev %q: there is no node %q", arg, name)
	case dev == "":
		return fmt.Errorf("--netdev %q: want [NODE=]DEVICE", arg)
	}
	c.Nodes[i].Netdev = dev
	return nil
}

// runDaemon runs a daemon until a signal or rvtsim down ends it. ready is called once
// programs can attach.
func runDaemon(ctx context.Context, c daemon.Config, log io.Writer, ready func(*daemon.Daemon) error) error {
	c.Log = slog.New(slog.NewTextHandler(log, nil))
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	daemon.Hurry()
	d, err := daemon.Start(c)
	if err != nil {
		return envErr(err)
	}
	for _, n := range d.Report().Nodes {
		c.Log.Info("node", "name", n.Name, "address", n.Address, "device", n.Device, "profile", n.Profile, "mtu", n.MTU)
	}
	if err := ready(d); err != nil {
		d.Close()
		return envErr(err)
	}
	d.Wait(ctx)
	return nil
}

// readyFD is the descriptor on which a daemon in the background tells its parent how
// starting went: an empty line, or an error.
const readyFD = 3

// closeInherited closes what a daemon in the background was handed by accident. A shell's
// lock file or the pipe that a CI job reads to its end would be held as long as it lives.
// This process's own descriptors close on exec, what was handed over does not.
func closeInherited() {
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range fds {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= readyFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			_ = unix.Close(fd)
		}
	}
}

// startBackground runs this program again as a daemon and returns when programs can
// attach.
func startBackground(f *daemonFlags) error {
	exe, err := os.Executable()
	if err != nil {
		return envErr(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return envErr(err)
	}
	defer r.Close()
	log, err := openLog(f.name)
	if err != nil {
		w.Close()
		return envErr(err)
	}
	defer log.Close()
	cmd := exec.Command(exe, append([]string{"up", "--foreground", "--ready"}, f.args()...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{w}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if f.netns {
		netlab.Contain(cmd, 0)
		cmd.Env = append(os.Environ(), daemon.DirEnv+"="+daemon.Dir())
	}
	err = cmd.Start()
	w.Close()
	if err != nil && f.netns && netlab.Refused(err) {
		return envErr(fmt.Errorf("%w, and no user namespaces either: %w", netlab.ErrNotPermitted, err))
	}
	if err != nil {
		return envErr(err)
	}
	said, err := io.ReadAll(r)
	text := strings.TrimSpace(string(said))
	switch {
	case err != nil:
		return envErr(err)
	case len(said) == 0:
		_ = cmd.Wait()
		return envErr(fmt.Errorf("the daemon ended before it was ready; see %s", daemon.LogPath(f.name)))
	case text != "":
		_ = cmd.Wait()
		return envErr(errors.New(text))
	}
	return cmd.Process.Release()
}

// openLog opens the log of a daemon in the background.
func openLog(name string) (*os.File, error) {
	if err := daemon.MakeDir(); err != nil {
		return nil, err
	}
	return os.OpenFile(daemon.LogPath(name), os.O_WRONLY|os.O_CREATE|os.O_APPEND|syscall.O_NOFOLLOW, 0o600)
}
