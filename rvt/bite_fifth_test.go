package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// Tests for what the fifth sample of planted faults missed (spec/MUTATION.md).

// TestReadNeedsNoOtherRight: a region with REMOTE_READ alone can be read.
func TestReadNeedsNoOtherRight(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	m, err := b.d.RegMR(b.pd, mr.NewSlice(bufBase, b.buf), bufBase, 4096, bufBase, ib.AccessRemoteRead)
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.sge(0, 3000), RemoteAddr: bufBase, RKey: m.RKey}})
	require.NoError(t, err)
	settle(0, a, b)
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
}

// TestUCWriteWithImmLooksAtNoScatterList: a WRITE with immediate data uses up a receive, but
// not its memory.
func TestUCWriteWithImmLooksAtNoScatterList(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeUC), b.qp(ib.QPTypeUC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	_, err := b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 7, SGL: []mr.SGE{{Addr: bufBase, Length: 8, LKey: 0x999}}}})
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRRDMAWriteWithImm, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}})
	require.NoError(t, err)
	settle(0, a, b)
	wcs := b.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.Equal(t, ib.WCRecvRDMAWithImm, wcs[0].Opcode)
}

// TestFlushCarriesNothing: a FLUSH with one byte is refused.
func TestFlushCarriesNothing(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	wr := swqe.SendWR{WRID: 1, Opcode: ib.WRFlush, SGL: a.sge(0, 1), RemoteAddr: bufBase, RKey: b.mr.RKey,
		Flush: swqe.FlushInfo{Type: ib.FlushGlobal}}
	_, err := a.d.PostSend(qa, []swqe.SendWR{wr})
	require.ErrorContains(t, err, "1 bytes: a FLUSH carries none")
	wr.SGL = nil
	_, err = a.d.PostSend(qa, []swqe.SendWR{wr})
	require.NoError(t, err)
}

// TestAtomicWriteOfAnotherLength: an ATOMIC_WRITE that announces another length than 8 has
// its cause.
func TestAtomicWriteOfAnotherLength(t *testing.T) {
	a, b, _, qb := rcPair(t, nil)
	pkt := wire.Packet{Opcode: ib.OpAtomicWrite, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 100, AckReq: true,
		RETH: wire.RETH{VA: bufBase, RKey: b.mr.RKey, DMALen: 16}, Payload: make([]byte, 8)}
	b.d.Receive(0, &wire.Path{Src: a.gid, Dst: b.gid}, &pkt)
	b.d.Commit(0)
	h := qb.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, ib.CauseWriteLength, h.Failures[0].Cause)
}

// TestRepeatedAtomicEndsTheSilence: behind a gap the responder sends one NAK. The repetition
// of an atomic answers it, and the next gap is told of again.
func TestRepeatedAtomicEndsTheSilence(t *testing.T) {
	a, b, _, qb := rcPair(t, nil)
	path := wire.Path{Src: a.gid, Dst: b.gid}
	arrive := func(op ib.Opcode, psn ib.PSN) []ib.Opcode {
		pkt := wire.Packet{Opcode: op, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: psn, AckReq: true,
			AtomicETH: wire.AtomicETH{VA: bufBase, RKey: b.mr.RKey, SwapAdd: 1}, RETH: wire.RETH{VA: bufBase, RKey: b.mr.RKey}}
		b.receive(0, []frame{{path, pkt}})
		var ops []ib.Opcode
		for _, f := range b.emit(0) {
			ops = append(ops, f.pkt.Opcode)
		}
		return ops
	}
	nak := []ib.Opcode{ib.OpAcknowledge}
	require.Equal(t, []ib.Opcode{ib.OpAtomicAck}, arrive(ib.OpFetchAdd, 100))
	require.Equal(t, nak, arrive(ib.OpWriteOnly, 102))
	require.Empty(t, arrive(ib.OpWriteOnly, 103), "the gap has been told")
	require.Equal(t, []ib.Opcode{ib.OpAtomicAck}, arrive(ib.OpFetchAdd, 100))
	require.Equal(t, nak, arrive(ib.OpWriteOnly, 102))
}

// TestModifyChecksEachValueAlone: a bad value is refused by itself, too, and a driver that
// does not look at the P_Key index keeps it.
func TestModifyChecksEachValueAlone(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	for word, c := range map[string]struct {
		at  qp.Attr
		bit ib.AttrMask
	}{
		"timeout 32":     {qp.Attr{Timeout: 32}, ib.AttrTimeout},
		"retry_cnt 8":    {qp.Attr{RetryCnt: 8}, ib.AttrRetryCnt},
		"path_mig_state": {qp.Attr{PathMigState: ib.MigMigrated + 1}, ib.AttrPathMigState},
	} {
		c.at.State = ib.StateSQD
		require.ErrorContains(t, a.d.ModifyQP(0, qa, &c.at, ib.AttrState|c.bit), word)
	}
	h := newHost(t, 3, func(c *Config) { c.Profile = qp.ProfileRXE; c.Driver = qp.DriverByName("rxe") })
	q := h.qp(ib.QPTypeRC)
	at := qp.Attr{State: ib.StateInit, PortNum: 1, PKeyIndex: 5}
	require.NoError(t, h.d.ModifyQP(0, q, &at, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	require.EqualValues(t, 5, h.d.QueryQP(q).PKeyIndex)
}

// TestRefusedEntryNeedsAState: what a ring holds is posted, even to fail, only where posts
// are allowed.
func TestRefusedEntryNeedsAState(t *testing.T) {
	a := newHost(t, 1, nil)
	q := a.qp(ib.QPTypeRC)
	require.ErrorIs(t, q.PostRefused(1), ib.EINVAL)
	require.Zero(t, q.Outstanding())
}

// TestResetForgetsWhyItFlushed: a queue pair in RESET has nothing to say of its last life.
func TestResetForgetsWhyItFlushed(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	h := qa.History()
	require.Equal(t, ib.CauseFlushModify, h.FlushCause)
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateReset}, ib.AttrState))
	h = qa.History()
	require.Zero(t, h.FlushCause)
}
