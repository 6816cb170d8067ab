package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

func switchPair(t *testing.T) (sw *Switch, a, b *SwitchPort) {
	sw = NewSwitch(nil)
	a, err := sw.Port(ib.GIDFromIPv4(10, 0, 0, 1), ib.MTU1024)
	require.NoError(t, err)
	b, err = sw.Port(ib.GIDFromIPv4(10, 0, 0, 2), ib.MTU1024)
	require.NoError(t, err)
	return sw, a, b
}

func datagram(from, to ib.GID, n int) fabric.Datagram {
	return fabric.Datagram{Path: wire.Path{Src: from, Dst: to}, Buf: make([]byte, 16+n)}
}

func TestSwitchDelivers(t *testing.T) {
	_, a, b := switchPair(t)
	bad := datagram(a.LocalGID(), b.LocalGID(), 0)
	bad.BadICRC = true
	n, err := a.WriteBatch([]fabric.Datagram{datagram(a.LocalGID(), b.LocalGID(), 4), bad,
		datagram(a.LocalGID(), ib.GIDFromIPv4(10, 0, 0, 9), 4), datagram(a.LocalGID(), b.LocalGID(), 8)})
	require.NoError(t, err)
	require.Equal(t, 4, n)
	dst := make([]fabric.Datagram, 1)
	for _, size := range []int{20, 24} {
		n, err := b.ReadBatch(dst)
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Len(t, dst[0].Buf, size)
		crc := make([]byte, 4)
		wire.PutICRC(crc, wire.ICRC(&dst[0].Path, dst[0].Buf[:size-4]))
		require.Equal(t, crc, dst[0].Buf[size-4:])
	}
	n, err = b.ReadBatch(dst)
	require.NoError(t, err)
	require.Zero(t, n)
	require.Equal(t, uint64(1), b.Counters().RxBadICRC)
	require.Equal(t, uint64(1), a.Counters().TxErrors)
}

// TestSwitchLends keeps what ReadBatch returned while more arrives.
func TestSwitchLends(t *testing.T) {
	_, a, b := switchPair(t)
	one := datagram(a.LocalGID(), b.LocalGID(), 4)
	one.Buf[12] = 1
	src := make([]fabric.Datagram, switchQueue)
	for i := range src {
		src[i] = datagram(a.LocalGID(), b.LocalGID(), 4)
		src[i].Buf[12] = 2
	}
	_, err := a.WriteBatch([]fabric.Datagram{one})
	require.NoError(t, err)
	dst := make([]fabric.Datagram, 4)
	n, err := b.ReadBatch(dst)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = a.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, byte(1), dst[0].Buf[12])
	total := 0
	for n = 1; n > 0; total += n {
		n, err = b.ReadBatch(dst)
		require.NoError(t, err)
	}
	require.Equal(t, switchQueue-1, total, "one slot was lent out")
	require.Equal(t, uint64(1), b.Counters().RxOverflow)
}

func TestSwitchGroups(t *testing.T) {
	_, a, b := switchPair(t)
	g := ib.GIDFromIPv4(224, 0, 0, 9)
	require.Error(t, a.JoinGroup(a.LocalGID()))
	require.NoError(t, a.JoinGroup(g))
	require.NoError(t, a.JoinGroup(g))
	require.NoError(t, b.JoinGroup(g))
	dst := make([]fabric.Datagram, 4)
	for _, want := range []int{1, 0} {
		_, err := a.WriteBatch([]fabric.Datagram{datagram(a.LocalGID(), g, 0)})
		require.NoError(t, err)
		n, err := b.ReadBatch(dst)
		require.NoError(t, err)
		require.Equal(t, want, n)
		n, err = a.ReadBatch(dst)
		require.NoError(t, err)
		require.Equal(t, 1, n, "the sender is a member")
		require.NoError(t, b.LeaveGroup(g))
	}
}

func TestSwitchWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := switchPair(t)
		start := time.Now()
		require.NoError(t, b.Wait(0))
		require.NoError(t, b.Wait(time.Second))
		require.Equal(t, time.Second, time.Since(start))
		b.Wake()
		require.NoError(t, b.Wait(forever))
		_, err := a.WriteBatch([]fabric.Datagram{datagram(a.LocalGID(), b.LocalGID(), 0)})
		require.NoError(t, err)
		require.NoError(t, b.Wait(forever))
		require.NoError(t, b.Wait(forever), "still unread")
		require.Equal(t, time.Second, time.Since(start))
		got := make(chan error)
		go func() { got <- a.Wait(forever) }()
		synctest.Wait()
		require.NoError(t, a.Close())
		require.ErrorIs(t, <-got, fabric.ErrClosed)
		require.NoError(t, a.Close())
		_, err = a.ReadBatch(nil)
		require.ErrorIs(t, err, fabric.ErrClosed)
		_, err = a.WriteBatch(nil)
		require.ErrorIs(t, err, fabric.ErrClosed)
		require.ErrorIs(t, a.Wait(0), fabric.ErrClosed)
	})
}
