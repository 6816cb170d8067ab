package node

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBudget learns from small and from large packets.
func TestBudget(t *testing.T) {
	b := newBudget(128)
	require.Equal(t, 128, b.packets)
	for range 20 {
		b.learn(31*4112, 31)
	}
	require.Equal(t, 30, b.packets, "two trains of 15")
	for range 20 {
		b.learn(80, 1)
	}
	require.Equal(t, 128, b.packets)
}
