package mem

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// churn sends and pops so that depth packets are in flight, of mixed sizes.
type churn struct {
	n     *Network
	now   vtime.Time
	nodes int
	i     int
	paths []wire.Path
	pkt   [2]wire.Packet
	load  []byte
}

func newChurn(cfg Config, nodes, depth, payload int) *churn {
	c := &churn{n: world(cfg, nodes), nodes: nodes, load: make([]byte, payload)}
	for i := range nodes {
		c.paths = append(c.paths, *path(i, (i+1)%nodes))
	}
	c.pkt[0] = wire.Packet{Opcode: ib.OpWriteOnly, AckReq: true, Pad: wire.PadFor(payload)}
	c.pkt[1] = wire.Packet{Opcode: ib.OpAcknowledge}
	for range depth {
		c.send()
	}
	return c
}

func (c *churn) send() {
	from := c.i % c.nodes
	if c.i%2 == 0 {
		c.n.Send(c.now, NodeIndex(from), &c.paths[from], &c.pkt[0], c.load)
	} else {
		c.n.Send(c.now, NodeIndex(from), &c.paths[from], &c.pkt[1], nil)
	}
	c.i++
}

func (c *churn) step() {
	c.send()
	at := c.n.NextAt()
	if f, ok := c.n.Pop(at); ok {
		c.now = at
		c.n.Release(f)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	lossy := fabric.ImpairmentConfig{Loss: 0.01, Duplicate: 0.01, Corrupt: 0.01, Reorder: 0.01, ReorderDelay: 100, Jitter: 50}
	for name, cfg := range map[string]Config{
		"plain":  {Default: LinkConfig{Latency: 1000}},
		"encode": {Encode: true, Default: LinkConfig{Latency: 1000}},
		"lossy":  {Default: LinkConfig{Latency: 1000, Jitter: 100, BandwidthBitsPerSecond: 1e11, Impairment: lossy}},
		"sink":   {Default: LinkConfig{Latency: 1000}, Sink: discard{}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newChurn(cfg, 16, 1000, 1024)
			for range 20000 {
				c.step()
			}
			require.Zero(t, testing.AllocsPerRun(5000, c.step))
		})
	}
}

type discard struct{}

func (discard) Capture(vtime.Time, *fabric.Datagram) {}

func TestMemoryGrowsWithNodesNotPairs(t *testing.T) {
	n := world(Config{Default: LinkConfig{Latency: 1}}, 300)
	for a := range 300 {
		for b := range 300 {
			send(n, 0, a, b, 0, 0)
			f, ok := n.Pop(1)
			require.True(t, ok)
			n.Release(f)
		}
	}
	require.Empty(t, n.links)
	require.Empty(t, n.linkAt)
	require.Equal(t, 1, n.slab.used, "one frame serves all")
}

func BenchmarkSendPop(b *testing.B) {
	for _, encode := range []bool{false, true} {
		for _, depth := range []int{1, 1000, 100000} {
			for _, payload := range []int{64, 1024, 4096} {
				b.Run(fmt.Sprintf("encode=%v/depth=%d/payload=%d", encode, depth, payload), func(b *testing.B) {
					c := newChurn(Config{Encode: encode, Default: LinkConfig{Latency: time.Microsecond, Jitter: time.Microsecond}}, 1024, depth, payload)
					b.ReportAllocs()
					for b.Loop() {
						c.step()
					}
				})
			}
		}
	}
}
