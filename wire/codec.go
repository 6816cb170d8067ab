package wire

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/ib"
)

var be = binary.BigEndian

// Bits of the BTH bytes that are not whole fields.
const (
	bthSE       = 0x80 // byte 1
	bthM        = 0x40
	bthPadShift = 4
	bthPadMask  = 3
	bthTVerMask = 0x0f
	bthFECN     = 0x80 // byte 4
	bthBECN     = 0x40
	bthAckReq   = 0x80 // byte 8
	mask24      = 0xffffff
	fethPLTMask = 0x0f // FETH bits 3-0
	fethSELMask = 0x03 // FETH bits 5-4
)

// PadFor returns the pad bytes (0 to 3) that bring a payload of n bytes to a
// multiple of four.
func PadFor(n int) uint8 { return uint8(-n) & 3 }

// HeaderBytes returns the length of p's BTH and extended headers; the bare BTH if
// the opcode does not exist.
func (p *Packet) HeaderBytes() int {
	if i := Info(p.Opcode); i != nil {
		return i.HeaderBytes
	}
	return bthBytes
}

// AppendHeaders appends the BTH and the extended headers of p's opcode to dst.
// Fields wider than on the wire are cut, reserved bits are zero. p.Pad is encoded
// as it is: the caller keeps it equal to PadFor(payload length). An opcode that does
// not exist gets a BTH alone.
func AppendHeaders(dst []byte, p *Packet) []byte {
	b1 := p.Pad&bthPadMask<<bthPadShift | p.TVer&bthTVerMask
	if p.SE {
		b1 |= bthSE
	}
	if p.M {
		b1 |= bthM
	}
	dqp := uint32(p.DestQP) & mask24
	if p.FECN {
		dqp |= bthFECN << 24
	}
	if p.BECN {
		dqp |= bthBECN << 24
	}
	psn := uint32(p.PSN) & mask24
	if p.AckReq {
		psn |= bthAckReq << 24
	}
	dst = append(dst, byte(p.Opcode), b1)
	dst = be.AppendUint16(dst, p.PKey)
	dst = be.AppendUint32(dst, dqp)
	dst = be.AppendUint32(dst, psn)
	if p.Opcode == ib.OpcodeCNP {
		return append(dst, zeros[:cnpReservedBytes]...)
	}
	return appendExtended(dst, p, opTable[p.Opcode].Mask)
}

// zeros is what reserved and pad bytes are copied from.
var zeros [cnpReservedBytes]byte

func appendExtended(dst []byte, p *Packet, m Mask) []byte {
	if m&HasDETH != 0 {
		dst = be.AppendUint32(dst, uint32(p.DETH.QKey))
		dst = be.AppendUint32(dst, uint32(p.DETH.SrcQP)&mask24)
	}
	if m&HasFETH != 0 {
		dst = append(dst, 0, 0, 0, p.FETH.SEL&fethSELMask<<4|p.FETH.PLT&fethPLTMask)
	}
	if m&HasRETH != 0 {
		dst = be.AppendUint64(dst, p.RETH.VA)
		dst = be.AppendUint32(dst, uint32(p.RETH.RKey))
		dst = be.AppendUint32(dst, p.RETH.DMALen)
	}
	if m&HasAtomicETH != 0 {
		dst = be.AppendUint64(dst, p.AtomicETH.VA)
		dst = be.AppendUint32(dst, uint32(p.AtomicETH.RKey))
		dst = be.AppendUint64(dst, p.AtomicETH.SwapAdd)
		dst = be.AppendUint64(dst, p.AtomicETH.Compare)
	}
	if m&HasAETH != 0 {
		dst = be.AppendUint32(dst, uint32(p.AETH.Syndrome)<<24|uint32(p.AETH.MSN)&mask24)
	}
	if m&HasAtomicAck != 0 {
		dst = be.AppendUint64(dst, p.AtomicAck)
	}
	if m&HasImm != 0 {
		dst = be.AppendUint32(dst, p.Imm)
	}
	if m&HasIETH != 0 {
		dst = be.AppendUint32(dst, uint32(p.InvRKey))
	}
	return dst
}

