package gsi

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/wire"
)

// slabBase is the address of the first byte of a slab.
const slabBase = 0x10000

// slab is the memory of QP1: datagrams are written into it by the owner of the device,
// and read by the same owner once they are complete.
type slab struct{ b []byte }

var _ mr.Memory = (*slab)(nil)

func (s *slab) at(addr uint64, n int) []byte {
	if addr < slabBase || addr-slabBase > uint64(len(s.b)) || uint64(n) > uint64(len(s.b))-(addr-slabBase) {
		return nil
	}
	return s.b[addr-slabBase:][:n]
}

// ReadV implements mr.Memory.
func (s *slab) ReadV(ops []mr.Op) (int, error) {
	for i := range ops {
		src := s.at(ops[i].Addr, len(ops[i].Buf))
		if src == nil {
			return i, mr.ErrFault
		}
		copy(ops[i].Buf, src)
	}
	return len(ops), nil
}

// WriteV implements mr.Memory.
func (s *slab) WriteV(ops []mr.Op) (int, error) {
	for i := range ops {
		dst := s.at(ops[i].Addr, len(ops[i].Buf))
		if dst == nil {
			return i, mr.ErrFault
		}
		copy(dst, ops[i].Buf)
	}
	return len(ops), nil
}

// CompareSwap64 implements mr.Memory. Nobody has the right to an atomic operation here.
func (s *slab) CompareSwap64(uint64, uint64, uint64) (uint64, error) { return 0, mr.ErrFault }

// FetchAdd64 implements mr.Memory, likewise.
func (s *slab) FetchAdd64(uint64, uint64) (uint64, error) { return 0, mr.ErrFault }

// pathOf reads the network header that precedes a datagram.
func pathOf(h []byte) (p wire.Path, ok bool) {
	if h[0]>>4 == 6 {
		first := binary.BigEndian.Uint32(h)
		return wire.Path{Src: ib.GID(h[8:24]), Dst: ib.GID(h[24:40]), TClass: uint8(first >> 20), FlowLabel: first & 0xfffff, HopLimit: h[7]}, true
	}
	ip := h[20:]
	if ip[0]>>4 != 4 {
		return p, false
	}
	return wire.Path{Src: ib.GIDFromIPv4(ip[12], ip[13], ip[14], ip[15]), Dst: ib.GIDFromIPv4(ip[16], ip[17], ip[18], ip[19]), TClass: ip[1], HopLimit: ip[8]}, true
}
