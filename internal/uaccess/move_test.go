package uaccess

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// TestMove: all bytes arrive, at any alignment and of any length, and none beside them changes.
func TestMove(t *testing.T) {
	if start, _, _ := Guard(); start == 0 {
		t.Log("there is no code for this processor; only what needs none is tested")
		require.True(t, Load(nil, 0))
		require.True(t, Store(0, nil, nil))
		return
	}
	next := make([]byte, 300)
	rapid.Check(t, func(t *rapid.T) {
		from, to := rapid.IntRange(0, 70).Draw(t, "from"), rapid.IntRange(0, 70).Draw(t, "to")
		src := make([]byte, from+rapid.IntRange(0, 400).Draw(t, "length"))
		for i := range src {
			src[i] = byte(rand.Uint32())
		}
		src = src[from:]
		ahead := next[:rapid.IntRange(0, len(next)).Draw(t, "ahead")]
		want := bytes.Repeat([]byte{0xa5}, to+len(src)+9)
		copy(want[to:], src)

		dst := bytes.Repeat([]byte{0xa5}, len(want))
		require.True(t, Store(addressOf(dst)+uint64(to), src, ahead))
		require.Equal(t, want, dst)

		dst = bytes.Repeat([]byte{0xa5}, len(want))
		require.True(t, Load(dst[to:to+len(src)], addressOf(src)))
		require.Equal(t, want, dst)
	})
}

// TestGuard: what is guarded is one small piece of code, and a fault goes on behind it.
func TestGuard(t *testing.T) {
	start, end, landing := Guard()
	require.Less(t, end-start, uintptr(1024))
	require.GreaterOrEqual(t, landing, end)
	require.Equal(t, start == 0, landing == 0)
}
