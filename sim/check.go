package sim

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// checkQueues tests the indices and sequence numbers of every watched QP of a node.
func checkQueues(n *Node) error {
	for _, q := range n.watched {
		if q.Destroy {
			continue
		}
		if broken := checkQueue(n, q); broken != "" {
			return fmt.Errorf("sim: node %q: %s: %s", n.Name, broken, Describe(q))
		}
	}
	return nil
}

// checkQueue returns the rule that a QP breaks, empty if none.
func checkQueue(n *Node, q *qp.QP) string {
	size := q.RingSize()
	dist := func(i int) int { return (i - q.SLast + size) % size }
	acked, cur, tail, head := dist(q.SAcked), dist(q.SCur), dist(q.STail), dist(q.SHead)
	switch {
	case acked > cur, cur > tail, tail > head:
		return "the send queue's indices are not in order last, acked, cur, tail, head"
	case q.SAvail > size-1-head:
		return "more slots of the send queue count as free than are"
	case q.State == ib.StateErr && q.SLast != q.SHead:
		return "the QP is in ERR and its send queue is not flushed"
	}
	if q.Type != ib.QPTypeRC || q.State != ib.StateRTS {
		return ""
	}
	next := q.SNextPSN
	for i, left := q.SHead, head; left > 0; left-- {
		if i--; i < 0 {
			i = size - 1
		}
		w := q.SWQE(i)
		if w.LPSN.Add(1) != next {
			return "the PSNs of the send queue have a gap"
		}
		next = w.PSN
	}
	switch open := q.SSendingHPSN.Sub(q.SLastPSN); {
	case q.SPSN.Sub(q.SLastPSN) < 1:
		return "the next PSN to send is acknowledged already"
	case q.SPSN.Sub(q.SNextPSN) > 0:
		return "the next PSN to send was never posted"
	case q.SNumRdAtomic > int(q.Attr.MaxRdAtomic) || q.SNumRdAtomic < 0:
		return "more READs and atomics are open than max_rd_atomic"
	case open > 0 && q.SAcked != q.STail && q.Deadline() == vtime.Never && q.Attr.Timeout != 0:
		return "packets are unacknowledged and no timer runs"
	case q.Deadline() < n.Dev.Deadline():
		return "the device's deadline is later than that of one of its QPs"
	}
	return ""
}

// Describe prints the state of a QP in one line, for reports of what is stuck.
func Describe(q *qp.QP) string {
	s := fmt.Sprintf("qp %v %v %v: last %d acked %d cur %d tail %d head %d of %d", q.QPN, q.Type, q.State, q.SLast, q.SAcked, q.SCur, q.STail, q.SHead, q.RingSize())
	s += fmt.Sprintf(", next psn %d, last response %d, highest sent %d, next post %d", q.SPSN, q.SLastPSN, q.SSendingHPSN, q.SNextPSN)
	s += fmt.Sprintf(", flags %#x, retry %d, rnr retry %d, rd_atomic %d, timer %v, rnr timer %v", uint16(q.SFlags), q.SRetry, q.SRNRRetry, q.SNumRdAtomic, q.STimerAt, q.SRNRTimerAt)
	s += fmt.Sprintf(", expects psn %d, msn %d, nak state %v", q.RPSN, q.RMSN, q.RNAKState)
	if q.SLast != q.SHead {
		w := q.SWQE(q.SLast)
		s += fmt.Sprintf("; oldest wr %#x %v psn %d..%d of %d bytes, sent %d packets, %d retries, %d RNR NAKs", w.WR.WRID, w.WR.Opcode, w.PSN, w.LPSN, w.Length, w.Sent, w.Retries, w.RNRNAKs)
	}
	return s
}

// CheckConservation tests that no packet vanished without being counted: in the
// network, and between the network and the devices.
func (w *World) CheckConservation() error {
	t := w.net.Totals()
	if in, out := t.Sent+t.Duplicated, t.Delivered+t.DroppedTotal()+uint64(w.net.InFlight()); in != out {
		return fmt.Errorf("sim: the network took %d packets and made %d copies, but delivered %d, lost %d and holds %d", t.Sent, t.Duplicated, t.Delivered, t.DroppedTotal(), w.net.InFlight())
	}
	for _, n := range w.nodes {
		c, d := w.net.Counters(n.Index), n.Counters()
		if d.RcvdPackets+n.badICRC+n.lost != c.Delivered {
			return fmt.Errorf("sim: node %q: the network delivered %d packets, the device took %d, refused %d for their ICRC and lost %d", n.Name, c.Delivered, d.RcvdPackets, n.badICRC, n.lost)
		}
	}
	return nil
}
