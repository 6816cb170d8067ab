package neigh

import (
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func table(t *testing.T) *Table {
	t.Helper()
	tab, err := Open()
	require.NoError(t, err)
	t.Cleanup(tab.Close)
	return tab
}

func ask(src, dst string, port uint16) Question {
	return Question{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Port: port}
}

// TestLoopback: an address of the loopback network answers as long as a socket takes its
// packets.
//
// req: CM-ADDR-04
func TestLoopback(t *testing.T) {
	tab := table(t)
	for _, dst := range []string{"127.83.1.9", "::1"} {
		c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(dst), 0)))
		if err != nil && dst == "::1" {
			continue // a machine without IPv6
		}
		require.NoError(t, err)
		port := uint16(c.LocalAddr().(*net.UDPAddr).Port)
		require.Zero(t, tab.Ask(ask(dst, dst, port)), dst)
		require.NoError(t, c.Close())
		require.Equal(t, unix.EAGAIN, tab.Ask(ask(dst, dst, port)), dst)
	}
	require.Equal(t, unix.ENETUNREACH, tab.Ask(ask("127.83.1.9", "203.0.113.1", 4791)), "it leads nowhere else")
	c, err := net.ListenUDP("udp4", &net.UDPAddr{})
	require.NoError(t, err)
	defer c.Close()
	require.Zero(t, tab.Ask(ask("127.0.0.1", "127.83.1.9", uint16(c.LocalAddr().(*net.UDPAddr).Port))), "a wildcard socket has all addresses")
}

// wire makes a network namespace for the rest of the test's thread, with a cable to another
// one, and puts the peer's end into it.
func wire(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("making network namespaces takes root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing tool: ip")
	}
	runtime.LockOSThread() // and never unlock: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skip("network namespaces are not permitted here: " + err.Error())
	}
	peer := exec.Command("unshare", "-n", "sleep", "60")
	require.NoError(t, peer.Start())
	t.Cleanup(func() { _ = peer.Process.Kill(); _ = peer.Wait() })
	pid := strconv.Itoa(peer.Process.Pid)
	ip := func(line string) {
		t.Helper()
		out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", line, out)
	}
	ip("link add v0 type veth peer name v1")
	ip("addr add 10.9.0.1/24 dev v0")
	ip("link set v0 up")
	own, err := os.Readlink("/proc/thread-self/ns/net")
	require.NoError(t, err)
	elsewhere := func() bool { // unshare has done its work
		ns, err := os.Readlink("/proc/" + pid + "/ns/net")
		return err == nil && ns != own
	}
	for deadline := time.Now().Add(20 * time.Second); !elsewhere(); runtime.Gosched() {
		require.True(t, time.Now().Before(deadline), "unshare does nothing")
	}
	ip("link set v1 netns " + pid)
	in := "nsenter -n -t " + pid + " ip "
	for _, line := range []string{"addr add 10.9.0.2/24 dev v1", "link set v1 up"} {
		out, err := exec.Command("sh", "-c", in+line).CombinedOutput()
		require.NoError(t, err, "%s: %s", line, out)
	}
}

// TestNeighbours: of an Ethernet those addresses answer that somebody has.
//
// req: CM-ADDR-04
func TestNeighbours(t *testing.T) {
	wire(t)
	tab := table(t)
	answers := func(dst string, within time.Duration) unix.Errno {
		var got unix.Errno
		for end := time.Now().Add(within); time.Now().Before(end); runtime.Gosched() {
			if got = tab.Ask(ask("10.9.0.1", dst, 4791)); got != unix.EAGAIN {
				break
			}
		}
		return got
	}
	require.Equal(t, unix.EAGAIN, tab.Ask(ask("10.9.0.1", "10.9.0.2", 4791)), "nobody knows it before")
	require.Zero(t, answers("10.9.0.2", 20*time.Second))
	require.Zero(t, tab.Ask(ask("10.9.0.1", "10.9.0.2", 4791)), "at once now")
	require.Equal(t, unix.EAGAIN, answers("10.9.0.77", 300*time.Millisecond), "nobody has it")
	require.Zero(t, answers("10.9.0.1", time.Second), "it is our own")
	require.Equal(t, unix.ENETUNREACH, answers("203.0.113.1", time.Second), "there is no route")
	require.Equal(t, unix.ENETUNREACH, answers("10.9.0.255", time.Second), "broadcast")
}
