package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// retryExcErr: B's device is gone. A sends, waits for timeout, sends again retry_cnt
// times, and gives up. Only the oldest work request says so, the others are flushed.
func retryExcErr() {
	a, b := two.Open()
	two.Connect(a, b, func(_ *two.Side, p *verbs.ConnParams) {
		p.Timeout, p.RetryCnt = 10, 2 // 4.2 ms, three times
	})
	two.Check(b.Dev.Shutdown())
	for id := range uint64(3) {
		a.Send(verbs.SendWR{WRID: id + 1, Opcode: ib.WRRDMAWrite, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey()})
	}
	a.Completions(3)
	a.State()
}
