package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// TestCNPIsChecked: only a CNP from the peer of a queue pair that exists slows it down,
// and a device without congestion control does not know the opcode.
func TestCNPIsChecked(t *testing.T) {
	p := dcqcn.Default(100e9)
	a, b, q, _ := rcPair(t, func(c *Config) { c.Congestion = &p })
	cnp := func(dest ib.QPN, pkey uint16) *wire.Packet {
		return &wire.Packet{Opcode: ib.OpcodeCNP, BECN: true, DestQP: dest, PKey: pkey}
	}
	path := &wire.Path{Src: b.gid, Dst: a.gid}
	for _, c := range []struct {
		from ib.GID
		pkt  *wire.Packet
		want wire.DropReason
	}{
		{b.gid, cnp(q.QPN+99, ib.PKeyDefault), wire.DropNoQP},
		{b.gid, cnp(ib.QPNMulticast, ib.PKeyDefault), wire.DropNoQP},
		{b.gid, cnp(q.QPN, 0x1234), wire.DropBadPKey},
		{ib.GIDFromIPv4(10, 9, 9, 9), cnp(q.QPN, ib.PKeyDefault), wire.DropWrongPath},
		{b.gid, cnp(a.qp(ib.QPTypeRC).QPN, ib.PKeyDefault), wire.DropQPState},
	} {
		require.Equal(t, c.want, a.d.Receive(0, &wire.Path{Src: c.from, Dst: a.gid}, c.pkt))
		require.False(t, q.Flow().Limited())
	}
	require.Equal(t, wire.DropNone, a.d.Receive(0, path, cnp(q.QPN, ib.PKeyDefault)))
	require.True(t, q.Flow().Limited())
	require.EqualValues(t, 50e9, q.Flow().Rate(&p))
	require.EqualValues(t, 1, a.d.Counters().HandledCNP)

	off := newHost(t, 3, nil)
	require.Equal(t, wire.DropUnknownOpcode, off.d.Receive(0, path, cnp(off.qp(ib.QPTypeRC).QPN, ib.PKeyDefault)))
}

// TestMarkedDataIsAnswered: a marked packet gives one CNP, before the acknowledgement; a
// second one within the interval gives none.
func TestMarkedDataIsAnswered(t *testing.T) {
	p := dcqcn.Default(100e9)
	a, b, q, peer := rcPair(t, func(c *Config) { c.Congestion = &p })
	write := func(psn ib.PSN, tclass uint8, now vtime.Time) []ib.Opcode {
		pkt := &wire.Packet{Opcode: ib.OpWriteOnly, PKey: ib.PKeyDefault, DestQP: q.QPN, PSN: psn, AckReq: true}
		require.Equal(t, wire.DropNone, a.d.Receive(now, &wire.Path{Src: b.gid, Dst: a.gid, TClass: tclass}, pkt))
		a.d.Commit(now)
		var out Outbox
		a.d.Emit(now, &out, 8)
		a.d.Commit(now)
		var ops []ib.Opcode
		for i := range out.Packets {
			ops = append(ops, out.Packets[i].Pkt.Opcode)
			if ops[i] == ib.OpcodeCNP {
				require.Equal(t, peer.QPN, out.Packets[i].Pkt.DestQP)
				require.Equal(t, b.gid, out.Packets[i].Path.Dst)
			}
		}
		return ops
	}
	psn := q.RPSN
	ack := []ib.Opcode{ib.OpAcknowledge}
	require.Equal(t, ack, write(psn, wire.ECT0, 1))
	require.Equal(t, []ib.Opcode{ib.OpcodeCNP, ib.OpAcknowledge}, write(psn.Add(1), wire.ECNCE, 2))
	require.Equal(t, ack, write(psn.Add(2), wire.ECNCE, 50_001))
	require.Equal(t, []ib.Opcode{ib.OpcodeCNP, ib.OpAcknowledge}, write(psn.Add(3), wire.ECNCE, 50_002))
	require.EqualValues(t, 3, a.d.Counters().ECNMarked)
}
