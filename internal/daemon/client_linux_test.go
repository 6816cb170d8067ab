package daemon

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func ownMemory(t *testing.T) int {
	t.Helper()
	fd, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// TestClientSpeaksForAProcess opens a context for another process, here our parent by
// number and ourselves by memory: the descriptor counts, the number is for reports.
func TestClientSpeaksForAProcess(t *testing.T) {
	d, _ := start(t, nil)
	mem := ownMemory(t)
	c, o, err := OpenDevice(d.Socket(), "n1", 0, os.Getppid(), mem)
	require.NoError(t, err)
	defer unix.Close(o.Memory)
	defer o.Bell.Close()
	r := d.Report()
	require.Equal(t, os.Getppid(), r.Nodes[0].Contexts[0].Processes[0].PID)
	a, err := c.Write(getContext(), nil)
	require.NoError(t, err)
	require.Zero(t, a.Errno)
	require.Len(t, a.Files, 1)
	require.Equal(t, []int{0}, a.Offsets)
	require.NotEmpty(t, a.Out)
	closeAll(a.Files)
	a, err = c.Write([]byte{1, 2, 3}, nil)
	require.NoError(t, err)
	require.Equal(t, unix.EINVAL, a.Errno)
	require.False(t, o.Bell.Ring(77), "a QP that does not exist takes no sends")

	second, err := Attach(d.Socket(), o.Token, os.Getpid(), mem)
	require.NoError(t, err)
	c.Close()
	eventually(t, "one connection is left", func() bool { return len(d.Report().Nodes[0].Contexts[0].Processes) == 1 })
	second.Close()
	eventually(t, "the context ends", func() bool { return contexts(d) == 0 })

	_, err = Attach(d.Socket(), o.Token, os.Getpid(), mem)
	require.Equal(t, unix.ENODEV, err)
	_, _, err = OpenDevice(d.Socket(), "n7", 0, os.Getpid(), mem)
	require.Equal(t, unix.ENODEV, err)
	_, _, err = OpenDevice(d.Socket()+"x", "n1", 0, os.Getpid(), mem)
	require.Equal(t, unix.ENODEV, err)
}

func TestClientAfterTheDaemon(t *testing.T) {
	d, _ := start(t, nil)
	c, o, err := OpenDevice(d.Socket(), "n1", 0, os.Getpid(), ownMemory(t))
	require.NoError(t, err)
	defer unix.Close(o.Memory)
	defer o.Bell.Close()
	d.Close()
	_, err = c.Write(getContext(), nil)
	require.Equal(t, unix.EIO, err)
	c.Close()
}

func TestDoorbellOf(t *testing.T) {
	b := make([]byte, 32)
	b[0], b[16] = 28, 9
	qp, ok := DoorbellOf(b)
	require.True(t, ok)
	require.Equal(t, uint32(9), qp)
	for _, at := range []int{0, 1, 20, 24} { // another command, or with work requests
		c := append([]byte(nil), b...)
		c[at]++
		_, ok := DoorbellOf(c)
		require.False(t, ok, at)
	}
	_, ok = DoorbellOf(b[:31])
	require.False(t, ok)
}

// FuzzParseReply: whatever a peer answers, parsing it ends, and what it says of its parts
// lies within.
func FuzzParseReply(f *testing.F) {
	for _, r := range []reply{{}, {errno: 22, token: 5}, {out: []byte("12345678"), outAddr: 9, offsets: []int{4}}, {writes: []memWrite{{1, []byte("abc")}, {2, nil}}}, {kind: repQueryFD, queryFD: 3}} {
		b, err := appendReply(nil, &r)
		require.NoError(f, err)
		f.Add(b)
		got, a, err := parseReply(b, make([]int, len(r.offsets)))
		require.NoError(f, err)
		require.Equal(f, []any{r.kind, r.token, r.queryFD}, []any{got.kind, got.token, got.queryFD})
		require.Equal(f, uint32(r.errno), uint32(a.Errno))
		require.Equal(f, string(r.out), string(a.Out))
		require.Equal(f, r.offsets, a.Offsets)
		require.Len(f, a.Writes, len(r.writes))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for files := range maxFiles {
			_, a, err := parseReply(b, make([]int, files))
			if err != nil {
				continue
			}
			require.True(t, len(a.Offsets) == 0 || len(a.Offsets) == files)
			for _, off := range a.Offsets {
				require.LessOrEqual(t, off+4, len(a.Out))
			}
		}
	})
}
