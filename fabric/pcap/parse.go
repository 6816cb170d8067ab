package pcap

import (
	"github.com/gopacket/gopacket/layers"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

const (
	bthBytes = 12

	// Numbers of raw IP captures that differ between systems (DLT_RAW).
	linkTypeRaw12 = 12
	linkTypeRaw14 = 14

	sllBytes  = 16 // Linux cooked capture
	sll2Bytes = 20

	etherTypeVLAN = 0x8100
	etherTypeQinQ = 0x88a8
	maxVLANTags   = 2
)

// parse takes a record apart into r.pkt. It returns nil if that is a RoCE v2 packet
// and else the counter that says why not. cut says that the capture does not hold the
// whole packet.
func (r *Reader) parse(link layers.LinkType, data []byte, cut bool) *uint64 {
	s := &r.skipped
	l3, known := stripLink(link, data)
	if !known {
		return &s.LinkType
	}
	if len(l3) == 0 {
		return &s.NotIP
	}
	var (
		hdr   int
		total int
		count *uint64
	)
	p := &r.pkt
	p.Path = wire.Path{}
	switch l3[0] >> 4 {
	case 4:
		hdr, total, count = parseIPv4(l3, &p.Path, s, cut)
	case 6:
		hdr, total, count = parseIPv6(l3, &p.Path, s, cut)
	default:
		return &s.NotIP
	}
	if count != nil {
		return count
	}
	return r.parseUDP(l3[:hdr], l3[hdr:min(total, len(l3))], total-hdr)
}

// parseUDP takes apart what follows the IP header. b is what was captured of it, n
// its true length.
func (r *Reader) parseUDP(l3, b []byte, n int) *uint64 {
	s, p := &r.skipped, &r.pkt
	switch {
	case len(b) < 4 && n >= udpBytes:
		return &s.Truncated
	case n < udpBytes:
		return &s.NotRoCE
	case be.Uint16(b[2:]) != wire.UDPPort:
		return &s.NotRoCE
	case len(b) < udpBytes:
		return &s.Truncated
	}
	udpLen := int(be.Uint16(b[4:]))
	switch {
	case udpLen < udpBytes+bthBytes+wire.ICRCBytes || udpLen > n:
		return &s.TooShort
	case udpLen > len(b):
		return &s.Truncated
	}
	p.Path.SPort = be.Uint16(b)
	p.L3, p.UDP = l3, b[:udpBytes:udpBytes]
	end := udpLen - wire.ICRCBytes
	p.BTH = b[udpBytes:end:end]
	c := b[end:udpLen]
	p.ICRC = uint32(c[0]) | uint32(c[1])<<8 | uint32(c[2])<<16 | uint32(c[3])<<24
	return nil
}

// parseIPv4 returns the header's and the packet's length, or why it is skipped.
func parseIPv4(b []byte, path *wire.Path, s *Skipped, cut bool) (hdr, total int, count *uint64) {
	if len(b) < ipv4Bytes {
		return 0, 0, truncatedOr(s, cut, &s.NotIP)
	}
	hdr, total = int(b[0]&0x0f)*4, int(be.Uint16(b[2:]))
	switch {
	case hdr < ipv4Bytes || total < hdr:
		return 0, 0, &s.NotIP
	case len(b) < total && !cut:
		return 0, 0, &s.NotIP
	case be.Uint16(b[6:])&0x3fff != 0: // more fragments, or an offset
		return 0, 0, &s.Fragment
	case b[9] != ipProtoUDP:
		return 0, 0, &s.NotUDP
	case len(b) < hdr:
		return 0, 0, &s.Truncated
	}
	path.TClass, path.HopLimit, path.IPID = b[1], b[8], be.Uint16(b[4:])
	path.Src = ib.GIDFromIPv4(b[12], b[13], b[14], b[15])
	path.Dst = ib.GIDFromIPv4(b[16], b[17], b[18], b[19])
	return hdr, total, nil
}

// parseIPv6 is the same for IPv6.
func parseIPv6(b []byte, path *wire.Path, s *Skipped, cut bool) (hdr, total int, count *uint64) {
	if len(b) < ipv6Bytes {
		return 0, 0, truncatedOr(s, cut, &s.NotIP)
	}
	total = ipv6Bytes + int(be.Uint16(b[4:]))
	const fragmentHeader = 44
	switch {
	case len(b) < total && !cut:
		return 0, 0, &s.NotIP
	case b[6] == fragmentHeader:
		return 0, 0, &s.Fragment
	case b[6] != ipProtoUDP:
		return 0, 0, &s.NotUDP
	}
	v := be.Uint32(b)
	path.TClass, path.FlowLabel, path.HopLimit = uint8(v>>20), v&0xfffff, b[7]
	path.Src, path.Dst = ib.GID(b[8:24]), ib.GID(b[24:40])
	return ipv6Bytes, total, nil
}

func truncatedOr(s *Skipped, cut bool, other *uint64) *uint64 {
	if cut {
		return &s.Truncated
	}
	return other
}

// stripLink returns what follows the link header, empty if that is not IP; known is
// false for link types that are not supported.
func stripLink(link layers.LinkType, b []byte) (l3 []byte, known bool) {
	switch link {
	case layers.LinkTypeRaw, linkTypeRaw12, linkTypeRaw14, layers.LinkTypeIPv4, layers.LinkTypeIPv6:
		return b, true
	case layers.LinkTypeEthernet:
		return stripEtherType(b, 12, ethernetBytes), true
	case layers.LinkTypeLinuxSLL:
		return stripEtherType(b, 14, sllBytes), true
	case layers.LinkTypeLinuxSLL2:
		return stripEtherType(b, 0, sll2Bytes), true
	}
	return nil, false
}

// stripEtherType skips a link header of hdr bytes whose EtherType is at offset off,
// and VLAN tags behind it.
func stripEtherType(b []byte, off, hdr int) []byte {
	if len(b) < hdr {
		return nil
	}
	typ, b := be.Uint16(b[off:]), b[hdr:]
	for range maxVLANTags {
		if typ != etherTypeVLAN && typ != etherTypeQinQ || len(b) < 4 {
			break
		}
		typ, b = be.Uint16(b[2:]), b[4:]
	}
	if typ != etherTypeIPv4 && typ != etherTypeIPv6 {
		return nil
	}
	return b
}
