package cm

import "github.com/rvtsim/rvtsim/ib"

// QPAttr (struct ib_uverbs_qp_attr) is what a program has to give its QP. Only what the
// mask names is set.
type QPAttr struct {
	State           ib.QPState
	AccessFlags     ib.Access
	PKeyIndex       uint16
	PortNum         uint8
	QKey            ib.QKey
	AV              ib.AV
	PathMTU         ib.MTU
	DestQPN         ib.QPN
	RQPSN, SQPSN    ib.PSN
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	MaxRdAtomic     uint8
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
}

// InitQPAttr (kernel: rdma_init_qp_attr, ib_cm_init_qp_attr) returns the attributes for
// a QP's step to INIT, RTR or RTS. Without an exchange, and for UD always, it returns
// those of INIT whatever is asked for, as the kernel does.
func (id *ID) InitQPAttr(to ib.QPState) (QPAttr, ib.AttrMask, error) {
	const verb = "init_qp_attr"
	a := QPAttr{State: to}
	if err := id.usable(verb); err != nil {
		return a, 0, err
	}
	const base = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort
	switch {
	case to > ib.StateErr:
		return a, 0, id.err(ib.EINVAL, verb, "no such state")
	case id.port == nil:
		return a, 0, id.err(ib.EINVAL, verb, "it has no device yet")
	case id.qpType == ib.QPTypeUD:
		id.setQKey(0)
		a.PortNum, a.QKey = id.port.Num, id.qkey
		return a, base | ib.AttrQKey, nil
	case id.conn == nil:
		a.PortNum = id.port.Num
		if to == ib.StateRTR {
			a.RQPSN = id.psn
		}
		return a, base | ib.AttrAccessFlags, nil
	}
	mask, ok := id.conn.attr(&a, id, to)
	if !ok {
		return a, 0, id.err(ib.EINVAL, verb, "no attributes for "+to.String()+": "+id.conn.String())
	}
	return a, mask, nil
}

// attr fills in the attributes of an exchange; ok is false if it has none for that step.
func (c *conn) attr(a *QPAttr, id *ID, to ib.QPState) (mask ib.AttrMask, ok bool) {
	up := false // the peer's half is known
	switch c.state {
	case stREQSent, stMRAREQRcvd:
	case stREQRcvd, stREPSent, stMRAREPRcvd, stREPRcvd, stEstablished:
		up = true
	default:
		return 0, false
	}
	switch {
	case to == ib.StateInit:
		a.PortNum = c.port.Num
		a.AccessFlags = ib.AccessRemoteWrite
		if c.responderResources > 0 {
			a.AccessFlags |= ib.AccessRemoteRead | ib.AccessRemoteAtomic
		}
		if c.m.cfg.FlushAccess {
			a.AccessFlags |= ib.AccessFlushGlobal | ib.AccessFlushPersistent
		}
		return ib.AttrState | ib.AttrAccessFlags | ib.AttrPKeyIndex | ib.AttrPort, true
	case to == ib.StateRTR && up:
		a.AV, a.PathMTU, a.DestQPN, a.RQPSN = c.pathAV, c.pathMTU, c.remoteQPN, id.psn
		mask = ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
		if c.qpType == ib.QPTypeRC {
			a.MaxDestRdAtomic = c.responderResources
			mask |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		}
		return mask, true
	case to == ib.StateRTS && up:
		a.SQPSN = c.sqPSN
		mask = ib.AttrState | ib.AttrSQPSN
		if c.qpType == ib.QPTypeRC {
			a.Timeout, a.RetryCnt, a.RNRRetry, a.MaxRdAtomic = c.avTimeout, c.retryCount, c.rnrRetryCount, c.initiatorDepth
			if id.ackTimeoutSet {
				a.Timeout = id.ackTimeout
			}
			mask |= ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
		}
		return mask, true
	}
	return 0, false
}
