package qp

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
)

// Observer is told what becomes of work requests, for checkers of programs. Its methods
// are called by the owner in the middle of an input: they must not call the device, and
// may not keep what they are given.
type Observer interface {
	// SendDone is called for every send WQE that is retired, in the order of the posts.
	// entered says that a completion went into the queue.
	SendDone(q *QP, w *swqe.SWQE, status ib.WCStatus, entered bool)
	// RecvDone is called for every receive that completes. entered is false if its
	// completion was lost because the queue is full.
	RecvDone(q *QP, wrID uint64, status ib.WCStatus, entered bool)
	// NoReceive is called when a message meets an empty receive queue.
	NoReceive(q *QP)
	// Refused is called when a request of the peer fails a check, and when the QP goes to
	// ERR because a completion queue was full, or by modify_qp or dereg_mr: no completion
	// need say so.
	Refused(q *QP, f *Failure)
}

// noReceive counts a message that met an empty receive queue.
func (q *QP) noReceive() {
	q.hist.noRecvs++
	if o := q.Env.Observer; o != nil {
		o.NoReceive(q)
	}
}
