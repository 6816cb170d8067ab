package udp

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

const loopbackMTU = 65536

// openMulti returns a port without addresses.
func openMulti(t testing.TB) *Multi {
	t.Helper()
	m, err := OpenMulti(testConfig(), func(f func() error) error { return f() })
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// have gives the port these addresses of the loopback device, and no others.
func (m *Multi) have(t testing.TB, gids ...ib.GID) {
	t.Helper()
	var addrs []Address
	for _, g := range gids {
		addrs = append(addrs, Address{GID: g, Ifindex: 1})
	}
	next, err := m.Open(addrs, loopbackMTU)
	for end := time.Now().Add(testTimeout); errors.Is(err, unix.EADDRINUSE) && time.Now().Before(end); next, err = m.Open(addrs, loopbackMTU) {
		m.Use(next, loopbackMTU) // whoever waits with a socket that has gone keeps it until he wakes up
		runtime.Gosched()
	}
	require.NoError(t, err)
	m.Use(next, loopbackMTU)
	require.Equal(t, gids, m.Bound())
}

// take reads until n datagrams are there, and returns where each was sent to.
func take(t testing.TB, m *Multi, n int) (dst []ib.GID) {
	t.Helper()
	for _, d := range receive(t, m, n) {
		dst = append(dst, d.Path.Dst)
	}
	return dst
}

// from has datagrams sent from one of the port's addresses.
func from(src ib.GID, list []fabric.Datagram) []fabric.Datagram {
	for i := range list {
		list[i].Path.Src = src
	}
	return list
}

// TestMultiAddressesComeAndGo: each address has a socket, what goes out has the source that
// it names, and an address that has gone neither receives nor sends.
func TestMultiAddressesComeAndGo(t *testing.T) {
	m, peer := openMulti(t), openTest(t, testConfig())
	a, b, c := testGID(), testGID(), testGID()
	m.have(t, a, b)
	send(t, peer, datagrams(a, 64, 64))
	send(t, peer, datagrams(b, 100))
	require.ElementsMatch(t, []ib.GID{a, a, b}, take(t, m, 3))
	send(t, m, append(from(b, datagrams(peer.LocalGID(), 64)), from(a, datagrams(peer.LocalGID(), 80, 80))...))
	sources := map[ib.GID]int{}
	for _, d := range receive(t, peer, 3) {
		sources[d.Path.Src]++
	}
	require.Equal(t, map[ib.GID]int{a: 2, b: 1}, sources)

	first := *m.ports.Load()
	m.have(t, b, c) // a goes, c comes, b stays as it is
	require.Same(t, first[1], (*m.ports.Load())[0])
	before := m.Counters().TxErrors
	send(t, m, append(from(a, datagrams(peer.LocalGID(), 64)), from(c, datagrams(peer.LocalGID(), 80))...))
	require.Equal(t, c, receive(t, peer, 1)[0].Path.Src, "one from an address without a socket holds nobody up")
	require.Equal(t, before+1, m.Counters().TxErrors)
	send(t, peer, append(datagrams(a, 64), datagrams(c, 64)...))
	require.Equal(t, []ib.GID{c}, take(t, m, 1))
	require.EqualValues(t, 4, m.Counters().RxPackets, "those of closed sockets count")

	m.have(t)
	require.ErrorContains(t, m.JoinGroup(ib.GIDFromIPv4(239, 77, 0, 9)), "no address of its family")
	m.have(t, a)
	send(t, peer, datagrams(a, 64))
	require.Equal(t, []ib.GID{a}, take(t, m, 1))
}

// TestMultiOpenRefused: an address that cannot be had is reported and keeps none of the others
// from working; two devices with one address have one socket; another device is another socket.
func TestMultiOpenRefused(t *testing.T) {
	m := openMulti(t)
	a := testGID()
	next, err := m.Open([]Address{{GID: ib.GIDFromIPv4(192, 0, 2, 77), Ifindex: 1}, {GID: a, Ifindex: 1}, {GID: a, Ifindex: 2}}, loopbackMTU)
	var refused *OpenError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, "192.0.2.77", refused.Local.Addr().String())
	require.ErrorIs(t, err, unix.EADDRNOTAVAIL)
	require.Len(t, next, 1)
	m.Use(next, loopbackMTU)

	again, err := m.Open([]Address{{GID: a, Ifindex: 1}}, loopbackMTU)
	require.NoError(t, err)
	require.Same(t, next[0], again[0])
	_, err = m.Open([]Address{{GID: a, Ifindex: 2}}, loopbackMTU)
	require.ErrorIs(t, err, unix.EADDRINUSE, "the old socket has the address until Use")
	m.Use(nil, loopbackMTU)
	again, err = m.Open([]Address{{GID: a, Ifindex: 2}}, loopbackMTU)
	require.NoError(t, err)
	require.Equal(t, 2, again[0].dev.index)
	m.Use(again, loopbackMTU)
}

