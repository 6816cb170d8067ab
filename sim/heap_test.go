package sim

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/vtime"
)

func TestNodeHeapAgainstSorting(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	nodes := make([]*Node, 50)
	for i := range nodes {
		nodes[i] = &Node{Index: mem.NodeIndex(i), wakeAt: vtime.Never, heapPos: -1}
	}
	var h nodeHeap
	for range 3000 {
		n := nodes[r.IntN(len(nodes))]
		at := vtime.Time(r.IntN(20))
		if r.IntN(3) == 0 {
			at = vtime.Never
		}
		h.move(n, at)
		var in []*Node
		for _, n := range nodes {
			require.Equal(t, n.wakeAt == vtime.Never, n.heapPos < 0)
			if n.heapPos >= 0 {
				require.Same(t, n, h[n.heapPos])
				in = append(in, n)
			}
		}
		require.Len(t, h, len(in))
		if len(in) > 0 {
			require.Same(t, slices.MinFunc(in, func(a, b *Node) int {
				if a.before(b) {
					return -1
				}
				return 1
			}), h[0])
		}
	}
}

func TestCallHeapKeepsOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h callHeap
	for range 1000 {
		h.push(call{at: vtime.Time(r.IntN(30))})
	}
	last := h.pop()
	for h.len() > 0 {
		c := h.pop()
		require.True(t, c.at > last.at || c.at == last.at && c.seq > last.seq)
		last = c
	}
	require.Equal(t, vtime.Never, h.next())
}
