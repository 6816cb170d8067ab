package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// success: both sides complete. The receiver's byte_len is the message's, not the
// buffer's.
func success() {
	a, b := two.Pair()
	b.Recv(11, 100)
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: a.SGL(0, 64)})
	a.Completions(1)
	b.Completions(1)
	a.State()
	b.State()
}
