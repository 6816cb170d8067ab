package sim

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestIdleNodeIsSmall keeps worlds of very many nodes possible.
func TestIdleNodeIsSmall(t *testing.T) {
	const nodes = 2000
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	w := newWorld(t, Config{}, nodes)
	runtime.GC()
	runtime.ReadMemStats(&after)
	perNode := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / nodes
	t.Logf("%d bytes per idle node", perNode)
	require.Less(t, perNode, int64(4<<10))
	require.Len(t, w.Nodes(), nodes)
}
