package verbs

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/mr"
)

// TestMemoryCopies compares with plain copies at every alignment and length.
func TestMemoryCopies(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	buf := make([]byte, 256)
	m := newMemory(buf)
	random := func(b []byte) {
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
	}
	for off := range 17 {
		for n := range 130 {
			random(buf)
			want := bytes.Clone(buf)
			src, dst := make([]byte, n), make([]byte, n)
			random(src)
			done, err := m.ReadV([]mr.Op{{Addr: m.base + uint64(off), Buf: dst}})
			require.NoError(t, err)
			require.Equal(t, 1, done)
			require.Equal(t, want[off:off+n], dst, "read %d at %d", n, off)
			_, err = m.WriteV([]mr.Op{{Addr: m.base + uint64(off), Buf: src}})
			require.NoError(t, err)
			copy(want[off:], src)
			require.Equal(t, want, buf, "write %d at %d", n, off)
		}
	}
}

func TestMemoryBounds(t *testing.T) {
	m := newMemory(make([]byte, 64))
	for _, c := range []struct {
		off uint64
		n   int
	}{{^uint64(0), 1}, {64, 1}, {60, 5}, {0, 65}, {1 << 40, 8}} {
		_, err := m.ReadV([]mr.Op{{Addr: m.base + c.off, Buf: make([]byte, c.n)}})
		require.ErrorIs(t, err, mr.ErrFault)
		_, err = m.WriteV([]mr.Op{{Addr: m.base + c.off, Buf: make([]byte, c.n)}})
		require.ErrorIs(t, err, mr.ErrFault)
	}
	for _, off := range []uint64{4, 60, 64, ^uint64(7)} {
		_, err := m.FetchAdd64(m.base+off, 1)
		require.ErrorIs(t, err, mr.ErrFault)
		_, err = m.CompareSwap64(m.base+off, 0, 1)
		require.ErrorIs(t, err, mr.ErrFault)
	}
	good := mr.Op{Addr: m.base, Buf: make([]byte, 8)}
	n, err := m.WriteV([]mr.Op{good, good, {Addr: 1, Buf: good.Buf}, good})
	require.ErrorIs(t, err, mr.ErrFault)
	require.Equal(t, 2, n)
}

// TestMemoryWatched writes a record again and again while another goroutine watches its
// last word. Under the race detector this also proves that watching is allowed.
func TestMemoryWatched(t *testing.T) {
	buf := make([]byte, 4096)
	m := newMemory(buf)
	const rounds = 2000
	var seen atomic.Uint64
	bad := make(chan string, 1)
	go func() {
		for {
			last := atomic.LoadUint64(word(buf[4088:]))
			if last == 0 {
				continue
			}
			for _, off := range []int{0, 1000, 4080} {
				if v := binary.NativeEndian.Uint64(buf[off:]); v != last {
					bad <- "the last word was seen before the others"
					return
				}
			}
			atomic.StoreUint64(word(buf[4088:]), 0)
			seen.Add(1)
			if last == rounds {
				bad <- ""
				return
			}
		}
	}()
	src := make([]byte, 4096)
	for i := uint64(1); i <= rounds; i++ {
		for seen.Load() != i-1 {
			if len(bad) > 0 {
				break
			}
		}
		for off := 0; off < len(src); off += 8 {
			binary.NativeEndian.PutUint64(src[off:], i)
		}
		_, err := m.WriteV([]mr.Op{{Addr: m.base, Buf: src}})
		require.NoError(t, err)
	}
	require.Empty(t, <-bad)
}

// TestMemoryAtomics adds from the device's side and from the program's at once.
func TestMemoryAtomics(t *testing.T) {
	buf := make([]byte, 8)
	m := newMemory(buf)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 10_000 {
			atomic.AddUint64(word(buf), 1)
		}
	}()
	for range 5000 {
		_, err := m.FetchAdd64(m.base, 1)
		require.NoError(t, err)
		for {
			old := atomic.LoadUint64(word(buf))
			got, err := m.CompareSwap64(m.base, old, old+1)
			require.NoError(t, err)
			if got == old {
				break
			}
		}
	}
	<-done
	require.Equal(t, uint64(20_000), atomic.LoadUint64(word(buf)))
}
