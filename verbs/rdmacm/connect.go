package rdmacm

import (
	"context"
	"net/netip"
	"slices"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// Connect (rdma_connect) asks the peer for a connection; for UD, for its QP. p may be
// nil: 7 retries of either kind and the device's maxima. An id of space TCP needs a QP
// or p with the QPN of one.
//
// A synchronous id returns when the connection is established, or why it is not: a
// [*RejectedError], or ETIMEDOUT. If the context ends first the attempt goes on;
// destroy the id to end it.
func (id *ID) Connect(ctx context.Context, p *ConnParam) error {
	const verb = "connect"
	qp := id.QP()
	if qp == nil && p == nil && id.core.Space() == TCP {
		return id.err(ib.EINVAL, verb, "there is neither a QP nor parameters")
	}
	resources, depth, err := id.limits()
	if err != nil {
		return err
	}
	c := ConnParam{RetryCount: 7, RNRRetryCount: 7, ResponderResources: MaxResources, InitiatorDepth: MaxResources}
	if p != nil {
		c = *p
	}
	if err := within(verb, &c, resources, depth, resources, depth); err != nil {
		return err
	}
	if qp != nil {
		c.QPN = qp.QPN()
		c.SRQ = id.hasSRQ()
	}
	c.Private = slices.Concat(id.connectData, c.Private)
	err = id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Connect(now, c.core()) })
	if err != nil {
		return err
	}
	return id.complete(ctx)
}

// within replaces wildcards by what they stand for and checks the rest.
func within(verb string, c *ConnParam, resources, depth, wildResources, wildDepth uint8) error {
	if c.ResponderResources == MaxResources {
		c.ResponderResources = wildResources
	}
	if c.InitiatorDepth == MaxResources {
		c.InitiatorDepth = wildDepth
	}
	switch {
	case c.ResponderResources > resources:
		return tooMany(verb, "responder resources", c.ResponderResources, resources)
	case c.InitiatorDepth > depth:
		return tooMany(verb, "initiator depth", c.InitiatorDepth, depth)
	}
	return nil
}

func (c *ConnParam) core() cm.ConnParam {
	return cm.ConnParam{QPN: c.QPN, SRQ: c.SRQ, ResponderResources: c.ResponderResources, InitiatorDepth: c.InitiatorDepth,
		FlowControl: c.FlowControl, RetryCount: c.RetryCount, RNRRetryCount: c.RNRRetryCount, Private: c.Private}
}

// Accept (rdma_accept) takes a request. p may be nil: what the request asks for, as far
// as the device has it. The QP is able to send and receive before the peer hears of it;
// if that fails it goes to ERR and the peer is refused.
//
// A synchronous id for connections returns when the connection is established; one for
// datagrams at once.
func (id *ID) Accept(ctx context.Context, p *ConnParam) error {
	const verb = "accept"
	if id.request == nil {
		return id.err(ib.EINVAL, verb, "the id was not made by a request")
	}
	resources, depth, err := id.limits()
	if err != nil {
		return err
	}
	r := id.request
	c := ConnParam{ResponderResources: MaxResources, InitiatorDepth: MaxResources, FlowControl: r.FlowControl, RNRRetryCount: 7}
	if p != nil {
		c = *p
	}
	if err := within(verb, &c, resources, depth, min(resources, r.ResponderResources), min(depth, r.InitiatorDepth)); err != nil {
		return err
	}
	if qp := id.QP(); qp != nil {
		c.QPN, c.SRQ = qp.QPN(), id.hasSRQ()
		if id.QPType() != ib.QPTypeUD {
			if err := id.bringUp(c.ResponderResources, c.InitiatorDepth); err != nil {
				id.qpToErr()
				_ = id.Reject(nil)
				return err
			}
		}
	}
	err = id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Accept(now, c.core()) })
	if err != nil {
		id.qpToErr()
		return err
	}
	if id.QPType() == ib.QPTypeUD {
		id.keep(nil)
		return nil
	}
	return id.complete(ctx)
}

// Establish (rdma_establish) confirms a CONNECT_RESPONSE, for programs whose QP is not
// the id's: EINVAL if it is. The QP must be able to receive by then.
func (id *ID) Establish() error {
	if id.QP() != nil {
		return id.err(ib.EINVAL, "establish", "the QP is the id's: Get does it")
	}
	return id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Establish(now) })
}

// Reject (rdma_reject) refuses a request, with up to 148 bytes for the peer (136 for
// datagrams).
func (id *ID) Reject(private []byte) error {
	return id.reject(cm.RejConsumerDefined, private)
}

// RejectECE (rdma_reject_ece) refuses because of the request's ECE options.
func (id *ID) RejectECE() error { return id.reject(cm.RejVendorOption, nil) }

func (id *ID) reject(reason Reason, private []byte) error {
	return id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Reject(now, reason, private) })
}

// Disconnect (rdma_disconnect) takes the QP to ERR, which flushes its work, and ends the
// connection, or agrees to the peer's end of it. DISCONNECTED follows.
//
// A synchronous id waits for the next event. If DISCONNECTED was consumed before, that
// is TIMEWAIT_EXIT.
func (id *ID) Disconnect(ctx context.Context) error {
	id.qpToErr()
	err := id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Disconnect(now) })
	if err != nil {
		return err
	}
	return id.complete(ctx)
}

