package wire_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// headerTable is written out from the format, not derived from the code under test:
// opcode, name, length of BTH and extended headers, minimal legal body.
var headerTable = []struct {
	op     ib.Opcode
	name   string
	header int
	text   string // the extended headers of fill()
}{
	{0x00, "SEND_FIRST", 12, ""},
	{0x01, "SEND_MIDDLE", 12, ""},
	{0x02, "SEND_LAST", 12, ""},
	{0x03, "SEND_LAST_IMM", 16, "imm"},
	{0x04, "SEND_ONLY", 12, ""},
	{0x05, "SEND_ONLY_IMM", 16, "imm"},
	{0x06, "WRITE_FIRST", 28, "reth"},
	{0x07, "WRITE_MIDDLE", 12, ""},
	{0x08, "WRITE_LAST", 12, ""},
	{0x09, "WRITE_LAST_IMM", 16, "imm"},
	{0x0a, "WRITE_ONLY", 28, "reth"},
	{0x0b, "WRITE_ONLY_IMM", 32, "reth imm"},
	{0x0c, "READ_REQUEST", 28, "reth"},
	{0x0d, "READ_RESP_FIRST", 16, "aeth"},
	{0x0e, "READ_RESP_MIDDLE", 12, ""},
	{0x0f, "READ_RESP_LAST", 16, "aeth"},
	{0x10, "READ_RESP_ONLY", 16, "aeth"},
	{0x11, "ACKNOWLEDGE", 16, "aeth"},
	{0x12, "ATOMIC_ACK", 24, "aeth orig"},
	{0x13, "CMP_SWAP", 40, "cas"},
	{0x14, "FETCH_ADD", 40, "add"},
	{0x16, "SEND_LAST_INV", 16, "inv"},
	{0x17, "SEND_ONLY_INV", 16, "inv"},
	{0x1c, "FLUSH", 32, "feth reth"},
	{0x1d, "ATOMIC_WRITE", 28, "reth"},
	{0x20, "UC_SEND_FIRST", 12, ""},
	{0x21, "UC_SEND_MIDDLE", 12, ""},
	{0x22, "UC_SEND_LAST", 12, ""},
	{0x23, "UC_SEND_LAST_IMM", 16, "imm"},
	{0x24, "UC_SEND_ONLY", 12, ""},
	{0x25, "UC_SEND_ONLY_IMM", 16, "imm"},
	{0x26, "UC_WRITE_FIRST", 28, "reth"},
	{0x27, "UC_WRITE_MIDDLE", 12, ""},
	{0x28, "UC_WRITE_LAST", 12, ""},
	{0x29, "UC_WRITE_LAST_IMM", 16, "imm"},
	{0x2a, "UC_WRITE_ONLY", 28, "reth"},
	{0x2b, "UC_WRITE_ONLY_IMM", 32, "reth imm"},
	{0x64, "UD_SEND_ONLY", 20, "deth"},
	{0x65, "UD_SEND_ONLY_IMM", 24, "deth imm"},
	{0x81, "CNP", 28, ""},
}

// headerOnly opcodes carry no payload.
var headerOnly = map[ib.Opcode]bool{0x0c: true, 0x11: true, 0x12: true, 0x13: true, 0x14: true, 0x1c: true, 0x81: true}

// fill returns a packet of op in which every field that op carries is non-zero, with
// n payload bytes.
func fill(op ib.Opcode, n int) wire.Packet {
	p := wire.Packet{
		Opcode: op, SE: true, M: true, Pad: wire.PadFor(n), PKey: 0x7fff, FECN: true, BECN: true,
		DestQP: 0xabcdef, AckReq: true, PSN: 0xfedcba,
	}
	for i := range n {
		p.Payload = append(p.Payload, byte(i+1))
	}
	for _, r := range headerTable {
		if r.op != op {
			continue
		}
		for _, h := range strings.Fields(r.text) {
			switch h {
			case "imm":
				p.Imm = 0x01020304
			case "inv":
				p.InvRKey = 0x11121314
			case "reth":
				p.RETH = wire.RETH{VA: 0x2122232425262728, RKey: 0x292a2b2c, DMALen: 0x2d2e2f30}
			case "aeth":
				p.AETH = wire.AETH{Syndrome: 0x34, MSN: 0x313233}
			case "orig":
				p.AtomicAck = 0x4142434445464748
			case "cas", "add":
				p.AtomicETH = wire.AtomicETH{VA: 0x5152535455565758, RKey: 0x595a5b5c, SwapAdd: 0x6162636465666768, Compare: 0x696a6b6c6d6e6f70}
			case "deth":
				p.DETH = wire.DETH{QKey: 0x71727374, SrcQP: 0x757677}
			case "feth":
				p.FETH = wire.FETH{SEL: 2, PLT: 9}
			}
		}
	}
	return p
}

