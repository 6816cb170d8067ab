package rvt

import (
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

func (d *Device) handle() uint32 {
	d.handles++
	return d.handles
}

// limit refuses an object beyond the device's limit.
func limit(have, most int, verb, what string) error {
	if have >= most {
		return ib.NewVerbError(ib.ENOMEM, verb, "", "the device's limit of "+strconv.Itoa(most)+" "+what+" is reached")
	}
	return nil
}

// AllocPD (ibv_alloc_pd) creates a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	if err := limit(len(d.pds), d.cfg.Limits.MaxPD, "alloc_pd", "protection domains"); err != nil {
		return nil, err
	}
	d.nextPD++
	p := &PD{ID: d.nextPD}
	d.pds[p.ID] = p
	return p, nil
}

// DeallocPD (ibv_dealloc_pd) removes a domain; EBUSY while something belongs to it.
func (d *Device) DeallocPD(p *PD) error {
	if err := d.checkPD("dealloc_pd", p); err != nil {
		return err
	}
	if p.users > 0 {
		return busy("dealloc_pd", p.String(), usedBy(d.usersOfPD(p)))
	}
	delete(d.pds, p.ID)
	return nil
}

func (d *Device) checkPD(verb string, p *PD) error {
	if p == nil || d.pds[p.ID] != p {
		return ib.NewVerbError(ib.EINVAL, verb, "", "no such protection domain on this device")
	}
	return nil
}

// RegMR (ibv_reg_mr, ibv_reg_mr_iova) registers length bytes at base in mem, known to
// SGEs and peers as iova.
func (d *Device) RegMR(p *PD, mem mr.Memory, base, length, iova uint64, acc ib.Access) (*MR, error) {
	if err := d.checkPD("reg_mr", p); err != nil {
		return nil, err
	}
	if g := d.cfg.Guard; g != nil {
		mem = g.Memory(mem)
	}
	r, err := d.env.Keys.Register(p.ID, mem, base, length, iova, acc)
	if err != nil {
		return nil, err
	}
	p.users++
	m := &MR{Region: r, pd: p, index: len(d.mrs)}
	d.mrs = append(d.mrs, m)
	return m, nil
}

// DeregMR (ibv_dereg_mr) removes a region. QPs whose work still names it go to ERR;
// its memory is not touched afterwards. EBUSY if a window is bound to it.
func (d *Device) DeregMR(now vtime.Time, m *MR) error {
	d.flush(now)
	if g := d.cfg.Guard; g != nil {
		g.MRLeaving(m.Region)
	}
	if err := d.env.Keys.Deregister(m.Region); err != nil {
		return err
	}
	last := len(d.mrs) - 1
	d.mrs[m.index] = d.mrs[last]
	d.mrs[m.index].index = m.index
	d.mrs[last] = nil
	d.mrs = d.mrs[:last]
	m.pd.users--
	for _, q := range d.sortedQPs() {
		if q.PD == m.PD {
			q.MRGone(m.LKey, m.RKey)
			d.touch(q)
		}
	}
	d.env.Publish()
	return nil
}

// sortedQPs returns the QPs in the order of their numbers, for work that touches many.
func (d *Device) sortedQPs() []*qp.QP {
	qs := make([]*qp.QP, 0, len(d.qps))
	for _, q := range d.qps { //arch:sorted sorted below
		qs = append(qs, q)
	}
	slices.SortFunc(qs, func(a, b *qp.QP) int { return int(a.QPN) - int(b.QPN) })
	return qs
}

// QPs returns every QP in the order of their numbers.
func (d *Device) QPs() []*qp.QP { return d.sortedQPs() }

// AllocMW (ibv_alloc_mw) creates an unbound memory window.
func (d *Device) AllocMW(p *PD, typ ib.MWType) (*mr.Window, error) {
	if err := d.checkPD("alloc_mw", p); err != nil {
		return nil, err
	}
	w, err := d.env.Keys.AllocWindow(p.ID, typ)
	if err == nil {
		p.users++
	}
	return w, err
}

// DeallocMW (ibv_dealloc_mw) removes a window.
func (d *Device) DeallocMW(w *mr.Window) error {
	if err := d.env.Keys.FreeWindow(w); err != nil {
		return err
	}
	if p := d.pds[w.PD]; p != nil {
		p.users--
	}
	return nil
}

