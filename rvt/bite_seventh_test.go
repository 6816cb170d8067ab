package rvt

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Tests for what the seventh sample of planted faults missed (spec/MUTATION.md).

// TestAtomicWriteNeedsTheRightToWrite: of the region, and of the queue pair.
func TestAtomicWriteNeedsTheRightToWrite(t *testing.T) {
	request := func(q *qp.QP, key ib.RKey) wire.Packet {
		return wire.Packet{Opcode: ib.OpAtomicWrite, PSN: q.RPSN, AckReq: true, Payload: make([]byte, 8), RETH: wire.RETH{VA: bufBase + 8192, RKey: key, DMALen: 8}}
	}
	nak := func(b *host) ib.Syndrome {
		out := b.emit(0)
		require.Len(t, out, 1)
		return out[0].pkt.AETH.Syndrome
	}
	_, b, _, qb := rcPair(t, nil)
	b.deliver(qb, request(qb, b.region(8192, ib.AccessLocalWrite|ib.AccessRemoteWrite).RKey))
	require.Equal(t, ib.OpReadRespOnly, b.emit(0)[0].pkt.Opcode, "it is answered like a READ")
	require.EqualValues(t, 8, b.d.Counters().RcvdBytes)
	b.deliver(qb, request(qb, b.region(8192, ib.AccessLocalWrite|ib.AccessRemoteRead|ib.AccessRemoteAtomic).RKey))
	require.Equal(t, ib.NAKRemoteAccess, nak(b))

	_, b, _, qb = rcPair(t, nil)
	qb.Attr.AccessFlags &^= ib.AccessRemoteWrite
	b.deliver(qb, request(qb, b.region(8192, ib.AccessLocalWrite|ib.AccessRemoteWrite).RKey))
	require.Equal(t, ib.NAKInvalidReq, nak(b))
}

// datagram returns a UD queue pair and a request to send something to a neighbour.
func datagram(t *testing.T) (a *host, q *qp.QP, wr swqe.SendWR) {
	a, b := newHost(t, 1, nil), newHost(t, 2, nil)
	q = a.qp(ib.QPTypeUD)
	a.connect(q, b, 0)
	ah, err := a.d.CreateAH(a.pd, ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1, HopLimit: 64})
	require.NoError(t, err)
	return a, q, swqe.SendWR{WRID: 1, Opcode: ib.WRSend, AH: ah, RemoteQPN: 9, RemoteQKey: 1}
}

// TestPrivilegedQKeys: with the highest bit set, and no other, the queue pair's own goes out.
func TestPrivilegedQKeys(t *testing.T) {
	a, q, wr := datagram(t)
	for key, want := range map[ib.QKey]ib.QKey{0x7fffffff: 0x7fffffff, 0x80000000: 0x1111, 0xffffffff: 0x1111} {
		wr.RemoteQKey = key
		_, err := a.d.PostSend(q, []swqe.SendWR{wr})
		require.NoError(t, err)
		require.Equal(t, want, a.emit(0)[0].pkt.DETH.QKey, "%#x", key)
	}
}

// TestStrangersAreCountedApart: who sends to a UC queue pair from elsewhere, and who sends
// what its transport does not know.
func TestStrangersAreCountedApart(t *testing.T) {
	_, b, _, qb := ucPair(t)
	pkt := wire.Packet{Opcode: ib.TransportUC | ib.OpSendOnly, DestQP: qb.QPN, PKey: ib.PKeyDefault, PSN: 100}
	require.Equal(t, wire.DropWrongPath, b.d.Receive(0, &wire.Path{Src: b.gid, Dst: b.gid}, &pkt))
	require.Equal(t, wire.DropWrongTransport, b.deliver(qb, wire.Packet{Opcode: ib.OpSendOnly, PSN: 100}))
	ud := b.qp(ib.QPTypeUD)
	b.connect(ud, b, 0)
	require.Equal(t, wire.DropWrongTransport, b.deliver(ud, wire.Packet{Opcode: ib.OpSendOnly}))
}

// TestLostResultsUseUpTheRetries: the failure says what they were used up by.
func TestLostResultsUseUpTheRetries(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	qa.SRetry = 0
	for id := range uint64(2) {
		_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: id, Opcode: ib.WRAtomicFetchAndAdd, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}})
		require.NoError(t, err)
	}
	require.Len(t, a.emit(0), 2)
	a.deliver(qa, wire.Packet{Opcode: ib.OpAtomicAck, PSN: 101, AETH: wire.AETH{MSN: 2}})
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCRetryExcErr, wcs[0].Status)
	require.Equal(t, ib.CauseRetrySequence, wcs[0].VendorErr)
	require.EqualValues(t, 1, a.d.Counters().SendErrors)
}

