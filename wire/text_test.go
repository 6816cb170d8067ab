package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

func TestText(t *testing.T) {
	plain := func(op ib.Opcode, edit func(*wire.Packet)) wire.Packet {
		p := wire.Packet{Opcode: op, PKey: ib.PKeyDefault, DestQP: 0x11, PSN: 256}
		if edit != nil {
			edit(&p)
		}
		return p
	}
	aeth := func(s ib.Syndrome) func(*wire.Packet) {
		return func(p *wire.Packet) { p.AETH = wire.AETH{Syndrome: s, MSN: 1} }
	}
	for _, c := range []struct {
		p    wire.Packet
		want string
	}{
		{plain(ib.OpSendOnly, func(p *wire.Packet) {
			p.AckReq, p.SE, p.Payload, p.Pad = true, true, make([]byte, 13), 3
		}), "SEND_ONLY qp=0x11 psn=256 A SE pad=3 len=13"},
		{plain(ib.UCSendOnly, func(p *wire.Packet) { p.M, p.FECN, p.BECN = true, true, true }), "UC_SEND_ONLY qp=0x11 psn=256 M FECN BECN len=0"},
		{plain(ib.OpAcknowledge, aeth(0x1f)), "ACKNOWLEDGE qp=0x11 psn=256 ACK credits=31 msn=1"},
		{plain(ib.OpAcknowledge, aeth(0x34)), "ACKNOWLEDGE qp=0x11 psn=256 RNR_NAK timer=20 msn=1"},
		{plain(ib.OpAcknowledge, aeth(0x60)), "ACKNOWLEDGE qp=0x11 psn=256 NAK_PSN_SEQUENCE msn=1"},
		{plain(ib.OpAcknowledge, aeth(0x62)), "ACKNOWLEDGE qp=0x11 psn=256 NAK_REMOTE_ACCESS msn=1"},
		{plain(ib.OpAcknowledge, aeth(0x6a)), "ACKNOWLEDGE qp=0x11 psn=256 SYNDROME_RESERVED=0x6a msn=1"},
		{plain(ib.OpAcknowledge, aeth(0xc1)), "ACKNOWLEDGE qp=0x11 psn=256 SYNDROME_RESERVED=0xc1 msn=1"},
		{plain(ib.OpcodeCNP, func(p *wire.Packet) { p.BECN = true }), "CNP qp=0x11 psn=256 BECN"},
		{plain(ib.OpSendOnly, func(p *wire.Packet) { p.TVer, p.PKey = 2, 0x7fff }), "SEND_ONLY qp=0x11 psn=256 pkey=0x7fff tver=2 len=0"},
		{fill(ib.OpWriteOnlyImm, 5), "WRITE_ONLY_IMM qp=0xabcdef psn=16702650 A SE M FECN BECN pkey=0x7fff va=0x2122232425262728 rkey=0x292a2b2c dmalen=758001456 imm=0x1020304 pad=3 len=5"},
		{plain(ib.OpSendOnlyInv, func(p *wire.Packet) { p.InvRKey = 9 }), "SEND_ONLY_INV qp=0x11 psn=256 inv=0x9 len=0"},
		{plain(ib.OpCmpSwap, func(p *wire.Packet) { p.AtomicETH = wire.AtomicETH{VA: 8, RKey: 1, SwapAdd: 2, Compare: 3} }), "CMP_SWAP qp=0x11 psn=256 va=0x8 rkey=0x1 compare=0x3 swap=0x2"},
		{plain(ib.OpFetchAdd, func(p *wire.Packet) { p.AtomicETH = wire.AtomicETH{VA: 8, RKey: 1, SwapAdd: 2} }), "FETCH_ADD qp=0x11 psn=256 va=0x8 rkey=0x1 add=0x2"},
		{plain(ib.OpAtomicAck, func(p *wire.Packet) { p.AtomicAck = 0xff; p.AETH.MSN = 4 }), "ATOMIC_ACK qp=0x11 psn=256 ACK credits=0 msn=4 orig=0xff"},
		{plain(ib.UDSendOnly, func(p *wire.Packet) { p.DETH = wire.DETH{QKey: 0x80010000, SrcQP: 1} }), "UD_SEND_ONLY qp=0x11 psn=256 qkey=0x80010000 srcqp=0x1 len=0"},
		{plain(ib.OpFlush, func(p *wire.Packet) { p.FETH = wire.FETH{SEL: 1, PLT: 2} }), "FLUSH qp=0x11 psn=256 sel=1 plt=0x2 va=0x0 rkey=0x0 dmalen=0"},
	} {
		require.Equal(t, c.want, c.p.String())
		require.Equal(t, "x "+c.want, string(c.p.AppendText([]byte("x "))))
	}
}
