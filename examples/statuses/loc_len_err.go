package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// locLenErr: 101 bytes for a receive of 100. The receiver's completion says
// LOC_LEN_ERR, the sender's REM_INV_REQ_ERR, and both queue pairs are in ERR. What was
// posted behind is flushed.
func locLenErr() {
	a, b := two.Pair()
	b.Recv(11, 100)
	b.Recv(12, 100)
	a.Send(
		verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 101)},
		verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.SGL(0, 10)})
	b.Completions(2)
	a.Completions(2)
	a.State()
	b.State()
}
