package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// Tests for what the sixth sample of planted faults missed (spec/MUTATION.md).

// region registers 4096 bytes of the host's buffer from off on a second time.
func (h *host) region(off int, acc ib.Access) *MR {
	m, err := h.d.RegMR(h.pd, mr.NewSlice(bufBase+uint64(off), h.buf[off:off+4096]), bufBase+uint64(off), 4096, bufBase+uint64(off), acc)
	require.NoError(h.t, err)
	return m
}

// TestNAKAfterAnAckInSQD: a queue pair that is being drained takes a NAK as ever, also one
// that acknowledges something before it.
func TestNAKAfterAnAckInSQD(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	a.write(qa, 1, b.mr.RKey)
	a.write(qa, 2, b.mr.RKey)
	require.Len(t, a.emit(0), 2)
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	a.deliver(qa, wire.Packet{Opcode: ib.OpAcknowledge, PSN: 101, AETH: wire.AETH{Syndrome: ib.NAKRemoteAccess}})
	wcs := a.poll()
	require.Len(t, wcs, 2)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.Equal(t, ib.WCRemAccessErr, wcs[1].Status)
	require.Equal(t, ib.StateErr, qa.State)
}

// TestCreditsOfResponses: the AETH of a READ's last response and of an atomic's carries
// credits as an acknowledgement does.
func TestCreditsOfResponses(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRRDMARead, ib.WRAtomicFetchAndAdd} {
		a, b, qa, _ := rcPair(t, func(c *Config) { c.Profile = qp.ProfileRDMAVT })
		wr := swqe.SendWR{WRID: 1, Opcode: op, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}
		answer := []wire.Packet{{Opcode: ib.OpAtomicAck, PSN: 100, AETH: wire.AETH{Syndrome: ib.Syndrome(ib.CreditCode(3)), MSN: 1}}}
		if op == ib.WRRDMARead {
			wr.SGL = a.sge(0, 2048)
			answer = []wire.Packet{
				{Opcode: ib.OpReadRespFirst, PSN: 100, Payload: make([]byte, 1024), AETH: wire.AETH{MSN: 1}},
				{Opcode: ib.OpReadRespLast, PSN: 101, Payload: make([]byte, 1024), AETH: wire.AETH{Syndrome: ib.Syndrome(ib.CreditCode(3)), MSN: 1}},
			}
		}
		_, err := a.d.PostSend(qa, []swqe.SendWR{wr})
		require.NoError(t, err)
		require.Len(t, a.emit(0), 1)
		for i := range answer {
			require.Equal(t, wire.DropNone, a.deliver(qa, answer[i]))
		}
		for id := range uint64(5) {
			a.send(qa, 10+id, 8)
		}
		require.Len(t, a.emit(0), 4, "%v: three credits, and one SEND that asks for more", op)
	}
}

// TestDeregisterBeforeRTS: a queue pair in RTR answers READs; one whose region goes before
// the answer cannot.
func TestDeregisterBeforeRTS(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
	a.connect(qa, b, qb.QPN)
	at := qp.Attr{State: ib.StateInit, PortNum: 1, AccessFlags: ib.AccessRemoteMask}
	require.NoError(t, b.d.ModifyQP(0, qb, &at, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	require.EqualValues(t, 1, b.d.QueryQP(qb).PortNum)
	at = qp.Attr{State: ib.StateRTR, PathMTU: ib.MTU1024, DestQPN: qa.QPN, RQPSN: 100, MaxDestRdAtomic: 4, MinRNRTimer: 12,
		AV: ib.AV{DGID: a.gid, IsGlobal: true, PortNum: 1, HopLimit: 7}}
	require.NoError(t, b.d.ModifyQP(0, qb, &at, ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	a.read(qa, b, 1, 3000)
	b.receive(0, a.emit(0))
	require.NoError(t, b.d.DeregMR(0, b.mr))
	require.Equal(t, ib.StateErr, qb.State)
}

// TestHopLimitOfTheAddressVector: packets have the hop limit that modify_qp was given.
func TestHopLimitOfTheAddressVector(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	q := a.qp(ib.QPTypeRC)
	a.connect(q, &host{gid: b.gid}, qb.QPN)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	av := ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1, HopLimit: 7}
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateSQD, AV: av}, ib.AttrState|ib.AttrAV))
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	a.write(q, 1, b.mr.RKey)
	require.EqualValues(t, 7, a.emit(0)[0].path.HopLimit)
	a.write(qa, 1, b.mr.RKey)
	require.EqualValues(t, 64, a.emit(0)[0].path.HopLimit)
}

// TestRegionOfAReceiveThatIsDone: once its receive has completed, a region can go.
func TestRegionOfAReceiveThatIsDone(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	m := b.region(8192, ib.AccessLocalWrite)
	_, err := b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 7, SGL: []mr.SGE{{Addr: bufBase + 8192, Length: 100, LKey: m.LKey}}}})
	require.NoError(t, err)
	a.send(qa, 1, 8)
	settle(0, a, b)
	require.NoError(t, b.d.DeregMR(0, m))
	require.Equal(t, ib.StateRTS, qb.State)
}

// TestResponseThatCannotBeFetched: when the memory of a READ response is lost on the way out,
// the peer is told.
func TestResponseThatCannotBeFetched(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	a.read(qa, b, 1, 100)
	b.receive(0, a.emit(0))
	var out Outbox
	b.d.Emit(0, &out, 1)
	require.Len(t, out.Packets, 1)
	b.d.GatherFault(&out, &mr.Fault{Tag: 0, Err: mr.ErrFault})
	b.d.Commit(0)
	require.Equal(t, ib.StateErr, qb.State)
	require.EqualValues(t, 1, b.d.Counters().MemoryFaults)
	a.receive(0, b.emit(0))
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCRemOpErr, wcs[0].Status)
}

