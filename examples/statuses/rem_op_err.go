package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// remOpErr: A did nothing wrong. B's receive names memory that is not registered any
// more, which B learns as LOC_PROT_ERR.
func remOpErr() {
	a, b := two.Pair()
	region := two.Must(b.PD.RegMR(make([]byte, 64), ib.AccessLocalWrite))
	two.Check(b.QP.PostRecv(verbs.RecvWR{WRID: 11, SGL: []verbs.SGE{region.SGE(0, 64)}}))
	two.Check(region.Dereg())
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	a.Completions(1)
	b.Completions(1)
	a.State()
	b.State()
}
