package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

// addObjectMethods adds the methods that make, query and destroy objects.
func addObjectMethods(t map[uint32]*ioctlMethod) {
	t[methodKey(objCQ, methodCreate)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrCQHandle, kind: newHandle}, {id: attrCQCQE, kind: inData, min: 4}, {id: attrCQUserHandle, kind: inData, min: 8},
		{id: attrCQChannel, kind: inFD, optional: true}, {id: attrCQVector, kind: inData, min: 4},
		{id: attrCQFlags, kind: inFlags, optional: true}, {id: attrCQRespCQE, kind: outData, min: 4},
		{id: attrCQEventFD, kind: inFD, optional: true},
	}, uhw: true, run: createCQIoctl}
	t[methodKey(objQP, methodCreate)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrQPHandle, kind: newHandle}, {id: attrQPXRCD, kind: inHandle, optional: true}, {id: attrQPPD, kind: inHandle, optional: true},
		{id: attrQPSRQ, kind: inHandle, optional: true}, {id: attrQPSendCQ, kind: inHandle, optional: true},
		{id: attrQPRecvCQ, kind: inHandle, optional: true}, {id: attrQPIndTable, kind: inHandle, optional: true},
		{id: attrQPUserHandle, kind: inData, min: 8}, {id: attrQPCap, kind: inData, min: 20}, {id: attrQPType, kind: inConst},
		{id: attrQPFlags, kind: inFlags, optional: true}, {id: attrQPSourceQPN, kind: inData, min: 4, optional: true},
		{id: attrQPEventFD, kind: inFD, optional: true}, {id: attrQPRespCap, kind: outData, min: 20}, {id: attrQPRespNum, kind: outData, min: 4},
	}, uhw: true, run: createQPIoctl}
	t[methodKey(objSRQ, methodCreate)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrSRQHandle, kind: newHandle}, {id: attrSRQPD, kind: inHandle}, {id: attrSRQXRCD, kind: inHandle, optional: true},
		{id: attrSRQCQ, kind: inHandle, optional: true}, {id: attrSRQUserHandle, kind: inData, min: 8}, {id: attrSRQMaxWR, kind: inData, min: 4},
		{id: attrSRQMaxSGE, kind: inData, min: 4}, {id: attrSRQLimit, kind: inData, min: 4}, {id: attrSRQMaxTags, kind: inData, min: 4, optional: true},
		{id: attrSRQType, kind: inConst}, {id: attrSRQEventFD, kind: inFD, optional: true}, {id: attrSRQRespMaxWR, kind: outData, min: 4},
		{id: attrSRQRespMaxSGE, kind: outData, min: 4}, {id: attrSRQRespNum, kind: outData, min: 4, optional: true},
	}, uhw: true, run: createSRQIoctl}
	t[methodKey(objDM, methodCreate)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrDMHandle, kind: newHandle}, {id: attrDMLength, kind: inData, min: 8}, {id: attrDMAlignment, kind: inData, min: 4},
	}, uhw: true, run: allocDM}
	t[methodKey(objMR, methodDMMRReg)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrDMMRHandle, kind: newHandle}, {id: attrDMMROffset, kind: inData, min: 8}, {id: attrDMMRLength, kind: inData, min: 8},
		{id: attrDMMRPD, kind: inHandle}, {id: attrDMMRAccess, kind: inFlags}, {id: attrDMMRDM, kind: inHandle},
		{id: attrDMMRRespLKey, kind: outData, min: 4}, {id: attrDMMRRespRKey, kind: outData, min: 4},
	}, run: regDMMR}
	t[methodKey(objMR, methodQueryMR)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrMRHandle, kind: inHandle}, {id: attrMRRespLKey, kind: outData, min: 4}, {id: attrMRRespRKey, kind: outData, min: 4},
		{id: attrMRRespLength, kind: outData, min: 8}, {id: attrMRRespIOVA, kind: outData, min: 8, optional: true},
	}, run: queryMR}
	t[methodKey(objMR, methodAdviseMR)] = &ioctlMethod{attrs: []attrSpec{
		{id: attrAdvisePD, kind: inHandle}, {id: attrAdviseAdvice, kind: inConst}, {id: attrAdviseFlags, kind: inFlags},
		{id: attrAdviseSGEs, kind: inData, min: sgeBytes, max: anyLen},
	}, run: adviseMR}
	// There are no buffers of other devices to register. As in a kernel whose driver
	// lacks it, the method exists and fails.
	t[methodKey(objMR, methodRegDmabufMR)] = &ioctlMethod{attrs: []attrSpec{
		{id: 0, kind: newHandle}, {id: 1, kind: inHandle}, {id: 2, kind: inData, min: 8}, {id: 3, kind: inData, min: 8}, {id: 4, kind: inData, min: 8},
		{id: 5, kind: inFD}, {id: 6, kind: inFlags}, {id: 7, kind: outData, min: 4}, {id: 8, kind: outData, min: 4},
	}}
	addDestroy(t)
}