// TestFailuresNameTheMemory: the history of a failed bind has the region's extent, that of a
// receive with a bad key the entry.
func TestFailuresNameTheMemory(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	m := a.region(8192, ib.AccessLocalWrite|ib.AccessMWBind)
	w, err := a.d.AllocMW(a.pd, ib.MWType2)
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRBindMW, Bind: swqe.BindInfo{MW: w, RKey: w.RKey + 1, MR: m.Region, Addr: bufBase + 8192, Length: 4097, Access: ib.AccessRemoteWrite}}})
	require.NoError(t, err)
	settle(0, a, b)
	h := qa.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, ib.CauseBindRange, h.Failures[0].Cause)
	require.Equal(t, mr.Extent{Start: bufBase + 8192, Length: 4096, Access: m.Access}, h.Failures[0].Extent)

	_, err = b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 7, SGL: []mr.SGE{{Addr: bufBase, Length: 8, LKey: 0x999}}}})
	require.NoError(t, err)
	b.deliver(qb, wire.Packet{Opcode: ib.OpSendOnly, PSN: 100, Payload: make([]byte, 8)})
	h = qb.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, ib.CauseLKeyUnknown, h.Failures[0].Fault)
	require.EqualValues(t, 0x999, h.Failures[0].Entry.LKey)
}

// TestAlternatePortIsChecked: the device has port 1 only, for the alternate path as well.
func TestAlternatePortIsChecked(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	at := qp.Attr{State: ib.StateSQD, AltPortNum: 2}
	require.ErrorContains(t, a.d.ModifyQP(0, qa, &at, ib.AttrState|ib.AttrAltPath), "alternate path")
	at.AltPortNum = 1
	require.NoError(t, a.d.ModifyQP(0, qa, &at, ib.AttrState|ib.AttrAltPath))
}

// TestResetForgetsTheRate: a queue pair out of RESET sends at full rate.
//
// req: CC-RP-01
func TestResetForgetsTheRate(t *testing.T) {
	a, _, q, _, _ := limitedPair(t)
	require.True(t, q.Flow().Limited())
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateReset}, ib.AttrState))
	require.False(t, q.Flow().Limited())
}

// TestExtensionsHaveTheirCauses: an ATOMIC_WRITE beside 8 bytes is refused for that, and a
// FLUSH that asks for both kinds of placement for the right that its region lacks.
func TestExtensionsHaveTheirCauses(t *testing.T) {
	for _, c := range []struct {
		pkt  wire.Packet
		want ib.Cause
	}{
		{wire.Packet{Opcode: ib.OpFlush, FETH: wire.FETH{PLT: uint8(ib.FlushGlobal | ib.FlushPersistent)}}, ib.CauseRKeyAccess},
		{wire.Packet{Opcode: ib.OpAtomicWrite, Payload: make([]byte, 8)}, ib.CauseAtomicAlign},
	} {
		_, b, _, qb := rcPair(t, nil)
		at := qp.Attr{State: ib.StateRTS, AccessFlags: ib.AccessRemoteMask | ib.AccessFlushGlobal | ib.AccessFlushPersistent}
		require.NoError(t, b.d.ModifyQP(0, qb, &at, ib.AttrState|ib.AttrAccessFlags))
		m := b.region(0, ib.AccessLocalWrite|ib.AccessRemoteWrite|ib.AccessFlushGlobal)
		c.pkt.PSN, c.pkt.AckReq, c.pkt.RETH = 100, true, wire.RETH{VA: bufBase + 4, RKey: m.RKey, DMALen: 8}
		b.deliver(qb, c.pkt)
		h := qb.History()
		require.Len(t, h.Failures, 1)
		require.Equal(t, c.want, h.Failures[0].Cause)
	}
}

// TestFlushRecvIsForERR: a ring's receives stay while the queue pair works.
func TestFlushRecvIsForERR(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	_, err := a.d.PostRecv(qa, []swqe.RecvWR{{WRID: 7, SGL: a.sge(0, 8)}})
	require.NoError(t, err)
	require.Zero(t, qa.FlushRecv())
	require.Empty(t, a.poll())
}

// TestKeyThatDiesOnALimitedQP: a packet of UC that cannot be built is none, and is not paced.
func TestKeyThatDiesOnALimitedQP(t *testing.T) {
	p := dcqcn.Default(10e9)
	h := newHost(t, 1, func(c *Config) { c.Profile, c.Congestion = qp.ProfileRDMAVT, &p })
	q, other := h.qp(ib.QPTypeUC), h.qp(ib.QPTypeUC)
	h.connect(q, h, other.QPN)
	h.connect(other, h, q.QPN)
	m := h.region(8192, ib.AccessLocalWrite)
	_, err := h.d.PostSend(q, []swqe.SendWR{{WRID: 1, Opcode: ib.WRSend, SGL: []mr.SGE{{Addr: bufBase + 8192, Length: 3000, LKey: m.LKey}}}})
	require.NoError(t, err)
	var out Outbox
	h.d.Emit(0, &out, 1)
	require.Len(t, out.Packets, 1)
	_, err = h.d.PostSend(other, []swqe.SendWR{{WRID: 2, Opcode: ib.WRLocalInv, InvRKey: m.RKey}})
	require.NoError(t, err)
	require.Empty(t, h.emit(0))
	wcs := h.poll()
	require.Len(t, wcs, 2)
	require.Equal(t, ib.WCLocProtErr, wcs[1].Status)
}
