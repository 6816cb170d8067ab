package front

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/netlab"
)

// network is a site whose nodes are in namespaces.
func network(t *testing.T, cred *syscall.Credential, args ...string) *site {
	t.Helper()
	need(t, "ip", "ibv_rc_pingpong")
	s := newSite(t, cred)
	out, err := s.command(t.Context(), append([]string{"netns", "up"}, args...)...).CombinedOutput()
	if strings.Contains(string(out), netlab.ErrNotPermitted.Error()) {
		t.Skip(string(out))
	}
	require.NoError(t, err, "%s", out)
	t.Cleanup(func() {
		_ = s.command(context.Background(), "netns", "down").Run() // the test may have done that
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.dir, "rvtsim", "default.log"))
			t.Logf("log of the daemon:\n%s", log)
		}
	})
	return s
}

// unprivileged is an unprivileged user, nil if we are not root anyway.
func unprivileged() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

// meetBetween runs a program that serves on n1 and its peer on n2.
func (s *site) meetBetween(prog ...string) {
	s.t.Helper()
	server := s.start("n1", prog...)
	server.listening("18515")
	s.run("n2", append(prog, "10.77.0.1")...)
	require.NoError(s.t, server.wait(), server.output())
}

// TestNamespaces has programs talk between namespaces, kills the daemon, and looks for
// what is left.
func TestNamespaces(t *testing.T) {
	t.Run("root", func(t *testing.T) {
		if os.Getuid() != 0 {
			t.Skip("not root")
		}
		testNamespaces(t, nil)
	})
	t.Run("user", func(t *testing.T) { testNamespaces(t, unprivileged()) })
}

func testNamespaces(t *testing.T, cred *syscall.Credential) {
	need(t, "nsenter")
	s := network(t, cred, "--nodes", "2")
	out := s.run("n2", "ip", "-o", "addr", "show", "dev", "eth0")
	require.Contains(t, out, "inet 10.77.0.2/24")
	require.Contains(t, out, "inet6 fd77::2/64")
	require.Contains(t, s.run("n2", "ibv_devinfo", "-v"), "GID[  1]:\t\t::ffff:10.77.0.2, RoCE v2")
	for _, gid := range fewer(1, []string{"1", "2", "0"}) { // IPv4, IPv6, link-local
		s.meetBetween("ibv_rc_pingpong", "-d", "rvt0", "-g", gid, "-n", "50")
	}
	for _, n := range s.report().Nodes {
		require.Equal(t, "active", n.State)
		require.Greater(t, n.ReceivedPackets, uint64(100))
	}

	r := s.report()
	kept := s.kept()
	sleeper := s.start("n1", "sleep", "1000")
	asleep := func() bool {
		p := netlab.Programs(kept.Inodes, kept.ID)
		return len(p) == 1 && p[0].Comm == "sleep"
	}
	require.Eventually(t, asleep, longest, 10*time.Millisecond)
	require.NoError(t, syscall.Kill(r.PID, syscall.SIGKILL))
	require.Eventually(t, func() bool { return syscall.Kill(r.PID, 0) != nil || zombie(r.PID) }, longest, 10*time.Millisecond)
	said, err := s.command(t.Context(), "netns", "down").CombinedOutput()
	require.NoError(t, err, "%s", said)
	require.Equal(t, "ended sleep (process "+strconv.Itoa(sleeper.cmd.Process.Pid)+")\n", string(said))
	require.Error(t, sleeper.wait())
	s.nothingLeft(kept)
	said, err = s.command(t.Context(), "netns", "down").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "rvtsim: network \"default\": there is none\n", string(said))

	// The name is free again.
	said, err = s.command(t.Context(), "netns", "up", "--nodes", "1").CombinedOutput()
	require.NoError(t, err, "%s", said)
	kept = s.kept()
	said, err = s.command(t.Context(), "netns", "down").CombinedOutput()
	require.NoError(t, err, "%s", said)
	s.nothingLeft(kept)
}

// kept is the daemon's record of its network.
func (s *site) kept() *daemon.Network {
	s.t.Helper()
	s.t.Setenv(daemon.DirEnv, filepath.Join(s.dir, "rvtsim"))
	kept, err := daemon.Kept("default")
	require.NoError(s.t, err)
	require.NotNil(s.t, kept)
	return kept
}

