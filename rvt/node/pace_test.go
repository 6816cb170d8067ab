package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	require.Equal(t, 1, paceOf(0))
	require.Equal(t, 1, paceOf(2*ordinary-1))
	require.Equal(t, 2, paceOf(2*ordinary))
	require.Equal(t, maxPace, paceOf(time.Second))
	require.Contains(t, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}, Pace())
	require.Positive(t, sample())
}

func BenchmarkPace(b *testing.B) {
	for b.Loop() {
		sample()
	}
}