func payloadLengths(op ib.Opcode) []int {
	switch {
	case headerOnly[op]:
		return []int{0}
	case op == ib.OpAtomicWrite:
		return []int{8}
	}
	return []int{0, 1, 2, 3, 4, 5, 255, 256, 1023, 4096}
}

func TestEveryOpcode(t *testing.T) {
	known := map[ib.Opcode]int{}
	longest := 0
	for i, r := range headerTable {
		known[r.op] = i
		longest = max(longest, r.header)
	}
	require.Equal(t, longest, wire.MaxHeaderBytes)
	for v := range 256 {
		op := ib.Opcode(v)
		i, ok := known[op]
		b := wire.AppendHeaders(nil, &wire.Packet{Opcode: op})
		var p wire.Packet
		if !ok {
			require.Nil(t, wire.Info(op))
			require.Len(t, b, 12)
			require.Equal(t, wire.DropUnknownOpcode, wire.Decode(append(b, make([]byte, 64)...), &p))
			require.Equal(t, op, p.Opcode)
			require.Equal(t, fmt.Sprintf("OPCODE_0x%x qp=0x0 psn=0 pkey=0x0", v), p.String())
			continue
		}
		r := headerTable[i]
		info := wire.Info(op)
		require.NotNil(t, info, r.name)
		require.Equal(t, r.name, info.Name)
		require.Equal(t, r.header, info.HeaderBytes, r.name)
		require.Equal(t, !headerOnly[op], info.Mask&wire.Payload != 0, r.name)
		require.Len(t, b, r.header, r.name)
		require.Equal(t, r.header, (&wire.Packet{Opcode: op}).HeaderBytes(), r.name)
		for n := range r.header {
			require.Equal(t, wire.DropTooShort, wire.Decode(b[:n], &p), "%s, %d bytes", r.name, n)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	for _, r := range headerTable {
		for _, n := range payloadLengths(r.op) {
			want := fill(r.op, n)
			b := wire.AppendPacket([]byte{0xee}, &want)
			require.Equal(t, byte(0xee), b[0])
			b = b[1:]
			require.Len(t, b, r.header+n+int(wire.PadFor(n)), r.name)
			require.Equal(t, make([]byte, want.Pad), b[r.header+n:], r.name)

			got := fill(ib.OpCmpSwap, 7) // must leave no trace
			require.Equal(t, wire.DropNone, wire.Decode(b, &got), r.name)
			require.Equal(t, want, got, r.name)
			require.Equal(t, len(got.Payload), cap(got.Payload), "append to a payload would hit the pad")
		}
	}
}

// TestLayout pins one packet of each header, byte by byte.
func TestLayout(t *testing.T) {
	const bth = "f0" + "7fff" + "c0abcdef" + "80fedcba"
	for op, want := range map[ib.Opcode]string{
		ib.OpWriteOnlyImm: "0b" + bth + "2122232425262728" + "292a2b2c" + "2d2e2f30" + "01020304",
		ib.OpSendOnlyInv:  "17" + bth + "11121314",
		ib.OpAtomicAck:    "12" + bth + "34" + "313233" + "4142434445464748",
		ib.OpCmpSwap:      "13" + bth + "5152535455565758" + "595a5b5c" + "6162636465666768" + "696a6b6c6d6e6f70",
		ib.UDSendOnlyImm:  "65" + bth + "71727374" + "00757677" + "01020304",
		ib.OpFlush:        "1c" + bth + "00000029" + "2122232425262728" + "292a2b2c" + "2d2e2f30",
		ib.OpcodeCNP:      "81" + bth + strings.Repeat("00", 16),
	} {
		p := fill(op, 0)
		p.Pad = 3
		require.Equal(t, want, fmt.Sprintf("%x", wire.AppendHeaders(nil, &p)))
	}
}

func TestEncodeCutsWideFields(t *testing.T) {
	p := fill(ib.UDSendOnly, 0)
	p.DestQP |= 0xff000000
	p.PSN |= 0xff000000
	p.DETH.SrcQP |= 0xff000000
	p.FECN, p.BECN, p.AckReq = false, false, false
	b := wire.AppendPacket(nil, &p)
	require.Equal(t, "64c07fff00abcdef00fedcba7172737400757677", fmt.Sprintf("%x", b))
	f := wire.Packet{Opcode: ib.OpFlush, FETH: wire.FETH{SEL: 0xff, PLT: 0xff}}
	require.Equal(t, []byte{0, 0, 0, 0x3f}, wire.AppendPacket(nil, &f)[12:16])
}

func TestReservedBitsAreIgnored(t *testing.T) {
	for _, r := range headerTable {
		n := payloadLengths(r.op)[0]
		want := fill(r.op, n)
		clean := wire.AppendPacket(nil, &want)
		b := reservedBits(clean, true)
		require.NotEqual(t, clean, b)
		var got wire.Packet
		require.Equal(t, wire.DropNone, wire.Decode(b, &got))
		require.Equal(t, want, got)
		require.Equal(t, clean, wire.AppendPacket(nil, &got))
	}
}

func TestBadLength(t *testing.T) {
	for _, r := range headerTable {
		for pad := range uint8(4) {
			for body := range 24 {
				p := fill(r.op, 0)
				p.Pad = pad
				b := append(wire.AppendHeaders(nil, &p), make([]byte, body)...)
				n := body - int(pad)
				ok := body%4 == 0 && n >= 0
				switch {
				case headerOnly[r.op]:
					ok = ok && body == 0
				case r.op == ib.OpAtomicWrite:
					ok = ok && n == 8
				}
				var got wire.Packet
				reason := wire.Decode(b, &got)
				if ok {
					require.Equal(t, wire.DropNone, reason, "%s pad %d body %d", r.name, pad, body)
					require.Len(t, got.Payload, n)
				} else {
					require.Equal(t, wire.DropBadLength, reason, "%s pad %d body %d", r.name, pad, body)
					require.Empty(t, got.Payload)
				}
				require.Equal(t, p.DestQP, got.DestQP)
			}
		}
	}
}

func TestBadTVer(t *testing.T) {
	for v := uint8(1); v < 16; v++ {
		p := fill(ib.OpSendOnly, 4)
		p.TVer = v
		var got wire.Packet
		require.Equal(t, wire.DropBadTVer, wire.Decode(wire.AppendPacket(nil, &p), &got))
		require.Equal(t, v, got.TVer)
	}
}

func TestPadFor(t *testing.T) {
	for n := range 9000 {
		pad := int(wire.PadFor(n))
		require.True(t, pad < 4 && (n+pad)%4 == 0, n)
	}
}

// TestMasks checks relations between the bits rather than repeating the table.
func TestMasks(t *testing.T) {
	names := func(bit wire.Mask) (s []string) {
		for v := range 256 {
			if i := wire.Info(ib.Opcode(v)); i != nil && i.Mask&bit != 0 && v < 0x20 {
				s = append(s, i.Name)
			}
		}
		return s
	}
	require.Equal(t, strings.Fields("SEND_FIRST SEND_ONLY SEND_ONLY_IMM WRITE_LAST_IMM WRITE_ONLY_IMM SEND_ONLY_INV"), names(wire.TakesRecv))
	require.Equal(t, strings.Fields("SEND_LAST SEND_LAST_IMM SEND_ONLY SEND_ONLY_IMM WRITE_LAST_IMM WRITE_ONLY_IMM SEND_LAST_INV SEND_ONLY_INV"), names(wire.Completes))
	require.Equal(t, strings.Fields("READ_RESP_FIRST READ_RESP_MIDDLE READ_RESP_LAST READ_RESP_ONLY ACKNOWLEDGE ATOMIC_ACK"), names(wire.Response))
	require.Equal(t, strings.Fields("ATOMIC_ACK CMP_SWAP FETCH_ADD"), names(wire.Atomic))
	require.Equal(t, []string{"ACKNOWLEDGE"}, names(wire.Ack))
	require.Equal(t, []string{"FLUSH"}, names(wire.Flush))
	require.Equal(t, []string{"ATOMIC_WRITE"}, names(wire.AtomicWrite))
	for v := range 256 {
		i := wire.Info(ib.Opcode(v))
		if i == nil || i.Name == "CNP" {
			continue
		}
		m := i.Mask
		require.True(t, (m&wire.Request != 0) != (m&wire.Response != 0), i.Name)
		name := i.Name + "_"
		require.Equal(t, !strings.Contains(name, "_MIDDLE_") && !strings.Contains(name, "_LAST_"), m&wire.Start != 0, i.Name)
		require.Equal(t, !strings.Contains(name, "_MIDDLE_") && !strings.Contains(name, "_FIRST_"), m&wire.End != 0, i.Name)
		require.Equal(t, strings.Contains(name, "_IMM_"), m&wire.HasImm != 0, i.Name)
		require.Equal(t, strings.Contains(name, "_INV_"), m&wire.HasIETH != 0, i.Name)
		require.Equal(t, strings.HasPrefix(name, "UD_"), m&wire.HasDETH != 0, i.Name)
		require.Equal(t, strings.Contains(name, "SEND_"), m&wire.Send != 0, i.Name)
		require.Equal(t, strings.Contains(name, "WRITE_") && i.Name != "ATOMIC_WRITE", m&wire.Write != 0, i.Name)
		require.Equal(t, strings.HasPrefix(name, "READ_"), m&wire.Read != 0, i.Name)
	}
}

func TestDropReasonNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range wire.DropReason(wire.NumDropReasons) {
		s := r.String()
		require.Regexp(t, `^[a-z]+(_[a-z]+)*$`, s)
		require.False(t, seen[s], s)
		seen[s] = true
	}
	require.Equal(t, "none", wire.DropNone.String())
	require.Equal(t, "responder_busy", wire.DropReason(wire.NumDropReasons-1).String())
	require.Equal(t, "drop_reason_255", wire.DropReason(255).String())
}
