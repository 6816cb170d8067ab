package qp

import (
	"math"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// unacked returns how many PSNs after the last response processed come before next.
// It is unsigned: a READ of 2^31 bytes at MTU 256 spans 2^23 PSNs, which the signed
// distance cannot express.
func (q *QP) unacked(next ib.PSN) int { return int(next-1-q.SLastPSN) & ib.PSNMask }

// armRetry starts the retransmission timer if work is unacknowledged and it does not
// run yet.
func (q *QP) armRetry(now vtime.Time) {
	if q.STimerAt == vtime.Never && q.unacked(q.SPSN) > 0 {
		q.restartTimer(now)
	}
}

// restartTimer starts the retransmission timer anew, or stops it if nothing is
// unacknowledged or an RNR wait replaces it.
func (q *QP) restartTimer(now vtime.Time) {
	q.STimerAt, q.sWaited = vtime.Never, 0
	if q.SFlags&SWaitRNR != 0 || q.SSendingHPSN == q.SLastPSN || q.SAcked == q.STail {
		return
	}
	if d, ok := q.Env.Prof.ackTimeout(q.Attr.Timeout); ok {
		q.STimerAt = now.Add(d)
	}
}

// Expire runs the timers that are due. It is harmless when none is.
func (q *QP) Expire(now vtime.Time) {
	q.expire(now)
	q.check()
}

func (q *QP) expire(now vtime.Time) {
	if q.cc != nil && q.cc.wakeAt <= now {
		q.cc.wakeAt = vtime.Never // the owner calls Emit next
	}
	if q.SRNRTimerAt <= now {
		q.SRNRTimerAt = vtime.Never
		q.SFlags &^= SWaitRNR
	}
	if q.STimerAt <= now {
		late := now.Sub(q.STimerAt)
		q.STimerAt = vtime.Never
		if !q.can(ProcessSendOK) || q.SAcked == q.STail || q.judged(now, late) {
			return
		}
		q.NTimeouts++
		q.Env.Ctr.RetryTimeout++
		if d, ok := q.Env.Prof.ackTimeout(q.Attr.Timeout); ok {
			q.Env.Ctr.TimeoutNanos += uint64(d)
		}
		q.restartRC(now, q.SLastPSN.Add(1), ib.CauseRetryTimeout)
	}
}

// restartRC (kernel: hfi1_restart_rc) goes back to psn, which uses up one retry. With
// none left the oldest WQE fails with RETRY_EXC_ERR. cause tells timeouts from losses
// that the peer or a gap revealed.
func (q *QP) restartRC(now vtime.Time, psn ib.PSN, cause ib.Cause) {
	if q.exhausted() {
		q.Env.Ctr.RetryExceeded++
		q.failSend(ib.WCRetryExcErr, cause)
		return
	}
	if !q.retriesForever() {
		q.SRetry--
	}
	q.goBack(now, psn, cause)
}

func (q *QP) retriesForever() bool { return q.Env.Prof.RetrySeven && q.Attr.RetryCnt == 7 }

// exhausted reports whether no retry is left.
func (q *QP) exhausted() bool { return q.SRetry == 0 && !q.retriesForever() }

// judged asks the host what becomes of a QP whose retransmission timer has run out. It reports
// whether the host has decided something other than that a retry is used up, or that the QP
// fails if there is none. [RC-RETRY-07] [RC-RETRY-08]
func (q *QP) judged(now vtime.Time, late time.Duration) bool {
	if q.Env.Judge == nil {
		return false
	}
	last := q.exhausted()
	v := q.Env.Judge(now, Plea{Peer: q.Attr.AV.DGID, QPN: q.Attr.DestQPN, Late: late, Last: last, Waited: q.sWaited, Spared: q.sSpared})
	switch {
	case v.Wait > 0:
		q.STimerAt = now.Add(v.Wait)
		q.sWaited += v.Wait
	case v.Again && last:
		q.Env.Ctr.RetrySpared++
		q.SRetry = q.Attr.RetryCnt
		q.sSpared = min(q.sSpared, math.MaxUint8-1) + 1
		q.goBack(now, q.SLastPSN.Add(1), ib.CauseRetryTimeout)
	default:
		return false
	}
	return true
}

// goBack sends psn and what follows it again.
func (q *QP) goBack(now vtime.Time, psn ib.PSN, cause ib.Cause) {
	q.SFlags &^= SWaitAck
	q.shrinkWindow()
	if cause == ib.CauseRetryTimeout && q.Env.Prof.SendOneProbe {
		q.SFlags |= SSendOne
	}
	q.resetPSN(psn)
	q.restartTimer(now)
}

// resetPSN (kernel: reset_psn) makes psn the next PSN to send: SCur goes back to the
// WQE that contains it, and the count of open READs and atomics is rebuilt from those
// that stay issued.
func (q *QP) resetPSN(psn ib.PSN) {
	i, open := q.SAcked, 0
	for i != q.STail {
		w := q.ring.At(i)
		if n := psn.Sub(w.PSN); n < int(w.Packets) {
			if n > 0 && isRdAtomic(w) {
				open++ // part of it is answered, so it is not issued anew
			}
			w.Retries++
			break
		}
		if isRdAtomic(w) {
			open++
		}
		i = q.ring.Next(i)
	}
	q.SCur = i
	q.SNumRdAtomic = open
	q.SPSN = psn
	q.sNoAck = 0
}

func isRdAtomic(w *swqe.SWQE) bool {
	op := w.Op()
	return op != nil && op.Has(swqe.OpRdAtomic)
}

// minWindow is the least that a window shrinks to: enough for a gap to show in a
// sequence NAK instead of a timeout.
const minWindow = 4

// initialWindow is where a QP begins: many that start at once would else fill every
// buffer before the first of them hears of it.
const initialWindow = 32

// window is how many PSNs may be unacknowledged on the wire.
func (q *QP) window() int {
	if q.Env.Prof.AdaptiveWindow {
		return q.sWindow
	}
	return q.Env.Limits.WindowPackets
}

// windowLeast reports whether losses have shrunk the window all the way. Each packet then
// asks for an ACK: one that gets through is progress, which fills retry_cnt up again.
func (q *QP) windowLeast() bool {
	return q.Env.Prof.AdaptiveWindow && q.sWindow <= minWindow && q.sWindow < q.Env.Limits.WindowPackets
}

// shrinkWindow halves the window after a loss. Going back means that everything after
// the lost packet is sent again: on a network that loses one packet in ten, a window
// of 256 would send each packet 25 times.
func (q *QP) shrinkWindow() {
	q.sWindow = max(q.sWindow/2, min(minWindow, q.Env.Limits.WindowPackets))
}

// growWindow opens the window by what was acknowledged since it grew last, so that it
// doubles with each round trip without loss.
func (q *QP) growWindow() {
	if n := q.SLastPSN.Sub(q.sGrownPSN); n > 0 {
		q.sWindow = min(q.sWindow+n, q.Env.Limits.WindowPackets)
	}
	q.sGrownPSN = q.SLastPSN
}
