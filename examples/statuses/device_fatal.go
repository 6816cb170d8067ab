package main

import (
	"errors"
	"sync/atomic"

	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// breakable is a port that can be broken.
type breakable struct {
	*udp.Port
	broken atomic.Bool
}

func (p *breakable) ReadBatch(dst []fabric.Datagram) (int, error) {
	if p.broken.Load() {
		return 0, errors.New("the network interface was removed")
	}
	return p.Port.ReadBatch(dst)
}

// deviceFatal: the port fails for good. The event is the last thing that the device
// says; calls fail with ENODEV, and what was posted does not complete any more.
func deviceFatal() {
	gid, port, err := udp.ParseAddr(two.Addresses[0])
	two.Check(err)
	cfg := udp.DefaultConfig(gid)
	cfg.Port = port
	p := &breakable{Port: two.Must(udp.Open(cfg))}
	a := two.OpenSide(0, two.Options{Config: verbs.Config{Port: p}})
	a.NewQP(nil)
	p.broken.Store(true)
	p.Wake()
	a.Event()
	_, err = a.PD.RegMR(make([]byte, 64), ib.AccessLocalWrite)
	two.Say("A: %v", err)
	_, err = a.CQ.Poll(make([]verbs.WC, 1))
	two.Say("A: %v", err)
}
