package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// portErr: B's cable is pulled and plugged in again. A's retries bridge the gap: nothing
// but the events tells that there was one.
func portErr() {
	a, b := two.Pair()
	cable := func(in bool) {
		two.Check(b.Dev.Node().Do(func(dev *rvt.Device, _ vtime.Time) { dev.SetPort(in) }))
	}
	cable(false)
	b.Event()
	two.Say("B: port 1 is %v", two.Must(b.Dev.QueryPort(1)).State)
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey()})
	cable(true)
	b.Event()
	a.Completions(1)
}
