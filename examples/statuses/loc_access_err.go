package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// locAccessErr: a WRITE with immediate data takes its receive with its last packet. If
// the region is gone by then, the receive fails with LOC_ACCESS_ERR. A forger sends the
// two packets, so that there is time between them.
func locAccessErr() {
	a := two.OpenSide(0, two.Options{})
	a.NewQP(nil)
	region := two.Must(a.PD.RegMR(make([]byte, 2048), ib.AccessLocalWrite|ib.AccessRemoteWrite))
	peer := two.OpenForger(a)
	defer peer.Close()
	a.Recv(11, 8)
	peer.Send(wire.Packet{Opcode: ib.OpWriteFirst, PSN: two.ForgerPSN, AckReq: true, Payload: make([]byte, 1024),
		RETH: wire.RETH{VA: region.Addr(0), RKey: region.RKey(), DMALen: 2048}})
	two.Say("forger: %v", peer.Next().AETH.Syndrome)
	two.Check(region.Dereg())
	peer.Send(wire.Packet{Opcode: ib.OpWriteLastImm, PSN: two.ForgerPSN + 1, AckReq: true, Payload: make([]byte, 1024)})
	two.Say("forger: %v", peer.Next().AETH.Syndrome)
	a.Completions(1)
	a.State()
}
