package qp

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/vtime"
)

// check tests what must hold between any two inputs. It costs nothing unless
// assertions are compiled in. No packet and no verbs call may be able to make it fail;
// the fuzz targets of package rvt try.
func (q *QP) check() {
	if !invariants.Enabled {
		return
	}
	q.checkRing()
	q.checkResponder()
	if q.Type == ib.QPTypeRC && q.can(ProcessSendOK) {
		q.checkRequester()
		q.checkTimers()
	}
}

// checkRing: walking the ring forward, SLast <= SAcked <= SCur <= STail <= SHead, and
// no more WRs than the program may have outstanding. Payload is copied when a packet
// is built, so nothing keeps SLast behind SAcked.
func (q *QP) checkRing() {
	acked, cur := q.dist(q.SLast, q.SAcked), q.dist(q.SLast, q.SCur)
	tail, head := q.dist(q.SLast, q.STail), q.dist(q.SLast, q.SHead)
	invariants.Check(acked == 0, "SLast is SAcked")
	invariants.Check(acked <= cur, "SAcked is not after SCur")
	invariants.Check(cur <= tail, "SCur is not after STail")
	invariants.Check(tail <= head, "STail is not after SHead")
	invariants.Check(head <= q.ring.Size()-1, "outstanding WRs fit max_send_wr")
	invariants.Check(q.SAvail <= q.ring.Size()-1-head, "SAvail is a lower bound")
	if head > 0 {
		last := q.SHead - 1
		if last < 0 {
			last = q.ring.Size() - 1
		}
		invariants.Check(q.SNextPSN == q.ring.At(last).LPSN.Add(1), "SNextPSN follows the last WR posted")
	}
	for i, next := q.SLast, 0; next < head-1; next++ {
		j := q.ring.Next(i)
		invariants.Check(q.ring.At(j).PSN == q.ring.At(i).LPSN.Add(1), "PSNs of WRs are contiguous")
		i = j
	}
}

// checkRequester: PSNs and the count of open READs and atomics.
func (q *QP) checkRequester() {
	next := q.SNextPSN
	if q.SCur != q.SHead {
		w := q.ring.At(q.SCur)
		next = w.PSN
		if q.SCur != q.STail {
			into := fromStart(w, q.SPSN)
			invariants.Check(into < int(w.Packets), "SPSN is in the WR at SCur")
			next = q.SPSN
		}
	}
	invariants.Check(q.SPSN == next, "SPSN is where SCur says")
	sent := q.unacked(q.SSendingHPSN.Add(1))
	invariants.Check(sent <= 1<<23, "un-ACKed PSNs fit half the PSN space")
	invariants.Check(q.unacked(q.SPSN) <= sent, "SPSN is not beyond what was sent")
	if q.SAcked == q.STail {
		invariants.Check(sent == 0, "nothing is un-ACKed when no WR is started")
	} else {
		w := q.ring.At(q.SAcked)
		invariants.Check(q.unacked(w.PSN) == 0 || fromStart(w, q.SLastPSN) < int(w.Packets)-1, "SLastPSN is just before or inside the WR at SAcked")
	}
	open := 0
	for i := q.SAcked; i != q.SCur; i = q.ring.Next(i) {
		if isRdAtomic(q.ring.At(i)) {
			open++
		}
	}
	if q.SCur != q.STail {
		if w := q.ring.At(q.SCur); isRdAtomic(w) && q.SPSN != w.PSN {
			open++
		}
	}
	invariants.Check(q.SNumRdAtomic == open, "SNumRdAtomic is the number of READs and atomics issued and not answered")
}

// checkTimers: the retransmission timer runs exactly while something may be lost, so
// that a QP cannot wait for ever.
func (q *QP) checkTimers() {
	invariants.Check((q.SFlags&SWaitRNR != 0) == (q.SRNRTimerAt != vtime.Never), "the RNR timer runs while the QP waits for it")
	if q.STimerAt != vtime.Never {
		invariants.Check(q.SAcked != q.STail, "the retry timer runs only with un-ACKed work")
		invariants.Check(q.SFlags&SWaitRNR == 0, "the retry timer rests during an RNR wait")
		return
	}
	if _, ok := q.Env.Prof.ackTimeout(q.Attr.Timeout); ok && q.SFlags&SWaitRNR == 0 {
		invariants.Check(q.unacked(q.SPSN) == 0, "un-ACKed packets have a timer")
		invariants.Check(q.SFlags&SWaitAck == 0, "a probe has a timer")
	}
}

// checkResponder: the answers that wait.
func (q *QP) checkResponder() {
	invariants.Check(q.resp.n <= respLimit, "the response queue is bounded")
	open := 0
	for i := range q.resp.n {
		if q.resp.at(i).open {
			open++
		}
	}
	invariants.Check(q.rOpenRd == open, "rOpenRd is the number of first answers waiting")
	invariants.Check(len(q.SAckQueue) <= max(int(q.Attr.MaxDestRdAtomic), 1), "saved requests fit max_dest_rd_atomic")
	if q.State == ib.StateReset || q.State == ib.StateInit {
		invariants.Check(q.resp.n == 0, "a QP that receives nothing answers nothing")
	}
	if q.State == ib.StateErr {
		invariants.Check(q.STimerAt == vtime.Never && q.SRNRTimerAt == vtime.Never, "no timer runs in ERR")
		invariants.Check(q.RFlags&(RWRIDValid|RRewindSGE) == 0, "no receive is held in ERR")
	}
}
