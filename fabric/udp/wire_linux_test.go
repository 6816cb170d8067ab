package udp

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// The tests here look at real IP packets: two network namespaces, a veth pair between
// them, and a packet socket at the receiving end. They need root and iproute2.

// cable is a veth pair: vt0 with 10.77.0.1 and fd77::1 on side 0, vt1 with .2 on side
// 1. The goroutine that made it is locked to a thread of its own, which dies with it,
// and the namespaces with that.
type cable struct {
	t    *testing.T
	side [2]int // namespace descriptors
}

var (
	wire4 = [2]ib.GID{ib.GIDFromIPv4(10, 77, 0, 1), ib.GIDFromIPv4(10, 77, 0, 2)}
	wire6 = [2]ib.GID{{0: 0xfd, 1: 0x77, 15: 1}, {0: 0xfd, 1: 0x77, 15: 2}}
)

func newCable(t *testing.T, mtu int) *cable {
	t.Helper()
	if unix.Geteuid() != 0 {
		t.Skip("needs root for network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2: ", err)
	}
	runtime.LockOSThread() // for good: the thread must not return to the pool
	c := &cable{t: t}
	for i := range c.side {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Skip("no network namespaces here: ", err)
		}
		fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { closeFD(fd) })
		c.side[i] = fd
	}
	c.ip(1, "link add vt1 mtu %d type veth peer name vt0 mtu %d netns /proc/%d/fd/%d", mtu, mtu, os.Getpid(), c.side[0])
	for i := range c.side {
		c.ip(i, "link set lo up")
		c.ip(i, "addr add 10.77.0.%d/24 dev vt%d", i+1, i)
		c.ip(i, "addr add fd77::%d/64 dev vt%d nodad", i+1, i)
		c.ip(i, "link set vt%d up", i)
	}
	return c
}

// enter moves this thread to one side.
func (c *cable) enter(side int) {
	c.t.Helper()
	require.NoError(c.t, unix.Setns(c.side[side], unix.CLONE_NEWNET))
}

// ip runs the ip command on one side.
func (c *cable) ip(side int, format string, args ...any) {
	c.t.Helper()
	c.enter(side)
	out, err := exec.Command("ip", strings.Fields(fmt.Sprintf(format, args...))...).CombinedOutput()
	if err != nil && strings.Contains(format, "link add") {
		c.t.Skip("no veth here: ", string(out))
	}
	require.NoError(c.t, err, "ip "+format+": "+string(out), args)
}

func (c *cable) open(side int, gid ib.GID, change func(*Config)) *Port {
	c.t.Helper()
	c.enter(side)
	cfg := DefaultConfig(gid)
	if change != nil {
		change(&cfg)
	}
	return openTest(c.t, cfg)
}

// meet sends to dst, an address or a group of rx, until something arrives: a fresh
// device loses packets while it comes up and neighbours find each other. Nothing is
// on its way any more when meet returns.
func meet(t *testing.T, tx, rx *Port, dst ib.GID) {
	t.Helper()
	const probeBytes, lastBytes = 16, 17
	batch := make([]fabric.Datagram, 128)
	want := probeBytes
	send(t, tx, datagrams(dst, probeBytes))
	for deadline := time.Now().Add(2 * testTimeout); ; {
		require.True(t, time.Now().Before(deadline), "%v and %v do not meet", tx.LocalAddr(), rx.LocalAddr())
		require.NoError(t, rx.Wait(50*time.Millisecond))
		n, err := rx.ReadBatch(batch)
		require.NoError(t, err)
		switch {
		case n > 0 && len(batch[n-1].Buf) == lastBytes:
			return
		case n > 0 && want == probeBytes:
			want = lastBytes
			send(t, tx, datagrams(dst, lastBytes))
		case n == 0 && want == probeBytes:
			send(t, tx, datagrams(dst, probeBytes))
		}
	}
}

// capture opens a packet socket on side 1 that sees what arrives there.
func (c *cable) capture() int {
	c.t.Helper()
	c.enter(1)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(c.t, err)
	c.t.Cleanup(func() { closeFD(fd) })
	dev, err := net.InterfaceByName("vt1")
	require.NoError(c.t, err)
	require.NoError(c.t, unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20))
	require.NoError(c.t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: swap16(unix.ETH_P_ALL), Ifindex: dev.Index}))
	return fd
}

