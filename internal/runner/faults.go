package runner

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// atEndpoint carries out a fault that happens at one end of a flow, with the device in
// hand. It reports false for actions that are of another kind.
func atEndpoint(d *rvt.Device, now vtime.Time, e *workload.Endpoint, f *topology.Fault) bool {
	covers := func(k int, q *qp.QP) bool { return (f.QP < 0 || f.QP == k) && (f.QPN == 0 || f.QPN == q.QPN) }
	each := func(do func(q *qp.QP)) {
		for k, q := range e.QPs() {
			if covers(k, q) {
				do(q)
			}
		}
	}
	switch f.Action {
	case topology.ModifyQPError:
		each(func(q *qp.QP) {
			if q.State != ib.StateReset { // every other state may go to ERR
				_ = d.ModifyQP(now, q, &qp.Attr{State: ib.StateErr}, ib.AttrState)
			}
		})
	case topology.PauseReceiver:
		e.Pause()
	case topology.ResumeReceiver:
		e.Resume()
	case topology.RevokeKey:
		_ = e.RevokeKey(now) // EBUSY: a window is bound, so the key stays, as the verb has it
	case topology.CQOverflow:
		e.SendCQ().LoseNext()
	case topology.FailPost:
		for k, q := range e.QPs() {
			if covers(k, q) {
				e.FailPosts(k, f.Count)
			}
		}
	case topology.CompleteWith:
		each(func(q *qp.QP) { d.InjectStatus(now, q, f.Status) })
	case topology.DelayCompletions:
		d.HoldCompletions(e.SendCQ(), true)
		d.HoldCompletions(e.RecvCQ(), true)
	case topology.SpuriousEvent:
		if f.Notify {
			d.InjectEvent(rvt.Event{Comp: true, CQ: e.SendCQ()})
			break
		}
		each(func(q *qp.QP) { d.InjectEvent(rvt.Event{Type: f.Event, QP: q}) })
	default:
		return false
	}
	return true
}

// release ends what DelayCompletions began.
func release(d *rvt.Device, e *workload.Endpoint) {
	d.HoldCompletions(e.SendCQ(), false)
	d.HoldCompletions(e.RecvCQ(), false)
}

// gate makes client wait for what server, at the same node, receives: each message that
// arrives lets one more go out, after the first, which nothing holds back. wake has the client
// stepped.
func gate(client, server *workload.Endpoint, wake func()) {
	n := uint64(1)
	prev := server.Hooks.Received
	server.Hooks.Received = func(now vtime.Time) {
		if prev != nil {
			prev(now)
		}
		n++
		client.Allow(n)
		wake()
	}
}
