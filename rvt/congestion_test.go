package rvt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// limitedPair returns a pair whose first queue pair was told of congestion, and will not
// forget it.
func limitedPair(t *testing.T) (a, b *host, qa, qb *qp.QP, p *dcqcn.Params) {
	d := dcqcn.Default(10e9)
	d.RateTimer, d.AlphaTimer = time.Hour, time.Hour
	a, b, qa, qb = rcPair(t, func(c *Config) { c.Congestion = &d })
	cnp := wire.Packet{Opcode: ib.OpcodeCNP, BECN: true, DestQP: qa.QPN, PKey: ib.PKeyDefault}
	require.Equal(t, wire.DropNone, a.d.Receive(0, &wire.Path{Src: b.gid, Dst: a.gid}, &cnp))
	return a, b, qa, qb, &d
}

// TestPacedSender: behind a packet of a limited queue pair the next request, or packet of a
// READ response, waits for its time on the wire, and the deadline says until when. An
// acknowledgement waits for nothing.
//
// req: CC-MARK-01 CC-PACE-01 CC-PACE-02
func TestPacedSender(t *testing.T) {
	a, b, q, peer, p := limitedPair(t)
	require.EqualValues(t, 5e9, q.Flow().Rate(p))
	for i := range 2 {
		_, err := a.d.PostSend(q, []swqe.SendWR{{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 1000), RemoteAddr: bufBase, RKey: b.mr.RKey}})
		require.NoError(t, err)
	}
	out := append([]frame(nil), a.emit(0)...)
	require.Len(t, out, 1, "the second request has to wait")
	require.Equal(t, uint8(wire.ECT0), out[0].path.TClass&wire.ECNMask)
	// BTH and RETH, data, ICRC; UDP, IPv4, Ethernet with preamble and gap.
	bytes := out[0].pkt.HeaderBytes() + 1000 + wire.ICRCBytes + wire.FrameOverheadBytes(true)
	at := vtime.Time(bytes * 8 / 5) // at 5 Gbit/s, in nanoseconds: a byte more would show
	require.Equal(t, at, a.d.Deadline())

	request := wire.Packet{Opcode: ib.OpWriteOnly, PKey: ib.PKeyDefault, DestQP: q.QPN, PSN: q.RPSN, AckReq: true}
	read := wire.Packet{Opcode: ib.OpReadRequest, PKey: ib.PKeyDefault, DestQP: q.QPN, PSN: q.RPSN.Add(1), RETH: wire.RETH{VA: bufBase, RKey: a.mr.RKey, DMALen: 8}}
	path := wire.Path{Src: b.gid, Dst: a.gid}
	a.receive(1, []frame{{path, request}})
	ack := a.emit(1)
	require.Len(t, ack, 1)
	require.Equal(t, ib.OpAcknowledge, ack[0].pkt.Opcode)
	require.Zero(t, ack[0].path.TClass&wire.ECNMask)
	a.receive(1, []frame{{path, read}})
	require.Empty(t, a.emit(at-1))
	require.Equal(t, at, a.d.Deadline())
	a.d.Expire(at)
	require.Equal(t, ib.OpReadRespOnly, a.emit(at)[0].pkt.Opcode)
	_ = peer
}

// TestCNPIsChecked: only a CNP from the peer of a queue pair that exists slows it down,
// and a device without congestion control does not know the opcode.
//
// req: CC-RP-01 CC-RP-02 CC-OFF-01
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
//
// req: CC-NP-01
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
