package udp

import (
	"bytes"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// testPort is the UDP port of all test networks but those that need 4791. It lies
// below the ephemeral ports.
const testPort = 24791

var lastTestGID atomic.Uint32

// testGID returns a loopback address that no other test of this process uses.
func testGID() ib.GID {
	n := lastTestGID.Add(1)
	return ib.GIDFromIPv4(127, 77, byte(n>>8), byte(n))
}

// testConfig is the configuration of a test port on an address of its own.
func testConfig() Config {
	cfg := DefaultConfig(testGID())
	cfg.Port = testPort
	return cfg
}

// waitingPort is what the tests need of a port.
type waitingPort interface {
	fabric.Port
	fabric.Waiter
	Details() *Details
}

var (
	_ waitingPort = (*Port)(nil)
	_ waitingPort = (*Portable)(nil)
)

const testTimeout = 5 * time.Second

// receive reads until n datagrams are there and returns copies of them. It fails the
// test if they do not come.
func receive(t testing.TB, p interface {
	fabric.Port
	fabric.Waiter
}, n int) (out []fabric.Datagram) {
	t.Helper()
	batch := make([]fabric.Datagram, 128)
	for deadline := time.Now().Add(testTimeout); len(out) < n; {
		got, err := p.ReadBatch(batch)
		require.NoError(t, err)
		for _, d := range batch[:got] {
			d.Buf = bytes.Clone(d.Buf)
			out = append(out, d)
		}
		if got == 0 {
			left := time.Until(deadline)
			require.Positive(t, left, "%d of %d datagrams came; counters %+v", len(out), n, *p.Counters())
			require.NoError(t, p.Wait(left))
		}
	}
	require.Len(t, out, n)
	return out
}

// awaitCount reads, expecting no datagram, until counter returns n.
func awaitCount(t testing.TB, p waitingPort, n uint64, counter func() uint64) {
	t.Helper()
	batch := make([]fabric.Datagram, 128)
	for deadline := time.Now().Add(testTimeout); counter() < n; {
		got, err := p.ReadBatch(batch)
		require.NoError(t, err)
		require.Zero(t, got)
		left := time.Until(deadline)
		require.Positive(t, left, "count is %d, want %d", counter(), n)
		if counter() < n {
			require.NoError(t, p.Wait(left))
		}
	}
	require.Equal(t, n, counter())
}

// send writes all of src. Back-pressure, which a busy machine can cause, is met by
// offering the rest again.
func send(t testing.TB, p fabric.Port, src []fabric.Datagram) {
	t.Helper()
	for deadline := time.Now().Add(testTimeout); len(src) > 0; {
		n, err := p.WriteBatch(src)
		require.NoError(t, err)
		src = src[n:]
		require.True(t, time.Now().Before(deadline), "%d datagrams are not taken", len(src))
	}
}

// requireSame checks that what arrived is what was sent, ICRC and identification
// included.
func requireSame(t testing.TB, sent, got []fabric.Datagram) {
	t.Helper()
	require.Len(t, got, len(sent))
	for i := range sent {
		require.True(t, bytes.Equal(sent[i].Buf, got[i].Buf), "datagram %d", i)
		require.Equal(t, sent[i].Path, got[i].Path, "datagram %d", i)
	}
}

// randomDatagrams makes n datagrams of typical sizes in runs, some sharing one buffer.
func randomDatagrams(rng *rand.Rand, dst ib.GID, n int) []fabric.Datagram {
	sizes := []int{16, 20, 80, 272, 1040, 1056, 4112, 4128}
	var out []fabric.Datagram
	for len(out) < n {
		size, run := sizes[rng.IntN(len(sizes))], 1+rng.IntN(20)
		arena := make([]byte, size*run)
		for i := range arena {
			arena[i] = byte(rng.Uint32())
		}
		for i := range min(run, n-len(out)) {
			d := fabric.Datagram{Buf: arena[i*size : (i+1)*size]}
			d.Path.Dst = dst
			out = append(out, d)
		}
	}
	return out
}

// rawSender returns a plain UDP socket on an address of its own, connected to p.
func rawSender(t testing.TB, p interface{ LocalGID() ib.GID }) *net.UDPConn {
	t.Helper()
	from := net.UDPAddr{IP: AddrFromGID(testGID()).AsSlice()}
	network := "udp4"
	if !p.LocalGID().IsIPv4() {
		network, from.IP = "udp6", net.IPv6loopback
	}
	to := net.UDPAddr{IP: AddrFromGID(p.LocalGID()).AsSlice(), Port: testPort}
	c, err := net.DialUDP(network, &from, &to)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
