package strict

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
)

// TestTight: queues that came within a tenth of full are told of, also when they are gone, and
// others are not.
func TestTight(t *testing.T) {
	b := newBench(t, All(), 1)
	x, _ := b.pair()
	require.Empty(t, b.g.Tight())
	for i := range uint64(slots) - 1 {
		require.NoError(t, b.write(x, i, ib.SendSignaled))
	}
	require.Empty(t, b.g.Tight(), "one slot of %d is free", slots)
	require.NoError(t, b.write(x, 99, ib.SendSignaled))
	full := Mark{"send queue of " + x.String(), slots, slots}
	require.Equal(t, []Mark{full}, b.g.Tight())
	b.settle()
	require.Equal(t, slots, b.cq.Poll(make([]cq.WC, 2*slots)))
	require.Equal(t, []Mark{full}, b.g.Tight(), "it was full once")
	require.Equal(t, "send queue of "+x.String()+": 4 of 4", full.String())
	require.NoError(t, b.d.DestroyQP(b.now, x))
	require.Equal(t, []Mark{full}, b.g.Tight(), "it is gone")

	small, err := b.d.CreateCQ(2, nil)
	require.NoError(t, err)
	for i := range uint64(2) {
		require.True(t, small.Enter(&cq.WC{WRID: i}, false))
		b.g.cq(small).enter(item{})
	}
	require.Equal(t, []Mark{full, {small.String(), 2, 2}}, b.g.Tight())

	for range 2 * maxPast {
		b.g.retire(Mark{"cq", 9, 10})
		b.g.retire(Mark{"cq", 8, 10})
		b.g.retire(Mark{"cq", 1, 1})
	}
	require.Len(t, b.g.Tight(), maxPast+1, "those that are gone are bounded")
	require.Equal(t, Mark{"cq", 9, 10}, b.g.Tight()[0])
}
