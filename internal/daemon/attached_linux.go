package daemon

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// attached is one open device file: a context, the memory it shares with its program,
// and the connections of the processes that use it.
type attached struct {
	h      *hosted
	token  uint64
	ctx    *uverbs.Context
	rings  *rings
	efd    int
	bellID int32
	open   bool // owned by the owner of the device

	conns map[*conn]struct{} // guarded by Daemon.mu
}

func newAttached(h *hosted, token uint64) (*attached, error) {
	a := &attached{h: h, token: token, open: true, conns: map[*conn]struct{}{}}
	var err error
	if a.rings, err = newRings(); err != nil {
		return nil, err
	}
	if a.efd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		a.rings.close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	if a.ctx, err = h.uv.Open(a.rings); err == nil {
		err = h.bells.add(a)
	}
	if err != nil {
		a.rings.close()
		_ = unix.Close(a.efd)
		return nil, err
	}
	return a, nil
}

// close ends the context: everything that was made through it is destroyed.
func (a *attached) close() {
	a.h.bells.remove(a)
	a.ctx.Close()
	done := false
	a.h.Do(func(*rvt.Device, vtime.Time) {
		a.open, done = false, true
		a.rings.close()
	})
	if !done {
		// The node does not work any more: nobody owns the device, and nobody will.
		a.open = false
		a.rings.close()
	}
	_ = unix.Close(a.efd)
}

// report describes the context. The owner of the device calls it.
func (a *attached) report(d *rvt.Device) ContextReport {
	r := ContextReport{Objects: a.ctx.Objects(), QPs: []QPReport{}}
	for _, n := range a.ctx.QPs() {
		if q := d.QP(n); q != nil {
			at := d.QueryQP(q)
			r.QPs = append(r.QPs, QPReport{QPN: uint32(n), Type: q.Type.String(), State: q.State.String(), DestQPN: uint32(at.DestQPN), Remote: at.AV.DGID.String()})
		}
	}
	return r
}