// AppendPacket appends headers, payload and p.Pad zero bytes to dst: everything but
// the ICRC. It copies the payload.
func AppendPacket(dst []byte, p *Packet) []byte {
	dst = AppendHeaders(dst, p)
	dst = append(dst, p.Payload...)
	return append(dst, zeros[:p.Pad&bthPadMask]...)
}

// Decode parses b, a packet from the first BTH byte to the last pad byte, without
// ICRC. It overwrites all of *p. On success it returns [DropNone] and p.Payload
// aliases b (nil if there is no payload). On a drop, p holds the BTH if b was long
// enough for one and is otherwise zero.
//
// Reserved bits and the values of pad bytes are ignored, as receivers must. Decode
// checks what the bytes alone can tell; whether a payload fits the path MTU and the
// message is the responder's business, since the answer may be a NAK.
func Decode(b []byte, p *Packet) DropReason {
	*p = Packet{}
	if len(b) < bthBytes {
		return DropTooShort
	}
	decodeBTH(b, p)
	if p.TVer != 0 {
		return DropBadTVer
	}
	info := Info(p.Opcode)
	if info == nil {
		return DropUnknownOpcode
	}
	if len(b) < info.HeaderBytes {
		return DropTooShort
	}
	// The pad count completes the payload to a multiple of four, so a pad without a
	// payload cannot pass this.
	body := len(b) - info.HeaderBytes
	n := body - int(p.Pad)
	switch {
	case body%4 != 0 || n < 0,
		info.Mask&Payload == 0 && body != 0,
		info.Mask&AtomicWrite != 0 && n != atomicWriteBytes:
		return DropBadLength
	}
	decodeExtended(b[bthBytes:info.HeaderBytes], p, info.Mask)
	if n > 0 {
		end := info.HeaderBytes + n
		p.Payload = b[info.HeaderBytes:end:end]
	}
	return DropNone
}

func decodeBTH(b []byte, p *Packet) {
	_ = b[bthBytes-1]
	p.Opcode = ib.Opcode(b[0])
	p.SE = b[1]&bthSE != 0
	p.M = b[1]&bthM != 0
	p.Pad = b[1] >> bthPadShift & bthPadMask
	p.TVer = b[1] & bthTVerMask
	p.PKey = be.Uint16(b[2:])
	p.FECN = b[4]&bthFECN != 0
	p.BECN = b[4]&bthBECN != 0
	p.DestQP = ib.QPN(be.Uint32(b[4:]) & mask24)
	p.AckReq = b[8]&bthAckReq != 0
	p.PSN = ib.PSN(be.Uint32(b[8:]) & mask24)
}

// decodeExtended reads the headers in m from b, which has their exact length.
func decodeExtended(b []byte, p *Packet, m Mask) {
	if m&HasDETH != 0 {
		p.DETH = DETH{ib.QKey(be.Uint32(b)), ib.QPN(be.Uint32(b[4:]) & mask24)}
		b = b[dethBytes:]
	}
	if m&HasFETH != 0 {
		p.FETH = FETH{SEL: b[3] >> 4 & fethSELMask, PLT: b[3] & fethPLTMask}
		b = b[fethBytes:]
	}
	if m&HasRETH != 0 {
		p.RETH = RETH{be.Uint64(b), ib.RKey(be.Uint32(b[8:])), be.Uint32(b[12:])}
		b = b[rethBytes:]
	}
	if m&HasAtomicETH != 0 {
		p.AtomicETH = AtomicETH{be.Uint64(b), ib.RKey(be.Uint32(b[8:])), be.Uint64(b[12:]), be.Uint64(b[20:])}
		b = b[atomicEthBytes:]
	}
	if m&HasAETH != 0 {
		p.AETH = AETH{ib.Syndrome(b[0]), ib.MSN(be.Uint32(b) & mask24)}
		b = b[aethBytes:]
	}
	if m&HasAtomicAck != 0 {
		p.AtomicAck = be.Uint64(b)
		b = b[atomicAckBytes:]
	}
	if m&HasImm != 0 {
		p.Imm = be.Uint32(b)
		b = b[immBytes:]
	}
	if m&HasIETH != 0 {
		p.InvRKey = ib.RKey(be.Uint32(b))
	}
}
