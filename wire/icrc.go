package wire

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/rvtsim/rvtsim/internal/crcfold"
)

// The ICRC is the Ethernet CRC-32 over, in this order (IBTA annex A17; kernel:
// rxe_icrc_hdr):
//
//   - eight bytes of ones, in place of an InfiniBand local route header;
//   - the IP header, with the fields that routers change set to ones: IPv4 TOS, TTL
//     and header checksum; IPv6 traffic class, flow label and hop limit;
//   - the UDP header with its checksum set to ones;
//   - the BTH with byte 4 (FECN, BECN and six reserved bits) set to ones;
//   - all the rest up to the last pad byte, as sent.
//
// Note that the IPv4 identification and the DF flag are covered.

// icrcSeed is the CRC register, before final inversion, after the eight bytes of
// ones.
const icrcSeed uint32 = 0xdebb20e3

// UDP and IP protocol constants.
const (
	ipProtoUDP   = 17
	ipv4DF       = 0x40 // high byte of flags and fragment offset
	ipv4IDOffset = 4
	maxL3Bytes   = 60 // IPv4 with options
)

// ICRC returns the invariant CRC of a packet that travels on path. b is the packet
// from the first BTH byte to the last pad byte. Over IPv4 the header is taken to
// have no options, DF set and the identification path.IPID.
func ICRC(path *Path, b []byte) uint32 {
	p := NewICRCPrefix(path, len(b))
	return p.ICRC(path.IPID, b)
}

// ICRCPrefix is what the ICRCs of all packets of one length on one path have in common.
// It saves a sender or receiver of many such packets the headers before the BTH.
type ICRCPrefix struct {
	reg uint32 // the register after the UDP header, for the identification 0
	n   int
	v4  bool
}

// NewICRCPrefix returns the prefix for packets of n bytes, ICRC not included. It does not
// look at path.IPID.
func NewICRCPrefix(path *Path, n int) ICRCPrefix {
	var h [ipv6Bytes + udpBytes]byte
	p := ICRCPrefix{n: n, v4: path.IsIPv4()}
	l3 := ipv6Bytes
	if p.v4 {
		putIPv4(h[:], path, udpBytes+n+ICRCBytes, 0)
		maskIPv4(h[:])
		l3 = ipv4Bytes
	} else {
		putIPv6(h[:], path, udpBytes+n+ICRCBytes)
		maskIPv6(h[:])
	}
	udp := h[l3 : l3+udpBytes]
	be.PutUint16(udp[0:], path.SPort)
	be.PutUint16(udp[2:], UDPPort)
	be.PutUint16(udp[4:], uint16(udpBytes+n+ICRCBytes))
	maskUDP(udp)
	p.reg = updateShort(icrcSeed, h[:l3+udpBytes])
	return p
}

// Len is the length that the prefix is for; 0 for the zero value.
func (p *ICRCPrefix) Len() int { return p.n }

// ICRC returns the ICRC of b, which has the prefix's length. Over IPv4 id is the
// identification.
func (p *ICRCPrefix) ICRC(id uint16, b []byte) uint32 { return p.icrc(id, nil, b) }

// CopyICRC is ICRC, and copies b to dst on the way. dst is as long as b or longer and does
// not overlap it. The ICRC is that of what was copied only if nobody changes b meanwhile.
func (p *ICRCPrefix) CopyICRC(id uint16, dst, b []byte) uint32 {
	copy(dst, b[:min(len(b), bthBytes)])
	return p.icrc(id, dst, b)
}

// icrc copies what follows the BTH to dst if there is one.
func (p *ICRCPrefix) icrc(id uint16, dst, b []byte) uint32 {
	if len(b) < bthBytes {
		return icrcFinish(p.start(id), b)
	}
	reg := overBTH(p.start(id), b)
	if dst != nil {
		return icrcCopyRest(dst[bthBytes:], reg, b[bthBytes:])
	}
	return icrcRest(reg, b[bthBytes:])
}

// start is the register after the UDP header.
func (p *ICRCPrefix) start(id uint16) uint32 {
	if !p.v4 {
		return p.reg
	}
	return p.reg ^ idBytes[0][id>>8] ^ idBytes[1][byte(id)]
}

// overBTH runs the register reg over the BTH that b begins with, with ones for its fifth byte.
func overBTH(reg uint32, b []byte) uint32 {
	reg ^= binary.LittleEndian.Uint32(b)
	reg = slicing[0][b[7]] ^ slicing[1][b[6]] ^ slicing[2][b[5]] ^ slicing[3][0xff] ^
		slicing[4][reg>>24] ^ slicing[5][byte(reg>>16)] ^ slicing[6][byte(reg>>8)] ^ slicing[7][byte(reg)]
	return update4(reg, b[8:])
}

