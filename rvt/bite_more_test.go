package rvt

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// ucPair is rcPair for UC.
func ucPair(t testing.TB) (a, b *host, qa, qb *qp.QP) {
	a, b = newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb = a.qp(ib.QPTypeUC), b.qp(ib.QPTypeUC)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	return a, b, qa, qb
}

func (h *host) send(q *qp.QP, id uint64, n int) {
	_, err := h.d.PostSend(q, []swqe.SendWR{{WRID: id, Opcode: ib.WRSend, SGL: h.sge(0, n)}})
	require.NoError(h.t, err)
}

// An acknowledgement of what is acknowledged already is no progress: a peer that repeats
// it for ever does not keep the requester from giving up.
func TestRepeatedPartialAckIsNoProgress(t *testing.T) {
	a, _, qa, qb := rcPair(t, nil)
	a.send(qa, 1, 3000)
	require.Len(t, a.emit(0), 3)
	ack := wire.Packet{Opcode: ib.OpAcknowledge, DestQP: qa.QPN, PKey: ib.PKeyDefault, PSN: 100, AETH: wire.AETH{Syndrome: ib.SyndromeACK | ib.Syndrome(ib.CreditInvalid)}}
	path := wire.Path{Src: qa.Attr.AV.DGID, Dst: a.gid}
	a.d.Receive(1000, &path, &ack)
	at := a.d.Deadline()
	require.NotEqual(t, vtime.Never, at)
	a.d.Receive(2000, &path, &ack)
	require.Equal(t, at, a.d.Deadline(), "the timer runs on")
	_ = qb
}

// A region that a work request names for no bytes at all may go.
func TestEmptySegmentHoldsNoRegion(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	m, err := a.d.RegMR(a.pd, mr.NewSlice(0x900000, make([]byte, 64)), 0x900000, 64, 0x900000, ib.AccessLocalWrite)
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRSend, SGL: []mr.SGE{{Addr: 0x900000, LKey: m.LKey}}}})
	require.NoError(t, err)
	require.NoError(t, a.d.DeregMR(0, m))
	require.Equal(t, ib.StateRTS, qa.State)
}

// A fault of memory is the business of an RC peer only: UC has nobody to tell.
func TestMemoryFaultOnUCIsNotTold(t *testing.T) {
	a, b, qa, qb := ucPair(t)
	lost, err := b.d.RegMR(b.pd, mr.NewSlice(0x900000, make([]byte, 16)), 0x900000, 4096, 0x900000, ib.AccessLocalWrite|ib.AccessRemoteWrite)
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 100), RemoteAddr: 0x900000, RKey: lost.RKey}})
	require.NoError(t, err)
	b.receive(0, a.emit(0))
	require.Equal(t, ib.StateErr, qb.State)
	require.Empty(t, b.emit(0))
}

// The receive of a message whose bytes cannot be stored fails with LOC_PROT_ERR.
func TestReceiveIntoLostMemory(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	lost, err := b.d.RegMR(b.pd, mr.NewSlice(0x900000, make([]byte, 16)), 0x900000, 4096, 0x900000, ib.AccessLocalWrite)
	require.NoError(t, err)
	_, err = b.d.PostRecv(qb, []swqe.RecvWR{{WRID: 5, SGL: []mr.SGE{{Addr: 0x900000, Length: 4096, LKey: lost.LKey}}}})
	require.NoError(t, err)
	a.send(qa, 1, 3000)
	b.receive(0, a.emit(0)[:1]) // the message is not complete
	wcs := b.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, uint64(5), wcs[0].WRID)
	require.Equal(t, ib.WCLocProtErr, wcs[0].Status)
	require.Equal(t, ib.CauseMemoryFault, wcs[0].VendorErr)
}

// A payload that cannot be fetched fails its own request with LOC_PROT_ERR, on each
// transport; what is behind it is flushed, and nothing went out.
func TestPayloadThatCannotBeFetched(t *testing.T) {
	for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC} {
		for _, size := range []uint32{100, 3000} {
			a, _, qa, _ := rcPair(t, nil)
			if typ == ib.QPTypeUC {
				a, _, qa, _ = ucPair(t)
			}
			lost, err := a.d.RegMR(a.pd, mr.NewSlice(0x900000, nil), 0x900000, 4096, 0x900000, ib.AccessLocalWrite)
			require.NoError(t, err)
			_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRSend, SGL: []mr.SGE{{Addr: 0x900000, Length: size, LKey: lost.LKey}}}})
			require.NoError(t, err)
			var out Outbox
			a.d.Emit(0, &out, 1)
			require.Len(t, out.Packets, 1)
			a.d.GatherFault(&out, &mr.Fault{Tag: 0, Err: mr.ErrFault})
			a.send(qa, 2, 8)
			require.Empty(t, a.emit(0))
			wcs := a.poll()
			require.Len(t, wcs, 2, "%v %d", typ, size)
			require.Equal(t, ib.WCLocProtErr, wcs[0].Status, "%v %d", typ, size)
			require.Equal(t, ib.CauseMemoryFault, wcs[0].VendorErr)
			require.Equal(t, ib.WCWRFlushErr, wcs[1].Status)
			require.Equal(t, ib.StateErr, qa.State)
		}
	}
}

