package gsi

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

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
