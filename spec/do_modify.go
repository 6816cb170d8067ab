package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

// doModify is one call of modify_qp: the state, if one is named, and exactly the
// attributes that are given. dest= names the peer: its QPN becomes dest_qpn and its
// device the destination of the address vector.
func (in *Interp) doModify(a *args) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	var attr qp.Attr
	mask, err := in.qpAttrs(a, &attr)
	if err != nil {
		return err
	}
	if name := a.optWord(); name != "" {
		s, ok := stateByName(name)
		if !ok {
			return fmt.Errorf("no state %q", name)
		}
		attr.State = s
		mask |= ib.AttrState
	}
	if err := a.done(); err != nil {
		return err
	}
	in.result(q.node.dev.ModifyQP(in.now, q.qp, &attr, mask))
	in.collect(q.node)
	return nil
}

// qpAttrs reads attributes of a QP into attr and returns their mask bits.
func (in *Interp) qpAttrs(a *args, attr *qp.Attr) (mask ib.AttrMask, err error) {
	small := func(key string, bit ib.AttrMask, dst *uint8) {
		if a.has(key) {
			*dst = uint8(a.count(key, 0, 255))
			mask |= bit
		}
	}
	wide := func(key string, bit ib.AttrMask, set func(uint64)) {
		if a.has(key) {
			set(a.num(key, 0, 1<<32-1))
			mask |= bit
		}
	}
	small("timeout", ib.AttrTimeout, &attr.Timeout)
	small("retry_cnt", ib.AttrRetryCnt, &attr.RetryCnt)
	small("rnr_retry", ib.AttrRNRRetry, &attr.RNRRetry)
	small("min_rnr_timer", ib.AttrMinRNRTimer, &attr.MinRNRTimer)
	small("max_rd_atomic", ib.AttrMaxQPRdAtomic, &attr.MaxRdAtomic)
	small("max_dest_rd_atomic", ib.AttrMaxDestRdAtomic, &attr.MaxDestRdAtomic)
	small("port", ib.AttrPort, &attr.PortNum)
	wide("pkey_index", ib.AttrPKeyIndex, func(v uint64) { attr.PKeyIndex = uint16(v) })
	wide("qkey", ib.AttrQKey, func(v uint64) { attr.QKey = ib.QKey(v) })
	wide("sq_psn", ib.AttrSQPSN, func(v uint64) { attr.SQPSN = ib.PSN(v) })
	wide("rq_psn", ib.AttrRQPSN, func(v uint64) { attr.RQPSN = ib.PSN(v) })
	wide("dest_qpn", ib.AttrDestQPN, func(v uint64) { attr.DestQPN = ib.QPN(v) })
	wide("path_mig_state", ib.AttrPathMigState, func(v uint64) { attr.PathMigState = ib.MigState(v) })
	wide("unknown_bit", 1<<21, func(uint64) {})
	wide("cap", ib.AttrCap, func(v uint64) { attr.Cap.MaxSendWR = int(v) })
	if a.has("path_mtu") {
		attr.PathMTU = a.mtu("path_mtu", 0)
		mask |= ib.AttrPathMTU
	}
	if a.has("access") {
		attr.AccessFlags = a.access("access", 0)
		mask |= ib.AttrAccessFlags
	}
	if a.has("en_sqd_async_notify") {
		attr.EnSQDAsyncNotify = a.count("en_sqd_async_notify", 0, 1) == 1
		mask |= ib.AttrEnSQDAsyncNotify
	}
	if s := a.str("cur_state", ""); s != "" {
		cur, ok := stateByName(s)
		if !ok {
			return 0, fmt.Errorf("no state %q", s)
		}
		attr.CurState = cur
		mask |= ib.AttrCurState
	}
	return in.destination(a, attr, mask)
}

// destination reads dest= and the parts of an address vector.
func (in *Interp) destination(a *args, attr *qp.Attr, mask ib.AttrMask) (ib.AttrMask, error) {
	if s := a.str("dest", ""); s != "" {
		peer, err := in.qp(s)
		if err != nil {
			return 0, err
		}
		attr.DestQPN = peer.qp.QPN
		attr.AV = ib.AV{DGID: peer.node.gid, IsGlobal: true, PortNum: 1, HopLimit: 64}
		mask |= ib.AttrDestQPN | ib.AttrAV
	}
	if a.has("to") || a.has("gid") {
		av, err := in.av(a)
		if err != nil {
			return 0, err
		}
		attr.AV = av
		mask |= ib.AttrAV
	}
	return mask, nil
}
