package qp

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
)

// SendQueue is a program's own send ring, from which the owner takes work requests
// and posts them. The engine tells it when their slots are free again.
type SendQueue interface {
	// Retired reports that the oldest work request is done with (SLast moved by one).
	// It is called in the middle of the engine and must not call back.
	Retired()
}

// noOpcode is an operation that no table knows: its WQE fails with LOC_QP_OP_ERR.
const noOpcode ib.WROpcode = 0xff

// PostRefused puts a work request into the send queue that a post would refuse, so
// that it fails in its turn and takes the QP with it. A program that posts through a
// shared ring cannot be told otherwise. EINVAL or ENOMEM as for any post.
func (q *QP) PostRefused(wrID uint64) error {
	if !q.can(PostSendOK) {
		return q.postErr(ib.EINVAL, "state is "+q.State.String())
	}
	return q.enqueue(&swqe.SendWR{WRID: wrID, Opcode: noOpcode}, 0, 0)
}

// FlushRecv completes with WR_FLUSH_ERR what a program put into its own receive ring
// after the QP went to ERR, if the profile flushes such receives. It returns how many
// there were.
func (q *QP) FlushRecv() int {
	if !q.can(FlushRecv) || q.SRQ != nil || !q.Env.Prof.RecvErrFlushes {
		return 0
	}
	n := 0
	for most := q.RQ.Len(); n < most; n++ {
		ok, _ := q.RQ.Take(&q.rwqe)
		if !ok {
			break
		}
		q.recvComplete(&cq.WC{WRID: q.rwqe.WRID, Status: ib.WCWRFlushErr, VendorErr: ib.CauseFlushPosted}, true)
	}
	return n
}
