package mr

import (
	"encoding/binary"
	"errors"

	"github.com/rvtsim/rvtsim/internal/uaccess"
)

// Memory is an address space that memory regions are registered in. Addresses are
// the owner's own. Implementations must be pointers (values are compared).
//
// Every method bounds-checks and returns an error rather than panic: the memory of
// another process can vanish at any time.
type Memory interface {
	// ReadV copies len(op.Buf) bytes at op.Addr into op.Buf, for each op in order. It
	// returns the number of ops done; with n < len(ops), err says why ops[n] failed.
	ReadV(ops []Op) (n int, err error)
	// WriteV copies op.Buf to op.Addr, for each op in order, like ReadV.
	WriteV(ops []Op) (n int, err error)
	// CompareSwap64 replaces the 8 bytes at addr (host byte order, aligned) by swap if
	// they equal compare, and returns what was there before.
	CompareSwap64(addr, compare, swap uint64) (old uint64, err error)
	// FetchAdd64 adds to the 8 bytes at addr and returns what was there before.
	FetchAdd64(addr, add uint64) (old uint64, err error)
}

// Prober is a Memory that can tell whether its owner may write to addresses, without
// changing what is there. The owner may be changing it at the same time.
type Prober interface {
	// Writable returns [ErrFault] if one of the addresses may not be written to, and nil if
	// all may, or if that cannot be found out.
	Writable(addrs ...uint64) error
}

// Direct is a Memory whose addresses are those of this process.
type Direct interface {
	// Direct reports whether package uaccess may be used on it.
	Direct() bool
}

// direct reports whether package uaccess may be used on a Memory.
func direct(m Memory) bool {
	d, ok := m.(Direct)
	return ok && d.Direct()
}

// Op is one copy between an address in a Memory and a local buffer.
type Op struct {
	Addr uint64
	Buf  []byte
}

// Seg is a checked piece of registered memory: the result of resolving an SGE or a
// remote address. It stays valid until the next change to the key table.
type Seg struct {
	Mem  Memory
	Addr uint64
	Len  uint32
}

// ErrFault reports an access outside the memory behind a Memory.
var ErrFault = errors.New("mr: address outside the memory")

// ErrGone reports that the memory as a whole is no more: its process has died. Nobody
// is left to answer for it.
var ErrGone = errors.New("mr: the memory's owner is gone")

// Slice is a Memory over a Go byte slice. Address Base is its first byte. The slice
// belongs to the device while it is registered and work requests name it.
//
// Its atomics are atomic against this device, which is what IBV_ATOMIC_HCA promises,
// not against the CPU.
type Slice struct {
	Base uint64
	Buf  []byte
	// Void says that the contents mean nothing: Buf is zero, may be shared with other
	// Slices, and what is written to it vanishes, after the usual checks.
	Void bool
}

// NewSlice returns a Memory whose addresses run from base to base+len(buf).
func NewSlice(base uint64, buf []byte) *Slice { return &Slice{Base: base, Buf: buf} }

func (s *Slice) at(addr uint64, n int) ([]byte, error) {
	off := addr - s.Base
	if addr < s.Base || off > uint64(len(s.Buf)) || uint64(n) > uint64(len(s.Buf))-off {
		return nil, ErrFault
	}
	return s.Buf[off : off+uint64(n)], nil
}

// ReadV implements Memory.
func (s *Slice) ReadV(ops []Op) (int, error) {
	for i := range ops {
		b, err := s.at(ops[i].Addr, len(ops[i].Buf))
		if err != nil {
			return i, err
		}
		copy(ops[i].Buf, b)
	}
	return len(ops), nil
}

// WriteV implements Memory.
func (s *Slice) WriteV(ops []Op) (int, error) {
	for i := range ops {
		b, err := s.at(ops[i].Addr, len(ops[i].Buf))
		if err != nil {
			return i, err
		}
		if !s.Void {
			copy(b, ops[i].Buf)
		}
	}
	return len(ops), nil
}

// CompareSwap64 implements Memory.
func (s *Slice) CompareSwap64(addr, compare, swap uint64) (uint64, error) {
	b, err := s.at(addr, 8)
	if err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(b)
	if old == compare {
		binary.LittleEndian.PutUint64(b, swap)
	}
	return old, nil
}

