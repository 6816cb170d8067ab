package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// locProtErr: an lkey that no region has. The post is accepted, the work request fails
// when its turn comes: after the good one before it. vendor_err tells which check failed.
func locProtErr() {
	a, b := two.Pair()
	b.Recv(11, 8)
	bad := a.MR.SGE(0, 8)
	bad.LKey += 0x100
	a.Send(
		verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)},
		verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: []verbs.SGE{bad}},
		verbs.SendWR{WRID: 3, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	a.Completions(3)
	b.Completions(1)
	a.State()
	b.State()
}
