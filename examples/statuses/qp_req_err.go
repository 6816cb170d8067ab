package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// qpReqErr: A READs from B, whose max_dest_rd_atomic is 0. The refusal is an event at B
// and a completion at A.
func qpReqErr() {
	a, b := two.Open()
	two.Connect(a, b, func(s *two.Side, p *verbs.ConnParams) {
		if s == b {
			p.MaxDestRdAtomic = 0
		}
	})
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey()})
	b.Event()
	a.Completions(1)
	b.State()
}