// TestSparedQPHasAllRetriesAgain: a peer that merely stood still costs none.
func TestSparedQPHasAllRetriesAgain(t *testing.T) {
	spared := 0
	judge := func(_ vtime.Time, p qp.Plea) qp.Verdict {
		if !p.Last {
			return qp.Verdict{Again: true} // it needs none
		}
		require.EqualValues(t, spared, p.Spared)
		spared++
		return qp.Verdict{Again: spared == 1}
	}
	a, b, qa, _ := rcPair(t, func(c *Config) { c.Judge = judge })
	a.write(qa, 1, b.mr.RKey)
	sent := 0
	for qa.State == ib.StateRTS {
		at := max(a.d.Deadline(), 0)
		if at == vtime.Never {
			at = 0
		}
		a.d.Expire(at)
		sent += len(a.emit(at))
		require.Less(t, sent, 20)
	}
	require.Equal(t, 2, spared)
	require.Equal(t, 1+3+1+3, sent, "the first time, three retries, the spared one, three retries again")
	d, _ := ib.AckTimeout(14)
	require.GreaterOrEqual(t, time.Duration(a.d.Counters().TimeoutNanos), 7*d)
}

// TestNewLimitOfReadsForgetsOldOnes: what was remembered for repetition went with the queue.
func TestNewLimitOfReadsForgetsOldOnes(t *testing.T) {
	_, b, _, qb := rcPair(t, nil)
	add := wire.Packet{Opcode: ib.OpFetchAdd, PSN: 100, AtomicETH: wire.AtomicETH{VA: bufBase, RKey: b.mr.RKey, SwapAdd: 1}}
	b.deliver(qb, add)
	require.Len(t, b.emit(0), 1)
	b.deliver(qb, add)
	require.Len(t, b.emit(0), 1, "its result is repeated")
	limit := func(n uint8) {
		require.NoError(t, b.d.ModifyQP(0, qb, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
		require.NoError(t, b.d.ModifyQP(0, qb, &qp.Attr{State: ib.StateSQD, MaxDestRdAtomic: n}, ib.AttrState|ib.AttrMaxDestRdAtomic))
		require.NoError(t, b.d.ModifyQP(0, qb, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
		b.deliver(qb, add)
	}
	limit(4)
	require.Len(t, b.emit(0), 1, "the same limit changes nothing")
	limit(2)
	require.Empty(t, b.emit(0))
	require.EqualValues(t, 1, b.buf[0], "and it is carried out once")
}

// TestNotificationsAreCounted and have the class of service that was asked for.
func TestNotificationsAreCounted(t *testing.T) {
	p := dcqcn.Default(100e9)
	a, b, q, _ := rcPair(t, func(c *Config) { c.Congestion = &p })
	pkt := wire.Packet{Opcode: ib.OpWriteOnly, PKey: ib.PKeyDefault, DestQP: q.QPN, PSN: q.RPSN, AckReq: true}
	require.Equal(t, wire.DropNone, a.d.Receive(1, &wire.Path{Src: b.gid, Dst: a.gid, TClass: wire.ECNCE}, &pkt))
	out := a.emit(1)
	require.Equal(t, ib.OpcodeCNP, out[0].pkt.Opcode)
	require.Equal(t, p.CNPDSCP<<2|wire.ECT0, out[0].path.TClass)
	require.EqualValues(t, 1, a.d.Counters().SentCNP)
}

// TestLostMemoryIsCounted: once for a payload that cannot be fetched, and as a failed send.
func TestLostMemoryIsCounted(t *testing.T) {
	a, b, qa, _ := rcPair(t, nil)
	a.write(qa, 1, b.mr.RKey)
	var out Outbox
	a.d.Emit(0, &out, 1)
	require.Len(t, out.Packets, 1)
	a.d.GatherFault(&out, &mr.Fault{Tag: 0, Err: mr.ErrFault})
	a.d.Commit(0)
	require.EqualValues(t, 1, a.d.Counters().MemoryFaults)
	require.EqualValues(t, 1, a.d.Counters().SendErrors)
	require.Equal(t, ib.WCLocProtErr, a.poll()[0].Status)
}

// TestDatagramsAreSolicitedIfAsked: the bit is in the packet, and in no other.
func TestDatagramsAreSolicitedIfAsked(t *testing.T) {
	a, q, wr := datagram(t)
	for _, flags := range []ib.SendFlags{0, ib.SendSolicited, ib.SendSignaled | ib.SendInline} {
		wr.Flags = flags
		_, err := a.d.PostSend(q, []swqe.SendWR{wr})
		require.NoError(t, err)
		require.Equal(t, flags&ib.SendSolicited != 0, a.emit(0)[0].pkt.SE)
	}
}

// TestMarkedDatagramsAreAnswered: on UC the notification is for the peer, on UD for the queue
// pair that the datagram comes from.
//
// req: CC-NP-01
func TestMarkedDatagramsAreAnswered(t *testing.T) {
	p := dcqcn.Default(100e9)
	a, b := newHost(t, 1, func(c *Config) { c.Congestion = &p }), newHost(t, 2, nil)
	marked := wire.Path{Src: b.gid, Dst: a.gid, TClass: wire.ECNCE}
	for _, typ := range []ib.QPType{ib.QPTypeUC, ib.QPTypeUD} {
		q := a.qp(typ)
		a.connect(q, b, 0x77)
		pkt := wire.Packet{Opcode: ib.TransportUC | ib.OpSendOnly, DestQP: q.QPN, PKey: ib.PKeyDefault, PSN: 100}
		from := ib.QPN(0x77)
		if typ == ib.QPTypeUD {
			pkt.Opcode, pkt.DETH, from = ib.UDSendOnly, wire.DETH{QKey: 0x1111, SrcQP: 0x88}, 0x88
		}
		require.Equal(t, wire.DropNoRecv, a.d.Receive(1, &marked, &pkt), "it has no receive, and was marked all the same")
		out := a.emit(1)
		require.Len(t, out, 1, typ)
		require.Equal(t, ib.OpcodeCNP, out[0].pkt.Opcode)
		require.True(t, out[0].pkt.BECN)
		require.Equal(t, from, out[0].pkt.DestQP)
		require.Equal(t, b.gid, out[0].path.Dst)
	}
}

// emitHoled is emit for memory that has holes. What the device withholds is not sent; packets
// before one that cannot be fetched are sent all the same if left says so, for a port that
// fetches payload itself may have sent them when it comes to the hole.
func (h *host) emitHoled(now vtime.Time, left bool) (sent []frame) {
	for more := true; more; {
		h.out.Reset()
		more = h.d.Emit(now, &h.out, 16)
		hole := len(h.out.Packets)
		for i := range h.out.Packets {
			p := &h.out.Packets[i]
			p.Pkt.Payload = make([]byte, p.Len)
			var b mr.Batch
			h.out.Gather(&b, i, p.Pkt.Payload)
			if faults := b.Read(); len(faults) > 0 {
				hole = min(hole, i)
				h.d.GatherFault(&h.out, &faults[0])
			}
		}
		for i := range h.out.Packets {
			if p := &h.out.Packets[i]; !p.Withheld || left && i < hole {
				sent = append(sent, frame{p.Path, p.Pkt})
			}
		}
		h.d.Commit(now)
	}
	return sent
}

// TestHoleBehindOthers has memory that is gone in the third of four messages: the first two are
// delivered, once, and complete with success, whether their packets had left or not.
func TestHoleBehindOthers(t *testing.T) {
	for _, left := range []bool{false, true} {
		for _, begins := range []int{0, 1500} { // bytes of the third message that are there
			a, b, qa, qb := rcPair(t, nil)
			for id := range uint64(4) {
				b.recv(qb, id+1, 0, 8192)
			}
			gone, err := a.d.RegMR(a.pd, mr.NewSlice(0x900000, nil), 0x900000, 4096, 0x900000, ib.AccessLocalWrite)
			require.NoError(t, err)
			a.send(qa, 1, 8)
			a.send(qa, 2, 3000)
			hole := append(a.sge(0, begins), mr.SGE{Addr: 0x900000, Length: 2000, LKey: gone.LKey})
			_, err = a.d.PostSend(qa, []swqe.SendWR{{WRID: 3, Opcode: ib.WRSend, SGL: hole}})
			require.NoError(t, err)
			a.send(qa, 4, 8)
			for range 4 {
				b.receive(0, a.emitHoled(0, left))
				a.receive(0, b.emit(0))
			}
			sent, got := a.poll(), b.poll()
			require.Len(t, sent, 4, "left %v, begins %d", left, begins)
			for i, want := range []ib.WCStatus{ib.WCSuccess, ib.WCSuccess, ib.WCLocProtErr, ib.WCWRFlushErr} {
				require.Equal(t, want, sent[i].Status, "left %v, begins %d: %d", left, begins, i+1)
				require.EqualValues(t, i+1, sent[i].WRID)
			}
			require.Equal(t, ib.CauseMemoryFault, sent[2].VendorErr)
			require.Equal(t, ib.StateErr, qa.State)
			require.Len(t, got, 2)
			require.EqualValues(t, 8, got[0].ByteLen)
			require.EqualValues(t, 3000, got[1].ByteLen)
			require.Zero(t, a.d.Counters().RetryTimeout)
		}
	}
}
