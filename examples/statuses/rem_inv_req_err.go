package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// remInvReqErr: the key is right, but B's queue pair was not given REMOTE_READ. B has no
// completion to put this into; an event tells it.
func remInvReqErr() {
	a, b := two.Open()
	two.Connect(a, b, func(s *two.Side, p *verbs.ConnParams) {
		if s == b {
			p.Access = ib.AccessLocalWrite | ib.AccessRemoteWrite
		}
	})
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey()})
	a.Completions(1)
	b.Event()
	a.State()
	b.State()
}
