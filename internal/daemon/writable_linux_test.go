package daemon

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/mr"
)

func TestWritable(t *testing.T) {
	o := newOwn(t)
	w := ways(t)
	for name, m := range w {
		require.NoError(t, m.Writable(o.addr), name)
		require.NoError(t, m.Writable(o.addr+uint64(o.page)), name)
	}
	require.NoError(t, unix.Mprotect(o.buf[:o.page], unix.PROT_READ))
	for name, m := range w {
		want := error(mr.ErrFault)
		if name == "descriptor" {
			want = nil // its process is not known
		}
		require.Equal(t, want, m.Writable(o.addr), name)
		require.NoError(t, m.Writable(o.addr+uint64(o.page)), name)
	}
}

func TestReadOnly(t *testing.T) {
	const maps = `00400000-00401000 r--p 00000000 08:01 1 /bin/x
00401000-00402000 rw-p 00001000 08:01 1 /bin/x
nonsense
7ffff000-80000000 r-xs 00000000 00:00 0
`
	for addr, want := range map[uint64]bool{
		0x3fffff: false, 0x400000: true, 0x400fff: true, 0x401000: false, 0x402000: false, 0x7ffff000: true, 0x80000000: false,
	} {
		require.Equal(t, want, readOnly(strings.NewReader(maps), []uint64{addr}), "%#x", addr)
		require.Equal(t, want, readOnly(strings.NewReader(maps), []uint64{0x401800, addr}), "the second of two")
	}
	require.False(t, readOnly(strings.NewReader(maps), nil))
}
