package rvt

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// The calls of this file are for fault injection: they make the device behave as one
// that is broken or short of something, which no program can bring about by itself.

// InjectStatus completes the oldest send work request of q with an error; see
// [qp.QP.InjectStatus].
func (d *Device) InjectStatus(now vtime.Time, q *qp.QP, status ib.WCStatus) bool {
	d.flush(now)
	if !q.InjectStatus(status) {
		return false
	}
	d.touch(q)
	d.env.Publish()
	return true
}

// InjectEvent raises an event for which there is no reason. With Comp set it is the
// notification of a completion queue that may be empty.
func (d *Device) InjectEvent(ev Event) { d.env.Raise(ev) }

// Revoke makes a region useless to local and remote work requests, as if its keys had been
// invalidated. The program still has to deregister it.
func (d *Device) Revoke(m *MR) { m.Revoke() }

// HoldCompletions keeps completions of c from the program, or shows all that were kept.
func (d *Device) HoldCompletions(c *cq.CQ, on bool) {
	c.HoldBack(on)
	if !on {
		d.env.Publish()
	}
}
