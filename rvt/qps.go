package rvt

import (
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// CreateQP (ibv_create_qp) creates a QP in RESET. The capacities granted are those
// asked for, except that max_inline_data may be larger than a profile needs.
func (d *Device) CreateQP(p *PD, a *qp.InitAttr) (*qp.QP, error) {
	const verb = "create_qp"
	if err := d.checkPD(verb, p); err != nil {
		return nil, err
	}
	if err := d.checkInit(verb, a); err != nil {
		return nil, err
	}
	if err := limit(len(d.qps), d.cfg.Limits.MaxQP, verb, "QPs"); err != nil {
		return nil, err
	}
	qpn, err := d.allocQPN(a.Type)
	if err != nil {
		return nil, err
	}
	q := qp.New(&d.env, qpn, p.ID, a)
	d.qps[qpn] = q
	p.users++
	q.SendCQ.Hold()
	q.RecvCQ.Hold()
	if q.SRQ != nil {
		q.SRQ.Hold()
	}
	if g := d.cfg.Guard; g != nil {
		g.NewRecvQueue(q, nil)
	}
	return q, nil
}

func (d *Device) checkInit(verb string, a *qp.InitAttr) error {
	bad := func(reason string) error { return ib.NewVerbError(ib.EINVAL, verb, "", reason) }
	switch a.Type {
	case ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeGSI:
	default:
		return ib.NewVerbError(ib.EOPNOTSUPP, verb, "", "the device has no QPs of type "+a.Type.String())
	}
	if a.SendCQ == nil || a.RecvCQ == nil {
		return bad("send_cq or recv_cq is missing")
	}
	if a.SRQ != nil {
		a.Cap.MaxRecvWR, a.Cap.MaxRecvSGE = 0, 0 // ignored (ibv_create_qp(3))
	}
	l := &d.cfg.Limits
	for _, c := range []struct {
		name      string
		got, most int
	}{
		{"max_send_wr", a.Cap.MaxSendWR, l.MaxQPWR}, {"max_recv_wr", a.Cap.MaxRecvWR, l.MaxQPWR},
		{"max_send_sge", a.Cap.MaxSendSGE, l.MaxSGE}, {"max_recv_sge", a.Cap.MaxRecvSGE, l.MaxSGE},
		{"max_inline_data", a.Cap.MaxInlineData, l.MaxInline},
	} {
		if c.got < 0 || c.got > c.most {
			return bad(c.name + " " + strconv.Itoa(c.got) + " exceeds the device's " + strconv.Itoa(c.most))
		}
	}
	return nil
}

// allocQPN gives the next free number after the last one given, so that a freed number
// is not used again soon. GSI is always QP1.
func (d *Device) allocQPN(t ib.QPType) (ib.QPN, error) {
	if t == ib.QPTypeGSI {
		if d.qps[ib.QPNGSI] != nil {
			return 0, ib.NewVerbError(ib.EINVAL, "create_qp", "", "QP1 exists already")
		}
		return ib.QPNGSI, nil
	}
	first, last := d.cfg.QPNRange()
	for range int(last-first) + 1 {
		n := d.nextQPN
		if d.nextQPN++; d.nextQPN > last {
			d.nextQPN = first
		}
		if d.qps[n] == nil {
			return n, nil
		}
	}
	return 0, ib.NewVerbError(ib.ENOMEM, "create_qp", "", "every QPN of the device's range is in use")
}

// Owns reports whether a number could be that of a QP of this device. Several devices
// that share an address, each with a range of its own, tell their packets apart by it.
// What lies below the first range, QP1 say, belongs to the device of that range.
func (d *Device) Owns(n ib.QPN) bool {
	return (d.cfg.FirstQPN == 0 || n >= d.cfg.FirstQPN) && (d.cfg.LastQPN == 0 || n <= d.cfg.LastQPN)
}

// forget takes a QP out of the table.
func (d *Device) forget(q *qp.QP) {
	delete(d.qps, q.QPN)
	d.recent = nil
}

// QP finds a QP by its number, nil if there is none.
func (d *Device) QP(n ib.QPN) *qp.QP { return d.qps[n] }

// Renumber gives a QP in RESET another number, as a replay needs.
func (d *Device) Renumber(q *qp.QP, n ib.QPN) error {
	if q.State != ib.StateReset || n < 2 || n >= ib.QPNMulticast || d.qps[n] != nil {
		return ib.NewVerbError(ib.EINVAL, "renumber", q.String(), "the QP is not in RESET or the number "+n.String()+" is taken")
	}
	d.forget(q)
	q.Renumber(n)
	d.qps[n] = q
	return nil
}

// ModifyQP (ibv_modify_qp) changes attributes and state. If anything is wrong, nothing
// changes.
func (d *Device) ModifyQP(now vtime.Time, q *qp.QP, a *qp.Attr, mask ib.AttrMask) error {
	d.flush(now)
	err := d.checkResRd(q, a, mask)
	if err == nil {
		err = q.Modify(now, a, mask)
	}
	if err == nil {
		d.touch(q)
		d.env.Publish()
	}
	if g := d.cfg.Guard; g != nil {
		g.QPModified(q, a, mask, err)
	}
	return err
}

// checkResRd refuses a QP whose READs as responder the device has no room for beside those of
// the others. What is wrong by itself is left to the QP.
func (d *Device) checkResRd(q *qp.QP, a *qp.Attr, mask ib.AttrMask) error {
	most := d.cfg.Limits.MaxResRdAtom
	want := int(a.MaxDestRdAtomic)
	if most == 0 || mask&ib.AttrMaxDestRdAtomic == 0 || want > d.cfg.Limits.MaxQPRdAtom {
		return nil
	}
	taken := 0
	users := d.qpsThat(func(o *qp.QP) bool {
		n := int(o.Attr.MaxDestRdAtomic)
		if o != q {
			taken += n
		}
		return o != q && n > 0
	})
	if taken+want <= most {
		return nil
	}
	why := "max_dest_rd_atomic " + strconv.Itoa(want) + ": the device has max_res_rd_atom " + strconv.Itoa(most) + " for all QPs"
	if taken > 0 {
		why += ", " + strconv.Itoa(taken) + " of it " + usedBy(users)
	}
	return ib.NewVerbError(ib.ENOMEM, "modify_qp", q.String(), why)
}

// QueryQP (ibv_query_qp) returns the QP's attributes.
func (d *Device) QueryQP(q *qp.QP) qp.Attr { return q.Query() }

// DestroyQP (ibv_destroy_qp) removes a QP. Work that was posted vanishes; completions
// that are in the CQs stay. EBUSY while it is attached to a multicast group.
func (d *Device) DestroyQP(now vtime.Time, q *qp.QP) error {
	if d.qps[q.QPN] != q {
		return ib.NewVerbError(ib.EINVAL, "destroy_qp", q.String(), "already destroyed")
	}
	if q.Mcast > 0 {
		return busy("destroy_qp", q.String(), "attached to the multicast groups "+list(d.groupsOf(q)))
	}
	d.Commit(now)
	if q.HeapPos >= 0 {
		d.timers.remove(q.HeapPos)
	}
	d.dequeue(q)
	q.Destroy = true
	d.env.Keys.ReleaseQP(q.QPN)
	d.forget(q)
	q.SendCQ.Release()
	q.RecvCQ.Release()
	if q.SRQ != nil {
		q.SRQ.Release()
	}
	d.pds[q.PD].users--
	d.env.Forget(func(e *Event) bool { return e.QP == q })
	if g := d.cfg.Guard; g != nil {
		g.QPGone(q)
	}
	return nil
}

// AttachMcast (ibv_attach_mcast) lets a UD QP receive what is sent to a group. Twice
// is the same as once.
func (d *Device) AttachMcast(q *qp.QP, gid ib.GID) error {
	const verb = "attach_mcast"
	bad := func(errno ib.Errno, reason string) error { return ib.NewVerbError(errno, verb, q.String(), reason) }
	switch {
	case q.Type != ib.QPTypeUD:
		return bad(ib.EINVAL, "only UD QPs receive multicast")
	case !gid.IsMulticast():
		return bad(ib.EINVAL, gid.String()+" is not a multicast GID")
	case q.State == ib.StateReset:
		return bad(ib.EINVAL, "the QP is in RESET")
	}
	members := d.mcast[gid]
	if slices.Contains(members, q) {
		return nil
	}
	if len(members) == 0 && len(d.mcast) >= d.cfg.Limits.MaxMcastGroups || len(members) >= d.cfg.Limits.MaxMcastQPs {
		return bad(ib.ENOMEM, "the limit of groups, or of QPs in one group, is reached")
	}
	d.mcast[gid] = append(members, q)
	q.Mcast++
	return nil
}

// DetachMcast (ibv_detach_mcast) undoes AttachMcast; EINVAL if the QP is not attached.
func (d *Device) DetachMcast(q *qp.QP, gid ib.GID) error {
	members := d.mcast[gid]
	i := slices.Index(members, q)
	if i < 0 {
		return ib.NewVerbError(ib.EINVAL, "detach_mcast", q.String(), "it is not attached to "+gid.String())
	}
	members = slices.Delete(members, i, i+1)
	if len(members) == 0 {
		delete(d.mcast, gid)
	} else {
		d.mcast[gid] = members
	}
	q.Mcast--
	return nil
}