// ipPacket is a captured RoCE packet, cut into its layers.
type ipPacket struct {
	l3, udp, body []byte
	icrc          uint32
}

func (p *ipPacket) id() uint16       { return binary.BigEndian.Uint16(p.l3[4:]) }
func (p *ipPacket) fragment() uint16 { return binary.BigEndian.Uint16(p.l3[6:]) }

// cutPacket returns the layers of an IP packet; ok is false if it is not RoCE.
func cutPacket(b []byte) (p ipPacket, ok bool) {
	l3 := 40
	if len(b) < 48 {
		return p, false
	}
	proto := b[6]
	if b[0]>>4 == 4 {
		l3, proto = int(b[0]&15)*4, b[9]
	}
	if proto != unix.IPPROTO_UDP || len(b) < l3+8+MinDatagramBytes || binary.BigEndian.Uint16(b[l3+2:]) != wire.UDPPort {
		return p, false
	}
	end := len(b) - wire.ICRCBytes
	return ipPacket{l3: b[:l3], udp: b[l3 : l3+8], body: b[l3+8 : end], icrc: binary.LittleEndian.Uint32(b[end:])}, true
}

// collect reads n RoCE packets off a packet socket.
func collect(t *testing.T, fd, n int) (out []ipPacket) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); len(out) < n; {
		buf := make([]byte, 1<<16)
		size, err := recvBefore(fd, buf)
		require.NoError(t, err, "%d of %d packets", len(out), n)
		if p, ok := cutPacket(buf[:size]); ok {
			out = append(out, p)
		}
		require.True(t, time.Now().Before(deadline))
	}
	return out
}

// TestWireIdentification is the proof of what the ICRC assumes: the kernel numbers
// the segments of a train from 0 and sets don't-fragment.
func TestWireIdentification(t *testing.T) {
	c := newCable(t, 9000)
	c.ip(0, "link set vt0 gso_max_segs 1") // no train passes whole: the kernel cuts it up
	tx, rx := c.open(0, wire4[0], nil), c.open(1, wire4[1], nil)
	requireGSO(t, tx)
	zero := c.open(1, wire6[1], func(cfg *Config) { cfg.Verify = VerifyZeroID })
	tx6 := c.open(0, wire6[0], nil)
	meet(t, tx, rx, wire4[1])
	meet(t, tx6, zero, wire6[1])
	fd := c.capture()

	sizes := append(append([]int{4128}, repeat(4112, 20)...), 1016, 20, 20, 60)
	sizes = append(sizes, repeat(80, 100)...)
	for range 2 { // the count restarts with every send
		sent := datagrams(wire4[1], sizes...)
		sent[3].Path.TClass = 0x68 // splits a train
		send(t, tx, sent)
		for i, p := range collect(t, fd, len(sent)) {
			require.Equal(t, sent[i].Path.IPID, p.id(), "packet %d: identification", i)
			require.EqualValues(t, 0x4000, p.fragment(), "packet %d: don't fragment, offset 0", i)
			require.Equal(t, sent[i].Buf[:len(sent[i].Buf)-4], p.body, "packet %d", i)
			require.Equal(t, wire.ICRCRaw(p.l3, p.udp, p.body), p.icrc, "packet %d: ICRC of the bytes on the wire", i)
			require.Equal(t, sent[i].Path.TClass, p.l3[1])
		}
		got := receive(t, rx, len(sent))
		requireSame(t, sent, got)
	}
	require.NoError(t, tx.Degraded())
	require.Positive(t, tx.Details().TxTrains)

	sent := datagrams(wire6[1], sizes...)
	send(t, tx6, sent)
	for i, p := range collect(t, fd, len(sent)) {
		require.Equal(t, wire.ICRCRaw(p.l3, p.udp, p.body), p.icrc, "packet %d: ICRC of the bytes on the wire", i)
	}
	require.Len(t, receive(t, zero, len(sent)), len(sent))

	// The same network with trains that pass whole.
	c.ip(0, "link set vt0 gso_max_segs 65535")
	sent = datagrams(wire4[1], sizes...)
	send(t, tx, sent)
	before := rx.Details().RxTrains
	requireSame(t, sent, receive(t, rx, len(sent)))
	require.Greater(t, rx.Details().RxTrains, before)
}

