package wire

import "github.com/rvtsim/rvtsim/ib"

// The ECN field of a traffic class (RFC 3168): ECT0 says that a switch may mark the packet
// instead of dropping it, ECNCE that one did. Both of its bits are in ECNMask.
const (
	ECT0    = 2
	ECNCE   = 3
	ECNMask = 3
)

// ECNCapable reports whether a switch may mark a packet with that traffic class.
func ECNCapable(tclass uint8) bool { return tclass&ECNMask != 0 }

// FrameOverheadBytes is what Ethernet, IP and UDP add to a packet on the wire:
// preamble 8, Ethernet header 14, check sequence 4, gap 12, UDP 8, and an IPv4 header
// of 20 or an IPv6 header of 40 bytes.
func FrameOverheadBytes(ipv4 bool) int {
	if ipv4 {
		return 8 + 14 + 4 + 12 + 8 + ipv4Bytes
	}
	return 8 + 14 + 4 + 12 + 8 + ipv6Bytes
}

// AppendGRH appends the [ib.GRHBytes] bytes that a UD receive stores before the
// payload. Over IPv6 they are the IPv6 header; over IPv4 they are 20 zero bytes (the
// kernel's union rdma_network_hdr; IBTA annex A17) and the IPv4 header, with DF set
// and a correct checksum. udpBytes is the UDP length: UDP header to ICRC.
func AppendGRH(dst []byte, path *Path, udpBytes int) []byte {
	var h [ib.GRHBytes]byte
	if path.IsIPv4() {
		ip := h[ib.GRHBytes-ipv4Bytes:]
		putIPv4(ip, path, udpBytes, path.IPID)
		be.PutUint16(ip[10:], ipv4Checksum(ip))
	} else {
		putIPv6(h[:], path, udpBytes)
	}
	return append(dst, h[:]...)
}

// putIPv4 writes an IPv4 header without options into h, its checksum zero. n is the
// UDP length in bytes.
func putIPv4(h []byte, path *Path, n int, id uint16) {
	_ = h[ipv4Bytes-1]
	h[0] = 4<<4 | ipv4Bytes/4
	h[1] = path.TClass
	be.PutUint16(h[2:], uint16(ipv4Bytes+n))
	be.PutUint16(h[ipv4IDOffset:], id)
	h[6], h[7] = ipv4DF, 0
	h[8] = path.HopLimit
	h[9] = ipProtoUDP
	h[10], h[11] = 0, 0
	copy(h[12:16], path.Src[12:])
	copy(h[16:20], path.Dst[12:])
}

// putIPv6 writes an IPv6 header into h. n is the UDP length in bytes.
func putIPv6(h []byte, path *Path, n int) {
	_ = h[ipv6Bytes-1]
	be.PutUint32(h, 6<<28|uint32(path.TClass)<<20|path.FlowLabel&flowLabelMask)
	be.PutUint16(h[4:], uint16(n))
	h[6] = ipProtoUDP
	h[7] = path.HopLimit
	copy(h[8:24], path.Src[:])
	copy(h[24:40], path.Dst[:])
}

// ipv4Checksum is the checksum of an option-free header whose checksum field is 0.
func ipv4Checksum(h []byte) uint16 {
	var s uint32
	for i := 0; i < ipv4Bytes; i += 2 {
		s += uint32(be.Uint16(h[i:]))
	}
	s = s&0xffff + s>>16
	s = s&0xffff + s>>16
	return ^uint16(s)
}

const (
	flowLabelMask = 0xfffff
	// sportBase (kernel: IB_ROCE_UDP_ENCAP_VALID_PORT_MIN) is where the UDP source
	// ports of RoCE v2 begin. The formulas below choose the low 14 bits.
	sportBase = 0xc000
	// goldenRatio32 (kernel: GOLDEN_RATIO_32) is the multiplier of hash_32.
	goldenRatio32 = 0x61c88647
)

// SourcePort returns the UDP source port of a connected QP (kernel:
// rdma_get_udp_sport). It is constant for the life of a connection, so that a
// network that spreads flows keeps its packets in order. A flowLabel of 0 is
// replaced by a hash of both QPNs, which gives both directions the same port.
// Receivers ignore the port.
func SourcePort(flowLabel uint32, lqpn, rqpn ib.QPN) uint16 {
	fl := flowLabel & flowLabelMask
	if fl == 0 {
		v := uint64(lqpn&ib.QPNMask) * uint64(rqpn&ib.QPNMask)
		v ^= v >> 20
		v ^= v >> 40
		fl = uint32(v) & flowLabelMask
	}
	return uint16(fl&0x3fff^fl>>14) | sportBase
}

// SourcePortUD returns the UDP source port of a datagram QP, which does not depend
// on the destination (kernel: rxe_qp_init_req).
func SourcePortUD(qpn ib.QPN) uint16 {
	return sportBase + uint16(uint32(qpn&ib.QPNMask)*goldenRatio32>>18)
}
