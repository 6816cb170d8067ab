package daemon

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestRings(t *testing.T) {
	r, err := newRings()
	require.NoError(t, err)
	defer r.close()
	off1, a, err := r.Alloc(4096)
	require.NoError(t, err)
	require.Len(t, a, 4096)
	require.NotZero(t, off1, "the first block is the doorbell's")
	off2, b, err := r.Alloc(3 * ringAlign)
	require.NoError(t, err)
	require.Zero(t, off2%uint64(os.Getpagesize()))

	// What the program maps is what the daemon writes.
	p, err := unix.Mmap(r.fd, int64(off2), len(b), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	b[0], b[len(b)-1] = 1, 2
	require.EqualValues(t, []byte{1, 2}, []byte{p[0], p[len(p)-1]})

	// Freed memory is given back, although the program still has it mapped.
	blocks := func() int64 {
		var st unix.Stat_t
		require.NoError(t, unix.Fstat(r.fd, &st))
		return st.Blocks
	}
	before := blocks()
	r.Free(off2)
	r.Free(off2)
	require.Less(t, blocks(), before)
	require.EqualValues(t, 0, p[0])
	require.NoError(t, unix.Munmap(p))

	off3, _, err := r.Alloc(3 * ringAlign)
	require.NoError(t, err)
	require.Greater(t, off3, off2, "an offset is used once")
	require.EqualValues(t, 4*ringAlign, r.used)
}

func TestRingsCannotBeSpoiled(t *testing.T) {
	r, err := newRings()
	require.NoError(t, err)
	defer r.close()
	require.Error(t, unix.Ftruncate(r.fd, 0), "the daemon's mappings would fault")
	n, err := unix.Write(r.fd, []byte("lands in a ring?"))
	require.Error(t, err)
	require.LessOrEqual(t, n, 0)
	require.Error(t, func() error {
		_, err := unix.FcntlInt(uintptr(r.fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
		return err
	}())
}

func TestRingsHaveALimit(t *testing.T) {
	r, err := newRings()
	require.NoError(t, err)
	defer r.close()
	r.limit = 4 * ringAlign
	_, _, err = r.Alloc(5 * ringAlign)
	require.ErrorContains(t, err, "no memory")
	off, _, err := r.Alloc(4 * ringAlign)
	require.NoError(t, err)
	_, _, err = r.Alloc(1)
	require.Error(t, err)
	r.Free(off)
	_, _, err = r.Alloc(1)
	require.NoError(t, err)
	_, _, err = r.Alloc(0)
	require.Error(t, err)
}

func TestGate(t *testing.T) {
	r, err := newRings()
	require.NoError(t, err)
	defer r.close()
	require.Zero(t, r.gate(5).Load())
	r.SetPostable(5, true)
	require.EqualValues(t, 5, r.gate(5).Load())
	r.SetPostable(5+gateWords, true) // shares the word
	require.EqualValues(t, 5+gateWords, r.gate(5).Load())
	r.SetPostable(5, false)
	require.EqualValues(t, 5+gateWords, r.gate(5).Load(), "not its own any more")
	r.SetPostable(5+gateWords, false)
	require.Zero(t, r.gate(5).Load())
	r.SetBusy(5, true)
	require.EqualValues(t, 5, r.busy(5).Load())
	require.Zero(t, r.gate(5).Load(), "words of their own")
	r.SetBusy(5, false)
	require.Zero(t, r.busy(5).Load())
	require.LessOrEqual(t, gateFirst+gateWords, busyFirst)
	require.LessOrEqual(t, 4*(busyFirst+gateWords), 4096, "the program maps one page")
}
