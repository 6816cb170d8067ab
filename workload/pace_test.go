package workload

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/vtime"
)

// TestPace posts at a rate of one work request each 2 ms, for a host that looks at instants
// (in ms) that are mostly late.
func TestPace(t *testing.T) {
	const gap = 2 * time.Millisecond
	for _, c := range []struct {
		name    string
		catchUp time.Duration
		looks   []int // ms
		posted  []int // by each look
	}{
		{"in time", 0, []int{0, 2, 4, 6}, []int{1, 1, 1, 1}},
		{"early", 0, []int{0, 1, 2, 3}, []int{1, 0, 1, 0}},
		{"late, nothing made up for", 0, []int{0, 5, 10, 15}, []int{1, 1, 1, 1}},
		{"late, made up for", 10 * time.Millisecond, []int{0, 5, 10, 15}, []int{1, 2, 3, 2}},
		{"too late", 10 * time.Millisecond, []int{0, 100, 101, 102}, []int{1, 6, 0, 1}},
		{"late before the first", 10 * time.Millisecond, []int{50, 51, 52}, []int{1, 0, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var s sender
			for i, ms := range c.looks {
				now, n := vtime.Time(0).Add(time.Duration(ms)*time.Millisecond), 0
				for ; now >= s.paceAt; n++ {
					s.posted++
					s.pace(now, gap, c.catchUp)
				}
				require.Equal(t, c.posted[i], n, "at %d ms", ms)
			}
		})
	}
}