// CreateCQ (ibv_create_cq) creates a completion queue of exactly cqe entries, in ring
// or in a ring of its own.
func (d *Device) CreateCQ(cqe int, ring cq.Ring) (*cq.CQ, error) {
	if err := d.checkCQE("create_cq", "", cqe); err != nil {
		return nil, err
	}
	if err := limit(d.cqs, d.cfg.Limits.MaxCQ, "create_cq", "completion queues"); err != nil {
		return nil, err
	}
	c := cq.New(d.cqEntries(cqe, ring), ring, d.cfg.Profile.CQStickyOverflow)
	c.Handle, c.Poison = d.handle(), d.cfg.Poison
	d.cqs++
	if g := d.cfg.Guard; g != nil {
		g.NewCQ(c)
	}
	return c, nil
}

// cqEntries is how many entries a queue gets for cqe asked for. A ring of the program's
// own has the size that the program gave it.
func (d *Device) cqEntries(cqe int, ring cq.Ring) uint32 {
	if ring == nil {
		cqe = d.cfg.Driver.Entries(cqe)
	}
	return uint32(cqe)
}

func (d *Device) checkCQE(verb, object string, cqe int) error {
	if cqe < 1 || cqe > d.cfg.Limits.MaxCQE {
		return ib.NewVerbError(ib.EINVAL, verb, object, "cqe "+strconv.Itoa(cqe)+" is not in 1.."+strconv.Itoa(d.cfg.Limits.MaxCQE))
	}
	return nil
}

// ResizeCQ (ibv_resize_cq) changes a queue's capacity; waiting completions stay, in
// order. EINVAL if they do not fit. No poll of this queue may run meanwhile.
func (d *Device) ResizeCQ(c *cq.CQ, cqe int, ring cq.Ring) error {
	if err := d.checkCQE("resize_cq", c.String(), cqe); err != nil {
		return err
	}
	d.env.Publish()
	err := c.Resize(d.cqEntries(cqe, ring), ring)
	if g := d.cfg.Guard; g != nil && err == nil {
		g.CQResized(c)
	}
	return err
}

// DestroyCQ (ibv_destroy_cq) removes a queue; EBUSY while a QP uses it. Events that
// were queued for it and not collected vanish.
func (d *Device) DestroyCQ(c *cq.CQ) error {
	if c.Busy() {
		return busy("destroy_cq", c.String(), usedBy(d.qpsThat(func(q *qp.QP) bool { return q.SendCQ == c || q.RecvCQ == c })))
	}
	if !c.Retire() {
		return ib.NewVerbError(ib.EINVAL, "destroy_cq", c.String(), "already destroyed")
	}
	d.cqs--
	d.env.Unstage(c)
	d.env.Forget(func(e *Event) bool { return e.CQ == c })
	if g := d.cfg.Guard; g != nil {
		g.CQGone(c)
	}
	return nil
}

// ReqNotify (ibv_req_notify_cq) arms a queue for one event. missed reports that
// completions wait already, for which no event will come.
func (d *Device) ReqNotify(c *cq.CQ, solicitedOnly bool) (missed bool) {
	if g := d.cfg.Guard; g != nil {
		g.Arming(c)
	}
	return c.ReqNotify(solicitedOnly)
}

// SRQAttr (struct ibv_srq_attr) describes a shared receive queue.
type SRQAttr struct {
	MaxWR, MaxSGE int
	Limit         int
}

// CreateSRQ (ibv_create_srq) creates a shared receive queue, in rq or in a queue of
// its own.
func (d *Device) CreateSRQ(p *PD, a SRQAttr, rq swqe.RecvQueue) (*swqe.SRQ, error) {
	const verb = "create_srq"
	if err := d.checkPD(verb, p); err != nil {
		return nil, err
	}
	l := &d.cfg.Limits
	switch {
	case a.MaxWR < 1 || a.MaxWR > l.MaxSRQWR:
		return nil, ib.NewVerbError(ib.EINVAL, verb, "", "max_wr "+strconv.Itoa(a.MaxWR)+" is not in 1.."+strconv.Itoa(l.MaxSRQWR))
	case a.MaxSGE < 0 || a.MaxSGE > l.MaxSGE:
		return nil, ib.NewVerbError(ib.EINVAL, verb, "", "max_sge "+strconv.Itoa(a.MaxSGE)+" is not in 0.."+strconv.Itoa(l.MaxSGE))
	}
	if err := limit(d.srqs, l.MaxSRQ, verb, "shared receive queues"); err != nil {
		return nil, err
	}
	if rq == nil {
		rq = swqe.NewRQ(d.cfg.Driver.Entries(a.MaxWR), a.MaxSGE)
	}
	d.srqs++
	p.users++
	p.srqs++
	return &swqe.SRQ{Handle: d.handle(), PD: p.ID, RQ: rq}, nil
}

