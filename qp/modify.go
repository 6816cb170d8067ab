package qp

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Modify (ibv_modify_qp, kernel: rvt_modify_qp) checks everything first and changes
// nothing if anything is wrong. Only the attributes in mask are read.
func (q *QP) Modify(now vtime.Time, a *Attr, mask ib.AttrMask) error {
	to, err := q.checkModify(a, mask)
	if err != nil {
		return err
	}
	q.store(a, mask)
	q.moveTo(now, to, a, mask)
	if mask&ib.AttrTimeout != 0 {
		q.restartTimer(now)
	}
	q.check()
	return nil
}

func (q *QP) modifyErr(reason string) error {
	return ib.NewVerbError(ib.EINVAL, "modify_qp", q.object(), reason)
}

// checkModify (kernel: ib_modify_qp_is_ok and the driver's checks) returns the state
// that the QP is to have.
func (q *QP) checkModify(a *Attr, mask ib.AttrMask) (to ib.QPState, err error) {
	if mask&^ib.AttrStandardMask != 0 {
		return 0, ib.NewVerbError(ib.EOPNOTSUPP, "modify_qp", q.object(), "attribute mask has unknown bits "+(mask&^ib.AttrStandardMask).String())
	}
	from := q.State
	if mask&ib.AttrCurState != 0 {
		switch a.CurState {
		case ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateSQE:
		default:
			return 0, q.modifyErr("cur_qp_state " + a.CurState.String() + " is not one of RTR, RTS, SQD, SQE")
		}
		if a.CurState != q.State {
			// The kernel believes the caller; a wrong belief is an error to explain.
			return 0, q.modifyErr("cur_qp_state is " + a.CurState.String() + ", but the QP is in " + q.State.String())
		}
	}
	to = from
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	if err := q.checkMask(from, to, mask); err != nil {
		return 0, err
	}
	return to, q.checkValues(a, mask)
}

// checkMask tests the transition and names what is missing or surplus.
func (q *QP) checkMask(from, to ib.QPState, mask ib.AttrMask) error {
	move := from.String() + " to " + to.String()
	required, optional, ok := TransitionMasks(from, to, q.Type)
	if !ok {
		return q.modifyErr("a QP cannot go from " + move)
	}
	if missing := required &^ mask; missing != 0 {
		return q.modifyErr(move + " of " + q.article() + " QP misses " + missing.String())
	}
	if surplus := mask &^ (required | optional | ib.AttrState); surplus != 0 {
		return q.modifyErr(move + " of " + q.article() + " QP may not set " + surplus.String())
	}
	return nil
}

