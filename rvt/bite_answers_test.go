package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// More small things that planted faults went through (see spec/MUTATION.md): answers that
// come in the middle of something else, and what is remembered of a failure.

// deliver hands a packet to q as if its peer had sent it.
func (h *host) deliver(q *qp.QP, pkt wire.Packet) wire.DropReason {
	pkt.DestQP, pkt.PKey = q.QPN, ib.PKeyDefault
	path := wire.Path{Src: q.Attr.AV.DGID, Dst: h.gid}
	r := h.d.Receive(0, &path, &pkt)
	h.d.Commit(0)
	return r
}

func (h *host) read(q *qp.QP, peer *host, id uint64, n int) {
	_, err := h.d.PostSend(q, []swqe.SendWR{{WRID: id, Opcode: ib.WRRDMARead, SGL: h.sge(0, n), RemoteAddr: bufBase, RKey: peer.mr.RKey}})
	require.NoError(h.t, err)
}

// An RNR NAK for the packet of a READ that comes next is a wait, not a lost response.
func TestRNRInTheMiddleOfARead(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	a.read(qa, b, 1, 3000)
	b.receive(0, a.emit(0))
	a.receive(0, b.emit(0)[:1])
	require.Equal(t, ib.PSN(100), qa.SLastPSN)
	require.Equal(t, wire.DropNone, a.deliver(qa, wire.Packet{Opcode: ib.OpAcknowledge, PSN: 101, AETH: wire.AETH{Syndrome: ib.SyndromeRNR | 12}}))
	require.NotZero(t, qa.SFlags&qp.SWaitRNR)
	require.Zero(t, a.d.Counters().LostResponse)
	require.NotEqual(t, vtime.Never, qa.SRNRTimerAt)
}

// What the responder refuses is the request's failure, although the requester of the same
// queue pair waits for a response that was lost.
func TestRefusalWhileAResponseIsMissing(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	a.read(qa, b, 1, 2000)
	b.receive(0, a.emit(0))
	a.receive(0, b.emit(0)[1:])
	require.NotZero(t, qa.RFlags&qp.RRdmarSeq)
	a.deliver(qa, wire.Packet{Opcode: ib.OpWriteOnly, PSN: 100, Payload: make([]byte, 8), RETH: wire.RETH{VA: bufBase, RKey: 0x7700, DMALen: 8}})
	h := qa.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, qp.FailedRequest, h.Failures[0].Kind)
	require.Equal(t, ib.RKey(0x7700), h.Failures[0].Request.RKey)
}

// A WRITE that carries more than it announced has a cause of its own.
func TestWriteOfAnotherLengthHasItsCause(t *testing.T) {
	_, b, _, qb := rcPair(t, nil)
	b.deliver(qb, wire.Packet{Opcode: ib.OpWriteOnly, PSN: 100, Payload: make([]byte, 16), RETH: wire.RETH{VA: bufBase, RKey: b.mr.RKey, DMALen: 8}})
	h := qb.History()
	require.Len(t, h.Failures, 1)
	require.Equal(t, ib.CauseWriteLength, h.Failures[0].Cause)
}

// A queue pair that lost a completion says so, and that what followed is flushed.
func TestLostReceiveCompletionIsRemembered(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	qa, qb := smallPair(t, a, b)
	b.recv(qb, 1, 8192, 64)
	b.recv(qb, 2, 8192, 64)
	a.send(qa, 1, 8)
	a.send(qa, 2, 8)
	settle(0, a, b)
	h := qb.History()
	require.Len(t, h.Failures, 1)
	f := h.Failures[0]
	require.Equal(t, qp.FailedByCQ, f.Kind)
	require.Equal(t, ib.CauseCQOverflow, f.Cause)
	require.Equal(t, ib.WCWRFlushErr, f.Status)
}

// dead is the memory of a program that is no more.
type dead struct{ *mr.Slice }

func (dead) CompareSwap64(uint64, uint64, uint64) (uint64, error) { return 0, mr.ErrGone }
func (dead) FetchAdd64(uint64, uint64) (uint64, error)            { return 0, mr.ErrGone }

// An atomic on the memory of a program that died is met with silence, as a dead adapter is.
func TestAtomicOnTheMemoryOfADeadProgram(t *testing.T) {
	a, b, qa, qb := rcPair(t, nil)
	lost, err := b.d.RegMR(b.pd, dead{mr.NewSlice(bufBase, b.buf)}, bufBase, 4096, bufBase, ib.AccessLocalWrite|ib.AccessRemoteMask)
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 1, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: lost.RKey}})
	require.NoError(t, err)
	b.receive(0, a.emit(0))
	require.Equal(t, ib.StateErr, qb.State)
	require.Empty(t, b.emit(0))
	require.Equal(t, uint64(1), b.d.Counters().MemoryFaults)
}