// When the memory as a whole is gone, what was about to be reported as success is not.
func TestSuccessDoesNotOutliveTheMemory(t *testing.T) {
	a := newHost(t, 1, nil)
	scq, err := a.d.CreateCQ(8, nil) // not that of the receives
	require.NoError(t, err)
	qa, err := a.d.CreateQP(a.pd, &qp.InitAttr{SendCQ: scq, RecvCQ: a.cq, Type: ib.QPTypeUC, SQSigAll: true, Cap: qp.Cap{MaxSendWR: 4, MaxSendSGE: 1}})
	require.NoError(t, err)
	a.connect(qa, a, qa.QPN)
	a.send(qa, 1, 8)
	var out Outbox
	a.d.Emit(0, &out, 4) // the completion is staged
	a.send(qa, 2, 8)
	a.d.fault(&mr.Fault{Tag: uint32(qa.QPN), Err: mr.ErrGone})
	a.d.Commit(0)
	wcs := make([]cq.WC, 4)
	require.Equal(t, 1, scq.Poll(wcs))
	require.Equal(t, ib.WCLocProtErr, wcs[0].Status)
	a.emit(0)
	require.Equal(t, 1, scq.Poll(wcs))
	require.Equal(t, ib.CauseFlushAfter, wcs[0].VendorErr)
}

// What failed before anything of it was sent has no times, and no NAK of another request.
func TestFailureThatWasNeverSent(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	a.send(qa, 1, 8) // finds no receive: an RNR NAK comes back
	b.receive(0, a.emit(0))
	a.receive(0, b.emit(0))
	require.NotZero(t, qa.NRNRNAKs)
	b.recv(qb, 1, 8192, 8192)
	now := a.d.Deadline()
	a.d.Expire(now)
	settle(now, a, b)
	_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: 2, Opcode: ib.WRSend, SGL: []mr.SGE{{Length: 1, LKey: 0x999}}}})
	require.NoError(t, err)
	a.emit(now)
	h := qa.History()
	require.Len(t, h.Failures, 1)
	f := h.Failures[0]
	require.Zero(t, f.NAK)
	require.Equal(t, vtime.Never, f.FirstSent)
	require.Equal(t, vtime.Never, f.LastSent)
}

// A new path changes the UDP source port, which its flow label is part of.
func TestNewPathHasANewSourcePort(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	was := qa.SPort
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	av := qa.Attr.AV
	av.FlowLabel = 0x12345
	require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD, AV: av}, ib.AttrState|ib.AttrAV))
	require.NotEqual(t, was, qa.SPort)
	require.Equal(t, wire.SourcePort(0x12345, qa.QPN, qa.Attr.DestQPN), qa.SPort)
}