// ModifySRQ (ibv_modify_srq) sets the limit that arms SRQ_LIMIT_REACHED, or the size,
// whichever pointer is not nil. A limit above what is posted fires when the next
// receive is taken.
func (d *Device) ModifySRQ(s *swqe.SRQ, maxWR, lim *int) error {
	const verb = "modify_srq"
	size := s.RQ.Cap()
	if maxWR != nil {
		size = *maxWR
		if size < 1 || size > d.cfg.Limits.MaxSRQWR {
			return ib.NewVerbError(ib.EINVAL, verb, s.String(), "max_wr "+strconv.Itoa(size)+" is not in 1.."+strconv.Itoa(d.cfg.Limits.MaxSRQWR))
		}
	}
	newLimit := s.Limit
	if lim != nil {
		newLimit = *lim
	}
	if newLimit < 0 || newLimit > size {
		return ib.NewVerbError(ib.EINVAL, verb, s.String(), "srq_limit "+strconv.Itoa(newLimit)+" is larger than the queue, "+strconv.Itoa(size))
	}
	if maxWR != nil {
		rq, ok := s.RQ.(*swqe.RQ)
		if !ok {
			return ib.NewVerbError(ib.EOPNOTSUPP, verb, s.String(), "the program's own queue cannot be resized")
		}
		if err := rq.Resize(d.cfg.Driver.Entries(size)); err != nil {
			return err
		}
	}
	s.Limit = newLimit
	return nil
}

// QuerySRQ (ibv_query_srq) returns size and limit; the limit is 0 once it has fired.
func (d *Device) QuerySRQ(s *swqe.SRQ) SRQAttr {
	a := SRQAttr{MaxWR: s.RQ.Cap(), Limit: s.Limit}
	if rq, ok := s.RQ.(*swqe.RQ); ok {
		a.MaxSGE = rq.MaxSGE()
	}
	return a
}

// PostSRQRecv (ibv_post_srq_recv) posts receives to a shared queue; n is the number
// posted.
func (d *Device) PostSRQRecv(s *swqe.SRQ, wrs []swqe.RecvWR) (n int, err error) {
	rq, ok := s.RQ.(*swqe.RQ)
	if !ok {
		return 0, ib.NewVerbError(ib.EINVAL, "post_srq_recv", s.String(), "it is filled by the program itself")
	}
	return d.guardRecvs(nil, s, wrs, func() (int, error) {
		for i := range wrs {
			if err := rq.Post("post_srq_recv", s, &wrs[i]); err != nil {
				return i, err
			}
			d.env.Ctr.RecvsPosted++
		}
		return len(wrs), nil
	})
}

// DestroySRQ (ibv_destroy_srq) removes a shared queue; EBUSY while a QP uses it.
func (d *Device) DestroySRQ(s *swqe.SRQ) error {
	if s.Busy() {
		return busy("destroy_srq", s.String(), usedBy(d.qpsThat(func(q *qp.QP) bool { return q.SRQ == s })))
	}
	if !s.Retire() {
		return ib.NewVerbError(ib.EINVAL, "destroy_srq", s.String(), "already destroyed")
	}
	if p := d.pds[s.PD]; p != nil {
		p.users--
		p.srqs--
	}
	d.srqs--
	d.env.Forget(func(e *Event) bool { return e.SRQ == s })
	if g := d.cfg.Guard; g != nil {
		g.SRQGone(s)
	}
	return nil
}

// CreateAH (ibv_create_ah) makes an address handle.
func (d *Device) CreateAH(p *PD, av ib.AV) (*swqe.AH, error) {
	if err := d.checkPD("create_ah", p); err != nil {
		return nil, err
	}
	if err := d.env.CheckAV("create_ah", "", &av); err != nil {
		return nil, err
	}
	p.users++
	p.ahs++
	d.ahs[av.SGIDIndex]++
	return &swqe.AH{PD: p.ID, AV: av, Live: true}, nil
}

// DestroyAH (ibv_destroy_ah) removes an address handle. Sends posted with it are not
// affected: they carry a copy.
func (d *Device) DestroyAH(a *swqe.AH) error {
	if !a.Live {
		return ib.NewVerbError(ib.EINVAL, "destroy_ah", "", "already destroyed")
	}
	a.Live = false
	d.ahs[a.AV.SGIDIndex]--
	if p := d.pds[a.PD]; p != nil {
		p.users--
		p.ahs--
	}
	return nil
}
