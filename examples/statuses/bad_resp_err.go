package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/wire"
)

// badRespErr: no adapter answers a READ with the result of an atomic, so a program with
// a bare UDP port plays the peer.
func badRespErr() {
	a := two.OpenSide(0, two.Options{})
	a.NewQP(nil)
	peer := two.OpenForger(a)
	defer peer.Close()
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.SGL(0, 8), RemoteAddr: 0x1000, RKey: 0x1234})
	request := peer.Next()
	two.Say("forger: %v arrived", wire.Info(request.Opcode).Name)
	peer.Send(wire.Packet{Opcode: ib.OpAtomicAck, PSN: request.PSN, AETH: wire.AETH{MSN: 1}})
	a.Completions(1)
	a.State()
}