// RESET forgets a message in progress: the next life of the QP does not complete its
// receive.
func TestResetForgetsAMessage(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	b.recv(qb, 1, 8192, 8192)
	a.send(qa, 1, 3000)
	b.receive(0, a.emit(0)[:1])
	require.NoError(t, b.d.ModifyQP(0, qb, &qp.Attr{State: ib.StateReset}, ib.AttrState))
	b.connect(qb, a, qa.QPN)
	require.NoError(t, b.d.ModifyQP(0, qb, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	require.Empty(t, b.poll())
}

// EmitTrains goes on to the end of a WRITE that is near, and of no other message.
func TestEmitTrainsEndsAMessage(t *testing.T) {
	for _, c := range []struct {
		op            ib.WROpcode
		packets       uint32
		budget, count int
	}{
		{ib.WRRDMAWrite, 8, 8, 8},
		{ib.WRRDMAWrite, 8, 6, 8},
		{ib.WRRDMAWrite, 8, 5, 5},
		{ib.WRSend, 8, 6, 6},
	} {
		a, b, qa, _ := rcPair(t, nil)
		wr := swqe.SendWR{Opcode: c.op, SGL: []mr.SGE{{Addr: bufBase, Length: c.packets * 1024, LKey: a.mr.LKey}}, RemoteAddr: bufBase, RKey: b.mr.RKey}
		_, err := a.d.PostSend(qa, []swqe.SendWR{wr, wr})
		require.NoError(t, err)
		var out Outbox
		require.True(t, a.d.EmitTrains(0, &out, c.budget), "the second message waits")
		require.Len(t, out.Packets, c.count, "%v of %d packets, budget %d", c.op, c.packets, c.budget)
	}
}

// A READ waits until its responses fit into the window; one of more than half a window
// counts as half.
func TestReadResponsesFitIntoTheWindow(t *testing.T) {
	for _, c := range []struct {
		packets []uint32 // of each READ
		out     int      // how many go
	}{
		{[]uint32{4, 1, 3}, 3}, // eight fit
		{[]uint32{4, 2, 3}, 2},
		{[]uint32{4, 8}, 2},    // a long one, beside half a window
		{[]uint32{4, 1, 8}, 2}, // and no more
		{[]uint32{8, 1}, 1},
		{[]uint32{20}, 1},
	} {
		a, b, qa, _ := rcPair(t, func(c *Config) { c.Limits.WindowPackets = 8 })
		for _, n := range c.packets {
			_, err := a.d.PostSend(qa, []swqe.SendWR{{
				Opcode: ib.WRRDMARead, SGL: []mr.SGE{{Addr: bufBase, Length: n * 1024, LKey: a.mr.LKey}}, RemoteAddr: bufBase, RKey: b.mr.RKey,
			}})
			require.NoError(t, err)
		}
		require.Len(t, a.emit(0), c.out, "READs of %v packets", c.packets)
	}
}

// The cause says that the queue pair lacks the right, not something about alignment.
func TestReadWithoutTheRightHasItsCause(t *testing.T) {
	_, b, _, qb := rcPair(t, nil)
	qb.Attr.AccessFlags = 0
	path := wire.Path{Src: qb.Attr.AV.DGID, Dst: b.gid}
	pkt := wire.Packet{Opcode: ib.OpReadRequest, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 100, RETH: wire.RETH{VA: bufBase, RKey: b.mr.RKey, DMALen: 8}}
	b.d.Receive(0, &path, &pkt)
	h := qb.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, ib.CauseQPAccess, h.Failures[0].Cause)
}

// ring is a receive queue that the program fills itself.
type ring struct{ waiting []swqe.RWQE }

func (r *ring) Take(e *swqe.RWQE) (ok, bad bool) {
	if len(r.waiting) == 0 {
		return false, false
	}
	*e, r.waiting = r.waiting[0], r.waiting[1:]
	return true, false
}
func (r *ring) Len() int { return len(r.waiting) }
func (r *ring) Cap() int { return 8 }

// What a program puts into its own ring of a QP in ERR is flushed when somebody looks; a
// shared queue's receives are not.
func TestFlushOfOwnRing(t *testing.T) {
	h := newHost(t, 1, nil)
	r := &ring{}
	q, err := h.d.CreateQP(h.pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: ib.QPTypeRC, RQ: r, Cap: qp.Cap{MaxSendWR: 4, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}})
	require.NoError(t, err)
	h.connect(q, h, q.QPN)
	require.NoError(t, h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	r.waiting = []swqe.RWQE{{WRID: 1}, {WRID: 2}}
	h.d.FlushRecv(q)
	wcs := h.poll()
	require.Len(t, wcs, 2)
	require.Equal(t, ib.CauseFlushPosted, wcs[1].VendorErr)

	shared := &ring{waiting: []swqe.RWQE{{WRID: 3}}}
	srq, err := h.d.CreateSRQ(h.pd, SRQAttr{MaxWR: 8, MaxSGE: 1}, shared)
	require.NoError(t, err)
	q, err = h.d.CreateQP(h.pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: ib.QPTypeRC, SRQ: srq, Cap: qp.Cap{MaxSendWR: 4, MaxSendSGE: 1}})
	require.NoError(t, err)
	h.connect(q, h, q.QPN)
	require.NoError(t, h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	h.d.FlushRecv(q)
	require.Empty(t, h.poll())
	require.Len(t, shared.waiting, 1)
}

// The rest of a UC message whose beginning is lost is out of sequence, packet by packet,
// also when one comes twice; and a WRITE of a single byte arrives.
func TestUCSmallThings(t *testing.T) {
	_, b, _, qb := ucPair(t)
	path := wire.Path{Src: qb.Attr.AV.DGID, Dst: b.gid}
	pkt := wire.Packet{Opcode: ib.TransportUC | ib.OpSendMiddle, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 103, Payload: make([]byte, 1024)}
	require.Equal(t, wire.DropOutOfSequence, b.d.Receive(0, &path, &pkt))
	require.Equal(t, wire.DropOutOfSequence, b.d.Receive(0, &path, &pkt))

	a, b, qa, _ := ucPair(t)
	a.buf[0] = 0x5a
	_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 1), RemoteAddr: bufBase + 77, RKey: b.mr.RKey}})
	require.NoError(t, err)
	b.receive(0, a.emit(0))
	require.Equal(t, byte(0x5a), b.buf[77])
}