// FetchAdd64 implements Memory.
func (s *Slice) FetchAdd64(addr, add uint64) (uint64, error) {
	b, err := s.at(addr, 8)
	if err != nil {
		return 0, err
	}
	old := binary.LittleEndian.Uint64(b)
	binary.LittleEndian.PutUint64(b, old+add)
	return old, nil
}

// Direct reports whether a segment's bytes are in this process, at Addr; see [Direct].
func (s *Seg) Direct() bool { return direct(s.Mem) }

// Batch collects copies and executes them together, in the order they were added,
// with one Memory call per run of copies in the same Memory, or none if that is [Direct]. The
// zero value is ready; it keeps its capacity, so steady use does not allocate.
type Batch struct {
	// Ahead, if not nil, returns up to n bytes that are going to be written by a later batch.
	// They are not looked at.
	Ahead func(n int) []byte

	ops    []Op
	tags   []uint32
	runs   []run
	faults []Fault
}

type run struct {
	mem   Memory
	start int
}

// Fault reports one copy of a Batch that failed.
type Fault struct {
	Tag uint32 // as given to Add
	Err error
}

// Len returns the number of copies waiting.
func (b *Batch) Len() int { return len(b.ops) }

// Add appends the copy between seg and buf; len(buf) must be seg.Len. The tag comes
// back in a Fault. buf must stay untouched until the batch is executed.
func (b *Batch) Add(seg Seg, buf []byte, tag uint32) {
	if n := len(b.runs); n == 0 || b.runs[n-1].mem != seg.Mem {
		b.runs = append(b.runs, run{seg.Mem, len(b.ops)})
	}
	b.ops = append(b.ops, Op{seg.Addr, buf})
	b.tags = append(b.tags, tag)
}

// Spread appends copies that lay buf over segs in order. It uses as many bytes as
// the shorter side has and returns that number.
func (b *Batch) Spread(segs []Seg, buf []byte, tag uint32) int {
	n := 0
	for _, s := range segs {
		if n == len(buf) {
			break
		}
		if left := len(buf) - n; int(s.Len) > left {
			s.Len = uint32(left)
		}
		if s.Len == 0 {
			continue
		}
		b.Add(s, buf[n:n+int(s.Len)], tag)
		n += int(s.Len)
	}
	return n
}

// Read executes every copy from memory to its buffer (a gather) and empties the
// batch. The faults are valid until the next call.
func (b *Batch) Read() []Fault { return b.execute(false) }

// Write executes every copy from its buffer to memory (a scatter) and empties the
// batch. The faults are valid until the next call.
func (b *Batch) Write() []Fault { return b.execute(true) }

func (b *Batch) execute(write bool) []Fault {
	b.faults = b.faults[:0]
	for i, r := range b.runs {
		end := len(b.ops)
		if i+1 < len(b.runs) {
			end = b.runs[i+1].start
		}
		b.executeRun(r.mem, r.start, end, write)
	}
	// Buffers and memories must not be kept alive by an idle batch.
	if len(b.ops) == 1 { // most bursts of a simulation; clear is a call
		b.ops[0], b.runs[0] = Op{}, run{}
	} else {
		clear(b.ops)
		clear(b.runs)
	}
	b.ops, b.tags, b.runs = b.ops[:0], b.tags[:0], b.runs[:0]
	return b.faults
}

// executeRun carries out one run; a failing copy is reported and skipped, so that
// one QP's bad memory does not cost the others theirs.
func (b *Batch) executeRun(mem Memory, start, end int, write bool) {
	if direct(mem) {
		for i := start; i < end; i++ {
			if !b.touch(&b.ops[i], write) {
				b.faults = append(b.faults, Fault{b.tags[i], ErrFault})
			}
		}
		return
	}
	for start < end {
		var n int
		var err error
		if write {
			n, err = mem.WriteV(b.ops[start:end])
		} else {
			n, err = mem.ReadV(b.ops[start:end])
		}
		start += n
		if start < end {
			if err == nil {
				err = ErrFault
			}
			b.faults = append(b.faults, Fault{b.tags[start], err})
			start++
		}
	}
}

// touch carries out one copy in this process; false after a fault.
func (b *Batch) touch(o *Op, write bool) bool {
	if !write {
		return uaccess.Load(o.Buf, o.Addr)
	}
	var ahead []byte
	if b.Ahead != nil {
		ahead = b.Ahead(len(o.Buf))
	}
	return uaccess.Store(o.Addr, o.Buf, ahead)
}
