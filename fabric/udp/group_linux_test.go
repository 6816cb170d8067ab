package udp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// TestMulticast joins two of three nodes to a group on the loopback interface.
func TestMulticast(t *testing.T) {
	group, other := ib.GIDFromIPv4(239, 77, 0, 1), ib.GIDFromIPv4(239, 77, 0, 2)
	a, b := openPair(t, nil)
	c := openTest(t, testConfig())
	for _, p := range []*Port{a, b} {
		require.NoError(t, p.JoinGroup(group))
		require.NoError(t, p.JoinGroup(group), "twice is no error")
	}
	require.NoError(t, c.JoinGroup(other))

	woken := inWait(b)
	sent := datagrams(group, 300, 300, 300, 100)
	send(t, c, sent)
	require.NoError(t, requireReturns(t, woken))
	for _, p := range []*Port{a, b} {
		requireSame(t, sent, receive(t, p, len(sent)))
	}
	// Unicast, two groups and one's own multicast, all at once.
	require.NoError(t, a.JoinGroup(other))
	all := append(append(datagrams(a.LocalGID(), 50), datagrams(group, 60)...), datagrams(other, 70)...)
	send(t, a, all)
	got := map[ib.GID]fabric.Datagram{}
	for _, d := range receive(t, a, 3) {
		got[d.Path.Dst] = d
	}
	for _, d := range all {
		requireSame(t, []fabric.Datagram{d}, []fabric.Datagram{got[d.Path.Dst]})
	}
	receive(t, b, 1)
	receive(t, c, 1)

	require.NoError(t, a.LeaveGroup(group))
	require.NoError(t, a.LeaveGroup(group))
	send(t, c, sent)
	receive(t, b, len(sent))
	send(t, c, datagrams(a.LocalGID(), 64)) // comes after, so the group's would be here
	receive(t, a, 1)
	n, err := a.ReadBatch(make([]fabric.Datagram, 1))
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestMulticastRefusals(t *testing.T) {
	p := openTest(t, testConfig())
	require.ErrorContains(t, p.JoinGroup(gid2), "not a multicast group")
	require.ErrorContains(t, p.JoinGroup(ib.GID{0: 0xff, 1: 0x0e, 15: 1}), "address family")
	for i := range MaxGroups {
		if err := p.JoinGroup(ib.GIDFromIPv4(239, 78, 0, byte(i))); err != nil {
			t.Skip("this system allows fewer memberships: ", err)
		}
	}
	require.ErrorContains(t, p.JoinGroup(ib.GIDFromIPv4(239, 78, 1, 0)), "64 groups")
	require.NoError(t, p.Wait(0), "all of them can be waited for")
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.JoinGroup(ib.GIDFromIPv4(239, 78, 1, 0)), fabric.ErrClosed)
	require.ErrorIs(t, p.LeaveGroup(ib.GIDFromIPv4(239, 78, 0, 0)), fabric.ErrClosed)
}

func TestMulticastIPv6(t *testing.T) {
	cfg := DefaultConfig(gid6)
	cfg.Port = testPort
	p, err := Open(cfg)
	if err != nil {
		t.Skip("no IPv6 loopback: ", err)
	}
	defer p.Close()
	for _, group := range []ib.GID{{0: 0xff, 1: 0x02, 14: 0x77, 15: 1}, {0: 0xff, 1: 0x0e, 14: 0x77, 15: 1}} {
		require.NoError(t, p.JoinGroup(group))
		sent := datagrams(group, 300, 300, 100)
		send(t, p, sent)
		if errors.Is(p.Details().LastTxErr, unix.ENETUNREACH) {
			t.Skip("no multicast route over loopback")
		}
		got := receive(t, p, len(sent))
		for i := range got {
			got[i].Path.FlowLabel = 0
		}
		requireSame(t, sent, got)
	}
}
