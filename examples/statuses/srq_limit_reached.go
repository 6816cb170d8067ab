package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// srqLimitReached: the limit is 2. The event comes when a message leaves fewer than that
// many receives, once; then it has to be armed again.
func srqLimitReached() {
	a, b := two.OpenSide(0, two.Options{}), two.OpenSide(1, two.Options{})
	srq := two.Must(b.PD.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}))
	a.NewQP(nil)
	b.NewQP(srq)
	two.Connect(a, b, nil)
	for id := range uint64(3) {
		two.Check(srq.PostRecv(verbs.RecvWR{WRID: 11 + id, SGL: b.SGL(0, 8)}))
	}
	two.Check(srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
	for id := range uint64(3) {
		a.Send(verbs.SendWR{WRID: 1 + id, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	}
	b.Completions(3)
	b.Event()
	two.Say("B: limit %d", two.Must(srq.Query()).Limit)
}
