package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// counted counts what a host asks of its port.
type counted struct {
	*SwitchPort
	reads, wakes atomic.Int32
}

func (p *counted) ReadBatch(dst []fabric.Datagram) (int, error) {
	p.reads.Add(1)
	return p.SwitchPort.ReadBatch(dst)
}

func (p *counted) Wake() { p.wakes.Add(1) }

// countedPair is a pair of nodes that only Turn drives.
func countedPair(t *testing.T, cfg Config) (a, b *end, send func(uint64), ports []*counted) {
	cfg.Manual = true
	a, b, qa, qb := pair(t, options{cfg: cfg, wrap: func(p fabric.Port) fabric.Port {
		c := &counted{SwitchPort: p.(*SwitchPort)}
		ports = append(ports, c)
		return c
	}})
	for i := range uint64(8) {
		b.recv(qb, swqe.RecvWR{WRID: i, SGL: b.sge(0, 100)})
	}
	return a, b, func(id uint64) { a.send(qa, swqe.SendWR{WRID: id, Opcode: ib.WRSend, SGL: a.sge(0, 64)}) }, ports
}

// TestTurnReadsWhenTold moves a message with one read on each side: a loop knows which
// sockets have something.
func TestTurnReadsWhenTold(t *testing.T) {
	a, b, send, ports := countedPair(t, Config{})
	send(1)
	for _, p := range ports {
		p.reads.Store(0)
	}
	sent, due := b.n.Turn(Work{})
	require.False(t, sent)
	require.Equal(t, vtime.Never, due)
	require.Empty(t, b.poll())
	require.Zero(t, ports[1].reads.Load())

	sent, _ = b.n.Turn(Work{Packets: true})
	require.True(t, sent, "the ACK")
	require.Len(t, b.poll(), 1)
	require.Equal(t, int32(1), ports[1].reads.Load())

	_, due = a.n.Turn(Work{})
	require.NotEqual(t, vtime.Never, due, "the retry timer runs")
	require.Empty(t, a.poll())
	sent, _ = a.n.Turn(Work{Packets: true})
	require.False(t, sent)
	require.Len(t, a.poll(), 1)
	require.Equal(t, int32(1), ports[0].reads.Load())
}

// TestTurnRingsDoorbells takes what waits in a ring of the program's own.
func TestTurnRingsDoorbells(t *testing.T) {
	rung := 0
	var b *end
	_, b, _, _ = countedPair(t, Config{Doorbells: func(d *rvt.Device) { rung++ }})
	b.n.Turn(Work{Packets: true})
	require.Zero(t, rung)
	b.n.Turn(Work{Doorbells: true})
	require.Equal(t, 1, rung)
}

// TestTurnHearsOfEarlierWork sleeps for nodes between turns: whoever gives the device a
// deadline calls the port's Wake, once, and a late timer reads what may have stopped it.
func TestTurnHearsOfEarlierWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b, send, ports := countedPair(t, Config{Now: bubbleClock()})
		_, due := a.n.Turn(Work{Packets: true})
		require.Equal(t, vtime.Never, due)
		ports[0].wakes.Store(0)
		send(1)
		require.Equal(t, int32(1), ports[0].wakes.Load())
		send(2)
		require.Equal(t, int32(1), ports[0].wakes.Load(), "who is awake is not woken")
		_, due = a.n.Turn(Work{})
		timeout, _ := ib.AckTimeout(14)
		require.InDelta(t, float64(timeout), float64(due.Sub(a.n.Now())), float64(time.Millisecond))

		b.n.Turn(Work{Packets: true}) // the ACK waits in a's port
		time.Sleep(timeout)
		ports[0].reads.Store(0)
		a.n.Turn(Work{})
		require.Equal(t, int32(1), ports[0].reads.Load())
		require.Len(t, a.poll(), 2)
		require.Zero(t, a.n.Counters().Device.RetryTimeout)
	})
}

// TestManualNodeTellsItsEnd: who waits for Done must not spin while the node works.
func TestManualNodeTellsItsEnd(t *testing.T) {
	ended := func(n *Node) bool {
		select {
		case <-n.Done():
			return true
		default:
			return false
		}
	}
	a, b, _, ports := countedPair(t, Config{})
	require.False(t, ended(a.n))
	require.NoError(t, a.n.Close())
	require.NoError(t, a.n.Close())
	require.True(t, ended(a.n))
	_, due := a.n.Turn(Work{Packets: true, Doorbells: true})
	require.Equal(t, vtime.Never, due)

	require.NoError(t, ports[1].Close()) // the port fails
	require.False(t, ended(b.n))
	b.n.Turn(Work{Packets: true})
	require.True(t, ended(b.n))
	require.NoError(t, b.n.Close())
}
