package runner

import (
	"net/netip"
	"sync"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Ways is the network that a file describes, for packets that travel over sockets: the
// bandwidth, the queues, the latency and the MTU of its links and switches. It is the
// network of virtual time, asked by the clock of the wall. Its methods may be called from
// any goroutine.
type Ways struct {
	mu  sync.Mutex
	net *mem.Network
}

// NewWays makes the network of a file whose nodes are numbered as there; the number after
// the last stands for everybody else.
func NewWays(f *topology.File, seed uint64) (*Ways, error) {
	w := &Ways{net: mem.New(mem.Config{Seed: seed, Default: linkConfig(&f.Network)})}
	for i := range len(f.Nodes) + 1 {
		// What the nodes' own addresses are does not matter here, and those of network
		// devices come and go.
		w.net.Attach(udp.GIDFromAddr(netip.AddrFrom16([16]byte{0xfd, 12: byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)})))
	}
	if err := joinNodes(w.net, f, nodeIndex); err != nil {
		return nil, err
	}
	return w, nil
}

func nodeIndex(i int) mem.NodeIndex { return mem.NodeIndex(i) }

// Between is what lies between two nodes; nil if that takes neither time nor room now.
func (w *Ways) Between(i, j int) fabric.Way {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.net.Instant(nodeIndex(i), nodeIndex(j)) {
		return nil
	}
	return way{w, nodeIndex(i), nodeIndex(j)}
}

// Change carries out a SetLink.
func (w *Ways) Change(x *topology.Fault) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return changeLink(w.net, x, nodeIndex)
}

// way is Ways from one node to another.
type way struct {
	w        *Ways
	from, to mem.NodeIndex
}

// Step implements fabric.Way.
func (y way) Step(now vtime.Time, s fabric.Stage, p fabric.PacketInfo, payload int, path *wire.Path) (fabric.Stage, vtime.Time, fabric.LossReason, bool) {
	y.w.mu.Lock()
	defer y.w.mu.Unlock()
	return y.w.net.Through(now, s, y.from, y.to, p.Bytes, payload, path)
}