// checkValues tests each attribute in mask.
func (q *QP) checkValues(a *Attr, mask ib.AttrMask) error {
	l, drv := &q.Env.Limits, &q.Env.Drv
	checks := []struct {
		bit    ib.AttrMask
		bad    bool
		reason string
	}{
		{ib.AttrPKeyIndex, a.PKeyIndex != 0 && drv.limits(ib.AttrPKeyIndex), "pkey_index " + strconv.Itoa(int(a.PKeyIndex)) + ": the port has one P_Key, at index 0"},
		{ib.AttrPort, a.PortNum != 1, "port_num " + strconv.Itoa(int(a.PortNum)) + ": the device has port 1 only"},
		{ib.AttrPathMTU, !a.PathMTU.Valid(), "path_mtu " + strconv.Itoa(int(a.PathMTU)) + " is not one of 256, 512, 1024, 2048, 4096"},
		{ib.AttrPathMTU, a.PathMTU > q.Env.MTU && drv.limits(ib.AttrPathMTU), "path_mtu " + a.PathMTU.String() + " is larger than the port's active MTU " + q.Env.MTU.String()},
		{ib.AttrTimeout, a.Timeout > 31, "timeout " + strconv.Itoa(int(a.Timeout)) + " does not fit 5 bits"},
		{ib.AttrRetryCnt, a.RetryCnt > 7, "retry_cnt " + strconv.Itoa(int(a.RetryCnt)) + " does not fit 3 bits"},
		{ib.AttrRNRRetry, a.RNRRetry > 7, "rnr_retry " + strconv.Itoa(int(a.RNRRetry)) + " does not fit 3 bits"},
		{ib.AttrMinRNRTimer, a.MinRNRTimer > 31, "min_rnr_timer " + strconv.Itoa(int(a.MinRNRTimer)) + " does not fit 5 bits"},
		{ib.AttrMaxQPRdAtomic, int(a.MaxRdAtomic) > l.MaxQPInitRdAt && drv.limits(ib.AttrMaxQPRdAtomic), "max_rd_atomic " + strconv.Itoa(int(a.MaxRdAtomic)) + " exceeds max_qp_init_rd_atom " + strconv.Itoa(l.MaxQPInitRdAt)},
		{ib.AttrMaxDestRdAtomic, int(a.MaxDestRdAtomic) > l.MaxQPRdAtom && drv.limits(ib.AttrMaxDestRdAtomic), "max_dest_rd_atomic " + strconv.Itoa(int(a.MaxDestRdAtomic)) + " exceeds max_qp_rd_atom " + strconv.Itoa(l.MaxQPRdAtom)},
		{ib.AttrDestQPN, a.DestQPN > ib.QPNMask, "dest_qp_num " + a.DestQPN.String() + " does not fit 24 bits"},
		{ib.AttrPathMigState, a.PathMigState != ib.MigMigrated, "path_mig_state: the device has no automatic path migration"},
		{ib.AttrAltPath, a.AltPKeyIndex != 0 || a.AltPortNum > 1 || a.AltTimeout > 31, "alternate path: bad pkey index, port or timeout"},
	}
	for _, c := range checks {
		if mask&c.bit != 0 && c.bad {
			return q.modifyErr(c.reason)
		}
	}
	if mask&ib.AttrAV != 0 {
		return q.Env.CheckAV("modify_qp", q.object(), &a.AV)
	}
	return nil
}

// CheckAV (kernel: rvt_check_ah, rxe_av_chk_attr) tests an address vector against the
// port.
func (e *Env) CheckAV(verb, object string, av *ib.AV) error {
	bad := func(errno ib.Errno, reason string) error {
		return ib.NewVerbError(errno, verb, object, "address vector: "+reason)
	}
	switch {
	case av.PortNum != 1:
		return bad(ib.EINVAL, "port_num "+strconv.Itoa(int(av.PortNum))+": the device has port 1 only")
	case !av.IsGlobal:
		return bad(ib.EINVAL, "is_global is 0: an Ethernet port needs a GRH")
	case int(av.SGIDIndex) >= len(e.GIDs) || e.GIDs[av.SGIDIndex].IsZero():
		return bad(ib.ENODATA, "sgid_index "+strconv.Itoa(int(av.SGIDIndex))+" is not in the port's GID table of "+strconv.Itoa(len(e.GIDs)))
	case av.DGID.IsZero():
		return bad(ib.EINVAL, "dgid is zero")
	case av.DGID.IsIPv4() != e.GIDs[av.SGIDIndex].IsIPv4():
		return bad(ib.EINVAL, "dgid "+av.DGID.String()+" and the source GID "+e.GIDs[av.SGIDIndex].String()+" are of different IP versions")
	}
	return nil
}

