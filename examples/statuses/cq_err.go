package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// cqErr: A's completion queue holds two entries, and A does not poll. The third
// completion is lost, the queue is unusable from then on, and its queue pairs fail.
func cqErr() {
	a, b := two.OpenSide(0, two.Options{CQE: 2}), two.OpenSide(1, two.Options{})
	a.NewQP(nil)
	b.NewQP(nil)
	two.Connect(a, b, nil)
	for id := range uint64(3) {
		a.Send(verbs.SendWR{WRID: id + 1, Opcode: ib.WRRDMAWrite, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey()})
	}
	a.Event()
	a.Completions(2)
	a.State()
	b.State()
}
