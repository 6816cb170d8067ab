package main

import (
	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// gidChange: B's port gets a second address, and loses it again. The host of a device tells
// it of addresses; here that is this program, for a node on a network device it is rvtsim.
// Connections go on with the address that they were made with.
func gidChange() {
	a, b := two.Pair()
	first := b.Dev.GID()
	table := func(gids ...ib.GID) {
		two.Check(b.Dev.Node().Do(func(dev *rvt.Device, _ vtime.Time) { dev.SetGIDs(gids, 1) }))
		b.Event()
		two.Say("B: %d entries in the GID table", two.Must(b.Dev.QueryPort(1)).GIDTableLen)
	}
	table(first, ib.GIDFromIPv4(192, 0, 2, 7))
	two.Say("B: entry 1 is %v", two.Must(b.Dev.QueryGID(1, 1)))
	table(first)
	a.Send(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: a.SGL(0, 8), RemoteAddr: b.MR.Addr(0), RKey: b.MR.RKey()})
	a.Completions(1)
}
