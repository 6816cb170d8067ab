package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"strconv"
)

type pdObj struct{ pd *rvt.PD }

type mrObj struct {
	mr *rvt.MR
	dm *dmObj // nil: memory of the program
}

type mwObj struct {
	ctx    *Context
	handle uint32
	key    uint32 // the part of the rkey that never changes
	mw     *mr.Window
}

type ahObj struct{ ah *swqe.AH }

func noHandle(verb, what string) error {
	return ib.NewVerbError(ib.EINVAL, verb, "", "no "+what+" of this context has this handle")
}

// allocPD (ibv_alloc_pd).
func allocPD(k *call) error {
	p, err := k.d.AllocPD()
	if err != nil {
		return err
	}
	k.respond(handleOnly{k.c.add(&pdObj{p})})
	return nil
}

// deallocPD (ibv_dealloc_pd).
func deallocPD(k *call) error { return k.removePD(native.Uint32(k.in)) }

func (k *call) removePD(h uint32) error {
	o, err := take[pdObj](k.c, "dealloc_pd", h)
	if err != nil {
		return err
	}
	if err := k.d.DeallocPD(o.pd); err != nil {
		return err
	}
	delete(k.c.objects, h)
	return nil
}

// regMRCmd (ibv_reg_mr) registers memory of the caller. As in the kernel, the address
// for peers must have the same offset within its page, and the memory must be there,
// unless it is registered ON_DEMAND. Memory is never pinned, so that costs nothing.
func regMRCmd(k *call) error {
	var cmd regMR
	if err := k.decode(&cmd); err != nil {
		return err
	}
	pd := get[pdObj](k.c, cmd.PDHandle)
	if pd == nil {
		return noHandle("reg_mr", "protection domain")
	}
	acc := ib.Access(cmd.AccessFlags)
	if err := k.checkRange("reg_mr", cmd.Start, cmd.Length, cmd.HCAVA, acc); err != nil {
		return err
	}
	m, err := k.d.RegMR(pd.pd, k.caller.Mem, cmd.Start, cmd.Length, cmd.HCAVA, acc&^ib.AccessOnDemand)
	if err != nil {
		return err
	}
	k.respond(regMRResp{MRHandle: k.c.add(&mrObj{mr: m}), LKey: uint32(m.LKey), RKey: uint32(m.RKey)})
	return nil
}

// checkRange refuses a range that the caller does not have. The kernel pins every
// page, for writing if the device may write; here the first and the last byte stand for
// them. With ON_DEMAND there may be
// anything or nothing: an access that finds nothing fails when it comes.
func (k *call) checkRange(verb string, start, length, iova uint64, acc ib.Access) error {
	switch {
	case k.caller.Mem == nil:
		return ib.NewVerbError(ib.EINVAL, verb, "", "the caller has no memory")
	case start&(pageBytes-1) != iova&(pageBytes-1):
		return ib.NewVerbError(ib.EINVAL, verb, "", "hca_va and start differ in their offset within a page")
	case length == 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "length is 0")
	case start+length < start:
		return ib.NewVerbError(ib.EINVAL, verb, "", "address plus length wraps")
	}
	if acc&ib.AccessOnDemand != 0 {
		return nil
	}
	var probe [2]byte
	ops := []mr.Op{{Addr: start, Buf: probe[:1]}, {Addr: start + length - 1, Buf: probe[1:]}}
	if n, err := k.caller.Mem.ReadV(ops); err != nil || n < len(ops) {
		return ib.NewVerbError(ib.EFAULT, verb, "", "the memory cannot be read: "+rangeText(start, length))
	}
	// [ib_access_writable] The device would write with any of these.
	const writes = ib.AccessLocalWrite | ib.AccessRemoteWrite | ib.AccessRemoteAtomic | ib.AccessMWBind
	if p, ok := k.caller.Mem.(mr.Prober); ok && acc&writes != 0 {
		if p.Writable(start, start+length-1) != nil {
			return ib.NewVerbError(ib.EFAULT, verb, "", "the memory is read-only and the access flags would let the device write to it: "+rangeText(start, length))
		}
	}
	return nil
}

func rangeText(start, length uint64) string {
	return strconv.FormatUint(length, 10) + " bytes at 0x" + strconv.FormatUint(start, 16)
}

// Bits of reregMR.Flags (enum ibv_rereg_mr_flags).
const (
	reregTranslation = 1
	reregPD          = 2
	reregAccess      = 4
)

