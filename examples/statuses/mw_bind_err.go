package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// mwBindErr: a window gives a right that its region does not have: REMOTE_WRITE over a
// region that may only be read.
func mwBindErr() {
	a, _ := two.Pair()
	region := two.Must(a.PD.RegMR(make([]byte, 64), ib.AccessRemoteRead|ib.AccessMWBind))
	window := two.Must(a.PD.AllocMW(ib.MWType2))
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRBindMW, Bind: &verbs.BindInfo{
		MW: window, RKey: verbs.IncRKey(window.RKey()),
		MR: region, Addr: region.Addr(0), Length: 64, Access: ib.AccessRemoteWrite}})
	a.Completions(1)
	a.State()
}
