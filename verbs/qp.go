package verbs

import (
	"context"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// QPInitAttr (struct ibv_qp_init_attr) describes a QP to create.
type QPInitAttr struct {
	Type           ib.QPType
	SendCQ, RecvCQ *CQ  // may be the same
	SRQ            *SRQ // nil: the QP has a receive queue of its own
	Cap            QPCap
	// SQSigAll (sq_sig_all) makes every send complete with an entry, not only those
	// with SendSignaled.
	SQSigAll bool
}

// QP (struct ibv_qp) is a queue pair.
type QP struct {
	// Context (qp_context) is the program's. Set it before others know the QP.
	Context any

	pd    *PD
	core  *qp.QP
	qpn   ib.QPN
	typ   ib.QPType
	dead  bool // under the node's lock
	async ackCount
}

// CreateQP (ibv_create_qp) creates a QP in RESET.
func (p *PD) CreateQP(a QPInitAttr) (*QP, error) {
	q := &QP{pd: p, typ: a.Type}
	err := p.dev.do("create_qp", func(dev *rvt.Device, _ vtime.Time) error {
		init, err := a.core(p, q)
		if err != nil {
			return err
		}
		if q.core, err = dev.CreateQP(p.core, &init); err == nil {
			q.qpn = q.core.QPN
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return q, nil
}

// core checks what only this package knows and returns what the core takes.
func (a *QPInitAttr) core(p *PD, q *QP) (qp.InitAttr, error) {
	init := qp.InitAttr{Context: q, Cap: a.Cap, Type: a.Type, SQSigAll: a.SQSigAll}
	bad := func(reason string) (qp.InitAttr, error) {
		return init, ib.NewVerbError(ib.EINVAL, "create_qp", "", reason)
	}
	switch {
	case a.SendCQ == nil || a.RecvCQ == nil:
		return bad("SendCQ or RecvCQ is missing")
	case a.SendCQ.dev != p.dev || a.RecvCQ.dev != p.dev:
		return bad("a completion queue is another device's")
	case a.SendCQ.dead || a.RecvCQ.dead:
		return bad("a completion queue was destroyed")
	}
	init.SendCQ, init.RecvCQ = a.SendCQ.core, a.RecvCQ.core
	if a.SRQ != nil {
		if a.SRQ.pd.dev != p.dev || a.SRQ.dead {
			return bad("the SRQ is another device's or was destroyed")
		}
		init.SRQ = a.SRQ.core
	}
	return init, nil
}

// QPN returns the QP's number.
func (q *QP) QPN() ib.QPN { return q.qpn }

// Type returns the QP's transport.
func (q *QP) Type() ib.QPType { return q.typ }

// Device returns the device that the QP belongs to.
func (q *QP) Device() *Device { return q.pd.dev }

func (q *QP) String() string { return "qp " + q.qpn.String() }

// do runs f if the QP still exists.
func (q *QP) do(verb string, f func(dev *rvt.Device, now vtime.Time) error) error {
	return q.pd.dev.do(verb, func(dev *rvt.Device, now vtime.Time) error {
		if q.dead {
			return q.destroyed(verb)
		}
		return f(dev, now)
	})
}

func (q *QP) destroyed(verb string) error {
	return ib.NewVerbError(ib.EINVAL, verb, q.String(), "already destroyed")
}

// Modify (ibv_modify_qp) changes the attributes in mask, and with ib.AttrState the
// state. If anything is wrong nothing changes, and the error names it.
func (q *QP) Modify(a *QPAttr, mask ib.AttrMask) error {
	if a != nil && mask&ib.AttrAV != 0 && mask&ib.AttrDestQPN != 0 { // before the first packet
		q.pd.dev.lanes.reach(q.pd.dev, a.AV.DGID, a.DestQPN)
	}
	return q.do("modify_qp", func(dev *rvt.Device, now vtime.Time) error {
		err := dev.ModifyQP(now, q.core, a, mask)
		q.pd.dev.strict.modify(q, a, mask, err)
		return err
	})
}

// Query (ibv_query_qp) returns all attributes.
func (q *QP) Query() (QPAttr, error) {
	var a QPAttr
	err := q.do("query_qp", func(dev *rvt.Device, _ vtime.Time) error {
		a = dev.QueryQP(q.core)
		return nil
	})
	return a, err
}

// Destroy (ibv_destroy_qp) removes the QP. Work that was posted vanishes without a
// completion; completions that are in the queues stay. EBUSY while the QP is attached
// to a multicast group. It waits for the acknowledgement of the QP's asynchronous
// events, like [CQ.Destroy].
func (q *QP) Destroy(ctx context.Context) error {
	const verb = "destroy_qp"
	again := false
	err := q.pd.dev.do(verb, func(dev *rvt.Device, now vtime.Time) error {
		if again = q.dead; again {
			return nil
		}
		err := dev.DestroyQP(now, q.core)
		if q.dead = err == nil; q.dead {
			q.pd.dev.strict.destroyQP(q)
		}
		return err
	})
	if err != nil {
		return err
	}
	return finish(ctx, q.pd.dev, verb, q.String(), again, func(e *AsyncEvent) bool { return e.QP == q }, &q.async)
}

// AttachMcast (ibv_attach_mcast) lets a UD QP receive what is sent to a group. The
// device joins the group on its network with the first QP. Attaching twice is the same
// as once.
func (q *QP) AttachMcast(g GID) error {
	const verb = "attach_mcast"
	d := q.pd.dev
	d.groupMu.Lock()
	defer d.groupMu.Unlock()
	if d.joiner == nil {
		return ib.NewVerbError(ib.EOPNOTSUPP, verb, q.String(), "the device's port receives no multicast")
	}
	fresh := false
	err := q.do(verb, func(dev *rvt.Device, _ vtime.Time) error {
		before := q.core.Mcast
		err := dev.AttachMcast(q.core, g)
		fresh = q.core.Mcast != before
		return err
	})
	if err != nil || !fresh {
		return err
	}
	if d.groups[g] == 0 {
		if err := d.joiner.JoinGroup(g); err != nil {
			_ = q.do(verb, func(dev *rvt.Device, _ vtime.Time) error { return dev.DetachMcast(q.core, g) })
			return ib.NewVerbError(ib.EINVAL, verb, q.String(), err.Error())
		}
	}
	d.groups[g]++
	return nil
}

// DetachMcast (ibv_detach_mcast) undoes AttachMcast; EINVAL if the QP is not attached.
func (q *QP) DetachMcast(g GID) error {
	d := q.pd.dev
	d.groupMu.Lock()
	defer d.groupMu.Unlock()
	err := q.do("detach_mcast", func(dev *rvt.Device, _ vtime.Time) error { return dev.DetachMcast(q.core, g) })
	if err != nil {
		return err
	}
	if d.groups[g]--; d.groups[g] == 0 {
		delete(d.groups, g)
		return d.joiner.LeaveGroup(g)
	}
	return nil
}
