package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/wire"
)

// fatalErr: soft-RoCE takes the response of a READ that nobody asked for as a failure of
// the adapter. In the other profiles this is BAD_RESP_ERR, or nothing.
func fatalErr() {
	a := two.OpenSide(0, two.Options{Config: verbs.Config{Profile: qp.ProfileRXE}})
	a.NewQP(nil)
	peer := two.OpenForger(a)
	defer peer.Close()
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 8)})
	request := peer.Next()
	two.Say("forger: %v arrived", wire.Info(request.Opcode).Name)
	peer.Send(wire.Packet{Opcode: ib.OpReadRespOnly, PSN: request.PSN, AETH: wire.AETH{MSN: 1}, Payload: make([]byte, 8)})
	a.Completions(1)
	a.State()
}