// nothingLeft looks for files, processes and namespaces.
func (s *site) nothingLeft(kept *daemon.Network) {
	s.t.Helper()
	// The daemon may be taking its name for a moment, to see that its record is gone.
	require.EventuallyWithT(s.t, func(c *assert.CollectT) {
		files, err := filepath.Glob(filepath.Join(s.dir, "rvtsim", "*"))
		require.NoError(c, err)
		require.Equal(c, []string{filepath.Join(s.dir, "rvtsim", "default.log")}, files)
	}, longest, time.Millisecond)
	require.Empty(s.t, netlab.Programs(kept.Inodes, kept.ID))
}

func zombie(pid int) bool {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, rest, _ := strings.Cut(string(b), ") ")
	return strings.HasPrefix(rest, "Z")
}

// TestCaptureBetweenNamespaces has another implementation look at what is on the wire.
func TestCaptureBetweenNamespaces(t *testing.T) {
	need(t, "tshark")
	s := network(t, nil, "--nodes", "2")
	shark := s.start("n1", "tshark", "-l", "-n", "-i", "eth0", "-Y", "infiniband", "-T", "fields", "-e", "ip.src", "-e", "infiniband.bth.opcode", "-c", "60")
	shark.until("Capturing on")
	s.meetBetween("ibv_rc_pingpong", "-d", "rvt0", "-g", "1", "-n", "30", "-s", "512")
	shark.until("10.77.0.1\t4") // SEND ONLY
	shark.until("10.77.0.2\t4")
}

// TestRoutedNamespaces joins nodes by a router, which is between them and lowers the hop
// limit of what it forwards.
func TestRoutedNamespaces(t *testing.T) {
	need(t, "ib_write_bw", "rping", "tshark")
	for name, cred := range map[string]*syscall.Credential{"as we are": nil, "user": unprivileged()} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "routed.yaml")
			require.NoError(t, os.WriteFile(file, []byte("version: 1\nnetwork: {form: routed}\nnodes: [{name: n1}, {name: n2, mtu: 4096}]\n"), 0o644))
			require.NoError(t, os.Chmod(filepath.Dir(file), 0o755))
			require.NoError(t, os.Chmod(filepath.Dir(filepath.Dir(file)), 0o755))
			s := network(t, cred, file)
			require.Contains(t, s.run("n1", "ip", "route", "get", "10.77.0.2"), "via 169.254.77.1 dev eth0")
			require.Contains(t, s.run("n1", "ip", "-6", "route", "get", "fd77::2"), "via fe80::77:1 dev eth0")
			require.Contains(t, s.run("n1", "ibv_devinfo", "-v"), "active_mtu:\t\t1024")
			require.Contains(t, s.run("n2", "ibv_devinfo", "-v"), "active_mtu:\t\t4096")
			var shark *running
			if cred == nil {
				shark = s.start("n1", "tshark", "-l", "-n", "-i", "eth0", "-f", "udp port 4791", "-T", "fields", "-e", "ip.src", "-e", "ip.ttl")
				shark.until("Capturing on")
			}
			for _, gid := range []string{"1", "2"} {
				s.meetBetween("ib_write_bw", "-d", "rvt0", "-x", gid, "-F", "-n", "20", "-s", "8192")
			}
			if shark != nil {
				shark.until("10.77.0.1\t255")
				shark.until("10.77.0.2\t254")
			}
			server := s.start("n2", "rping", "-s", "-a", "fd77::2", "-C", "3", "-p", "18516")
			s.listens(server, "n2", 1)
			s.run("n1", "rping", "-c", "-a", "fd77::2", "-C", "3", "-p", "18516")
			require.NoError(t, server.wait(), server.output())

			kept := s.kept()
			said, err := s.command(t.Context(), "netns", "down").CombinedOutput()
			require.NoError(t, err, "%s", said)
			s.nothingLeft(kept)
		})
	}
}

// traffic is a program that sends all the time, until the test ends.
type traffic struct {
	s              *site
	server, client *running
}

func (s *site) traffic() *traffic {
	s.t.Helper()
	need(s.t, "ib_write_bw")
	prog := []string{"ib_write_bw", "-d", "rvt0", "-x", "1", "-F", "-D", "1000", "-m", "1024", "-s", "4096", "-u", "16"}
	server := s.start("n1", prog...)
	server.listening("18515")
	f := &traffic{s, server, s.start("n2", append(prog, "10.77.0.1")...)}
	f.flows()
	return f
}

