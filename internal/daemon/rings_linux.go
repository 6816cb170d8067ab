package daemon

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/fdspace"
	"github.com/rvtsim/rvtsim/uverbs"
)

// rings is the memory that one context shares with its program: a sparse file without
// a name, which is the program's command descriptor too, so that mmap of it is native.
// Its first block holds the doorbell word and the gate. The file cannot shrink, so the daemon's own
// mappings stay valid whatever the program does.
//
// Offsets are used once: a ring that the program still has mapped after it was freed
// never becomes another one. The file is far larger than what a program could use up.
type rings struct {
	fd     int
	size   uint64
	next   uint64
	limit  uint64 // bytes in use at most
	used   uint64
	blocks map[uint64][]byte
	page   []byte // the first block
}

var (
	_ uverbs.RingMemory = (*rings)(nil)
	_ uverbs.PostGate   = (*rings)(nil)
)

const (
	// ringAlign is the largest page size of any system that we may meet.
	ringAlign = 64 << 10
	// ringLimit bounds the memory that a program can make the daemon use for rings.
	ringLimit = 8 << 30
)

// ringSizes are tried in turn: a limit of file sizes (RLIMIT_FSIZE) or the kernel may
// object to the larger ones.
var ringSizes = []uint64{1 << 40, 1 << 36, 1 << 32, 1 << 28, 1 << 24}

func newRings() (*rings, error) {
	fd, err := unix.MemfdCreate("rvtsim", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	fd = fdspace.Keep(fd)
	r := &rings{fd: fd, next: ringAlign, limit: ringLimit, blocks: map[uint64][]byte{}}
	for _, size := range ringSizes {
		if err = unix.Ftruncate(fd, int64(size)); err == nil {
			r.size = size
			break
		}
	}
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err == nil {
		r.page, err = unix.Mmap(fd, 0, ringAlign, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		fdspace.Close(fd)
		return nil, fmt.Errorf("daemon: memory for rings: %w", err)
	}
	// A write() of the program that evades the preload library must not land in a ring.
	_, _ = unix.Seek(fd, 1<<63-1, 0)
	return r, nil
}

// bell is the doorbell word.
func (r *rings) bell() *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&r.page[0])) }

// gate is the word that tells whether a doorbell for this QP needs no answer: it holds
// the QP's handle if so. QPs that share a word take turns; a doorbell that is answered
// although it need not be is only slower.
func (r *rings) gate(handle uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.page[4*(gateFirst+handle%gateWords)]))
}

// busy is the word that tells likewise whether the QP has sends under way.
func (r *rings) busy(handle uint32) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Pointer(&r.page[4*(busyFirst+handle%gateWords)]))
}

// SetPostable implements uverbs.PostGate.
func (r *rings) SetPostable(handle uint32, ok bool) { setWord(r.gate(handle), handle, ok) }

// SetBusy implements uverbs.PostGate.
func (r *rings) SetBusy(handle uint32, busy bool) { setWord(r.busy(handle), handle, busy) }

// setWord lets a word hold a handle, or hold it no more.
func setWord(w *atomic.Uint32, handle uint32, on bool) {
	if on {
		w.Store(handle)
	} else {
		w.CompareAndSwap(handle, 0)
	}
}

// Alloc implements uverbs.RingMemory.
func (r *rings) Alloc(size int) (uint64, []byte, error) {
	if size <= 0 {
		return 0, nil, ib.NewVerbError(ib.EINVAL, "mmap", "", "a ring of no size")
	}
	n := (uint64(size) + ringAlign - 1) &^ (ringAlign - 1)
	if n > r.size-r.next || r.used+n > r.limit {
		return 0, nil, ib.NewVerbError(ib.ENOMEM, "mmap", "", "no memory for rings is left in this context")
	}
	b, err := unix.Mmap(r.fd, int64(r.next), int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, nil, ib.NewVerbError(ib.ENOMEM, "mmap", "", err.Error())
	}
	off := r.next
	r.next += n
	r.used += n
	r.blocks[off] = b
	return off, b[:size:size], nil
}

// Free implements uverbs.RingMemory.
func (r *rings) Free(off uint64) {
	b := r.blocks[off]
	if b == nil {
		return
	}
	delete(r.blocks, off)
	r.used -= uint64(len(b))
	_ = unix.Fallocate(r.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(len(b)))
	_ = unix.Munmap(b)
}

// leave gives up this process's mappings and nothing else: the program goes on with what
// is in the rings.
func (r *rings) leave() {
	for _, b := range r.blocks {
		_ = unix.Munmap(b)
	}
	_ = unix.Munmap(r.page)
	_ = unix.Close(r.fd)
}

// close frees everything. The program may keep its own mappings.
func (r *rings) close() {
	for off := range r.blocks {
		r.Free(off)
	}
	_ = unix.Munmap(r.page)
	fdspace.Close(r.fd)
}