// reregMRCmd (ibv_rereg_mr).
func reregMRCmd(k *call) error {
	const verb = "rereg_mr"
	var cmd reregMR
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[mrObj](k.c, cmd.MRHandle)
	switch {
	case cmd.Flags == 0 || cmd.Flags&^(reregTranslation|reregPD|reregAccess) != 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "flags ask for nothing, or for something unknown")
	case o == nil:
		return noHandle(verb, "memory region")
	}
	var c rvt.Rereg
	if cmd.Flags&reregTranslation != 0 {
		if err := k.checkRange(verb, cmd.Start, cmd.Length, cmd.HCAVA, ib.Access(cmd.AccessFlags)); err != nil {
			return err
		}
		c.Mem, c.Base, c.Length, c.IOVA = k.caller.Mem, cmd.Start, cmd.Length, cmd.HCAVA
	}
	if cmd.Flags&reregAccess != 0 {
		acc := ib.Access(cmd.AccessFlags) &^ ib.AccessOnDemand
		c.Access = &acc
	}
	if cmd.Flags&reregPD != 0 {
		pd := get[pdObj](k.c, cmd.PDHandle)
		if pd == nil {
			return noHandle(verb, "protection domain")
		}
		c.PD = pd.pd
	}
	k.c.Scan(k.d)
	if err := k.d.ReregMR(k.now, o.mr, c); err != nil {
		return err
	}
	k.respond(reregMRResp{LKey: uint32(o.mr.LKey), RKey: uint32(o.mr.RKey)})
	return nil
}

// deregMR (ibv_dereg_mr). Sends that were posted before are taken first: they name
// the region.
func deregMR(k *call) error { return k.removeMR(native.Uint32(k.in)) }

func (k *call) removeMR(h uint32) error {
	o, err := take[mrObj](k.c, "dereg_mr", h)
	if err != nil {
		return err
	}
	k.c.Scan(k.d)
	if err := o.dereg(k.d, k.now); err != nil {
		return err
	}
	delete(k.c.objects, h)
	return nil
}

func (o *mrObj) dereg(d *rvt.Device, now vtime.Time) error {
	if err := d.DeregMR(now, o.mr); err != nil {
		return err
	}
	if o.dm != nil {
		o.dm.users--
	}
	return nil
}

// allocMWCmd (ibv_alloc_mw). The rvt personality has no windows.
func allocMWCmd(k *call) error {
	const verb = "alloc_mw"
	if !k.c.dev.abi.hasSQ() {
		return ib.NewVerbError(ib.EOPNOTSUPP, verb, "", "this driver has no memory windows")
	}
	var cmd allocMW
	if err := k.decode(&cmd); err != nil {
		return err
	}
	pd := get[pdObj](k.c, cmd.PDHandle)
	if pd == nil {
		return noHandle(verb, "protection domain")
	}
	w, err := k.d.AllocMW(pd.pd, ib.MWType(cmd.MWType))
	if err != nil {
		return err
	}
	o := &mwObj{ctx: k.c, key: uint32(w.RKey) >> 8, mw: w}
	o.handle = k.c.add(o)
	k.c.windows[o.key] = o
	k.respond(allocMWResp{MWHandle: o.handle, RKey: uint32(w.RKey)})
	return nil
}

// deallocMW (ibv_dealloc_mw).
func deallocMW(k *call) error { return k.removeMW(native.Uint32(k.in)) }

func (k *call) removeMW(h uint32) error {
	o, err := take[mwObj](k.c, "dealloc_mw", h)
	if err != nil {
		return err
	}
	k.c.Scan(k.d)
	return o.destroy(k.d)
}

func (o *mwObj) destroy(d *rvt.Device) error {
	if err := d.DeallocMW(o.mw); err != nil {
		return err
	}
	delete(o.ctx.windows, o.key)
	delete(o.ctx.objects, o.handle)
	return nil
}

// createAHCmd (ibv_create_ah). The rxe personality answers with ah_num, which send
// entries name: it is the handle, so that it is never 0.
func createAHCmd(k *call) error {
	const verb = "create_ah"
	var cmd createAH
	if err := k.decode(&cmd); err != nil {
		return err
	}
	pd := get[pdObj](k.c, cmd.PDHandle)
	if pd == nil {
		return noHandle(verb, "protection domain")
	}
	g := &cmd.Attr.GRH
	av := ib.AV{
		DGID: ib.GID(g.DGID), IsGlobal: cmd.Attr.IsGlobal != 0, SGIDIndex: g.SGIDIndex, TrafficClass: g.TrafficClass,
		HopLimit: g.HopLimit, FlowLabel: g.FlowLabel, SL: cmd.Attr.SL, DLID: cmd.Attr.DLID, SrcPathBits: cmd.Attr.SrcPathBits,
		StaticRate: cmd.Attr.StaticRate, PortNum: cmd.Attr.PortNum,
	}
	ah, err := k.d.CreateAH(pd.pd, av)
	if err != nil {
		return err
	}
	h := k.c.add(&ahObj{ah})
	k.respond(handleOnly{h})
	if k.c.dev.abi.hasSQ() {
		k.respondDriver(encode([2]uint32{h, 0}))
	}
	return nil
}

// destroyAH (ibv_destroy_ah). Sends that were posted before name it by its number.
func destroyAH(k *call) error { return k.removeAH(native.Uint32(k.in)) }

func (k *call) removeAH(h uint32) error {
	o, err := take[ahObj](k.c, "destroy_ah", h)
	if err != nil {
		return err
	}
	k.c.Scan(k.d)
	if err := k.d.DestroyAH(o.ah); err != nil {
		return err
	}
	delete(k.c.objects, h)
	return nil
}
