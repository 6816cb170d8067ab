package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// rnrRetryExcErr: B posts no receive. It answers "receiver not ready, try again in
// 0.64 ms", A does so rnr_retry times. B's queue pair is none the worse for it.
func rnrRetryExcErr() {
	a, b := two.Open()
	two.Connect(a, b, func(_ *two.Side, p *verbs.ConnParams) {
		p.RNRRetry, p.MinRNRTimer = 3, 12 // rnr_retry 7 would be for ever
	})
	a.Send(
		verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)},
		verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	a.Completions(2)
	a.State()
	b.State()
}
