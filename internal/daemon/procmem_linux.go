package daemon

import (
	"encoding/binary"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/mr"
)

// ProcMem is the memory of another process.
//
// A descriptor of its /proc/self/mem, which the process itself has opened and passed
// on, is always right: it belongs to one address space, so neither exec nor the reuse
// of a process number can lead it astray, and it works across users. process_vm_readv
// and process_vm_writev name a process by number and need the rights of a debugger, but
// move many pieces with one call and large ones faster. They are used for these where
// the system allows it.
//
// Atomics are atomic against other callers with the same ProcMem, and so against the
// device, not against the process itself (IBV_ATOMIC_HCA).
type ProcMem struct {
	pid int

	mu     sync.Mutex // guards everything below
	memFD  int        // -1: none
	vm     bool       // process_vm_* may be used
	closed bool
	local  []unix.Iovec
	remote []unix.RemoteIovec
	word   [8]byte
	gone   bool // the process has died
}

var (
	_ mr.Memory = (*ProcMem)(nil)
	_ mr.Prober = (*ProcMem)(nil)
)

const (
	// maxIovec is the most pieces in one system call (UIO_MAXIOV).
	maxIovec = 1024
	// vmFrom is the number of bytes from which process_vm_* pays for one piece. A write
	// with a tail is two, which it does with one call.
	vmFrom = 64 << 10
	// tailBytes are written last, so that a program that polls the end of a message
	// finds the rest in place.
	tailBytes = 8
)

// NewProcMem returns the memory of process pid. memFD is a descriptor of its
// /proc/self/mem, or -1; it belongs to the ProcMem. pid may be 0 if it is not known.
func NewProcMem(pid, memFD int) *ProcMem {
	m := &ProcMem{pid: pid, memFD: memFD}
	m.vm = pid > 0 && mayAccess(pid)
	return m
}

// mayAccess finds out whether the system lets us use process_vm_readv: rights are
// checked before addresses.
func mayAccess(pid int) bool {
	var b [1]byte
	l := []unix.Iovec{{Base: &b[0], Len: 1}}
	_, err := unix.ProcessVMReadv(pid, l, []unix.RemoteIovec{{Base: 8, Len: 1}}, 0)
	return err == nil || err == unix.EFAULT
}

// Usable reports whether there is any way to reach the memory.
func (m *ProcMem) Usable() bool { return m.vm || m.memFD >= 0 }

// Close ends access: every later call fails.
func (m *ProcMem) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	if m.memFD >= 0 {
		_ = unix.Close(m.memFD)
	}
}

// ReadV implements mr.Memory.
func (m *ProcMem) ReadV(ops []mr.Op) (int, error) { return m.copyV(ops, false) }

// WriteV implements mr.Memory.
func (m *ProcMem) WriteV(ops []mr.Op) (int, error) { return m.copyV(ops, true) }

func (m *ProcMem) copyV(ops []mr.Op, write bool) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, mr.ErrGone
	}
	done := 0
	for done < len(ops) {
		n := m.batch(ops[done:], write)
		if n == 0 {
			return done, m.failure()
		}
		done += n
	}
	return done, nil
}

// failure is why a copy failed: a bad address, or a process that has died.
func (m *ProcMem) failure() error {
	if m.gone {
		return mr.ErrGone
	}
	return mr.ErrFault
}

// batch does as many ops as one system call takes and returns how many were done
// completely; 0 means that the first one failed.
func (m *ProcMem) batch(ops []mr.Op, write bool) int {
	n, total := m.lay(ops, write)
	if total == 0 {
		return n
	}
	if m.memFD >= 0 && (!m.vm || len(m.remote) == 1 && total < vmFrom) {
		return m.pieces(ops[:n], write)
	}
	var got int
	var err error
	if write {
		got, err = unix.ProcessVMWritev(m.pid, m.local, m.remote, 0)
	} else {
		got, err = unix.ProcessVMReadv(m.pid, m.local, m.remote, 0)
	}
	switch {
	case err == nil:
		if k := whole(ops[:n], got); k > 0 {
			return k
		}
		return 0
	case err == unix.EFAULT || m.memFD < 0:
		m.gone = err == unix.ESRCH
		return 0
	}
	// The process has gone, or has made itself private since: the descriptor knows.
	m.vm = false
	return m.pieces(ops[:n], write)
}

