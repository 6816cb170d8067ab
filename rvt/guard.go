package rvt

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// Guard watches what a program does with a device, and may refuse sends: a checker of
// programs, see package strict. The owner of the device calls its methods, before or
// after it has carried out the verb as their names say; they must not call the device,
// and may not keep what they are given but the objects.
type Guard interface {
	qp.Observer
	// Attach is called once, by New.
	Attach(keys *mr.Table)
	// Memory stands between the device and memory that is being registered.
	Memory(m mr.Memory) mr.Memory
	// Room tells whether a send may be posted; why is for the error if not.
	Room(q *qp.QP) (ok bool, why string)
	SendPosted(q *qp.QP, wr *swqe.SendWR)
	// RecvPosting precedes the post of a receive to q or s, of which one is nil; the last
	// n of them that were refused are taken back.
	RecvPosting(q *qp.QP, s *swqe.SRQ, wr *swqe.RecvWR)
	RecvTakenBack(q *qp.QP, s *swqe.SRQ, n int)
	// NewRecvQueue follows the creation of a QP or a shared queue, and the replacement
	// of its ring: the guard may put something in front of that.
	NewRecvQueue(q *qp.QP, s *swqe.SRQ)
	NewCQ(c *cq.CQ)
	CQResized(c *cq.CQ)
	Arming(c *cq.CQ)
	// QPModified follows a modify_qp that succeeded, or failed with err.
	QPModified(q *qp.QP, a *qp.Attr, mask ib.AttrMask, err error)
	MRLeaving(m *mr.Region)
	QPGone(q *qp.QP)
	CQGone(c *cq.CQ)
	SRQGone(s *swqe.SRQ)
}

// guardedPostSend posts one at a time, as far as the guard lets it.
func (d *Device) guardedPostSend(q *qp.QP, wrs []swqe.SendWR) (n int, err error) {
	if len(wrs) == 0 {
		return q.PostSend(nil) // the state is checked all the same
	}
	for i := range wrs {
		if ok, why := d.cfg.Guard.Room(q); !ok && qp.StateOps(q.State)&qp.PostSendOK != 0 {
			return i, ib.NewVerbError(ib.ENOMEM, "post_send", q.String(), why)
		}
		if _, err := q.PostSend(wrs[i : i+1]); err != nil {
			return i, err
		}
		d.cfg.Guard.SendPosted(q, &wrs[i])
	}
	return len(wrs), nil
}

// guardRecvs shows receives to the guard and posts them.
func (d *Device) guardRecvs(q *qp.QP, s *swqe.SRQ, wrs []swqe.RecvWR, post func() (int, error)) (int, error) {
	g := d.cfg.Guard
	if g == nil {
		return post()
	}
	for i := range wrs {
		g.RecvPosting(q, s, &wrs[i])
	}
	n, err := post()
	g.RecvTakenBack(q, s, len(wrs)-n)
	return n, err
}

// SetSRQRing replaces the ring of a shared queue that the program fills itself by one
// with the same receives in it.
func (d *Device) SetSRQRing(s *swqe.SRQ, rq swqe.RecvQueue) {
	s.RQ = rq
	if g := d.cfg.Guard; g != nil {
		g.NewRecvQueue(nil, s)
	}
}
