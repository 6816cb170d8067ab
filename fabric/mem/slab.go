package mem

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// Frame is a packet that has arrived. It belongs to the caller of [Network.Pop] from
// then until [Network.Release], whatever else happens to the network meanwhile.
//
// A world has many frames under way, and none of them is in a cache when its turn comes. The
// order of the fields is therefore that of their use, in lines of 64 bytes: the first is all
// that a switch looks at, and most packets have nothing to say in the last two.
type Frame struct {
	To, From NodeIndex
	// Bytes is the encoded length, BTH to ICRC.
	Bytes int32
	sw    SwitchIndex // where it is on its way to, NoSwitch for its destination
	slot  uint32
	Path  wire.Path

	class uint8
	state frameState
	// CorruptICRC says that the ICRC does not match: a receiver must drop the packet.
	CorruptICRC bool
	extended    bool // Packet has headers behind the AETH, or may have
	// Packet is what [wire.Decode] makes of the packet's encoding, Payload included,
	// in either mode of the network. Payload is nil if it is empty.
	Packet wire.Packet
	buf    []byte    // the payload, or the whole encoding; capacity fixed by class
	_      [4]uint64 // up to a whole number of lines
}

// FrameBytes is how much of a frame is used for most packets.
const FrameBytes = 128

type frameState uint8

const (
	frameFree frameState = iota
	frameInFlight
	framePopped
)

// classBytes are the buffer sizes of the slab: acknowledgements and READ requests
// need none or the smallest, and a packet of 256 bytes should not pin 4 kB.
var classBytes = [...]int{0, 128, 1024 + 128, ib.MTU4096.Bytes() + 128}

func classFor(n int) uint8 {
	c := uint8(0)
	for classBytes[c] < n {
		c++
	}
	return c
}

const chunkFrames = 256

// slab hands out frames and takes them back. Frames never move, so pointers to them
// stay good while the slab grows. It never shrinks.
type slab struct {
	chunks []*[chunkFrames]Frame
	used   int // frames ever handed out
	free   [len(classBytes)][]uint32
}

func (s *slab) at(slot uint32) *Frame { return &s.chunks[slot/chunkFrames][slot%chunkFrames] }

// get returns a frame whose buf has room for n bytes. Its other fields are stale.
func (s *slab) get(n int) *Frame {
	class := classFor(n)
	if list := s.free[class]; len(list) > 0 {
		slot := list[len(list)-1]
		s.free[class] = list[:len(list)-1]
		return s.at(slot)
	}
	if s.used == len(s.chunks)*chunkFrames {
		s.chunks = append(s.chunks, new([chunkFrames]Frame))
	}
	f := s.at(uint32(s.used))
	f.slot, f.class = uint32(s.used), class
	if size := classBytes[class]; size > 0 {
		f.buf = make([]byte, 0, size)
	}
	s.used++
	return f
}

func (s *slab) put(f *Frame) {
	f.state = frameFree
	s.free[f.class] = append(s.free[f.class], f.slot)
}
