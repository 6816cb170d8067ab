package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
)

type srqObj struct {
	ctx        *Context
	handle     uint32
	userHandle uint64
	srq        *swqe.SRQ
	rq         recvRing // nil if receives come inside the write()
	ring       ring
	maxSGE     int
	events     asyncEvents
}

// createSRQCmd (ibv_create_srq). srq_limit is ignored, as the manual says.
func createSRQCmd(k *call) error {
	var cmd createSRQ
	if err := k.decode(&cmd); err != nil {
		return err
	}
	r, drv, err := k.createSRQ(&cmd)
	if err != nil {
		return err
	}
	k.respond(r)
	k.respondDriver(drv)
	return nil
}

// createSRQ returns the answer and the provider's part of it.
func (k *call) createSRQ(cmd *createSRQ) (r createSRQResp, drv []byte, err error) {
	const verb = "create_srq"
	pd := get[pdObj](k.c, cmd.PDHandle)
	if pd == nil {
		return r, nil, noHandle(verb, "protection domain")
	}
	mapped, err := k.checkMap(verb, 1)
	if err != nil {
		return r, nil, err
	}
	if err := k.checkSRQSize(verb, cmd.MaxWR, cmd.MaxSGE); err != nil {
		return r, nil, err
	}
	a := k.c.dev.abi
	attr := rvt.SRQAttr{MaxWR: a.grantWR(int(cmd.MaxWR)), MaxSGE: int(cmd.MaxSGE)}
	o := &srqObj{ctx: k.c, userHandle: cmd.UserHandle, maxSGE: attr.MaxSGE, events: k.c.eventsTo(k.eventsTo)}
	var rq swqe.RecvQueue
	if mapped {
		if o.ring, o.rq, err = k.newSRQRing(verb, attr.MaxWR, attr.MaxSGE); err != nil {
			return r, nil, err
		}
		rq = o.rq
	}
	if o.srq, err = k.d.CreateSRQ(pd.pd, attr, rq); err != nil {
		k.c.free(o.ring)
		return r, nil, err
	}
	o.srq.Context = o
	o.handle = k.c.add(o)
	if mapped {
		drv = o.mapInfo()
	}
	return createSRQResp{SRQHandle: o.handle, MaxWR: uint32(attr.MaxWR), MaxSGE: uint32(attr.MaxSGE), SRQN: o.srq.Handle}, drv, nil
}

// mapInfo is the provider's part of the answer. rxe adds its number.
func (o *srqObj) mapInfo() []byte {
	b := o.ctx.dev.abi.mapInfo(nil, o.ring)
	if o.ctx.dev.abi.hasSQ() {
		b = append(b, encode([2]uint32{o.srq.Handle, 0})...)
	}
	return b
}

func (k *call) checkSRQSize(verb string, maxWR, maxSGE uint32) error {
	l := &k.d.Config().Limits
	n := most(k.c.dev.abi.grantWR, l.MaxSRQWR)
	switch {
	case maxWR < 1 || int64(maxWR) > int64(n):
		return ib.NewVerbError(ib.EINVAL, verb, "", outside("max_wr", maxWR, 1, "max_srq_wr", n))
	case int64(maxSGE) > int64(l.MaxSGE):
		return ib.NewVerbError(ib.EINVAL, verb, "", outside("max_sge", maxSGE, 0, "max_srq_sge", l.MaxSGE))
	}
	return nil
}

func (k *call) newSRQRing(verb string, maxWR, maxSGE int) (ring, recvRing, error) {
	a := k.c.dev.abi
	r, b, err := k.c.alloc(verb, a.rqBytes(maxWR, maxSGE))
	if err != nil {
		return ring{}, nil, err
	}
	return r, a.newRQ(b, maxWR, maxSGE), nil
}

// Bits of modifySRQ.AttrMask (enum ibv_srq_attr_mask).
const (
	srqMaxWR = 1
	srqLimit = 2
)

