package udp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// hub is a host that waits for ports by epoll.
type hub struct {
	t  *testing.T
	fd int
}

func newHub(t *testing.T) *hub {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &hub{t, fd}
}

// tags are those that are reported within ms.
func (h *hub) tags(ms int) map[int32]bool {
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(h.fd, events, ms)
		if err == unix.EINTR {
			continue
		}
		require.NoError(h.t, err)
		out := map[int32]bool{}
		for _, e := range events[:n] {
			out[e.Fd] = true
		}
		return out
	}
}

func (h *hub) reports(tag int32) {
	h.t.Helper()
	require.Equal(h.t, map[int32]bool{tag: true}, h.tags(int(testTimeout.Milliseconds())))
}

func (h *hub) quiet() { h.t.Helper(); require.Empty(h.t, h.tags(0)) }

// TestWatch waits for two ports at once.
func TestWatch(t *testing.T) {
	a, b := openPair(t, nil)
	h := newHub(t)
	require.NoError(t, a.Watch(h.fd, 7))
	require.NoError(t, b.Watch(h.fd, 8))
	h.quiet()

	send(t, a, datagrams(b.LocalGID(), 64))
	h.reports(8)
	h.reports(8) // until it is read
	receive(t, b, 1)
	h.quiet()

	a.Wake()
	a.Wake()
	h.reports(7)
	h.quiet()
	a.Wake()
	h.quiet() // nobody has said that he heard the first
	a.Heard()
	a.Wake()
	h.reports(7)
	a.Heard()

	group := ib.GIDFromIPv4(239, 77, 0, 9)
	require.NoError(t, b.JoinGroup(group))
	h.reports(8) // the list of sockets has changed
	b.Heard()
	send(t, a, datagrams(group, 100))
	h.reports(8)
	receive(t, b, 1)
	require.NoError(t, b.LeaveGroup(group))
	h.reports(8)
	b.Heard()

	a.Wake()
	require.NoError(t, a.Close())
	h.quiet()
	require.ErrorIs(t, a.Watch(h.fd, 7), fabric.ErrClosed)
	h.quiet()
}

// TestWatchTellsOfRoom fills a socket: as long as the last write was short the port
// reports that there is room again.
func TestWatchTellsOfRoom(t *testing.T) {
	a, _ := openPair(t, nil)
	h := newHub(t)
	require.NoError(t, a.Watch(h.fd, 1))
	a.setBlocked(true)
	h.reports(1)
	a.setBlocked(true)
	h.reports(1)
	a.setBlocked(false)
	h.quiet()
}

// TestPendingIsNotReported leaves datagrams in the port that were read from the socket.
func TestPendingIsNotReported(t *testing.T) {
	a, b := openPair(t, nil)
	h := newHub(t)
	require.NoError(t, b.Watch(h.fd, 1))
	send(t, a, datagrams(b.LocalGID(), 300, 300, 300))
	h.reports(1)
	var got [1]fabric.Datagram
	for n := 0; n < 3; {
		k, err := b.ReadBatch(got[:])
		require.NoError(t, err)
		n += k
		if n < 3 {
			require.True(t, b.Pending() || len(h.tags(0)) > 0, "it is in the port or in the socket")
		}
	}
	require.False(t, b.Pending())
	h.quiet()
}

// TestWatchMulti follows addresses that come and go.
func TestWatchMulti(t *testing.T) {
	cfg := testConfig()
	m, err := OpenMulti(cfg, func(f func() error) error { return f() })
	require.NoError(t, err)
	t.Cleanup(func() { _ = m.Close() })
	h := newHub(t)
	require.NoError(t, m.Watch(h.fd, 5))
	h.quiet()
	next, err := m.Open([]Address{{GID: cfg.Local, Ifindex: 1}}, 65536)
	require.NoError(t, err)
	m.Use(next, 65536)
	h.reports(5)
	m.Heard()
	c := testConfig()
	c.Local, c.Port = ib.GIDFromIPv4(127, 9, 9, 9), cfg.Port
	other := openTest(t, c)
	send(t, other, datagrams(cfg.Local, 64))
	h.reports(5)
	var got [4]fabric.Datagram
	n, err := m.ReadBatch(got[:])
	require.NoError(t, err)
	require.Equal(t, 1, n)
	h.quiet()
	require.False(t, m.Pending())
	m.Use(nil, 65536)
	h.reports(5)
	m.Heard()
	require.NoError(t, m.Close())
	h.quiet()
}
