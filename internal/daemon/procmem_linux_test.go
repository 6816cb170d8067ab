package daemon

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/mr"
)

const errEMFILE = unix.EMFILE

// own is a piece of this process's memory with a hole of one page in the middle, as it
// is seen through ProcMem.
type own struct {
	buf  []byte
	page int
	addr uint64
}

const ownPages = 8

func newOwn(t *testing.T) *own {
	page := os.Getpagesize()
	b, err := unix.Mmap(-1, 0, (ownPages+1)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	// The last page goes away. The slice keeps the rest; Munmap wants it whole, so it
	// stays mapped until the test program ends.
	_, _, e := unix.Syscall(unix.SYS_MUNMAP, uintptr(unsafe.Pointer(&b[ownPages*page])), uintptr(page), 0)
	require.Zero(t, e)
	return &own{buf: b[:ownPages*page], page: page, addr: uint64(uintptr(unsafe.Pointer(&b[0])))}
}

// ways are the ways to reach memory.
func ways(t *testing.T) map[string]*ProcMem {
	open := func() int {
		fd, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
		require.NoError(t, err)
		return fd
	}
	w := map[string]*ProcMem{"descriptor": NewProcMem(0, open()), "both": NewProcMem(os.Getpid(), open()), "process_vm": NewProcMem(os.Getpid(), -1)}
	if !w["process_vm"].Usable() {
		t.Log("SKIP process_vm_readv: the system does not allow it")
		delete(w, "process_vm")
	}
	t.Cleanup(func() {
		for _, m := range w {
			m.Close()
		}
	})
	return w
}

func TestProcMemCopiesLikeASlice(t *testing.T) {
	for name, m := range ways(t) {
		t.Run(name, func(t *testing.T) {
			o := newOwn(t)
			want := make([]byte, len(o.buf))
			model := mr.NewSlice(o.addr, want)
			r := rand.New(rand.NewPCG(1, uint64(len(name))))
			for range 300 {
				ops := randomOps(r, o)
				n, err := m.WriteV(ops)
				require.NoError(t, err)
				require.Equal(t, len(ops), n)
				_, err = model.WriteV(ops)
				require.NoError(t, err)
				require.True(t, bytes.Equal(want, o.buf))
				for i := range ops {
					clear(ops[i].Buf)
				}
				n, err = m.ReadV(ops)
				require.NoError(t, err)
				require.Equal(t, len(ops), n)
				for _, op := range ops {
					off := op.Addr - o.addr
					require.True(t, bytes.Equal(want[off:off+uint64(len(op.Buf))], op.Buf))
				}
			}
		})
	}
}

// randomOps makes copies of all kinds: runs of neighbours, single bytes, empty ones,
// more than one system call takes.
func randomOps(r *rand.Rand, o *own) []mr.Op {
	n := 1 + r.IntN(4)
	if r.IntN(20) == 0 {
		n = 2500
	}
	ops := make([]mr.Op, 0, n)
	next := o.addr
	for range n {
		size := [...]int{0, 1, 7, 8, 9, 64, 100}[r.IntN(7)]
		if r.IntN(10) == 0 && n < 100 {
			size = 2 * o.page
		}
		if r.IntN(2) == 0 || next+uint64(size) > o.addr+uint64(len(o.buf)) {
			next = o.addr + uint64(r.IntN(len(o.buf)-size+1))
		}
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		ops = append(ops, mr.Op{Addr: next, Buf: b})
		next += uint64(size)
	}
	return ops
}

func TestProcMemNamesTheCopyThatFails(t *testing.T) {
	for name, m := range ways(t) {
		t.Run(name, func(t *testing.T) {
			o := newOwn(t)
			end := o.addr + uint64(len(o.buf))
			for _, write := range []bool{false, true} {
				do := m.ReadV
				if write {
					do = m.WriteV
				}
				for bad := range 5 {
					var ops []mr.Op
					for i := range 5 {
						ops = append(ops, mr.Op{Addr: end - uint64(100*(6-i)), Buf: make([]byte, 100)})
					}
					ops[bad].Addr = end - 50 // half of it is there
					n, err := do(ops)
					require.ErrorIs(t, err, mr.ErrFault)
					require.Equal(t, bad, n)
				}
				for _, addr := range []uint64{0, end, 1<<63 - 4, 1 << 63, ^uint64(0) - 3} {
					n, err := do([]mr.Op{{Addr: addr, Buf: make([]byte, 8)}})
					require.ErrorIs(t, err, mr.ErrFault, "%#x", addr)
					require.Zero(t, n)
				}
			}
		})
	}
}

func TestProcMemAtomics(t *testing.T) {
	for name, m := range ways(t) {
		t.Run(name, func(t *testing.T) {
			o := newOwn(t)
			binary.NativeEndian.PutUint64(o.buf, 5)
			old, err := m.FetchAdd64(o.addr, 1<<63)
			require.NoError(t, err)
			require.EqualValues(t, 5, old)
			old, err = m.CompareSwap64(o.addr, 5, 7)
			require.NoError(t, err)
			require.EqualValues(t, uint64(5+1<<63), old)
			require.EqualValues(t, uint64(5+1<<63), binary.NativeEndian.Uint64(o.buf), "no swap")
			old, err = m.CompareSwap64(o.addr, 5+1<<63, 7)
			require.NoError(t, err)
			require.EqualValues(t, uint64(5+1<<63), old)
			require.EqualValues(t, 7, binary.NativeEndian.Uint64(o.buf))
			_, err = m.FetchAdd64(o.addr+uint64(len(o.buf)), 1)
			require.ErrorIs(t, err, mr.ErrFault)
		})
	}
}

func TestProcMemAfterClose(t *testing.T) {
	for _, m := range ways(t) {
		m.Close()
		m.Close()
		n, err := m.ReadV([]mr.Op{{Addr: 4096, Buf: make([]byte, 1)}})
		require.Zero(t, n)
		require.ErrorIs(t, err, mr.ErrGone)
		_, err = m.FetchAdd64(4096, 1)
		require.ErrorIs(t, err, mr.ErrGone)
	}
}

func TestProcMemDoesNotAllocate(t *testing.T) {
	for name, m := range ways(t) {
		o := newOwn(t)
		ops := make([]mr.Op, 64)
		for i := range ops {
			ops[i] = mr.Op{Addr: o.addr + uint64(i*200), Buf: make([]byte, 100)}
		}
		require.Zero(t, testing.AllocsPerRun(100, func() {
			_, _ = m.WriteV(ops)
			_, _ = m.ReadV(ops)
		}), name)
	}
}

func BenchmarkProcMem(b *testing.B) {
	page := make([]byte, 1<<20)
	addr := uint64(uintptr(unsafe.Pointer(&page[0])))
	fd, _ := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	m := NewProcMem(os.Getpid(), fd)
	defer m.Close()
	for _, c := range []struct {
		name       string
		ops, bytes int
	}{{"64B", 1, 64}, {"4KiB", 1, 4096}, {"16x4KiB", 16, 4096}, {"1MiB", 1, 1 << 20}} {
		b.Run(c.name, func(b *testing.B) {
			ops := make([]mr.Op, c.ops)
			for i := range ops {
				ops[i] = mr.Op{Addr: addr + uint64(i*c.bytes), Buf: make([]byte, c.bytes)}
			}
			b.SetBytes(int64(c.ops * c.bytes))
			b.ReportAllocs()
			for b.Loop() {
				_, _ = m.WriteV(ops)
			}
		})
	}
}
