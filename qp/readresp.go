package qp

import (
	"cmp"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// readResponse takes one packet of a READ response. Its place in the message follows
// from its PSN, so a response that starts anew in the middle (after a restart) lands
// where it belongs.
func (q *QP) readResponse(now vtime.Time, pkt *wire.Packet) wire.DropReason {
	if !q.retire(now, pkt.PSN.Add(-1)) {
		return wire.DropNone
	}
	if q.SAcked == q.STail {
		return wire.DropUnexpectedResponse
	}
	w := q.ring.At(q.SAcked)
	var length uint64
	switch w.WR.Opcode {
	case ib.WRRDMARead:
		length = uint64(w.Length)
	case ib.WRAtomicWrite, ib.WRFlush: // their response has no data
	default:
		q.failSend(cmp.Or(q.Env.Drv.StrayReadStatus, q.Env.Prof.BadResponseStatus), ib.CauseReadRespOpcode)
		return wire.DropNone
	}
	if pkt.PSN != q.SLastPSN.Add(1) {
		q.lostResponse(now) // packets of this response are missing
		return wire.DropOutOfSequence
	}
	off := uint64(fromStart(w, pkt.PSN)) * uint64(q.pmtu())
	last := pkt.PSN == w.LPSN
	if status, cause := q.checkReadResponse(pkt, length-off, last); status != ib.WCSuccess {
		q.failSend(status, cause)
		return wire.DropNone
	}
	if c := q.scatter(q.PD, w.WR.SGL, off, pkt.Payload); c != ib.CauseNone {
		q.failSend(ib.WCLocProtErr, c)
		return wire.DropNone
	}
	q.Env.Ctr.RcvdBytes += uint64(len(pkt.Payload))
	if pkt.Opcode != ib.OpReadRespMiddle {
		q.getCredit(pkt.AETH)
	}
	if last {
		q.retireOne(now, w)
		return wire.DropNone
	}
	q.SLastPSN = pkt.PSN
	if next := pkt.PSN.Add(1); q.SPSN.Cmp(next) < 0 {
		if q.SPSN == w.PSN {
			q.SNumRdAtomic++ // resetPSN took it for not issued, but the rest of it is
		}
		q.SPSN = next // it was to be requested again; ask only for the rest
	}
	q.progress(now)
	return wire.DropNone
}

// checkReadResponse tests opcode and length of a response packet, of whose message
// left bytes remain from this packet on.
func (q *QP) checkReadResponse(pkt *wire.Packet, left uint64, last bool) (ib.WCStatus, ib.Cause) {
	p := q.Env.Prof
	n := uint64(len(pkt.Payload))
	ends := pkt.Opcode == ib.OpReadRespLast || pkt.Opcode == ib.OpReadRespOnly
	switch {
	case pkt.AETH.Syndrome.Kind() != ib.SyndromeACK, ends != last:
		return p.BadResponseStatus, ib.CauseReadRespOpcode
	case last && n != left, !last && n != uint64(q.pmtu()):
		return p.ReadLenStatus, ib.CauseReadRespLength
	}
	return ib.WCSuccess, ib.CauseNone
}

// scatter notes the copy of b into the list from offset off on, after checking the
// keys. The copy is done with the burst; b must live until then.
func (q *QP) scatter(pd mr.PD, sgl []mr.SGE, off uint64, b []byte) ib.Cause {
	e := q.Env
	var c ib.Cause
	e.segs, c = e.Keys.Resolve(e.segs[:0], pd, sgl, off, uint64(len(b)), ib.AccessLocalWrite)
	if c == ib.CauseNone {
		e.Scatter.Spread(e.segs, b, uint32(q.QPN))
	}
	return c
}
