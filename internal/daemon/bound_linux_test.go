package daemon

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/netlab/nstest"
	"github.com/rvtsim/rvtsim/internal/topology"
)

func TestMain(m *testing.M) { nstest.Main(m) }

var devices int

// newDevice makes a veth pair for one test and returns the name of the end to bind to;
// the other one is called the same with a "p".
func newDevice(t *testing.T, mtu int) string {
	t.Helper()
	nstest.Need(t)
	devices++
	name := fmt.Sprintf("t%d", devices)
	nstest.IP(t, fmt.Sprintf("link add %s address 52:54:00:77:00:%02x mtu %d type veth peer name %sp mtu %d", name, devices, mtu, name, mtu))
	t.Cleanup(func() {
		if _, err := os.Stat("/sys/class/net/" + name); err == nil {
			nstest.IP(t, "link del "+name)
		}
	})
	nstest.IP(t, "link set "+name+" addrgenmode none") // the kernel gives it no address by itself
	nstest.IP(t, "link set "+name+"p up")
	nstest.IP(t, "link set "+name+" up")
	return name
}

// onDevice starts a daemon with a node on a device.
func onDevice(t *testing.T, dev string) *Daemon {
	t.Helper()
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	n := DefaultNode("n1", netip.Addr{})
	n.Netdev = dev
	d, err := Start(Config{ABI: "rxe", Nodes: []NodeConfig{n}})
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d
}

// table is the GID table of the node, "-" for an empty entry.
func table(d *Daemon) string {
	var rows []string
	for _, g := range d.Report().Nodes[0].GIDs {
		if g == "" {
			g = "-"
		} else {
			g = netip.MustParseAddr(g).Unmap().String()
		}
		rows = append(rows, g)
	}
	return strings.Join(rows, " ")
}

const soon = 10 * time.Second

func becomes(t *testing.T, what string, want any, now func() any) {
	t.Helper()
	tick, end := time.NewTicker(2*time.Millisecond), time.Now().Add(soon)
	defer tick.Stop()
	for got := now(); got != want; got = now() {
		require.True(t, time.Now().Before(end), "%s is %v, want %v", what, got, want)
		<-tick.C
	}
}