// addDestroy adds the methods that destroy objects.
func addDestroy(t map[uint32]*ioctlMethod) {
	handle := attrSpec{id: attrDestroyHandle, kind: inHandle}
	plain := func(object, method uint16, f func(k *ioctlCall, h uint32) error) {
		t[methodKey(object, method)] = &ioctlMethod{attrs: []attrSpec{handle}, run: func(k *ioctlCall) error {
			h, err := k.handleOf(attrDestroyHandle)
			if err != nil {
				return err
			}
			return f(k, h)
		}}
	}
	plain(objPD, methodSoleDestroy, func(k *ioctlCall, h uint32) error { return k.removePD(h) })
	plain(objAH, methodSoleDestroy, func(k *ioctlCall, h uint32) error { return k.removeAH(h) })
	plain(objMW, methodSoleDestroy, func(k *ioctlCall, h uint32) error { return k.removeMW(h) })
	plain(objMR, methodDestroy, func(k *ioctlCall, h uint32) error { return k.removeMR(h) })
	plain(objDM, methodDestroy, func(k *ioctlCall, h uint32) error { return k.removeDM(h) })

	counting := func(object uint16, size int, f func(k *ioctlCall, h uint32) (any, error)) {
		resp := attrSpec{id: attrDestroyResp, kind: outData, min: size}
		t[methodKey(object, methodDestroy)] = &ioctlMethod{attrs: []attrSpec{handle, resp}, run: func(k *ioctlCall) error {
			h, err := k.handleOf(attrDestroyHandle)
			if err != nil {
				return err
			}
			r, err := f(k, h)
			if err == nil {
				k.out(attrDestroyResp, r)
			}
			return err
		}}
	}
	counting(objCQ, 8, func(k *ioctlCall, h uint32) (any, error) { return k.removeCQ(h) })
	counting(objQP, 4, func(k *ioctlCall, h uint32) (any, error) { return k.removeQP(h) })
	counting(objSRQ, 4, func(k *ioctlCall, h uint32) (any, error) { return k.removeSRQ(h) })
}

// createCQIoctl (CQ_CREATE).
func createCQIoctl(k *ioctlCall) error {
	flags, err := k.flags(attrCQFlags, cqfKnown)
	if err != nil {
		return err
	}
	if err := k.needContext(); err != nil {
		return err
	}
	fd, err := k.fdOf(attrCQChannel)
	if err != nil {
		return err
	}
	if err := k.events(attrCQEventFD); err != nil {
		return err
	}
	if flags != 0 {
		return ib.NewVerbError(ib.EOPNOTSUPP, "create_cq", "", "the device has no time stamps and does not ignore overruns")
	}
	k.driver()
	r, drv, err := k.createCQ(&exCreateCQ{UserHandle: k.u64(attrCQUserHandle), CQE: k.u32(attrCQCQE), CompVector: k.u32(attrCQVector), CompChannel: fd})
	if err != nil {
		return err
	}
	k.out(attrCQRespCQE, r.CQE)
	k.outDriver(drv)
	k.created(attrCQHandle, r.CQHandle)
	return nil
}

// createQPIoctl (QP_CREATE). The handles are looked up again where the QP is created,
// where they are a write() command's; what that calls EINVAL is told apart here.
func createQPIoctl(k *ioctlCall) error {
	const verb = "create_qp"
	b := qpBody{UserHandle: k.u64(attrQPUserHandle)}
	typ, err := k.constant(attrQPType, 0xff)
	if err != nil {
		return err
	}
	b.QPType = uint8(typ)
	if _, err := qpType(b.QPType); err != nil {
		return err
	}
	flags, err := k.flags(attrQPFlags, qpfKnown)
	if err != nil {
		return err
	}
	if err := k.qpParts(&b); err != nil {
		return err
	}
	switch {
	case k.val(attrQPXRCD) != nil || k.val(attrQPPD) == nil || k.val(attrQPSendCQ) == nil || k.val(attrQPRecvCQ) == nil:
		return ib.NewVerbError(ib.EINVAL, verb, "", "the handles are not those that qp_type needs")
	case flags&^qpfSQSigAll != 0 || k.val(attrQPIndTable) != nil || k.val(attrQPSourceQPN) != nil:
		return ib.NewVerbError(ib.EOPNOTSUPP, verb, "", "the device has no indirection tables and no create_flags")
	}
	b.SQSigAll = flag(flags&qpfSQSigAll != 0)
	c := k.val(attrQPCap).in
	b.Cap = qpCaps{native.Uint32(c), native.Uint32(c[4:]), native.Uint32(c[8:]), native.Uint32(c[12:]), native.Uint32(c[16:])}
	if err := k.events(attrQPEventFD); err != nil {
		return err
	}
	k.driver()
	o, err := k.createQP(&b)
	if err != nil {
		return err
	}
	k.out(attrQPRespCap, o.created().Cap)
	k.out(attrQPRespNum, uint32(o.q.QPN))
	k.outDriver(o.mapInfo())
	k.created(attrQPHandle, o.handle)
	return nil
}

