package mem

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// check says whether the packet p with that payload has an encoding that a receiver
// would parse. It must agree with wire.Decode; the tests compare the two.
func check(p *wire.Packet, payload []byte) wire.DropReason {
	if p.TVer&0x0f != 0 {
		return wire.DropBadTVer
	}
	info := wire.Info(p.Opcode)
	if info == nil {
		return wire.DropUnknownOpcode
	}
	n := len(payload)
	switch {
	case p.Pad&3 != wire.PadFor(n),
		info.Mask&wire.Payload == 0 && n != 0,
		info.Mask&wire.AtomicWrite != 0 && n != 8:
		return wire.DropBadLength
	}
	return wire.DropNone
}

// encodedBytes is the length of the encoding, BTH to ICRC.
func encodedBytes(p *wire.Packet, payload []byte) int {
	return p.HeaderBytes() + len(payload) + int(p.Pad&3) + wire.ICRCBytes
}

// canonical copies p as encoding and decoding would, but for the payload: without headers
// that the opcode does not have, and with fields cut to the bits they have on the wire.
// Headers that most packets lack are left alone if they are zero already.
func (f *Frame) canonical(p *wire.Packet) {
	dst := &f.Packet
	dst.Opcode, dst.SE, dst.M, dst.Pad, dst.TVer = p.Opcode, p.SE, p.M, p.Pad&3, 0
	dst.FECN, dst.BECN, dst.AckReq, dst.PKey = p.FECN, p.BECN, p.AckReq, p.PKey
	dst.DestQP, dst.PSN = p.DestQP&ib.QPNMask, p.PSN&ib.PSNMask
	dst.Payload = nil
	m := wire.Info(p.Opcode).Mask
	dst.AETH = wire.AETH{}
	if m&wire.HasAETH != 0 {
		dst.AETH = wire.AETH{Syndrome: p.AETH.Syndrome, MSN: p.AETH.MSN & ib.PSNMask}
	}
	extended := m&(wire.HasRETH|wire.HasDETH|wire.HasFETH|wire.HasAtomicETH|wire.HasAtomicAck|wire.HasImm|wire.HasIETH) != 0
	if !extended && !f.extended {
		return
	}
	f.extended = extended
	dst.FETH, dst.Imm, dst.InvRKey, dst.DETH = wire.FETH{}, 0, 0, wire.DETH{}
	dst.RETH, dst.AtomicETH, dst.AtomicAck = wire.RETH{}, wire.AtomicETH{}, 0
	if m&wire.HasRETH != 0 {
		dst.RETH = p.RETH
	}
	if m&wire.HasDETH != 0 {
		dst.DETH = wire.DETH{QKey: p.DETH.QKey, SrcQP: p.DETH.SrcQP & ib.QPNMask}
	}
	if m&wire.HasFETH != 0 {
		dst.FETH = wire.FETH{SEL: p.FETH.SEL & 3, PLT: p.FETH.PLT & 0x0f}
	}
	if m&wire.HasAtomicETH != 0 {
		dst.AtomicETH = p.AtomicETH
	}
	if m&wire.HasAtomicAck != 0 {
		dst.AtomicAck = p.AtomicAck
	}
	if m&wire.HasImm != 0 {
		dst.Imm = p.Imm
	}
	if m&wire.HasIETH != 0 {
		dst.InvRKey = p.InvRKey
	}
}

// appendEncoded appends the whole packet, ICRC included, to dst.
func appendEncoded(dst []byte, path *wire.Path, p *wire.Packet, payload []byte, badICRC bool) []byte {
	q := *p
	q.Payload = payload
	start := len(dst)
	dst = wire.AppendPacket(dst, &q)
	crc := wire.ICRC(path, dst[start:])
	if badICRC {
		crc = ^crc
	}
	dst = append(dst, 0, 0, 0, 0)
	wire.PutICRC(dst[len(dst)-wire.ICRCBytes:], crc)
	return dst
}

// load fills f with the packet directly.
func (f *Frame) load(p *wire.Packet, payload []byte, damage fabric.CorruptKind) {
	f.canonical(p)
	f.buf = append(f.buf[:0], payload...)
	if len(payload) > 0 {
		f.Packet.Payload = f.buf[:len(f.buf):len(f.buf)]
	}
	f.CorruptICRC = damage == fabric.CorruptICRC
	if damage == fabric.CorruptPayload && len(payload) > 0 {
		tamper(p, f.buf)
	}
}

// refer fills f with the packet and lets its payload be the sender's, which is not empty.
func (f *Frame) refer(p *wire.Packet, payload []byte, damage fabric.CorruptKind) {
	f.canonical(p)
	f.Packet.Payload = payload[:len(payload):len(payload)]
	f.CorruptICRC = damage == fabric.CorruptICRC
}

// tamper flips a bit of a payload.
func tamper(p *wire.Packet, payload []byte) {
	at, bit := fabric.FlipAt(fabric.InfoOf(p, 0), len(payload))
	payload[at] ^= bit
}

// loadEncoded fills f by way of the encoding, and finds out about the ICRC as a
// receiver would.
func (f *Frame) loadEncoded(p *wire.Packet, payload []byte, damage fabric.CorruptKind) wire.DropReason {
	if damage == fabric.CorruptPayload && len(payload) > 0 {
		payload = append([]byte(nil), payload...)
		tamper(p, payload)
	}
	f.buf = appendEncoded(f.buf[:0], &f.Path, p, payload, damage == fabric.CorruptICRC)
	body := f.buf[:len(f.buf)-wire.ICRCBytes]
	f.CorruptICRC = wire.ICRC(&f.Path, body) != binary.LittleEndian.Uint32(f.buf[len(body):])
	f.extended = true
	return wire.Decode(body, &f.Packet)
}