// A READ whose window goes away before the response leaves is refused for its key.
func TestReadWhoseKeyGoes(t *testing.T) {
	_, b, _, qb := rcPair(t, nil)
	w, err := b.d.AllocMW(b.pd, ib.MWType2)
	require.NoError(t, err)
	key := w.RKey&^0xff | (w.RKey+1)&0xff
	_, err = b.d.PostSend(qb, []swqe.SendWR{{WRID: 1, Opcode: ib.WRBindMW,
		Bind: swqe.BindInfo{MW: w, MR: b.mr.Region, RKey: key, Addr: bufBase, Length: 4096, Access: ib.AccessRemoteRead}}})
	require.NoError(t, err)
	b.emit(0)
	require.True(t, w.Bound())
	path := wire.Path{Src: qb.Attr.AV.DGID, Dst: b.gid}
	pkt := wire.Packet{Opcode: ib.OpReadRequest, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 100, RETH: wire.RETH{VA: bufBase, RKey: key, DMALen: 8}}
	require.Equal(t, wire.DropNone, b.d.Receive(0, &path, &pkt))
	require.NoError(t, b.d.DeallocMW(w))
	frames := b.emit(0)
	require.Len(t, frames, 1)
	require.Equal(t, ib.NAKRemoteAccess, frames[0].pkt.AETH.Syndrome)
	require.Equal(t, uint64(1), b.d.Counters().SentNAK)
	h := qb.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, ib.CauseRKey, h.Failures[0].Cause)
}

// Profile rxe acknowledges repetitions with "none" until it has accepted something: an
// atomic counts as much as any other request.
func TestAtomicCountsAsAccepted(t *testing.T) {
	_, b, _, qb := rcPair(t, func(c *Config) { c.Profile = qp.ProfileRXE })
	path := wire.Path{Src: qb.Attr.AV.DGID, Dst: b.gid}
	old := wire.Packet{Opcode: ib.OpSendOnly, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 99, AckReq: true}
	b.d.Receive(0, &path, &old)
	frames := b.emit(0)
	require.Len(t, frames, 1)
	require.Equal(t, ib.PSN(ib.PSNMask), frames[0].pkt.PSN)
	add := wire.Packet{Opcode: ib.OpFetchAdd, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 100, AtomicETH: wire.AtomicETH{VA: bufBase, RKey: b.mr.RKey, SwapAdd: 1}}
	require.Equal(t, wire.DropNone, b.d.Receive(0, &path, &add))
	require.Len(t, b.emit(0), 1)
	b.d.Receive(0, &path, &old)
	frames = b.emit(0)
	require.Len(t, frames, 1)
	require.Equal(t, ib.PSN(99), frames[0].pkt.PSN)
}

// TestReadsThatCannotBeFetched: of three READs in one burst the last two cannot be fetched. The
// first is answered, and the NAK is for the second one, though the third failed as well.
// req: RC-NAK-08
func TestReadsThatCannotBeFetched(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	for id := range uint64(3) {
		a.read(qa, b, id+1, 100)
	}
	b.receive(0, a.emit(0))
	var out Outbox
	b.d.Emit(0, &out, 3)
	require.Len(t, out.Packets, 3)
	first := out.Packets[0]
	first.Pkt.Payload = make([]byte, first.Len)
	b.d.GatherFault(&out, &mr.Fault{Tag: 1, Err: mr.ErrFault})
	b.d.GatherFault(&out, &mr.Fault{Tag: 2, Err: mr.ErrFault})
	require.False(t, out.Packets[0].Withheld)
	require.True(t, out.Packets[1].Withheld && out.Packets[2].Withheld)
	b.d.Commit(0)
	require.Equal(t, ib.StateErr, qb.State)
	a.receive(0, []frame{{first.Path, first.Pkt}})
	a.receive(0, b.emit(0))
	require.Empty(t, a.emit(0))
	var got []string
	for _, wc := range a.poll() {
		got = append(got, fmt.Sprintf("%d %v", wc.WRID, wc.Status))
	}
	require.Equal(t, []string{"1 SUCCESS", "2 REM_OP_ERR", "3 WR_FLUSH_ERR"}, got)
}

// en_sqd_async_notify counts only if the mask names it.
// req: EVT-DRAIN-01
func TestDrainedEventNeedsTheMask(t *testing.T) {
	for _, mask := range []ib.AttrMask{0, ib.AttrEnSQDAsyncNotify} {
		a, _, qa, _ := rcPair(t, nil)
		require.NoError(t, a.d.ModifyQP(0, qa, &qp.Attr{State: ib.StateSQD, EnSQDAsyncNotify: true}, ib.AttrState|mask))
		var drained int
		evs := make([]Event, 4)
		for _, e := range evs[:a.d.PollEvents(evs)] {
			if e.Type == ib.EventSQDrained {
				drained++
			}
		}
		require.Equal(t, mask != 0, drained == 1)
	}
}
