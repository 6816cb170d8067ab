package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// commEst: B is in RTR when A's first message arrives. The event tells B that A is ready,
// even before the connection manager does. B may go to RTS then.
func commEst() {
	a, b := two.Open()
	pa := verbs.DefaultConnParams(b.Dev.GID(), b.QP.QPN())
	pb := verbs.DefaultConnParams(a.Dev.GID(), a.QP.QPN())
	two.Check(b.QP.ToInit(pb))
	two.Check(b.QP.ToRTR(pb))
	two.Check(a.QP.ToInit(pa))
	two.Check(a.QP.ToRTR(pa))
	two.Check(a.QP.ToRTS(pa))
	b.State()
	b.Recv(11, 8)
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	b.Event()
	b.Completions(1)
	two.Check(b.QP.ToRTS(pb))
	b.State()
}
