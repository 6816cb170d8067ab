package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// lastWQEReached: the receives of a shared queue are not flushed when one of its queue
// pairs fails: others need them. The event says that this one takes no more; it can be
// destroyed once its completions are polled.
func lastWQEReached() {
	b := two.OpenSide(1, two.Options{})
	srq := two.Must(b.PD.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}))
	b.NewQP(srq)
	two.Check(srq.PostRecv(verbs.RecvWR{WRID: 11, SGL: b.SGL(0, 8)}))
	two.Check(b.QP.ToInit(verbs.DefaultConnParams(b.Dev.GID(), 0)))
	two.Check(b.QP.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.AttrState))
	b.Event()
	b.State()
	two.Say("B: %d completions", two.Must(b.CQ.Poll(make([]verbs.WC, 4))))
}