// lay fills local and remote with ops from the front, until a system call has no room
// for more, and returns how many it took and their bytes. Neighbours become one remote
// piece; its end is a piece of its own when it is written to.
func (m *ProcMem) lay(ops []mr.Op, write bool) (n, total int) {
	m.local, m.remote = m.local[:0], m.remote[:0]
	for n < len(ops) && len(m.local) < maxIovec && len(m.remote) < maxIovec/2 {
		o := &ops[n]
		n++
		size := len(o.Buf)
		if size == 0 {
			continue
		}
		iov := unix.Iovec{Base: &o.Buf[0]}
		iov.SetLen(size)
		m.local = append(m.local, iov)
		total += size
		if k := len(m.remote); k > 0 && m.remote[k-1].Base+uintptr(m.remote[k-1].Len) == uintptr(o.Addr) {
			m.remote[k-1].Len += size
		} else {
			m.remote = append(m.remote, unix.RemoteIovec{Base: uintptr(o.Addr), Len: size})
		}
	}
	if write {
		m.splitTails()
	}
	return n, total
}

// splitTails cuts the last bytes off each remote piece. A copy in one go may store its
// bytes in any order; the next piece is stored after it.
func (m *ProcMem) splitTails() {
	k := len(m.remote)
	m.remote = append(m.remote, m.remote...)
	at := 2 * k
	for i := k - 1; i >= 0; i-- {
		r := m.remote[i]
		if r.Len > tailBytes {
			at--
			m.remote[at] = unix.RemoteIovec{Base: r.Base + uintptr(r.Len-tailBytes), Len: tailBytes}
			r.Len -= tailBytes
		}
		at--
		m.remote[at] = r
	}
	m.remote = m.remote[:copy(m.remote, m.remote[at:])]
}

// whole returns how many ops the first got bytes cover completely.
func whole(ops []mr.Op, got int) int {
	for i := range ops {
		if got -= len(ops[i].Buf); got < 0 {
			return i
		}
	}
	return len(ops)
}

// pieces does ops one by one through the descriptor.
func (m *ProcMem) pieces(ops []mr.Op, write bool) int {
	for i := range ops {
		o := &ops[i]
		var ok bool
		if cut := len(o.Buf) - tailBytes; write && cut > 0 {
			ok = m.piece(o.Addr, o.Buf[:cut], true) && m.piece(o.Addr+uint64(cut), o.Buf[cut:], true)
		} else {
			ok = m.piece(o.Addr, o.Buf, write)
		}
		if !ok {
			return i
		}
	}
	return len(ops)
}

func (m *ProcMem) piece(addr uint64, b []byte, write bool) bool {
	for len(b) > 0 {
		var n int
		var err error
		if write {
			n, err = unix.Pwrite(m.memFD, b, int64(addr))
		} else {
			n, err = unix.Pread(m.memFD, b, int64(addr))
		}
		if err == unix.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			m.gone = err == nil // the descriptor of a dead process reads and writes nothing
			return false
		}
		addr += uint64(n)
		b = b[n:]
	}
	return true
}

// CompareSwap64 implements mr.Memory.
func (m *ProcMem) CompareSwap64(addr, compare, swap uint64) (uint64, error) {
	return m.update(addr, func(old uint64) (uint64, bool) { return swap, old == compare })
}

// FetchAdd64 implements mr.Memory.
func (m *ProcMem) FetchAdd64(addr, add uint64) (uint64, error) {
	return m.update(addr, func(old uint64) (uint64, bool) { return old + add, true })
}

func (m *ProcMem) update(addr uint64, f func(old uint64) (uint64, bool)) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return 0, mr.ErrGone
	}
	if !m.access(addr, false) {
		return 0, m.failure()
	}
	old := binary.NativeEndian.Uint64(m.word[:])
	if value, store := f(old); store {
		binary.NativeEndian.PutUint64(m.word[:], value)
		if !m.access(addr, true) {
			return 0, mr.ErrFault
		}
	}
	return old, nil
}

// access copies the word at addr.
func (m *ProcMem) access(addr uint64, write bool) bool {
	if m.memFD >= 0 {
		return m.piece(addr, m.word[:], write)
	}
	op := [1]mr.Op{{Addr: addr, Buf: m.word[:]}}
	return m.batch(op[:], write) == 1
}
