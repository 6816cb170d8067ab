package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// Tests of small things that planted faults (see spec/MUTATION.md) went through
// without being noticed.

// gone is memory that can no longer be reached, as when a program unmapped it.
type gone struct{ *mr.Slice }

func (gone) CompareSwap64(uint64, uint64, uint64) (uint64, error) { return 0, mr.ErrFault }
func (gone) FetchAdd64(uint64, uint64) (uint64, error)            { return 0, mr.ErrFault }

func TestAtomicOnLostMemory(t *testing.T) {
	for _, op := range []ib.WROpcode{ib.WRAtomicFetchAndAdd, ib.WRAtomicCmpAndSwp} {
		a, b, qa, qb := rcPair(t, nil)
		lost, err := b.d.RegMR(b.pd, gone{mr.NewSlice(bufBase, b.buf)}, bufBase, 4096, bufBase, ib.AccessLocalWrite|ib.AccessRemoteMask)
		require.NoError(t, err)
		_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: op, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: lost.RKey}})
		require.NoError(t, err)
		settle(0, a, b)
		wcs := a.poll()
		require.Len(t, wcs, 1)
		require.Equal(t, ib.WCRemAccessErr, wcs[0].Status)
		require.Equal(t, ib.StateErr, qb.State)
		h := qb.History()
		require.Equal(t, ib.CauseMemoryFault, h.Failures[0].Cause)
	}
}

// The responder remembers at most so many answers; what finds no room is dropped before
// it is executed, and nothing of what was accepted is lost.
func TestAnswersAreBounded(t *testing.T) {
	_, b, qa, qb := rcPair(t, func(c *Config) { c.Profile = qp.ProfileRDMAVT })
	path := wire.Path{Src: qb.Attr.AV.DGID, Dst: b.gid}
	accepted := 0
	for i := range 80 {
		pkt := wire.Packet{Opcode: ib.OpReadRequest, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: ib.PSN(100 + i),
			RETH: wire.RETH{VA: bufBase + uint64(8*i), RKey: b.mr.RKey, DMALen: 8}}
		switch r := b.d.Receive(0, &path, &pkt); r {
		case wire.DropNone:
			require.Equal(t, i, accepted, "one after the first that was dropped")
			accepted++
		case wire.DropResponderBusy:
			require.NotZero(t, accepted)
		default:
			t.Log(i, r)
		}
	}
	require.Equal(t, 64, accepted)
	frames := b.emit(0)
	require.Len(t, frames, accepted)
	for i, f := range frames {
		require.Equal(t, ib.PSN(100+i), f.pkt.PSN)
		require.Equal(t, qa.QPN, f.pkt.DestQP)
	}
}

func TestAlternatePathIsKept(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	av := ib.AV{DGID: ib.GIDFromIPv4(10, 0, 0, 9), IsGlobal: true, PortNum: 1}
	at := qp.Attr{State: ib.StateRTS, AltAV: av, AltPortNum: 1, AltTimeout: 9}
	require.NoError(t, a.d.ModifyQP(0, qa, &at, ib.AttrState))
	require.Zero(t, a.d.QueryQP(qa).AltTimeout, "without ALT_PATH in the mask")
	require.NoError(t, a.d.ModifyQP(0, qa, &at, ib.AttrState|ib.AttrAltPath))
	got := a.d.QueryQP(qa)
	require.Equal(t, av, got.AltAV)
	require.Equal(t, uint8(9), got.AltTimeout)
}

// What a refused request asked for is remembered for explanations.
func TestRefusedRequestIsRemembered(t *testing.T) {
	const rkey ib.RKey = 0x7700
	for name, c := range map[string]struct {
		pkt  wire.Packet
		want qp.Request
		why  ib.Cause
	}{
		"atomic": {wire.Packet{Opcode: ib.OpFetchAdd, AtomicETH: wire.AtomicETH{VA: 0x40, RKey: rkey}},
			qp.Request{Opcode: ib.OpFetchAdd, PSN: 100, Addr: 0x40, RKey: rkey, Length: 8}, ib.CauseRKey},
		"atomic with a payload": {wire.Packet{Opcode: ib.OpFetchAdd, AtomicETH: wire.AtomicETH{VA: 0x40, RKey: rkey}, Payload: make([]byte, 4)},
			qp.Request{Opcode: ib.OpFetchAdd, PSN: 100, Addr: 0x40, RKey: rkey, Length: 8, Payload: 4}, ib.CausePacketLength},
		"READ with a payload": {wire.Packet{Opcode: ib.OpReadRequest, RETH: wire.RETH{VA: 0x40, RKey: rkey, DMALen: 16}, Payload: make([]byte, 4)},
			qp.Request{Opcode: ib.OpReadRequest, PSN: 100, Addr: 0x40, RKey: rkey, Length: 16, Payload: 4}, ib.CausePacketLength},
		"invalidate": {wire.Packet{Opcode: ib.OpSendOnlyInv, InvRKey: rkey},
			qp.Request{Opcode: ib.OpSendOnlyInv, PSN: 100, RKey: rkey}, ib.CauseInvalidateKey},
	} {
		_, b, _, qb := rcPair(t, nil)
		_, err := b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 1}})
		require.NoError(t, err)
		path := wire.Path{Src: qb.Attr.AV.DGID, Dst: b.gid}
		c.pkt.DestQP, c.pkt.PKey, c.pkt.PSN = qb.QPN, ib.PKeyDefault, 100
		b.d.Receive(0, &path, &c.pkt)
		require.Equal(t, ib.StateErr, qb.State, name)
		h := qb.History()
		require.Len(t, h.Failures, 1, name)
		require.Equal(t, c.want, h.Failures[0].Request, name)
		require.Equal(t, c.why, h.Failures[0].Cause, name)
	}
}

