package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// qpAccessErr: A uses a remote key that B never gave out.
func qpAccessErr() {
	a, b := two.Pair()
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey() + 0x100})
	b.Event()
	a.Completions(1)
	b.State()
}