// sent counts the packets that have got through.
func (f *traffic) sent() uint64 { return f.s.ask().Nodes[0].ReceivedPackets }

// ask is report without a process.
func (s *site) ask() *daemon.Report {
	s.t.Helper()
	r, err := daemon.Ask(filepath.Join(s.dir, "rvtsim", "default.sock"))
	require.NoError(s.t, err)
	return r
}

// flows waits for traffic.
func (f *traffic) flows() {
	f.s.t.Helper()
	before := f.sent()
	require.Eventually(f.s.t, func() bool { return f.sent() > before+200 || f.client.ended() }, longest, 5*time.Millisecond)
	require.False(f.s.t, f.client.ended(), "%s", f.client.output())
}

// stops waits until there is none.
func (f *traffic) stops() {
	f.s.t.Helper()
	before := f.sent()
	still := func() bool {
		now := f.sent()
		same := now == before
		before = now
		return same
	}
	require.Eventually(f.s.t, still, longest, 50*time.Millisecond)
	require.False(f.s.t, f.client.ended(), "%s", f.client.output())
}

// TestDeviceChangesUnderTraffic changes a device while a program sends: the program waits
// and goes on, as on an adapter whose cable is pulled for a while.
func TestDeviceChangesUnderTraffic(t *testing.T) {
	s := network(t, nil, "--nodes", "2")
	f := s.traffic()
	events := s.start("n2", "ibv_asyncwatch", "-d", "rvt0")
	events.until("async event FD")
	ip := func(args string) {
		t.Helper()
		s.run("n2", append([]string{"ip"}, strings.Fields(args)...)...)
	}
	gids := func(want ...string) {
		t.Helper()
		require.Eventually(t, func() bool { return strings.Join(s.ask().Nodes[1].GIDs[1:], " ") == strings.Join(want, " ") }, longest, 5*time.Millisecond)
	}
	const v4, v6 = "::ffff:10.77.0.2", "fd77:0000:0000:0000:0000:0000:0000:0002"

	ip("link set eth0 down")
	events.until("PORT_ERR")
	f.stops()
	require.Equal(t, "down", s.ask().Nodes[1].State)
	ip("link set eth0 up")
	events.until("PORT_ACTIVE")
	f.flows()

	gids(v4) // IPv6 addresses do not come back by themselves
	ip("addr add fd77::2/64 dev eth0")
	events.until("GID_CHANGE")
	gids(v4, v6)

	ip("addr del 10.77.0.2/24 dev eth0")
	gids("", v6)
	f.stops()
	ip("addr add 10.77.0.2/24 dev eth0")
	gids("", v6, v4) // its old place is still the program's
	f.flows()

	ip("link set eth0 mtu 600")
	require.Eventually(t, func() bool { return s.ask().Nodes[1].MTU == 512 }, longest, 5*time.Millisecond)
	f.stops() // its packets have a payload of 1024
	ip("link set eth0 mtu 1500")
	f.flows()

	ip("link set eth0 down")
	ip("link set eth0 name eth9")
	ip("link set eth9 up")
	events.until("PORT_ACTIVE")
	f.flows()
	require.Equal(t, "eth9\n", s.run("n2", "cat", "/sys/class/infiniband/rvt0/ports/1/gid_attrs/ndevs/0"))

	// Who polls learns the end of the device from completions, who waits from events that end.
	waiting := s.start("n2", "ibv_rc_pingpong", "-d", "rvt0", "-g", "3", "-e")
	waiting.listening("18515")
	peer := s.start("n1", "ibv_rc_pingpong", "-d", "rvt0", "-g", "1", "-n", "100000000", "-e", "10.77.0.2")
	require.Eventually(t, func() bool { return s.ask().Nodes[0].SentPackets > 0 && len(s.ask().Nodes[0].Contexts) == 2 }, longest, 5*time.Millisecond)
	ip("link del eth9")
	events.until("DEVICE_FATAL")
	require.Error(t, f.client.wait(), f.client.output())
	require.Error(t, waiting.wait(), waiting.output())
	require.Error(t, peer.wait(), peer.output())
}