func TestDatagramsWithoutReceiveAreCounted(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeUD), b.qp(ib.QPTypeUD)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	ah, err := a.d.CreateAH(a.pd, ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1})
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{Opcode: ib.WRSend, AH: ah, RemoteQPN: qb.QPN, RemoteQKey: 0x1111}})
	require.NoError(t, err)
	settle(0, a, b)
	h := qb.History()
	require.Equal(t, uint64(1), h.NoRecvs)
}

// Every field that means nothing in a failed completion is poisoned, with its own width.
func TestPoisonedCompletion(t *testing.T) {
	a, _, qa, _ := rcPair(t, func(c *Config) { c.Poison = true })
	_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: 7, Opcode: ib.WRSend, SGL: []mr.SGE{{Length: 1, LKey: 0x999}}}})
	require.NoError(t, err)
	a.emit(0)
	wcs := a.poll()
	require.Len(t, wcs, 1)
	const w = 0xbadc0de5
	require.Equal(t, cq.WC{WRID: 7, Status: ib.WCLocProtErr, VendorErr: wcs[0].VendorErr, QPN: qa.QPN,
		Opcode: 0x6d, Flags: 0xe5, ByteLen: w, Imm: w, SrcQP: 0xdc0de5, InvRKey: w,
		PKeyIndex: 0x0de5, SLID: 0x0de5, SL: 0xe5, DLIDPathBits: 0xe5, PortNum: 0xe5}, wcs[0])
}

// A UC queue pair can fail and be revived again and again; it remembers the last times.
func TestLastFailuresAreRemembered(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := a.qp(ib.QPTypeUC), b.qp(ib.QPTypeUC)
	a.connect(qa, b, qb.QPN)
	for id := range uint64(7) {
		_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: id, Opcode: ib.WRSend, SGL: []mr.SGE{{Length: 1, LKey: 0x999}}}})
		require.NoError(t, err)
		a.emit(0)
		require.Equal(t, ib.StateSQE, qa.State)
		require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	}
	h := qa.History()
	var ids []uint64
	for _, f := range h.Failures {
		ids = append(ids, f.WRID)
		require.Equal(t, ib.StateSQE, f.To)
	}
	require.Equal(t, []uint64{3, 4, 5, 6}, ids)
}

// liar is a receive ring of a program that says it holds receives and has none.
type liar struct{}

func (liar) Take(*swqe.RWQE) (ok, bad bool) { return false, false }
func (liar) Len() int                       { return 3 }
func (liar) Cap() int                       { return 4 }

func TestRingThatLiesFlushesNothing(t *testing.T) {
	a := newHost(t, 1, nil)
	q, err := a.d.CreateQP(a.pd, &qp.InitAttr{SendCQ: a.cq, RecvCQ: a.cq, RQ: liar{}, Type: ib.QPTypeRC, Cap: qp.Cap{MaxSendWR: 1, MaxRecvWR: 4, MaxRecvSGE: 1}})
	require.NoError(t, err)
	a.connect(q, a, q.QPN)
	require.NoError(t, a.d.ModifyQP(0, q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	a.d.FlushRecv(q)
	a.d.Commit(0)
	require.Empty(t, a.poll())
}

// unmapped is a receive ring whose memory is gone.
type unmapped struct{ liar }

func (unmapped) Len() int { panic("the ring is not there") }

// TestHistoryOfDestroyedQP: the daemon reads it to explain a failure, later than the
// program was killed and its rings unmapped.
func TestHistoryOfDestroyedQP(t *testing.T) {
	a := newHost(t, 1, nil)
	q, err := a.d.CreateQP(a.pd, &qp.InitAttr{SendCQ: a.cq, RecvCQ: a.cq, RQ: unmapped{}, Type: ib.QPTypeRC, Cap: qp.Cap{MaxSendWR: 1, MaxRecvWR: 4, MaxRecvSGE: 1}})
	require.NoError(t, err)
	require.NoError(t, a.d.DestroyQP(0, q))
	require.Zero(t, q.History().Receives)
}