// TestWireSingles is the same without segmentation offload: identification 0.
func TestWireSingles(t *testing.T) {
	c := newCable(t, 1500)
	off := func(cfg *Config) { cfg.DisableGSO = true }
	tx, rx := c.open(0, wire4[0], off), c.open(1, wire4[1], off)
	require.Equal(t, ib.MTU1024, tx.MTU())
	meet(t, tx, rx, wire4[1])
	fd := c.capture()
	sent := datagrams(wire4[1], repeat(1040, 30)...)
	sent[5].Path.HopLimit = 9
	send(t, tx, sent)
	for i, p := range collect(t, fd, len(sent)) {
		require.Zero(t, p.id())
		require.EqualValues(t, 0x4000, p.fragment())
		require.Equal(t, sent[i].Path.HopLimit, p.l3[8])
		require.Equal(t, wire.ICRCRaw(p.l3, p.udp, p.body), p.icrc)
	}
	requireSame(t, sent, receive(t, rx, len(sent)))
}

// TestWireErrors meets the errors of a real network: too long for the path, no route.
func TestWireErrors(t *testing.T) {
	c := newCable(t, 9000)
	tx, rx := c.open(0, wire4[0], nil), c.open(1, wire4[1], nil)
	requireGSO(t, tx)
	meet(t, tx, rx, wire4[1])
	c.ip(0, "link set vt0 mtu 1500") // the port still believes in 9000

	long := datagrams(wire4[1], repeat(4112, 10)...)
	short := datagrams(wire4[1], repeat(1040, 10)...)
	lost := datagrams(ib.GIDFromIPv4(198, 51, 100, 1), 64, 64)
	all := append(append(append([]fabric.Datagram{}, long...), lost...), short...)
	send(t, tx, all)
	requireSame(t, all[12:], receive(t, rx, len(short)))
	require.EqualValues(t, 10, tx.Details().TxTooLong)
	require.EqualValues(t, 2, tx.Details().TxUnreachable)
	require.ErrorIs(t, tx.Details().LastTxErr, unix.ENETUNREACH)
	require.EqualValues(t, 12, tx.Counters().TxErrors)
}

// TestWireMulticast sends to groups over a device that really multicasts.
func TestWireMulticast(t *testing.T) {
	c := newCable(t, 9000)
	for _, n := range []struct {
		gid   [2]ib.GID
		group ib.GID
	}{
		{wire4, ib.GIDFromIPv4(239, 77, 0, 9)},
		{wire6, ib.GID{0: 0xff, 1: 0x0e, 14: 0x77, 15: 9}},
		{wire6, ib.GID{0: 0xff, 1: 0x02, 14: 0x77, 15: 9}}, // link-local: needs the scope
	} {
		tx, rx := c.open(0, n.gid[0], nil), c.open(1, n.gid[1], nil)
		c.enter(1)
		require.NoError(t, rx.JoinGroup(n.group))
		meet(t, tx, rx, n.group)
		sent := datagrams(n.group, 300, 300, 300, 100)
		send(t, tx, sent)
		got := receive(t, rx, len(sent))
		for i := range got {
			got[i].Path.FlowLabel = 0 // the kernel's own choice
		}
		requireSame(t, sent, got)
		require.NoError(t, tx.Close())
		require.NoError(t, rx.Close())
	}
}

// TestWireLinkLocal uses addresses that mean nothing without an interface.
func TestWireLinkLocal(t *testing.T) {
	c := newCable(t, 1500)
	ll := [2]ib.GID{{0: 0xfe, 1: 0x80, 14: 0x77, 15: 1}, {0: 0xfe, 1: 0x80, 14: 0x77, 15: 2}}
	for i := range ll {
		c.ip(i, "addr add %v/64 dev vt%d nodad", AddrFromGID(ll[i]), i)
	}
	tx, rx := c.open(0, ll[0], nil), c.open(1, ll[1], nil)
	meet(t, tx, rx, ll[1])
	sent := datagrams(ll[1], 300, 300)
	send(t, tx, sent)
	require.Len(t, receive(t, rx, len(sent)), len(sent))
}