// qpParts looks up the handles of a new QP.
func (k *ioctlCall) qpParts(b *qpBody) (err error) {
	look := func(id uint16, h *uint32, find func() error) {
		if err == nil {
			if *h, err = k.handleOf(id); err == nil {
				err = find()
			}
		}
	}
	look(attrQPPD, &b.PDHandle, func() error { _, err := objectOf[pdObj](k, attrQPPD); return err })
	look(attrQPSRQ, &b.SRQHandle, func() error { _, err := objectOf[srqObj](k, attrQPSRQ); return err })
	look(attrQPSendCQ, &b.SendCQHandle, func() error { _, err := objectOf[cqObj](k, attrQPSendCQ); return err })
	look(attrQPRecvCQ, &b.RecvCQHandle, func() error { _, err := objectOf[cqObj](k, attrQPRecvCQ); return err })
	b.IsSRQ = flag(k.val(attrQPSRQ) != nil)
	return err
}

// createSRQIoctl (SRQ_CREATE).
func createSRQIoctl(k *ioctlCall) error {
	typ, err := k.constant(attrSRQType, 2)
	if err != nil {
		return err
	}
	if typ != srqtBasic || k.val(attrSRQXRCD) != nil || k.val(attrSRQCQ) != nil || k.val(attrSRQMaxTags) != nil {
		return ib.NewVerbError(ib.EOPNOTSUPP, "create_srq", "", "the device has basic shared receive queues only")
	}
	pd, err := k.handleOf(attrSRQPD)
	if err == nil {
		_, err = objectOf[pdObj](k, attrSRQPD)
	}
	if err == nil {
		err = k.events(attrSRQEventFD)
	}
	if err != nil {
		return err
	}
	k.driver()
	r, drv, err := k.createSRQ(&createSRQ{UserHandle: k.u64(attrSRQUserHandle), PDHandle: pd, MaxWR: k.u32(attrSRQMaxWR), MaxSGE: k.u32(attrSRQMaxSGE), SRQLimit: k.u32(attrSRQLimit)})
	if err != nil {
		return err
	}
	k.out(attrSRQRespMaxWR, r.MaxWR)
	k.out(attrSRQRespMaxSGE, r.MaxSGE)
	k.out(attrSRQRespNum, r.SRQN)
	k.outDriver(drv)
	k.created(attrSRQHandle, r.SRQHandle)
	return nil
}

// queryMR (QUERY_MR) is for a program that imports a region (ibv_import_mr).
func queryMR(k *ioctlCall) error {
	o, err := objectOf[mrObj](k, attrMRHandle)
	if err != nil {
		return err
	}
	k.out(attrMRRespLKey, uint32(o.mr.LKey))
	k.out(attrMRRespRKey, uint32(o.mr.RKey))
	k.out(attrMRRespLength, o.mr.Length)
	k.out(attrMRRespIOVA, o.mr.IOVA)
	return nil
}

// adviseMR (ADVISE_MR, ibv_advise_mr). Pages are fetched when they are needed, so
// there is nothing to do but to check.
func adviseMR(k *ioctlCall) error {
	const verb = "advise_mr"
	pd, err := objectOf[pdObj](k, attrAdvisePD)
	if err != nil {
		return err
	}
	if _, err := k.flags(attrAdviseFlags, adviseFlush); err != nil {
		return err
	}
	advice := k.u64(attrAdviseAdvice)
	if advice > adviceNoFault {
		return ib.NewVerbError(ib.EOPNOTSUPP, verb, "", "the device knows prefetching only")
	}
	acc := ib.AccessLocalRead
	if advice == adviceWrite {
		acc = ib.AccessLocalWrite
	}
	b := k.val(attrAdviseSGEs).in
	if len(b)%sgeBytes != 0 {
		return ib.NewVerbError(ib.EINVAL, verb, "", "sg_list is not a number of entries")
	}
	for ; len(b) > 0; b = b[sgeBytes:] {
		e := mr.SGE{Addr: native.Uint64(b), Length: native.Uint32(b[8:]), LKey: ib.LKey(native.Uint32(b[12:]))}
		switch _, cause := k.d.Keys().CheckLKey(pd.pd.ID, e, acc); cause {
		case ib.CauseNone:
		case ib.CauseLKeyAccess:
			return ib.NewVerbError(eperm, verb, "", "the region lacks LOCAL_WRITE")
		case ib.CauseLKeyUnknown:
			return ib.NewVerbError(ib.ENOENT, verb, "", "no region has this lkey")
		default:
			return ib.NewVerbError(ib.EINVAL, verb, "", cause.String())
		}
	}
	return nil
}

// eperm is EPERM.
const eperm ib.Errno = 1
