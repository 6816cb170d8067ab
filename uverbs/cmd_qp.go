package uverbs

import (
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

type qpObj struct {
	ctx        *Context
	handle     uint32
	userHandle uint64
	q          *qp.QP
	pd         *pdObj
	sq         *sqRing  // nil if sends come inside the write()
	journal    *journal // names those for the host's heir; nil if it has none
	rq         recvRing // nil with an SRQ, or if receives come inside the write()
	sqRing     ring
	rqRing     ring
	cap        qpCaps
	asked      qpCaps
	sigAll     bool
	groups     []ib.GID // multicast groups it is attached to
	events     asyncEvents
	acks       acks
	failing    bool // posts are answered because one of the next is to fail; see FailPosts
}

// createQPCmd (ibv_create_qp).
func createQPCmd(k *call) error {
	var cmd createQP
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o, err := k.createQP(&cmd.Body)
	if err != nil {
		return err
	}
	k.respond(o.created())
	k.respondDriver(o.mapInfo())
	return nil
}

// createQPEx (ibv_create_qp_ex).
func createQPEx(k *call) error {
	var cmd exCreateQP
	if err := k.decode(&cmd); err != nil {
		return err
	}
	switch {
	case cmd.CompMask&^1 != 0 || cmd.Body.Reserved != 0:
		return ib.NewVerbError(ib.EINVAL, "create_qp_ex", "", "comp_mask has unknown bits")
	case cmd.CompMask != 0 || cmd.CreateFlags != 0 || cmd.SourceQPN != 0:
		return ib.NewVerbError(ib.EOPNOTSUPP, "create_qp_ex", "", "the device has no indirection tables and no create_flags")
	}
	o, err := k.createQP(&cmd.Body)
	if err != nil {
		return err
	}
	r := exCreateQPResp{Base: o.created()}
	r.ResponseLength = k.responseLength(r)
	k.respond(r)
	k.respondDriver(o.mapInfo())
	return nil
}

// created is the core's part of the answer. As in the kernel, the sizes of the queues are
// those asked for, though more may fit into a ring; ibv_query_qp tells.
func (o *qpObj) created() createQPResp {
	c := o.cap
	c.MaxSendWR, c.MaxRecvWR = o.asked.MaxSendWR, o.asked.MaxRecvWR
	return createQPResp{QPHandle: o.handle, QPN: uint32(o.q.QPN), Cap: c}
}

// mapInfo is the provider's part of the answer: where the rings are.
func (o *qpObj) mapInfo() []byte {
	a := o.ctx.dev.abi
	b := a.mapInfo(nil, o.rqRing)
	if a.hasSQ() {
		b = a.mapInfo(b, o.sqRing)
	}
	return b
}

// qpType checks a type that a program asks for.
func qpType(t uint8) (ib.QPType, error) {
	const (
		rawPacket = 8
		xrcSend   = 9
		xrcRecv   = 10
		driver    = 0xff
	)
	switch q := ib.QPType(t); q {
	case ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD:
		return q, nil
	}
	switch t {
	case rawPacket, xrcSend, xrcRecv, driver:
		return 0, ib.NewVerbError(ib.EOPNOTSUPP, "create_qp", "", "the device has no QPs of this type")
	}
	return 0, ib.NewVerbError(ib.EINVAL, "create_qp", "", "qp_type is not one that programs may have")
}

// createQP looks the parts up, sizes and allocates the rings, and creates the QP.
func (k *call) createQP(b *qpBody) (*qpObj, error) {
	const verb = "create_qp"
	c := k.c
	typ, err := qpType(b.QPType)
	if err != nil {
		return nil, err
	}
	o := &qpObj{ctx: c, userHandle: b.UserHandle, pd: get[pdObj](c, b.PDHandle), sigAll: b.SQSigAll != 0, events: c.eventsTo(k.eventsTo)}
	scq, rcq := get[cqObj](c, b.SendCQHandle), get[cqObj](c, b.RecvCQHandle)
	var srq *srqObj
	if b.IsSRQ != 0 {
		if srq = get[srqObj](c, b.SRQHandle); srq == nil {
			return nil, noHandle(verb, "shared receive queue")
		}
	}
	switch {
	case o.pd == nil:
		return nil, noHandle(verb, "protection domain")
	case scq == nil || rcq == nil:
		return nil, noHandle(verb, "completion queue")
	}
	infos := 1
	if c.dev.abi.hasSQ() {
		infos = 2
	}
	mapped, err := k.checkMap(verb, infos)
	if err != nil {
		return nil, err
	}
	if err := k.grantCaps(b, srq != nil, &o.cap); err != nil {
		return nil, err
	}
	if o.asked = b.Cap; srq != nil {
		o.asked.MaxRecvWR = 0
	}
	init := qp.InitAttr{Context: o, SendCQ: scq.cq, RecvCQ: rcq.cq, Type: typ, SQSigAll: o.sigAll, Cap: o.cap.core()}
	if srq != nil {
		init.SRQ = srq.srq
	}
	if mapped {
		err = o.makeRings(&init)
	}
	if err == nil {
		o.q, err = k.d.CreateQP(o.pd.pd, &init)
	}
	if err != nil {
		o.freeRings()
		return nil, err
	}
	o.handle = c.add(o)
	if o.sq != nil {
		o.sq.gate, _ = c.mem.(PostGate)
		o.sq.handle, o.sq.ctx = o.handle, c
	}
	c.qps = append(c.qps, o)
	o.bequeath(b.SendCQHandle, b.RecvCQHandle)
	return o, nil
}

func (c *qpCaps) core() qp.Cap {
	return qp.Cap{MaxSendWR: int(c.MaxSendWR), MaxRecvWR: int(c.MaxRecvWR), MaxSendSGE: int(c.MaxSendSGE), MaxRecvSGE: int(c.MaxRecvSGE), MaxInlineData: int(c.MaxInlineData)}
}

// outside says that an attribute does not lie between least and the limit that
// ibv_query_device tells under a name.
func outside(attr string, n uint32, least int, limit string, most int) string {
	s := attr + " " + strconv.FormatUint(uint64(n), 10)
	if int64(n) < int64(least) {
		return s + " is less than " + strconv.Itoa(least)
	}
	return s + " exceeds " + limit + ", " + strconv.Itoa(most)
}

// grantCaps works out what a QP gets for what it asks: at least that, more where the
// rings are larger anyway.
func (k *call) grantCaps(b *qpBody, srq bool, granted *qpCaps) error {
	l, a := &k.d.Config().Limits, k.c.dev.abi
	asked := b.Cap
	if srq {
		asked.MaxRecvWR, asked.MaxRecvSGE = 0, 0 // ignored (ibv_create_qp(3))
	}
	wr := int64(most(a.grantWR, l.MaxQPWR))
	for _, v := range []struct {
		name string
		n    uint32
		most int64
		attr string // of ibv_query_device
	}{{"max_send_wr", asked.MaxSendWR, wr, "max_qp_wr"}, {"max_recv_wr", asked.MaxRecvWR, wr, "max_qp_wr"}, {"max_send_sge", asked.MaxSendSGE, int64(l.MaxSGE), "max_sge"},
		{"max_recv_sge", asked.MaxRecvSGE, int64(l.MaxSGE), "max_sge"}, {"max_inline_data", asked.MaxInlineData, int64(l.MaxInline), "the device's limit"}} {
		if int64(v.n) > v.most {
			return ib.NewVerbError(ib.EINVAL, "create_qp", "", outside(v.name, v.n, 0, v.attr, int(v.most)))
		}
	}
	*granted = asked
	granted.MaxSendWR = uint32(a.grantWR(int(asked.MaxSendWR)))
	if !srq {
		granted.MaxRecvWR = uint32(a.grantWR(int(asked.MaxRecvWR)))
	}
	if a.hasSQ() { // inline data and the gather list share their room
		granted.MaxInlineData = max(asked.MaxInlineData, min(sgeBytes*asked.MaxSendSGE, uint32(l.MaxInline)))
	}
	return nil
}

func (o *qpObj) makeRings(init *qp.InitAttr) error {
	const verb = "create_qp"
	c, a := o.ctx, o.ctx.dev.abi
	n := &init.Cap
	if init.SRQ == nil {
		r, b, err := c.alloc(verb, a.rqBytes(n.MaxRecvWR, n.MaxRecvSGE))
		if err != nil {
			return err
		}
		o.rqRing, o.rq = r, a.newRQ(b, n.MaxRecvWR, n.MaxRecvSGE)
		init.RQ = o.rq
	}
	if a.hasSQ() {
		r, b, err := c.alloc(verb, rxeSQBytes(n.MaxSendWR, n.MaxSendSGE, n.MaxInlineData))
		if err != nil {
			return err
		}
		o.sqRing, o.sq = r, newSQRing(b, n.MaxSendWR, n.MaxSendSGE, n.MaxInlineData)
		init.SQ = o.sq
		return nil
	}
	if _, ok := c.mem.(Heir); ok {
		r, b, err := c.alloc(verb, journalBytes(n.MaxSendWR))
		if err != nil {
			return err
		}
		o.sqRing, o.journal = r, newJournal(b, n.MaxSendWR)
		init.SQ = o.journal
	}
	return nil
}

func (o *qpObj) freeRings() {
	o.ctx.free(o.rqRing)
	o.ctx.free(o.sqRing)
	o.rqRing, o.sqRing = ring{}, ring{}
}

// destroyQP (ibv_destroy_qp).
func destroyQP(k *call) error {
	var cmd destroyObject
	if err := k.decode(&cmd); err != nil {
		return err
	}
	r, err := k.removeQP(cmd.Handle)
	if err == nil {
		k.respond(r)
	}
	return err
}

func (k *call) removeQP(h uint32) (r eventsResp, err error) {
	o, err := take[qpObj](k.c, "destroy_qp", h)
	if err != nil {
		return r, err
	}
	o.drain(k.d)
	if err := o.destroy(k.d, k.now); err != nil {
		return r, err
	}
	n := o.events.forget(o.userHandle)
	k.c.unacked("destroy_qp", h, o.q, &o.acks, 0, n)
	return eventsResp{n}, nil
}

func (o *qpObj) destroy(d *rvt.Device, now vtime.Time) error {
	if err := d.DestroyQP(now, o.q); err != nil {
		return err
	}
	o.q.Context = nil
	if o.sq != nil {
		o.showPostable(false)
		if o.sq.gate != nil {
			o.sq.gate.SetBusy(o.handle, false)
		}
	}
	c := o.ctx
	c.withdraw(o.handle)
	o.freeRings()
	delete(c.objects, o.handle)
	i := slices.Index(c.qps, o)
	last := len(c.qps) - 1
	c.qps[i] = c.qps[last]
	c.qps[last] = nil
	c.qps = c.qps[:last]
	return nil
}

// leaveGroups detaches the QP from every multicast group.
func (o *qpObj) leaveGroups(d *rvt.Device) {
	h, told := o.ctx.dev.host.(MulticastHost)
	for _, g := range o.groups {
		_ = d.DetachMcast(o.q, g)
		if told {
			h.Detached(g)
		}
	}
	o.groups = nil
}

// attachMcast (ibv_attach_mcast). The MLID means nothing on Ethernet.
func attachMcast(k *call) error {
	var cmd mcastCmd
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[qpObj](k.c, cmd.QPHandle)
	if o == nil {
		return noHandle("attach_mcast", "QP")
	}
	if err := k.d.AttachMcast(o.q, ib.GID(cmd.GID)); err != nil {
		return err
	}
	if slices.Contains(o.groups, ib.GID(cmd.GID)) {
		return nil
	}
	o.groups = append(o.groups, ib.GID(cmd.GID))
	if h, ok := k.c.dev.host.(MulticastHost); ok {
		h.Attached(ib.GID(cmd.GID))
	}
	return nil
}

// detachMcast (ibv_detach_mcast).
func detachMcast(k *call) error {
	var cmd mcastCmd
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[qpObj](k.c, cmd.QPHandle)
	if o == nil {
		return noHandle("detach_mcast", "QP")
	}
	if err := k.d.DetachMcast(o.q, ib.GID(cmd.GID)); err != nil {
		return err
	}
	o.groups = slices.DeleteFunc(o.groups, func(g ib.GID) bool { return g == ib.GID(cmd.GID) })
	if h, ok := k.c.dev.host.(MulticastHost); ok {
		h.Detached(ib.GID(cmd.GID))
	}
	return nil
}

// modifyQPCmd (ibv_modify_qp).
func modifyQPCmd(k *call) error {
	var cmd modifyQP
	if err := k.decode(&cmd); err != nil {
		return err
	}
	return k.modifyQP(&cmd)
}

// modifyQPEx (MODIFY_QP_EX) differs by the rate limit, which the device lacks.
func modifyQPEx(k *call) error {
	var cmd exModifyQP
	if err := k.decode(&cmd); err != nil {
		return err
	}
	if err := k.modifyQP(&cmd.Base); err != nil {
		return err
	}
	r := exModifyQPResp{}
	r.ResponseLength = k.responseLength(r)
	k.respond(r)
	return nil
}

func (k *call) modifyQP(cmd *modifyQP) error {
	const verb = "modify_qp"
	o := get[qpObj](k.c, cmd.QPHandle)
	if o == nil {
		return noHandle(verb, "QP")
	}
	switch mask := ib.AttrMask(cmd.AttrMask); {
	case cmd.QPState > uint8(ib.StateErr) && mask&ib.AttrState != 0:
		return ib.NewVerbError(ib.EINVAL, verb, o.q.String(), "qp_state "+strconv.Itoa(int(cmd.QPState))+" is not a state")
	case cmd.CurQPState > uint8(ib.StateErr) && mask&ib.AttrCurState != 0:
		return ib.NewVerbError(ib.EINVAL, verb, o.q.String(), "cur_qp_state "+strconv.Itoa(int(cmd.CurQPState))+" is not a state")
	}
	o.drain(k.d)
	a := cmd.attr()
	if err := k.d.ModifyQP(k.now, o.q, &a, ib.AttrMask(cmd.AttrMask)); err != nil {
		return err
	}
	if a.State == ib.StateRTR && ib.AttrMask(cmd.AttrMask)&(ib.AttrState|ib.AttrAV) == ib.AttrState|ib.AttrAV {
		if c, ok := k.c.dev.host.(Connector); ok {
			c.Connecting(a.AV.DGID, a.DestQPN)
		}
	}
	if o.q.State == ib.StateReset {
		o.reset(k.d)
	}
	if o.sq != nil {
		o.showPostable(o.postable())
	}
	k.d.FlushRecv(o.q)
	return nil
}

// reset empties the rings of a QP that went to RESET.
func (o *qpObj) reset(d *rvt.Device) {
	if o.sq != nil {
		o.sq.reset()
	}
	if o.journal != nil {
		o.journal.reset()
	}
	if o.rq != nil && !d.Config().Profile.RQKeptOnReset {
		o.rq.drop()
	}
}

func (cmd *modifyQP) attr() qp.Attr {
	return qp.Attr{
		State: ib.QPState(cmd.QPState), CurState: ib.QPState(cmd.CurQPState), PathMTU: ib.MTU(cmd.PathMTU),
		PathMigState: ib.MigState(cmd.PathMigState), QKey: ib.QKey(cmd.QKey), RQPSN: ib.PSN(cmd.RQPSN & ib.PSNMask), SQPSN: ib.PSN(cmd.SQPSN & ib.PSNMask),
		DestQPN: ib.QPN(cmd.DestQPNum), AccessFlags: ib.Access(cmd.QPAccessFlags), AV: cmd.Dest.av(), AltAV: cmd.AltDest.av(),
		PKeyIndex: cmd.PKeyIndex, AltPKeyIndex: cmd.AltPKeyIndex, EnSQDAsyncNotify: cmd.EnSQDAsyncNotify != 0,
		MaxRdAtomic: cmd.MaxRdAtomic, MaxDestRdAtomic: cmd.MaxDestRdAtomic, MinRNRTimer: cmd.MinRNRTimer,
		PortNum: cmd.PortNum, AltPortNum: cmd.AltPortNum, Timeout: cmd.Timeout, AltTimeout: cmd.AltTimeout,
		RetryCnt: cmd.RetryCnt, RNRRetry: cmd.RNRRetry,
	}
}

func (d *qpDest) av() ib.AV {
	return ib.AV{
		DGID: ib.GID(d.DGID), IsGlobal: d.IsGlobal != 0, SGIDIndex: d.SGIDIndex, TrafficClass: d.TrafficClass, HopLimit: d.HopLimit,
		FlowLabel: d.FlowLabel, SL: d.SL, DLID: d.DLID, SrcPathBits: d.SrcPathBits, StaticRate: d.StaticRate, PortNum: d.PortNum,
	}
}

func destOf(a *ib.AV) qpDest {
	d := qpDest{
		DGID: a.DGID, SGIDIndex: a.SGIDIndex, TrafficClass: a.TrafficClass, HopLimit: a.HopLimit, FlowLabel: a.FlowLabel,
		SL: a.SL, DLID: a.DLID, SrcPathBits: a.SrcPathBits, StaticRate: a.StaticRate, PortNum: a.PortNum,
	}
	if a.IsGlobal {
		d.IsGlobal = 1
	}
	return d
}

// queryQPCmd (ibv_query_qp). As in the kernel, every attribute is returned, whatever
// the mask says.
func queryQPCmd(k *call) error {
	var cmd queryQP
	if err := k.decode(&cmd); err != nil {
		return err
	}
	o := get[qpObj](k.c, cmd.QPHandle)
	if o == nil {
		return noHandle("query_qp", "QP")
	}
	o.drain(k.d)
	k.d.FlushRecv(o.q)
	a := k.d.QueryQP(o.q)
	r := queryQPResp{
		Dest: destOf(&a.AV), AltDest: destOf(&a.AltAV), Cap: o.cap, QKey: uint32(a.QKey), RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN),
		DestQPNum: uint32(a.DestQPN), QPAccessFlags: uint32(a.AccessFlags), PKeyIndex: a.PKeyIndex, AltPKeyIndex: a.AltPKeyIndex,
		QPState: uint8(a.State), CurQPState: uint8(a.CurState), PathMTU: uint8(a.PathMTU), PathMigState: uint8(a.PathMigState),
		SQDraining: flag(a.SQDraining), MaxRdAtomic: a.MaxRdAtomic, MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer,
		PortNum: a.PortNum, Timeout: a.Timeout, RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
		AltPortNum: a.AltPortNum, AltTimeout: a.AltTimeout, SQSigAll: flag(o.sigAll),
	}
	k.respond(r)
	return nil
}

func flag(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}
