package verbs

import (
	"bytes"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric/shm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
)

// exchange sends a message each way and returns how many system calls sent the packets.
func exchange(a, b *host, qa, qb *QP) uint64 {
	before := a.d.Counters().Port.TxSyscalls + b.d.Counters().Port.TxSyscalls
	for _, s := range []struct {
		from, to   *host
		qfrom, qto *QP
	}{{a, b, qa, qb}, {b, a, qb, qa}} {
		require.NoError(a.t, s.qto.PostRecv(RecvWR{SGL: s.to.sgl(0, 64)}))
		require.NoError(a.t, s.qfrom.PostSend(SendWR{Opcode: ib.WRSend, SGL: s.from.sgl(4096, 64)}))
		s.from.ok(1)
		s.to.ok(1)
	}
	return a.d.Counters().Port.TxSyscalls + b.d.Counters().Port.TxSyscalls - before
}

func openAt(t testing.TB, n int, memory bool) *host {
	d, err := Open(Config{Address: loopback.Node(n, testPort), Memory: memory})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Shutdown() })
	return newHost(t, d)
}

// TestMemoryNeedsNoCalls shows that packets go through memory if both devices have it, and
// by UDP if one has not.
func TestMemoryNeedsNoCalls(t *testing.T) {
	for _, both := range []bool{true, false} {
		a, b := openAt(t, 0, true), openAt(t, 1, both)
		qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
		require.NoError(t, Connect(qa, qb))
		require.Equal(t, both, exchange(a, b, qa, qb) == 0)
		require.NoError(t, a.d.Shutdown())
		require.NoError(t, b.d.Shutdown())
	}
}

// TestMemoryConnectAtOnce connects both sides at the same time: each answers the other while
// it asks.
func TestMemoryConnectAtOnce(t *testing.T) {
	a, b := openAt(t, 0, true), openAt(t, 1, true)
	qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
	// Whatever holds up a's answers while a asks must not hold up b.
	a.d.lanes.asking.Lock()
	connected := make(chan error, 1)
	p := DefaultConnParams(a.d.GID(), qa.QPN())
	go func() {
		connected <- qb.ToInit(p)
		connected <- qb.ToRTR(p)
	}()
	require.NoError(t, <-connected)
	require.NoError(t, <-connected)
	a.d.lanes.asking.Unlock()
	require.True(t, b.d.lanes.reaches(shm.Peer{GID: a.d.GID(), Seat: uint8(qa.QPN() >> 16)}))
}

// TestMemoryPeerComesBack closes one side and opens it again: the other one finds it.
func TestMemoryPeerComesBack(t *testing.T) {
	a := openAt(t, 0, true)
	for range 3 {
		b := openAt(t, 1, true)
		qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
		require.NoError(t, Connect(qa, qb))
		require.Zero(t, exchange(a, b, qa, qb))
		require.NoError(t, b.d.Shutdown())
		require.False(t, a.d.lanes.reaches(shm.Peer{GID: b.d.GID(), Seat: uint8(qb.QPN() >> 16)}))
	}
}

// TestMemoryPeerIsKilled kills the process of a peer: the lane to it is given up.
func TestMemoryPeerIsKilled(t *testing.T) {
	r := openRC(t, loopback.Address(0), "memory")
	t.Cleanup(func() { _ = r.d.Shutdown() })
	c, p := startProcess(t, "echo-memory", loopback.Address(1), loopback.Address(0))
	var far rcPlace
	p.hear(t, &far)
	p.tell(t, r.place(loopback.Address(0)))
	r.connect(far)
	p.hear(t, &struct{}{})
	var l laps
	r.pingPong(3, &l)
	to := shm.Peer{GID: far.GID, Seat: uint8(far.QPN >> 16)}
	require.True(t, r.d.lanes.reaches(to))
	require.Zero(t, r.d.Counters().Port.TxSyscalls)
	require.NoError(t, c.Process.Kill())
	require.Error(t, c.Wait())
	require.Eventually(t, func() bool { return !r.d.lanes.reaches(to) }, time.Minute, time.Millisecond)
}

// TestMemoryIsGivenBack opens, connects and closes many devices, several at a time.
func TestMemoryIsGivenBack(t *testing.T) {
	round := func() {
		var both sync.WaitGroup
		for i := range 2 {
			both.Go(func() {
				a, b := openAt(t, 2*i, true), openAt(t, 2*i+1, true)
				qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
				if Connect(qa, qb) != nil || exchange(a, b, qa, qb) != 0 {
					t.Error("not connected through memory")
				}
				_, _ = a.d.Shutdown(), b.d.Shutdown()
			})
		}
		both.Wait()
	}
	round()
	files, maps := open(t)
	for range 5 {
		round()
	}
	f, m := open(t)
	require.LessOrEqual(t, f, files+2) // the runtime's own may come and go
	require.LessOrEqual(t, m, maps)
}

// open counts the process's descriptors and the pieces of inboxes that it has mapped.
func open(t *testing.T) (files, maps int) {
	list, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	b, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	return len(list), bytes.Count(b, []byte("rvtsim-inbox"))
}