// TestMultiGroupsMove: a group is received by some address, whichever there are.
func TestMultiGroupsMove(t *testing.T) {
	group := ib.GIDFromIPv4(239, 77, 0, 3)
	m, peer := openMulti(t), openTest(t, testConfig())
	a, b := testGID(), testGID()
	m.have(t, a, b)
	require.NoError(t, m.JoinGroup(group))
	require.NoError(t, m.JoinGroup(group), "twice is no error")
	hears := func() {
		t.Helper()
		send(t, peer, datagrams(group, 64))
		require.Equal(t, []ib.GID{group}, take(t, m, 1))
	}
	hears()
	m.have(t, b)
	hears()
	m.have(t)
	m.have(t, a) // it waited for one
	hears()
	require.NoError(t, m.LeaveGroup(group))
	require.NoError(t, m.LeaveGroup(group))
	send(t, peer, append(datagrams(group, 64), datagrams(a, 64)...))
	require.Equal(t, []ib.GID{a}, take(t, m, 1))
}

// TestMultiMTU: trains are as long as the device allows now.
func TestMultiMTU(t *testing.T) {
	m := openMulti(t)
	a := testGID()
	m.have(t, a)
	p := (*m.ports.Load())[0]
	before := p.tx.limits.segBytes
	m.Use([]*Port{p}, 1500)
	require.Less(t, p.tx.limits.segBytes, before)
	require.Equal(t, 1500, p.Details().NetdevMTU)
	m.Use([]*Port{p}, loopbackMTU)
	require.Equal(t, before, p.tx.limits.segBytes)
}

// TestMultiEnds: Wait returns when an address comes and at the end; afterwards nothing works
// and sockets that were opened meanwhile are closed.
func TestMultiEnds(t *testing.T) {
	m := openMulti(t)
	wait := func() <-chan error {
		c := make(chan error, 1)
		go func() { c <- m.Wait(time.Hour) }()
		return c
	}
	a := testGID()
	w := wait()
	m.have(t, a)
	require.NoError(t, requireReturns(t, w))
	next, err := m.Open([]Address{{GID: a, Ifindex: 1}, {GID: testGID(), Ifindex: 1}}, loopbackMTU)
	require.NoError(t, err)
	w = wait()
	require.NoError(t, m.Close())
	if err := requireReturns(t, w); err != nil {
		require.ErrorIs(t, err, fabric.ErrClosed)
	}
	require.NoError(t, m.Close())
	m.Use(next, loopbackMTU)
	for _, p := range next {
		require.ErrorIs(t, p.Wait(0), fabric.ErrClosed)
	}
	_, err = m.Open(nil, loopbackMTU)
	require.ErrorIs(t, err, fabric.ErrClosed)
	_, err = m.ReadBatch(make([]fabric.Datagram, 1))
	require.ErrorIs(t, err, fabric.ErrClosed)
	_, err = m.WriteBatch(datagrams(a, 64))
	require.ErrorIs(t, err, fabric.ErrClosed)
	require.ErrorIs(t, m.JoinGroup(ib.GIDFromIPv4(239, 77, 0, 4)), fabric.ErrClosed)
	m.Wake()
}

// TestMultiChangesUnderTraffic has addresses come and go while somebody waits and others send.
func TestMultiChangesUnderTraffic(t *testing.T) {
	m := openMulti(t)
	a, b := testGID(), testGID()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if err := m.Wait(time.Hour); errors.Is(err, fabric.ErrClosed) {
				return
			}
		}
	})
	peer := openTest(t, testConfig())
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = peer.WriteBatch(append(datagrams(a, 64), datagrams(b, 64)...))
			}
		}
	})
	batch := make([]fabric.Datagram, 8)
	for i := range 60 {
		m.have(t, [][]ib.GID{{a}, {a, b}, {b}, nil}[i%4]...)
		_, err := m.ReadBatch(batch)
		require.NoError(t, err)
		_, err = m.WriteBatch(from(a, datagrams(peer.LocalGID(), 64)))
		require.NoError(t, err)
	}
	m.have(t, a)
	// Only one may wait, and somebody does.
	for came, deadline := 0, time.Now().Add(testTimeout); came < 10; runtime.Gosched() {
		n, err := m.ReadBatch(batch)
		require.NoError(t, err)
		came += n
		require.Positive(t, time.Until(deadline), "%d datagrams came", came)
	}
	close(stop)
	require.NoError(t, m.Close())
	wg.Wait()
}