func TestInjectedPostErrors(t *testing.T) {
	a, _, qa, _ := rcPair(t, nil)
	for _, n := range []int{-3, 0, 2} {
		qa.InjectPostErrors(n)
		require.Equal(t, max(n, 0), qa.PostErrors())
	}
	wr := swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.sge(0, 8)}
	for range 2 {
		_, err := a.d.PostSend(qa, []swqe.SendWR{wr})
		require.ErrorIs(t, err, ib.ENOMEM)
	}
	n, err := a.d.PostSend(qa, []swqe.SendWR{wr})
	require.NoError(t, err)
	require.Equal(t, 1, n)
}

// Over IPv4 the first 20 of the 40 header bytes of a datagram mean nothing.
func TestPoisonedDatagramHeader(t *testing.T) {
	a, b := newHost(t, 1, nil), newHost(t, 2, func(c *Config) { c.Poison = true })
	qa, qb := a.qp(ib.QPTypeUD), b.qp(ib.QPTypeUD)
	a.connect(qa, b, qb.QPN)
	b.connect(qb, a, qa.QPN)
	b.recv(qb, 1, 0, 64)
	ah, err := a.d.CreateAH(a.pd, ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1})
	require.NoError(t, err)
	_, err = a.d.PostSend(qa, []swqe.SendWR{{Opcode: ib.WRSend, SGL: a.sge(0, 4), AH: ah, RemoteQPN: qb.QPN, RemoteQKey: 0x1111}})
	require.NoError(t, err)
	settle(0, a, b)
	for i, c := range b.buf[:20] {
		require.Equal(t, byte(0xe5), c, "byte %d", i)
	}
	require.Equal(t, byte(0x45), b.buf[20], "the IPv4 header")
}

// What becomes of the receive of a message in progress, and of the one behind it, when
// something else of the queue pair fails.
func TestReceivesWhenSomethingElseFails(t *testing.T) {
	type end struct {
		status ib.WCStatus
		cause  ib.Cause
	}
	flushed := end{ib.WCWRFlushErr, ib.CauseFlushAfter}
	unfetched := func(h *host, q *qp.QP) {
		h.send(q, 2, 8)
		var out Outbox
		h.d.Emit(0, &out, 4)
		h.d.GatherFault(&out, &mr.Fault{Tag: uint32(len(out.Packets) - 1), Err: mr.ErrFault})
		h.d.Commit(0)
	}
	for name, c := range map[string]struct {
		typ         ib.QPType
		fail        func(h *host, q *qp.QP)
		taken, next end
	}{
		"a send names a bad key": {ib.QPTypeRC, func(h *host, q *qp.QP) {
			_, err := h.d.PostSend(q, []swqe.SendWR{{WRID: 2, Opcode: ib.WRSend, SGL: []mr.SGE{{Length: 1, LKey: 0x999}}}})
			require.NoError(t, err)
			h.emit(0)
		}, flushed, flushed},
		"a payload cannot be fetched": {ib.QPTypeRC, unfetched, flushed, flushed},
		"the same, and UC had completed it": {ib.QPTypeUC, unfetched,
			end{ib.WCWRFlushErr, ib.CauseMemoryFault}, end{ib.WCWRFlushErr, ib.CauseMemoryFault}},
		"its memory is gone": {ib.QPTypeRC, func(h *host, q *qp.QP) {
			lost, err := h.d.RegMR(h.pd, mr.NewSlice(0x900000, nil), 0x900000, 64, 0x900000, ib.AccessLocalWrite|ib.AccessRemoteMask)
			require.NoError(t, err)
			q.RState = ib.OpSendLast // as if the message ended here; what counts is the fault
			h.deliver(q, wire.Packet{Opcode: ib.OpWriteOnly, PSN: 101, Payload: make([]byte, 8), RETH: wire.RETH{VA: 0x900000, RKey: lost.RKey, DMALen: 8}})
		}, end{ib.WCLocProtErr, ib.CauseMemoryFault}, flushed},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, qa, qb := rcPair(t, nil)
			if c.typ == ib.QPTypeUC {
				a, b, qa, qb = ucPair(t)
			}
			b.recv(qb, 7, 8192, 8192)
			b.recv(qb, 8, 8192, 8192)
			a.send(qa, 1, 3000)
			b.receive(0, a.emit(0)[:1])
			c.fail(b, qb)
			got := map[uint64]end{}
			for _, wc := range b.poll() {
				got[wc.WRID] = end{wc.Status, wc.VendorErr}
			}
			require.Equal(t, c.taken, got[7])
			require.Equal(t, c.next, got[8])
			require.Equal(t, ib.StateErr, qb.State)
		})
	}
}
