package shm

import (
	"encoding/binary"
	"sync/atomic"
	"unsafe"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// An inbox is a page that says how its owner is, and Lanes lanes of a page and laneBytes
// each. What nobody has touched takes no memory.
const (
	// Lanes is how many programs can write to an inbox.
	Lanes = 512

	pageBytes   = 4096
	laneBytes   = 2 << 20 // of the ring; a power of two; the windows of four queue pairs
	laneStride  = pageBytes + laneBytes
	fileBytes   = pageBytes + Lanes*laneStride
	layout      = 2 // raised when any of this changes
	magic       = 0x52565453_494e0000 | layout
	recordAlign = 64 // a cache line, so that reader and writer share none
	// recordHead is how many bytes are before the packet. What follows a bare BTH, as most
	// payloads do, begins a line of the cache: a copy that straddles lines is a third slower,
	// for it waits for two of another processor's at a time.
	recordHead = 52
	maxPacket  = 16 << 10
	// skip, in place of a length, says that the next record is at the start of the ring.
	skip = ^uint32(0)
	// publishBytes is after how much a writer shows what it has written so far: the reader
	// works at it while the writer goes on.
	publishBytes = 16 << 10
	// usualBytes is how much of a ring is used as long as it is enough, so that it stays in
	// the caches: more than the window of one queue pair.
	usualBytes = 640 << 10
	// readBytes is how many bytes of a ring READ responses use as long as their reader takes
	// some now and then. No window bounds them: their responder fills whatever there is.
	readBytes = 320 << 10
	// rewindBytes is how far into a ring a writer goes on if its reader has taken everything.
	// Then it goes back to the start, which is in the caches, and leaves the rest untouched.
	rewindBytes = 128 << 10
	// prefetchBytes is how much of the next packet is asked for beforehand.
	prefetchBytes = 4096 + 64
)

// inboxHeader is the first page of an inbox.
type inboxHeader struct {
	magic atomic.Uint64
	gone  atomic.Uint32 // set by the daemon when the owner has ended
	_     [52]byte

	// Writers look at it after each publication. Nothing else is in the line.
	asleep atomic.Uint32 // the owner sleeps, or is about to
	_      [60]byte

	changes atomic.Uint32 // counts the bits set in active
	active  [Lanes / 64]atomic.Uint64
}

// laneHeader is the first page of a lane. Positions count bytes since the lane was made.
type laneHeader struct {
	tail atomic.Uint64 // written by the writer: end of what may be read
	_    [120]byte
	head atomic.Uint64 // written by the reader: end of what may be written over
}

func laneOffset(k int) int64 { return pageBytes + int64(k)*laneStride }

func inboxHeaderOf(b []byte) *inboxHeader { return (*inboxHeader)(unsafe.Pointer(&b[0])) }

func laneOf(b []byte) (*laneHeader, []byte) {
	return (*laneHeader)(unsafe.Pointer(&b[0])), b[pageBytes:laneStride:laneStride]
}

// isReadResponse tells a packet that begins with this BTH from others.
func isReadResponse(b []byte) bool {
	op := ib.Opcode(b[0])
	return op >= ib.OpReadRespFirst && op <= ib.OpReadRespOnly
}

// recordBytes is the room that a packet of n bytes takes in a ring.
func recordBytes(n int) int { return (recordHead + n + recordAlign - 1) &^ (recordAlign - 1) }

// putRecord writes the headers around a packet, which lies behind them.
func putRecord(b []byte, d *fabric.Datagram) {
	p := &d.Path
	le := binary.LittleEndian
	le.PutUint32(b, uint32(len(d.Buf)))
	b[4], b[5] = p.TClass, p.HopLimit
	le.PutUint16(b[6:], p.SPort)
	le.PutUint32(b[8:], p.FlowLabel)
	copy(b[16:32], p.Src[:])
	copy(b[32:48], p.Dst[:])
}

// recordLength reads the length of a record, once.
func recordLength(b []byte) uint32 { return atomic.LoadUint32((*uint32)(unsafe.Pointer(&b[0]))) }

// pathOf reads the headers of a record.
func pathOf(b []byte) wire.Path {
	le := binary.LittleEndian
	return wire.Path{
		Src: ib.GID(b[16:32]), Dst: ib.GID(b[32:48]), TClass: b[4], HopLimit: b[5],
		SPort: le.Uint16(b[6:]), FlowLabel: le.Uint32(b[8:]),
	}
}
