package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// wrFlushErr: modify_qp to ERR gives everything that is posted back, oldest first, and
// what is posted afterwards too. Nothing is lost, nothing comes twice.
func wrFlushErr() {
	a, _ := two.Pair()
	a.Recv(11, 8)
	a.Recv(12, 8)
	two.Check(a.QP.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.AttrState))
	a.Completions(2)
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	a.Completions(1)
	a.Recv(13, 8)
	a.Completions(1)
	a.State()
}
