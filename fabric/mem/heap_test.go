package mem

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/vtime"
)

func TestHeapSorts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n := range 70 {
		var h eventHeap
		var want []event
		for i := range n {
			e := event{at: vtime.Time(rng.IntN(20)), seq: uint64(i), slot: uint32(i)}
			h.push(e)
			want = append(want, e)
		}
		slices.SortFunc(want, func(a, b event) int {
			if a.before(&b) {
				return -1
			}
			return 1
		})
		var got []event
		for len(h) > 0 {
			got = append(got, h.pop())
		}
		require.Equal(t, want, got)
	}
}

func TestHeapInterleaved(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var h eventHeap
	now := vtime.Time(0)
	seq := uint64(0)
	for range 20000 {
		if len(h) == 0 || rng.IntN(2) == 0 {
			h.push(event{at: now + vtime.Time(rng.IntN(50)), seq: seq})
			seq++
			continue
		}
		e := h.pop()
		require.GreaterOrEqual(t, e.at, now)
		now = e.at
		for i := range h {
			require.False(t, h[i].before(&e))
			if i > 50 {
				break
			}
		}
	}
}
