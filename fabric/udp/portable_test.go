package udp

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func openPortableTest(t *testing.T) *Portable {
	t.Helper()
	p, err := OpenPortable(testConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// TestPortablePairs runs the portable port against itself and against the system's.
func TestPortablePairs(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	native, err := Open(testConfig())
	require.NoError(t, err)
	t.Cleanup(func() { _ = native.Close() })
	p, q := openPortableTest(t), openPortableTest(t)
	for _, way := range [][2]waitingPort{{p, q}, {p, native}, {native, p}} {
		for range 5 {
			sent := randomDatagrams(rng, way[1].LocalGID(), 1+rng.IntN(100))
			send(t, way[0], sent)
			requireSame(t, sent, receive(t, way[1], len(sent)))
		}
	}
	require.Equal(t, 1, p.BatchSize())
	require.Equal(t, native.MTU(), p.MTU())
	require.NoError(t, p.Degraded())
}

func TestPortableRefusals(t *testing.T) {
	p, q := openPortableTest(t), openPortableTest(t)
	sent := datagrams(q.LocalGID(), 64, 15, 64, 64, MaxDatagramBytes+1)
	sent[2].BadICRC = true
	sent[3].Path.Dst = gid6
	send(t, p, sent)
	requireSame(t, sent[:1], receive(t, q, 1))
	awaitCount(t, q, 1, func() uint64 { return q.Counters().RxBadICRC })
	require.EqualValues(t, 3, p.Counters().TxErrors)

	raw := rawSender(t, q)
	for _, n := range []int{0, 15, 8192, 65507} {
		_, err := raw.Write(make([]byte, n))
		require.NoError(t, err)
	}
	awaitCount(t, q, 4, func() uint64 { return q.Counters().RxTooShort })
	require.EqualValues(t, 2, q.Details().RxTruncated)

	require.ErrorIs(t, p.JoinGroup(ib.GIDFromIPv4(239, 1, 1, 1)), errors.ErrUnsupported)
	require.NoError(t, p.LeaveGroup(ib.GIDFromIPv4(239, 1, 1, 1)))
}
