package uverbs

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"strconv"
)

type cqObj struct {
	ctx        *Context
	handle     uint32
	userHandle uint64
	cq         *cq.CQ
	ring       ring // no memory if the queue is not mapped
	ch         *channel
	compEvents uint32 // events written to ch, under its lock
	events     asyncEvents
	acks       acks
}

// notify sends a completion event.
func (o *cqObj) notify() {
	if o.ch != nil {
		o.ch.send(encode(compEventDesc{o.userHandle}), &o.compEvents)
	}
}

// createCQCmd (ibv_create_cq).
func createCQCmd(k *call) error {
	var cmd createCQ
	if err := k.decode(&cmd); err != nil {
		return err
	}
	r, drv, err := k.createCQ(&exCreateCQ{UserHandle: cmd.UserHandle, CQE: cmd.CQE, CompVector: cmd.CompVector, CompChannel: cmd.CompChannel})
	if err != nil {
		return err
	}
	k.respond(r)
	k.respondDriver(drv)
	return nil
}

// createCQEx (ibv_create_cq_ex).
func createCQEx(k *call) error {
	const verb = "create_cq_ex"
	var cmd exCreateCQ
	if err := k.decode(&cmd); err != nil {
		return err
	}
	switch {
	case cmd.CompMask != 0 || cmd.Reserved != 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "comp_mask is not 0")
	case cmd.Flags != 0:
		return ib.NewVerbError(ib.EOPNOTSUPP, verb, "", "the device has no time stamps and does not ignore overruns")
	}
	base, drv, err := k.createCQ(&cmd)
	if err != nil {
		return err
	}
	r := exCreateCQResp{Base: base}
	r.ResponseLength = k.responseLength(r)
	k.respond(r)
	k.respondDriver(drv)
	return nil
}

func (k *call) createCQ(cmd *exCreateCQ) (r createCQResp, drv []byte, err error) {
	const verb = "create_cq"
	if int64(cmd.CompVector) >= int64(k.c.dev.cfg.compVectors()) {
		return r, nil, ib.NewVerbError(ib.EINVAL, verb, "", "comp_vector "+strconv.FormatUint(uint64(cmd.CompVector), 10)+" is not below num_comp_vectors, "+strconv.Itoa(k.c.dev.cfg.compVectors()))
	}
	ch, err := k.c.channelOf(verb, cmd.CompChannel, k.passed)
	if err != nil {
		return r, nil, err
	}
	o := &cqObj{ctx: k.c, userHandle: cmd.UserHandle, ch: ch, events: k.c.eventsTo(k.eventsTo)}
	o.ring, err = k.newCQRing(verb, cmd.CQE, func(cqe int, ring cq.Ring) error {
		o.cq, err = k.d.CreateCQ(cqe, ring)
		return err
	})
	if err != nil {
		return r, nil, err
	}
	o.cq.Context = o
	o.handle = k.c.add(o)
	if ch != nil {
		ch.users++
	}
	if o.ring.size > 0 {
		drv = k.c.dev.abi.mapInfo(nil, o.ring)
	}
	o.bequeath()
	return createCQResp{CQHandle: o.handle, CQE: uint32(o.cq.CQE())}, drv, nil
}

// newCQRing sizes and allocates a ring for asked completions and gives it to use.
// The memory is freed again if use fails.
func (k *call) newCQRing(verb string, asked uint32, use func(cqe int, ring cq.Ring) error) (ring, error) {
	a := k.c.dev.abi
	mapped, err := k.checkMap(verb, 1)
	if err != nil {
		return ring{}, err
	}
	if n := most(a.grantCQE, k.d.Config().Limits.MaxCQE); asked < 1 || int64(asked) > int64(n) {
		return ring{}, ib.NewVerbError(ib.EINVAL, verb, "", outside("cqe", asked, 1, "max_cqe", n))
	}
	cqe := a.grantCQE(int(asked))
	if !mapped {
		return ring{}, use(cqe, nil)
	}
	r, b, err := k.c.alloc(verb, a.cqBytes(cqe))
	if err != nil {
		return ring{}, err
	}
	if err := use(cqe, a.newCQ(b, cqe)); err != nil {
		k.c.free(r)
		return ring{}, err
	}
	return r, nil
}

// resizeCQCmd (ibv_resize_cq) moves the completions that wait to a new ring.
func resizeCQCmd(k *call) error {
	const verb = "resize_cq"
	var cmd resizeCQ
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[cqObj](k.c, cmd.CQHandle)
	if o == nil {
		return noHandle(verb, "completion queue")
	}
	r, err := k.newCQRing(verb, cmd.CQE, func(cqe int, ring cq.Ring) error { return k.d.ResizeCQ(o.cq, cqe, ring) })
	if err != nil {
		return err
	}
	k.c.free(o.ring)
	o.ring = r
	o.bequeath()
	k.respond(resizeCQResp{CQE: uint32(o.cq.CQE())})
	if r.size > 0 {
		k.respondDriver(k.c.dev.abi.mapInfo(nil, r))
	}
	return nil
}

// reqNotify (ibv_req_notify_cq).
func reqNotify(k *call) error {
	o := get[cqObj](k.c, native.Uint32(k.in))
	if o == nil {
		return noHandle("req_notify_cq", "completion queue")
	}
	k.d.ReqNotify(o.cq, native.Uint32(k.in[4:]) != 0)
	return nil
}

// maxPoll bounds the completions of one POLL_CQ.
const maxPoll = 1024

// pollCQCmd (POLL_CQ) is for queues that are not mapped.
func pollCQCmd(k *call) error {
	const verb = "poll_cq"
	var cmd pollCQ
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[cqObj](k.c, cmd.CQHandle)
	switch {
	case o == nil:
		return noHandle(verb, "completion queue")
	case o.ring.size > 0:
		return ib.NewVerbError(ib.EINVAL, verb, o.cq.String(), "the program polls its own ring")
	}
	room := (k.outCore - 8) / wcBytes
	wcs := make([]cq.WC, min(int(min(cmd.NE, maxPoll)), room))
	n := o.cq.Poll(wcs)
	out := encode(pollCQResp{Count: uint32(n)})
	for i := range n {
		out = append(out, make([]byte, wcBytes)...)
		putWC(out[len(out)-wcBytes:], &wcs[i])
	}
	k.rep.Out = out
	return nil
}

// destroyCQ (ibv_destroy_cq).
func destroyCQ(k *call) error {
	var cmd destroyObject
	if err := k.decode(&cmd); err != nil {
		return err
	}
	r, err := k.removeCQ(cmd.Handle)
	if err == nil {
		k.respond(r)
	}
	return err
}

func (k *call) removeCQ(h uint32) (r destroyCQResp, err error) {
	o, err := take[cqObj](k.c, "destroy_cq", h)
	if err == nil {
		err = o.destroy(k.d)
	}
	if err != nil {
		return r, err
	}
	r.AsyncEventsReported = o.events.forget(o.userHandle)
	if o.ch != nil {
		r.CompEventsReported = o.ch.forget(o.userHandle, &o.compEvents)
	}
	k.c.unacked("destroy_cq", h, o.cq, &o.acks, r.CompEventsReported, r.AsyncEventsReported)
	return r, nil
}

func (o *cqObj) destroy(d *rvt.Device) error {
	if err := d.DestroyCQ(o.cq); err != nil {
		return err
	}
	o.cq.Context = nil
	o.ctx.withdraw(o.handle)
	o.ctx.free(o.ring)
	delete(o.ctx.objects, o.handle)
	if o.ch != nil {
		o.ch.users--
	}
	return nil
}