func TestDeviceDecidesAboutGIDs(t *testing.T) {
	dev := newDevice(t, 1500)
	nstest.IP(t, "addr add 10.1.0.1/24 dev "+dev)
	nstest.IP(t, "addr add 2001:db8::1/64 nodad dev "+dev)
	d := onDevice(t, dev)
	def := fmt.Sprintf("fe80::5054:ff:fe77:%x", devices)
	is := func(rows ...string) {
		t.Helper()
		want := def + " " + strings.Join(rows, " ")
		becomes(t, "GID table", strings.TrimSpace(want), func() any { return table(d) })
	}
	is("10.1.0.1", "2001:db8::1")
	nstest.IP(t, "addr add 10.1.0.2/24 dev "+dev)
	is("10.1.0.1", "2001:db8::1", "10.1.0.2")
	nstest.IP(t, "addr del 2001:db8::1/64 dev "+dev)
	is("10.1.0.1", "-", "10.1.0.2")
	nstest.IP(t, "addr add 2001:db8::7/64 dev "+dev)
	is("10.1.0.1", "2001:db8::7", "10.1.0.2") // tentative, and in the table at once
	nstest.IP(t, "addr add 192.0.2.1 peer 192.0.2.2 dev "+dev)
	is("10.1.0.1", "2001:db8::7", "10.1.0.2", "192.0.2.2")
	nstest.IP(t, "link set "+dev+" down")
	is("10.1.0.1", "-", "10.1.0.2", "192.0.2.2") // a device that is down has no IPv6 addresses
	require.Equal(t, "down", d.Report().Nodes[0].State)

	root := d.Report().Nodes[0].Root
	port := filepath.Join(root, "sys/class/infiniband/rvt0/ports/1")
	reads := func(file, want string) {
		t.Helper()
		becomes(t, file, want+"\n", func() any { b, _ := os.ReadFile(filepath.Join(port, file)); return string(b) })
	}
	reads("state", "1: DOWN")
	reads("phys_state", "3: Disabled")
	reads("gids/1", "0000:0000:0000:0000:0000:ffff:0a01:0001")
	reads("gids/2", "0000:0000:0000:0000:0000:0000:0000:0000")
	reads("gid_attrs/ndevs/3", dev)
	becomes(t, "a network device of an empty entry", false, func() any {
		_, err := os.Stat(filepath.Join(port, "gid_attrs/ndevs/2"))
		return err == nil
	})
	nstest.IP(t, "link set "+dev+" up")
	reads("state", "4: ACTIVE")
	b, err := os.ReadFile(filepath.Join(root, "sys/class/infiniband/rvt0/node_guid"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("5054:00ff:fe77:%04x\n", devices), string(b))

	def = "fe80::5054:ff:fe77:909"
	nstest.IP(t, "link set "+dev+" address 52:54:00:77:09:09")
	is("10.1.0.1", "192.0.2.2", "10.1.0.2") // a secondary address comes after all primary ones
	reads("gids/0", "fe80:0000:0000:0000:5054:00ff:fe77:0909")
	b, err = os.ReadFile(filepath.Join(root, "sys/class/infiniband/rvt0/node_guid"))
	require.NoError(t, err)
	require.Equal(t, fmt.Sprintf("5054:00ff:fe77:%04x\n", devices), string(b), "a device keeps the GUID that it began with")
}

func TestDeviceDecidesAboutTheRest(t *testing.T) {
	dev := newDevice(t, 1500)
	nstest.IP(t, "addr add 10.1.0.1/24 dev "+dev)
	d := onDevice(t, dev)
	report := func() NodeReport { return d.Report().Nodes[0] }
	mtu := func(want int) {
		t.Helper()
		becomes(t, "active MTU", want, func() any { return report().MTU })
	}
	mtu(1024)
	for _, step := range [][2]int{{4200, 4096}, {600, 512}, {1280, 1024}, {9000, 4096}} {
		nstest.IP(t, fmt.Sprintf("link set %s mtu %d", dev, step[0]))
		mtu(step[1])
	}
	state := func(want string) {
		t.Helper()
		becomes(t, "state", want, func() any { return report().State })
	}
	state("active")
	nstest.IP(t, "link set "+dev+"p down")
	state("down") // no carrier
	nstest.IP(t, "link set "+dev+"p up")
	state("active")

	nstest.IP(t, "link del "+dev)
	becomes(t, "the node works", false, func() any { return d.all()[0].node.Err() == nil })
}

func TestDevicesOfDevice(t *testing.T) {
	dev := newDevice(t, 1500)
	d := onDevice(t, dev)
	def := fmt.Sprintf("fe80::5054:ff:fe77:%x", devices)
	has := func(want string, yes bool) {
		t.Helper()
		becomes(t, want+" in the GID table", yes, func() any { return slices.Contains(strings.Fields(table(d)), want) })
	}
	nstest.IP(t, "link add "+dev+"b type bridge")
	defer nstest.IP(t, "link del "+dev+"b")
	nstest.IP(t, "addr add 10.2.0.1/24 dev "+dev+"b")
	require.NotContains(t, table(d), "10.2.0.1")
	nstest.IP(t, "link set "+dev+" master "+dev+"b")
	has("10.2.0.1", true)
	nstest.IP(t, "link set "+dev+" nomaster")
	has("10.2.0.1", false)
	nstest.IP(t, "link add "+dev+"m link "+dev+" type macvlan")
	nstest.IP(t, "addr add 10.3.0.1/24 dev "+dev+"m")
	has("10.3.0.1", true)
	nstest.IP(t, "link del "+dev+"m")
	has("10.3.0.1", false)
	require.True(t, strings.HasPrefix(table(d), def))
	require.Equal(t, "active", d.Report().Nodes[0].State, "leaving a bridge is not the end of the device")
}

func TestDeviceThatCannotBe(t *testing.T) {
	nstest.Need(t)
	t.Setenv("XDG_RUNTIME_DIR", t.TempDir())
	n := DefaultNode("n1", netip.Addr{})
	n.Netdev = "nothere"
	_, err := Start(Config{ABI: "rxe", Nodes: []NodeConfig{n}})
	require.ErrorContains(t, err, "node n1: network device nothere: Link not found")
	n2 := n
	n2.Name = "n2"
	_, err = Start(Config{ABI: "rxe", Nodes: []NodeConfig{n, n2}})
	require.ErrorContains(t, err, `nodes "n1" and "n2" have the same network device nothere`)
}

// TestDeviceMovesWhileOthersOpen: a change of a node's addresses that is noticed before all
// nodes are open is no matter; what it would change is seen to when they are.
func TestDeviceMovesWhileOthersOpen(t *testing.T) {
	d := onDevice(t, newDevice(t, 1500))
	f, err := topology.Parse("t.yaml", []byte("version: 1\nnodes: [{name: n1}, {name: n2}]\n"))
	require.NoError(t, err)
	d.faults.mu.Lock()
	d.faults.file = f
	d.faults.mu.Unlock()
	d.faults.moved(d.all()[0], nil)
}
