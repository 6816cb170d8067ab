package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// sqDrained: SQD stops the send queue after what was started. The event says that all of
// that is done; attributes can be changed now. What was posted in SQD waits for RTS.
func sqDrained() {
	a, b := two.Pair()
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)}) // waits for a receive
	two.Check(a.QP.Modify(&verbs.QPAttr{State: ib.StateSQD, EnSQDAsyncNotify: true}, ib.AttrState|ib.AttrEnSQDAsyncNotify))
	a.Send(verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	b.Recv(11, 8)
	b.Recv(12, 8)
	a.Event()
	a.Completions(1)
	a.State()
	two.Check(a.QP.Modify(&verbs.QPAttr{State: ib.StateRTS}, ib.AttrState))
	a.Completions(1)
	b.Completions(2)
}
