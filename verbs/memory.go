package verbs

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/rvtsim/rvtsim/mr"
)

// memory is a mr.Memory over a Go slice at its real address. It keeps the slice alive;
// Go does not move what is reachable from the heap.
//
// The program may look at the slice while the device writes it, as programs do that
// poll for the last word of a message. A Go program needs atomic loads for that, and
// the device the matching stores. So the last aligned 8-byte word of every copy is
// stored atomically, after all other bytes: who sees it sees the rest. Short reads, of
// flags and counters, load aligned words atomically as well.
type memory struct {
	base uint64
	buf  []byte
}

var _ mr.Memory = (*memory)(nil)

func newMemory(buf []byte) *memory {
	return &memory{base: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(buf)))), buf: buf}
}

// at returns the n bytes at addr, nil if they are not all in the slice.
func (m *memory) at(addr uint64, n int) []byte {
	off := addr - m.base
	if addr < m.base || off > uint64(len(m.buf)) || uint64(n) > uint64(len(m.buf))-off {
		return nil
	}
	return m.buf[off : off+uint64(n) : off+uint64(n)]
}

// word returns the aligned 8 bytes at b as something to use atomically.
func word(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(&b[0])) }

// aligned is the offset of the first 8-byte boundary in b.
func aligned(b []byte) int { return int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & 7) }

// shortRead is the length up to which reads are made of atomic words.
const shortRead = 64

// ReadV implements mr.Memory.
func (m *memory) ReadV(ops []mr.Op) (int, error) {
	for i := range ops {
		dst := ops[i].Buf
		src := m.at(ops[i].Addr, len(dst))
		if src == nil {
			return i, mr.ErrFault
		}
		if len(dst) > shortRead {
			copy(dst, src)
			continue
		}
		head := min(aligned(src), len(src))
		copy(dst, src[:head])
		for src, dst = src[head:], dst[head:]; len(src) >= 8; src, dst = src[8:], dst[8:] {
			binary.NativeEndian.PutUint64(dst, atomic.LoadUint64(word(src)))
		}
		copy(dst, src)
	}
	return len(ops), nil
}

// WriteV implements mr.Memory.
func (m *memory) WriteV(ops []mr.Op) (int, error) {
	for i := range ops {
		src := ops[i].Buf
		dst := m.at(ops[i].Addr, len(src))
		if dst == nil {
			return i, mr.ErrFault
		}
		// last is the offset of the last aligned word.
		last := aligned(dst) + (len(dst)-aligned(dst))&^7 - 8
		if last < aligned(dst) {
			copy(dst, src)
			continue
		}
		copy(dst[last+8:], src[last+8:])
		copy(dst[:last], src[:last])
		atomic.StoreUint64(word(dst[last:]), binary.NativeEndian.Uint64(src[last:]))
	}
	return len(ops), nil
}

// atomicWord returns the 8 bytes at addr, which must be aligned.
func (m *memory) atomicWord(addr uint64) (*uint64, error) {
	b := m.at(addr, 8)
	if b == nil || aligned(b) != 0 {
		return nil, mr.ErrFault
	}
	return word(b), nil
}

// CompareSwap64 implements mr.Memory. It is atomic against the program's own atomics.
func (m *memory) CompareSwap64(addr, compare, swap uint64) (uint64, error) {
	w, err := m.atomicWord(addr)
	if err != nil {
		return 0, err
	}
	for {
		old := atomic.LoadUint64(w)
		if old != compare || atomic.CompareAndSwapUint64(w, old, swap) {
			return old, nil
		}
	}
}

// FetchAdd64 implements mr.Memory. It is atomic against the program's own atomics.
func (m *memory) FetchAdd64(addr, add uint64) (uint64, error) {
	w, err := m.atomicWord(addr)
	if err != nil {
		return 0, err
	}
	return atomic.AddUint64(w, add) - add, nil
}