// process does what an event asks for. It reports false if the program is not to see
// the event.
func (e *Event) process() bool {
	id := e.ID
	id.mu.Lock()
	deaf := id.connectError
	id.mu.Unlock()
	switch e.Type {
	case ConnectRequest:
		_ = id.a.do(func(*cm.Manager, nowTime) error { id.core.Fetched(); return nil })
	case ConnectResponse:
		id.respond(e)
	case Rejected:
		id.qpToErr()
		return !deaf
	case Disconnected:
		return !deaf
	case MulticastJoin:
		id.joined(e)
	}
	return true
}

// respond (librdmacm: ucma_process_conn_resp) brings the id's QP up and confirms the
// peer's answer.
func (id *ID) respond(e *Event) {
	if id.QP() == nil {
		return
	}
	err := id.bringUp(MaxResources, MaxResources)
	if err == nil {
		err = id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Establish(now) })
	}
	if err == nil {
		e.Type = Established
		return
	}
	id.qpToErr()
	id.mu.Lock()
	id.connectError = true
	id.mu.Unlock()
	e.Type, e.Status = ConnectError, -int(ib.ErrnoOf(err))
}

// attr returns the attributes for a step of the QP.
func (id *ID) attr(to ib.QPState) (verbs.QPAttr, ib.AttrMask, error) {
	var a cm.QPAttr
	var mask ib.AttrMask
	err := id.a.do(func(*cm.Manager, nowTime) (err error) {
		a, mask, err = id.core.InitQPAttr(to)
		return err
	})
	return verbs.QPAttr{State: a.State, AccessFlags: a.AccessFlags, PKeyIndex: a.PKeyIndex, PortNum: a.PortNum, QKey: a.QKey, AV: a.AV,
		PathMTU: a.PathMTU, DestQPN: a.DestQPN, RQPSN: a.RQPSN, SQPSN: a.SQPSN, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer,
		MaxRdAtomic: a.MaxRdAtomic, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry}, mask, err
}

// InitQPAttr (rdma_init_qp_attr) returns the attributes and mask with which a program
// takes a QP of its own to INIT, RTR or RTS.
func (id *ID) InitQPAttr(to ib.QPState) (verbs.QPAttr, ib.AttrMask, error) { return id.attr(to) }

// bringUp takes the QP from INIT to RTS. The limits replace those of the exchange unless
// they are MaxResources.
func (id *ID) bringUp(resources, depth uint8) error {
	qp := id.QP()
	for _, to := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		a, mask, err := id.attr(to)
		if err != nil {
			return err
		}
		if resources != MaxResources {
			a.MaxDestRdAtomic = resources
		}
		if depth != MaxResources {
			a.MaxRdAtomic = depth
		}
		if err := qp.Modify(&a, mask); err != nil {
			return err
		}
	}
	return nil
}

func (id *ID) qpToErr() {
	if qp := id.QP(); qp != nil {
		_ = qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.AttrState) // allowed in every state but RESET
	}
}

// group is a membership of an id.
type group struct {
	addr     netip.Addr
	m        *cm.Mcast
	attached bool
}

// Join (rdma_join_multicast, rdma_join_multicast_ex) joins a group. MULTICAST_JOIN
// follows, with the address for sends in Event.UD; the id's QP receives from then on,
// unless sendOnly is set. The id is for datagrams and bound to an address.
func (id *ID) Join(ctx context.Context, addr netip.Addr, sendOnly bool) error {
	err := id.a.do(func(*cm.Manager, nowTime) error {
		m, err := id.core.Join(toAddr(netip.AddrPortFrom(addr, 0)), sendOnly, nil)
		if err == nil {
			id.groups = append(id.groups, group{addr: addr, m: m})
		}
		return err
	})
	if err != nil {
		return err
	}
	return id.complete(ctx)
}

// joined attaches the QP to the group.
func (id *ID) joined(e *Event) {
	qp := id.QP()
	if qp == nil || e.mcast.SendOnly {
		return
	}
	if err := qp.AttachMcast(e.mcast.GID); err != nil {
		e.Type, e.Status = MulticastError, -int(ib.ErrnoOf(err))
		return
	}
	id.a.gsi.Lock()
	defer id.a.gsi.Unlock()
	for i := range id.groups {
		if id.groups[i].m == e.mcast {
			id.groups[i].attached = true
		}
	}
}

// Leave (rdma_leave_multicast) leaves a group: EADDRNOTAVAIL if the id is no member.
func (id *ID) Leave(addr netip.Addr) error {
	var g group
	err := id.a.do(func(*cm.Manager, nowTime) error {
		i := slices.IndexFunc(id.groups, func(g group) bool { return g.addr == addr })
		if i < 0 {
			return id.err(ib.EADDRNOTAVAIL, "leave_multicast", "not a member of "+addr.String())
		}
		g = id.groups[i]
		id.groups = slices.Delete(id.groups, i, i+1)
		return g.m.Leave()
	})
	if err != nil || !g.attached {
		return err
	}
	if qp := id.QP(); qp != nil {
		return qp.DetachMcast(g.m.GID)
	}
	return nil
}
