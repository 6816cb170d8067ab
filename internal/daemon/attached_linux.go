package daemon

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/fdspace"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// attached is one open device file: a context and the memory it shares with its program,
// or a channel of the connection manager; and the connections of the processes that use
// it.
type attached struct {
	h      *hosted
	token  uint64
	cm     *cmFile // of an rdma_cm device: then there is nothing of the next five
	ctx    *uverbs.Context
	rings  *legator
	efd    int
	bellID int32
	open   bool // owned by the owner of the device
	pid    int  // of the process that opened it; set before its first command
	comm   string

	conns map[*conn]struct{} // guarded by Daemon.mu
}

func newAttached(h *hosted, token uint64) (*attached, error) {
	a := &attached{h: h, token: token, open: true, conns: map[*conn]struct{}{}}
	r, err := newRings()
	if err != nil {
		return nil, err
	}
	a.rings = &legator{rings: r, heir: h.heir, context: token}
	a.rings.own = &legacy{Estate: uverbs.Estate{ABI: h.abi, Objects: map[uint32]uverbs.Bequest{}}, memory: r.fd}
	h.heir.tell(&heirMessage{Op: heirOpen, Context: token, ABI: h.abi}, r.fd)
	if a.efd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		a.rings.close()
		return nil, os.NewSyscallError("eventfd", err)
	}
	a.efd = fdspace.Keep(a.efd)
	if a.ctx, err = h.uv.Open(a.rings); err == nil {
		a.ctx.Owner = a
		err = h.hear(a)
	}
	if err != nil {
		a.rings.close()
		fdspace.Close(a.efd)
		return nil, err
	}
	return a, nil
}

// newAttachedCM is newAttached for the rdma_cm device.
func newAttachedCM(h *hosted, token uint64) (*attached, error) {
	f, err := newCMFile(h.cm)
	if err != nil {
		return nil, err
	}
	a := &attached{h: h, token: token, cm: f, conns: map[*conn]struct{}{}}
	f.ch.Owner = a
	return a, nil
}

// files are the descriptors that the program gets. A launcher gets the write end of a
// channel's pipe too: it tells when nobody has the read end any more.
func (a *attached) files(launcher bool) []int {
	switch {
	case a.cm != nil && launcher:
		return []int{a.cm.r, a.cm.w}
	case a.cm != nil:
		return []int{a.cm.r}
	}
	return []int{a.rings.fd, a.efd}
}

// passed says that the program has its descriptors.
func (a *attached) passed() {
	if a.cm != nil {
		a.cm.closeRead()
	}
}

// close ends the context: everything that was made through it is destroyed.
func (a *attached) close() {
	if a.cm != nil {
		a.cm.close()
		return
	}
	a.h.unhear(a)
	a.h.desk.settle() // what failed just now is explained while its objects are there
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
	fdspace.Close(a.efd)
}

// report describes the context. The owner of the device calls it.
func (a *attached) report(d *rvt.Device) ContextReport {
	r := ContextReport{Engine: engineDaemon, Objects: a.ctx.Objects(), QPs: []QPReport{}}
	for _, n := range a.ctx.QPs() {
		if q := d.QP(n); q != nil {
			at := d.QueryQP(q)
			r.QPs = append(r.QPs, QPReport{QPN: uint32(n), Type: q.Type.String(), State: q.State.String(), DestQPN: uint32(at.DestQPN), Remote: at.AV.DGID.String()})
		}
	}
	return r
}