// store copies the attributes in mask. The state is moved afterwards.
func (q *QP) store(a *Attr, mask ib.AttrMask) {
	d := &q.Attr
	set := func(bit ib.AttrMask) bool { return mask&bit != 0 }
	if set(ib.AttrAccessFlags) {
		d.AccessFlags = a.AccessFlags
	}
	if set(ib.AttrPKeyIndex) {
		d.PKeyIndex = a.PKeyIndex
	}
	if set(ib.AttrPort) {
		d.PortNum = a.PortNum
	}
	if set(ib.AttrQKey) {
		d.QKey = a.QKey
	}
	if set(ib.AttrPathMTU) {
		d.PathMTU = a.PathMTU
		if q.Env.Drv.ClipPathMTU {
			d.PathMTU = min(d.PathMTU, q.Env.MTU)
		}
	}
	if set(ib.AttrTimeout) {
		d.Timeout = a.Timeout
	}
	if set(ib.AttrRetryCnt) {
		d.RetryCnt, q.SRetry = a.RetryCnt, a.RetryCnt
	}
	if set(ib.AttrRNRRetry) {
		d.RNRRetry, q.SRNRRetry = a.RNRRetry, a.RNRRetry
	}
	if set(ib.AttrMinRNRTimer) {
		d.MinRNRTimer = a.MinRNRTimer
	}
	if set(ib.AttrMaxQPRdAtomic) {
		d.MaxRdAtomic = a.MaxRdAtomic
	}
	if set(ib.AttrMaxDestRdAtomic) && d.MaxDestRdAtomic != a.MaxDestRdAtomic {
		d.MaxDestRdAtomic = a.MaxDestRdAtomic
		q.SAckQueue, q.RHeadAck = q.SAckQueue[:0], 0
	}
	if set(ib.AttrDestQPN) {
		d.DestQPN = a.DestQPN
	}
	if set(ib.AttrEnSQDAsyncNotify) {
		d.EnSQDAsyncNotify = a.EnSQDAsyncNotify
	}
	if set(ib.AttrAltPath) {
		d.AltAV, d.AltPKeyIndex, d.AltPortNum, d.AltTimeout = a.AltAV, a.AltPKeyIndex, a.AltPortNum, a.AltTimeout
	}
	if set(ib.AttrRQPSN) {
		d.RQPSN = a.RQPSN & ib.PSNMask
		q.RPSN, q.rSafePSN = d.RQPSN, d.RQPSN
		q.noAckYet = true
	}
	if set(ib.AttrSQPSN) {
		d.SQPSN = a.SQPSN & ib.PSNMask
		q.setSendPSN(d.SQPSN)
	}
	if set(ib.AttrAV) {
		d.AV = a.AV
	}
	if set(ib.AttrAV) || set(ib.AttrDestQPN) {
		q.SPort = wire.SourcePort(d.AV.FlowLabel, q.QPN, d.DestQPN)
	}
}

// moveTo carries out the change of state.
func (q *QP) moveTo(now vtime.Time, to ib.QPState, a *Attr, mask ib.AttrMask) {
	from := q.State
	switch to {
	case ib.StateReset:
		q.Env.Keys.ReleaseQP(q.QPN)
		q.initQP()
		return
	case ib.StateErr:
		q.errorQP(ib.WCWRFlushErr, ib.CauseFlushModify, ib.CauseFlushModify, true)
		return
	case ib.StateRTR:
		q.RFlags &^= RCommEst
		q.RNAKState = 0
	case ib.StateRTS:
		if from == ib.StateSQE {
			q.flushSend() // what was posted before or in SQE is not sent after it
		}
		if from == ib.StateRTR {
			q.SFlags &^= SUnlimitedCredit
			if !q.Env.Prof.CreditFlow {
				q.SFlags |= SUnlimitedCredit
			}
		}
		q.wantDrained = false
	case ib.StateSQD:
		if from == ib.StateRTS {
			p := q.Env.Prof
			q.wantDrained = p.SQDrained && (p.SQDrainedAlone || mask&ib.AttrEnSQDAsyncNotify != 0 && a.EnSQDAsyncNotify)
		}
	}
	q.setState(to)
	q.checkDrained()
}

// Query (ibv_query_qp) returns the attributes as they are now.
func (q *QP) Query() Attr {
	a := q.Attr
	a.State, a.CurState = q.State, q.State
	a.Cap = q.Cap
	a.RQPSN, a.SQPSN = q.RPSN, q.SNextPSN
	a.SQDraining = q.State == ib.StateSQD && q.SLast != q.STail
	return a
}