// modifySRQCmd (ibv_modify_srq). The provider learns of a new ring by an address in
// its part of the command, where the answer goes.
func modifySRQCmd(k *call) error {
	const verb = "modify_srq"
	var cmd modifySRQ
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[srqObj](k.c, cmd.SRQHandle)
	switch {
	case o == nil:
		return noHandle(verb, "shared receive queue")
	case cmd.AttrMask&^(srqMaxWR|srqLimit) != 0:
		return ib.NewVerbError(ib.EINVAL, verb, o.srq.String(), "attr_mask has unknown bits")
	}
	var maxWR, limit *int
	if cmd.AttrMask&srqLimit != 0 {
		v := int(min(cmd.SRQLimit, 1<<31-1))
		limit = &v
	}
	if cmd.AttrMask&srqMaxWR != 0 {
		if err := k.checkSRQSize(verb, cmd.MaxWR, 0); err != nil {
			return err
		}
		v := k.c.dev.abi.grantWR(int(cmd.MaxWR))
		maxWR = &v
	}
	if maxWR == nil || o.rq == nil {
		return k.d.ModifySRQ(o.srq, maxWR, limit)
	}
	return k.resizeSRQ(o, *maxWR, limit)
}

// resizeSRQ moves the receives that wait to a new ring.
func (k *call) resizeSRQ(o *srqObj, maxWR int, limit *int) error {
	const verb = "modify_srq"
	if len(k.drvIn) < 8 {
		return ib.NewVerbError(ib.EINVAL, verb, o.srq.String(), "the provider did not say where the new ring's offset goes")
	}
	newLimit := o.srq.Limit
	if limit != nil {
		newLimit = *limit
	}
	switch {
	case newLimit > maxWR:
		return ib.NewVerbError(ib.EINVAL, verb, o.srq.String(), "srq_limit is larger than the queue")
	case o.rq.Len() > maxWR:
		return ib.NewVerbError(ib.EINVAL, verb, o.srq.String(), "more receives are posted than the new size")
	}
	r, rq, err := k.newSRQRing(verb, maxWR, o.maxSGE)
	if err != nil {
		return err
	}
	o.rq.moveTo(rq)
	k.c.free(o.ring)
	o.ring, o.rq = r, rq
	o.srq.Limit = newLimit
	k.d.SetSRQRing(o.srq, rq)
	k.rep.Writes = append(k.rep.Writes, Write{Addr: native.Uint64(k.drvIn), Data: k.c.dev.abi.mapInfo(nil, r)})
	return nil
}

// querySRQ (ibv_query_srq).
func querySRQ(k *call) error {
	var cmd destroyObject
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[srqObj](k.c, cmd.Handle)
	if o == nil {
		return noHandle("query_srq", "shared receive queue")
	}
	a := k.d.QuerySRQ(o.srq)
	k.respond(querySRQResp{MaxWR: uint32(a.MaxWR), MaxSGE: uint32(o.maxSGE), SRQLimit: uint32(a.Limit)})
	return nil
}

// destroySRQ (ibv_destroy_srq).
func destroySRQ(k *call) error {
	var cmd destroyObject
	if err := k.decode(&cmd); err != nil {
		return err
	}
	r, err := k.removeSRQ(cmd.Handle)
	if err == nil {
		k.respond(r)
	}
	return err
}

func (k *call) removeSRQ(h uint32) (r eventsResp, err error) {
	o, err := take[srqObj](k.c, "destroy_srq", h)
	if err == nil {
		err = o.destroy(k.d)
	}
	if err != nil {
		return r, err
	}
	return eventsResp{o.events.forget(o.userHandle)}, nil
}

func (o *srqObj) destroy(d *rvt.Device) error {
	if err := d.DestroySRQ(o.srq); err != nil {
		return err
	}
	o.srq.Context = nil
	o.ctx.free(o.ring)
	delete(o.ctx.objects, o.handle)
	return nil
}
