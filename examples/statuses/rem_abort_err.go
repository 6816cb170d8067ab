package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// remAbortErr: UC sends nothing again. The network loses the second of three packets, so the
// message will never be complete. Its receive came from a shared queue: it cannot wait for the
// next message of this queue pair, since another one may need it, and comes back. The queue
// pair is none the worse for it.
func remAbortErr() {
	a, b := two.OpenLossy(0, ib.TransportUC|ib.OpSendMiddle), two.OpenSide(1, two.Options{})
	srq := two.Must(b.PD.CreateSRQ(verbs.SRQAttr{MaxWR: 8, MaxSGE: 1}))
	a.NewQPOf(ib.QPTypeUC, nil)
	b.NewQPOf(ib.QPTypeUC, srq)
	two.Connect(a, b, func(_ *two.Side, p *verbs.ConnParams) { p.PathMTU = ib.MTU1024 })
	for id := range uint64(2) {
		two.Check(srq.PostRecv(verbs.RecvWR{WRID: 11 + id, SGL: b.SGL(0, 4096)}))
	}
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 2500)}) // three packets
	a.Send(verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	a.Completions(2)
	b.Completions(2)
	b.State()
}