// LoadICRC is CopyICRC of a packet of which only the headers are there, from the BTH on, and
// whose payload, as long as the rest of dst, is at addr of this process; see
// [crcfold.FoldLoad]. ok is false if not all of the payload is there.
func (p *ICRCPrefix) LoadICRC(id uint16, dst, headers []byte, addr uint64) (crc uint32, ok bool) {
	copy(dst, headers)
	reg := updateShort(overBTH(p.start(id), headers), headers[bthBytes:])
	reg, ok = crcfold.FoldLoad(dst[len(headers):], reg, addr)
	return ^reg, ok
}

// ICRCRaw returns the invariant CRC from captured bytes: l3 is the IP header with
// its options, udp the UDP header, b the packet from the first BTH byte to the last
// pad byte. The version nibble of l3 tells IPv4 from IPv6. Truncated headers give a
// CRC of what is there.
func ICRCRaw(l3, udp, b []byte) uint32 {
	var h [maxL3Bytes + udpBytes]byte
	n := copy(h[:maxL3Bytes], l3)
	if n > 0 && h[0]>>4 == 4 {
		maskIPv4(h[:])
	} else {
		maskIPv6(h[:])
	}
	var u [udpBytes]byte
	m := copy(u[:], udp)
	maskUDP(u[:])
	n += copy(h[n:], u[:m])
	return icrcFinish(updateShort(icrcSeed, h[:n]), b)
}

// icrcFinish runs the register reg over b and inverts it.
func icrcFinish(reg uint32, b []byte) uint32 {
	var bth [bthBytes]byte
	n := copy(bth[:], b)
	bth[4] = 0xff
	return icrcRest(updateShort(reg, bth[:n]), b[n:])
}

// icrcRest runs the register reg over what follows the BTH and inverts it.
func icrcRest(reg uint32, b []byte) uint32 {
	if len(b) >= crcfold.Block {
		var n int
		reg, n = crcfold.Fold(reg, b)
		b = b[n:]
	}
	if len(b) < shortBytes || crcfold.Tables() {
		return ^updateShort(reg, b)
	}
	return crc32.Update(^reg, crc32.IEEETable, b)
}

// icrcCopyRest is icrcRest, and copies b to dst.
func icrcCopyRest(dst []byte, reg uint32, b []byte) uint32 {
	if len(b) >= crcfold.Block {
		var n int
		reg, n = crcfold.FoldCopy(dst, reg, b)
		dst, b = dst[n:], b[n:]
	}
	copy(dst, b)
	return icrcRest(reg, b)
}

// shortBytes is from where on crc32.Update is worth its calls.
const shortBytes = 32

// PutICRC stores crc into dst[:4], least significant byte first.
func PutICRC(dst []byte, crc uint32) { binary.LittleEndian.PutUint32(dst, crc) }

func maskIPv4(h []byte) { h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff }

func maskIPv6(h []byte) {
	h[0] |= 0x0f
	h[1], h[2], h[3], h[7] = 0xff, 0xff, 0xff, 0xff
}

func maskUDP(h []byte) { h[6], h[7] = 0xff, 0xff }

// slicing are the tables of the slicing-by-8 method: slicing[k][v] is the register
// after byte v and k zero bytes.
var slicing = func() (t [8][256]uint32) {
	t[0] = *crc32.IEEETable
	for k := 1; k < 8; k++ {
		for v := range t[k] {
			r := t[k-1][v]
			t[k][v] = r>>8 ^ t[0][byte(r)]
		}
	}
	return t
}()

// idBytes are what the two bytes of the identification leave in the register after the
// headers: as the CRC is linear, that comes on top of what the rest leaves.
var idBytes = func() (t [2][256]uint32) {
	var b [ipv4Bytes - ipv4IDOffset + udpBytes]byte
	for k := range t {
		for v := range t[k] {
			b[k] = byte(v)
			t[k][v] = updateShort(0, b[:])
		}
		b[k] = 0
	}
	return t
}()

// updateShort runs the uninverted register reg over b, which need not be short where
// crcfold.Tables says so. It exists beside
// crc32.Update because that one is called through a variable, which would move the
// header copies on our stack to the heap.
func updateShort(reg uint32, b []byte) uint32 {
	for len(b) >= 8 {
		reg ^= binary.LittleEndian.Uint32(b)
		reg = slicing[0][b[7]] ^ slicing[1][b[6]] ^ slicing[2][b[5]] ^ slicing[3][b[4]] ^
			slicing[4][reg>>24] ^ slicing[5][byte(reg>>16)] ^ slicing[6][byte(reg>>8)] ^ slicing[7][byte(reg)]
		b = b[8:]
	}
	if len(b) >= 4 {
		reg = update4(reg, b)
		b = b[4:]
	}
	for _, v := range b {
		reg = reg>>8 ^ slicing[0][byte(reg)^v]
	}
	return reg
}

// update4 runs the uninverted register reg over the first four bytes of b.
func update4(reg uint32, b []byte) uint32 {
	reg ^= binary.LittleEndian.Uint32(b)
	return slicing[0][reg>>24] ^ slicing[1][byte(reg>>16)] ^ slicing[2][byte(reg>>8)] ^ slicing[3][byte(reg)]
}
