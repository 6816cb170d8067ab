package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// locQPOpErr: LOCAL_INV of the key of an ordinary region. Only memory windows of type 2
// can be invalidated, so the work request fails before anything is sent. B notices
// nothing.
func locQPOpErr() {
	a, b := two.Pair()
	a.Send(
		verbs.SendWR{WRID: 1, Opcode: ib.WRLocalInv, InvRKey: a.MR.RKey()},
		verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	a.Completions(2)
	a.State()
	b.State()
}
