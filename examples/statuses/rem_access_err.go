package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// remAccessErr: a WRITE that runs one byte over the end of B's region. Nothing is
// written, not even the bytes inside. B's receive is flushed.
func remAccessErr() {
	a, b := two.Pair()
	b.Recv(11, 8)
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(8185), RKey: b.MR.RKey()})
	a.Completions(1)
	b.Event()
	b.Completions(1)
	a.State()
	b.State()
}
