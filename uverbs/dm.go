package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

// Device memory is memory of the rings' kind: the program can map it, and the device
// reads and writes it without the program. Neither of the two provider libraries has
// functions for it, so QUERY_DEVICE_EX says that there is none: a program that is told
// otherwise expects ibv_alloc_dm to work. It is for programs that speak the ioctl
// interface themselves, and for a provider that learns it.
const (
	pageShift  = 12
	maxDMBytes = 1 << 20 // of one allocation
	maxDMs     = 64      // of one program
	dmBase     = 1 << 20 // address of the first byte, as the device's memory table knows it
)

type dmObj struct {
	ctx    *Context
	handle uint32
	ring   ring
	mem    *mr.Slice
	length uint64
	users  int // regions in it
}

// allocDM (DM_ALLOC, ibv_alloc_dm). The driver's part of the answer is where to map it,
// as for a ring.
func allocDM(k *ioctlCall) error {
	const verb = "alloc_dm"
	if err := k.needContext(); err != nil {
		return err
	}
	n, align := k.u64(attrDMLength), k.u32(attrDMAlignment)
	have := 0
	each(k.c, func(*dmObj) { have++ })
	switch {
	case n == 0 || n > maxDMBytes:
		return ib.NewVerbError(ib.EINVAL, verb, "", "length is 0 or exceeds the device memory")
	case align > pageShift:
		return ib.NewVerbError(ib.EINVAL, verb, "", "log_align_req exceeds a page")
	case have >= maxDMs:
		return ib.NewVerbError(ib.ENOMEM, verb, "", "the device memory of this program is used up")
	}
	r, b, err := k.c.alloc(verb, pageAlign(int(n)))
	if err != nil {
		return err
	}
	o := &dmObj{ctx: k.c, ring: r, mem: mr.NewSlice(dmBase, b[:n]), length: n}
	o.handle = k.c.add(o)
	k.outDriver(k.c.dev.abi.mapInfo(nil, r))
	k.created(attrDMHandle, o.handle)
	return nil
}

// regDMMR (DM_MR_REG, ibv_reg_dm_mr) registers a part of device memory. Addresses
// within it count from 0.
func regDMMR(k *ioctlCall) error {
	const verb = "reg_dm_mr"
	pd, err := objectOf[pdObj](k, attrDMMRPD)
	if err != nil {
		return err
	}
	dm, err := objectOf[dmObj](k, attrDMMRDM)
	if err != nil {
		return err
	}
	acc := ib.Access(k.u32(attrDMMRAccess))
	off, n := k.u64(attrDMMROffset), k.u64(attrDMMRLength)
	switch {
	case k.u64(attrDMMRAccess)>>32 != 0 || acc&ib.AccessZeroBased == 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "access lacks ZERO_BASED")
	case off > dm.length || n > dm.length-off:
		return ib.NewVerbError(ib.EINVAL, verb, "", "the range is not in the device memory")
	}
	m, err := k.d.RegMR(pd.pd, dm.mem, dmBase+off, n, 0, acc)
	if err != nil {
		return err
	}
	dm.users++
	k.out(attrDMMRRespLKey, uint32(m.LKey))
	k.out(attrDMMRRespRKey, uint32(m.RKey))
	k.created(attrDMMRHandle, k.c.add(&mrObj{mr: m, dm: dm}))
	return nil
}

// removeDM (DM_FREE, ibv_free_dm).
func (k *call) removeDM(h uint32) error {
	o, err := take[dmObj](k.c, "free_dm", h)
	if err != nil {
		return err
	}
	return o.free()
}

func (o *dmObj) free() error {
	if o.users > 0 {
		return ib.NewVerbError(ib.EBUSY, "free_dm", "", "a memory region is in it")
	}
	o.ctx.free(o.ring)
	delete(o.ctx.objects, o.handle)
	return nil
}
