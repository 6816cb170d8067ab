package conform

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
)

// keep notes an object under the case's name for it, unless the call failed.
func keep[T comparable](d *device, m map[string]T, name string, obj T, err error) ib.Errno {
	if err != nil {
		return ib.ErrnoOf(err)
	}
	m[name] = obj
	d.names[obj] = name
	return 0
}

// drop forgets an object, unless the call failed. Its events vanish with it.
func drop[T comparable](d *device, m map[string]T, name string, err error) ib.Errno {
	if err != nil {
		return ib.ErrnoOf(err)
	}
	delete(d.names, m[name])
	delete(m, name)
	kept := d.ev[:0]
	for _, e := range d.ev {
		if e.Object != name {
			kept = append(kept, e)
		}
	}
	d.ev = kept
	return 0
}

func (d *device) AllocPD(name string) ib.Errno {
	p, err := d.dev.AllocPD()
	return keep(d, d.pds, name, p, err)
}

func (d *device) DeallocPD(name string) ib.Errno {
	return drop(d, d.pds, name, d.dev.DeallocPD(d.pds[name]))
}

// RegMR refuses memory that the program does not have, as the kernel does when it pins
// the pages: the engine leaves that to its host.
func (d *device) RegMR(name, pd string, addr, length uint64, access ib.Access) (MRKeys, ib.Errno) {
	var probe [2]byte
	if n, err := d.mem.ReadV([]mr.Op{{Addr: addr, Buf: probe[:1]}, {Addr: addr + length - 1, Buf: probe[1:]}}); length > 0 && (err != nil || n < 2) {
		return MRKeys{}, ib.EFAULT
	}
	m, err := d.dev.RegMR(d.pds[pd], d.mem, addr, length, addr, access)
	if e := keep(d, d.mrs, name, m, err); e != 0 {
		return MRKeys{}, e
	}
	return MRKeys{m.LKey, m.RKey}, 0
}

func (d *device) DeregMR(name string) ib.Errno {
	m := d.mrs[name]
	if m == nil {
		return ib.EINVAL
	}
	return drop(d, d.mrs, name, d.dev.DeregMR(d.now, m))
}

func (d *device) AllocMW(name, pd string, typ ib.MWType) (ib.RKey, ib.Errno) {
	w, err := d.dev.AllocMW(d.pds[pd], typ)
	if e := keep(d, d.mws, name, w, err); e != 0 {
		return 0, e
	}
	return w.RKey, 0
}

func (d *device) DeallocMW(name string) ib.Errno {
	w := d.mws[name]
	if w == nil {
		return ib.EINVAL
	}
	return drop(d, d.mws, name, d.dev.DeallocMW(w))
}

func (d *device) CreateCQ(name string, cqe int) (int, ib.Errno) {
	c, err := d.dev.CreateCQ(cqe, nil)
	if e := keep(d, d.cqs, name, c, err); e != 0 {
		return 0, e
	}
	return c.CQE(), 0
}

func (d *device) ResizeCQ(name string, cqe int) (int, ib.Errno) {
	c := d.cqs[name]
	if c == nil {
		return 0, ib.EINVAL
	}
	err := d.dev.ResizeCQ(c, cqe, nil)
	return c.CQE(), ib.ErrnoOf(err)
}

func (d *device) DestroyCQ(name string) ib.Errno {
	c := d.cqs[name]
	if c == nil {
		return ib.EINVAL
	}
	return drop(d, d.cqs, name, d.dev.DestroyCQ(c))
}

func (d *device) CreateSRQ(name, pd string, a SRQAttr) ib.Errno {
	s, err := d.dev.CreateSRQ(d.pds[pd], rvt.SRQAttr{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit}, nil)
	return keep(d, d.srqs, name, s, err)
}

func (d *device) ModifySRQ(name string, maxWR, limit int) ib.Errno {
	s := d.srqs[name]
	if s == nil {
		return ib.EINVAL
	}
	var wr, lim *int
	if maxWR >= 0 {
		wr = &maxWR
	}
	if limit >= 0 {
		lim = &limit
	}
	return ib.ErrnoOf(d.dev.ModifySRQ(s, wr, lim))
}

func (d *device) QuerySRQ(name string) (SRQAttr, ib.Errno) {
	s := d.srqs[name]
	if s == nil {
		return SRQAttr{}, ib.EINVAL
	}
	a := d.dev.QuerySRQ(s)
	return SRQAttr{a.MaxWR, a.MaxSGE, a.Limit}, 0
}

func (d *device) DestroySRQ(name string) ib.Errno {
	s := d.srqs[name]
	if s == nil {
		return ib.EINVAL
	}
	return drop(d, d.srqs, name, d.dev.DestroySRQ(s))
}

// av is the device's own address. An index beyond the table stays one.
func (d *device) av(a AV) ib.AV {
	return ib.AV{DGID: d.gid, IsGlobal: a.IsGlobal, SGIDIndex: uint8(a.SGIDIndex), HopLimit: 64, PortNum: uint8(a.PortNum)}
}

func (d *device) CreateAH(name, pd string, av AV) ib.Errno {
	h, err := d.dev.CreateAH(d.pds[pd], d.av(av))
	return keep(d, d.ahs, name, h, err)
}

func (d *device) DestroyAH(name string) ib.Errno {
	h := d.ahs[name]
	if h == nil {
		return ib.EINVAL
	}
	return drop(d, d.ahs, name, d.dev.DestroyAH(h))
}

func (d *device) CreateQP(name string, a QPInit) (QPCap, ib.QPN, ib.Errno) {
	init := qp.InitAttr{SendCQ: d.cqs[a.SendCQ], RecvCQ: d.cqs[a.RecvCQ], SRQ: d.srqs[a.SRQ], Type: a.Type, SQSigAll: a.SQSigAll,
		Cap: qp.Cap{MaxSendWR: a.Cap.MaxSendWR, MaxRecvWR: a.Cap.MaxRecvWR, MaxSendSGE: a.Cap.MaxSendSGE, MaxRecvSGE: a.Cap.MaxRecvSGE, MaxInlineData: a.Cap.MaxInline}}
	q, err := d.dev.CreateQP(d.pds[a.PD], &init)
	if e := keep(d, d.qps, name, q, err); e != 0 {
		return QPCap{}, 0, e
	}
	c := q.Cap
	return QPCap{c.MaxSendWR, c.MaxRecvWR, c.MaxSendSGE, c.MaxRecvSGE, c.MaxInlineData}, q.QPN, 0
}

func (d *device) ModifyQP(name string, a *QPAttr, mask ib.AttrMask) ib.Errno {
	q := d.qps[name]
	if q == nil {
		return ib.EINVAL
	}
	at := qp.Attr{State: a.State, PortNum: uint8(a.PortNum), PKeyIndex: uint16(a.PKeyIndex), AccessFlags: a.Access, QKey: a.QKey, AV: d.av(a.AV),
		PathMTU: a.PathMTU, DestQPN: a.DestQPN, RQPSN: a.RQPSN, SQPSN: a.SQPSN, MaxDestRdAtomic: uint8(a.MaxDestRdAtomic), MaxRdAtomic: uint8(a.MaxRdAtomic),
		MinRNRTimer: uint8(a.MinRNRTimer), Timeout: uint8(a.Timeout), RetryCnt: uint8(a.RetryCnt), RNRRetry: uint8(a.RNRRetry), EnSQDAsyncNotify: a.EnSQDNotify}
	return ib.ErrnoOf(d.dev.ModifyQP(d.now, q, &at, mask))
}

func (d *device) QueryQP(name string) (QPView, ib.Errno) {
	q := d.qps[name]
	if q == nil {
		return QPView{}, ib.EINVAL
	}
	d.pump()
	a := d.dev.QueryQP(q)
	return QPView{a.State, q.State, a.SQDraining}, 0
}

func (d *device) DestroyQP(name string) ib.Errno {
	q := d.qps[name]
	if q == nil {
		return ib.EINVAL
	}
	return drop(d, d.qps, name, d.dev.DestroyQP(d.now, q))
}

func segs(l []SGE) []mr.SGE {
	var out []mr.SGE
	for _, s := range l {
		out = append(out, mr.SGE{Addr: s.Addr, Length: s.Length, LKey: s.LKey})
	}
	return out
}

func (d *device) PostSend(name string, w *SendWR) ib.Errno {
	q := d.qps[name]
	if q == nil {
		return ib.EINVAL
	}
	wr := swqe.SendWR{WRID: w.ID, Opcode: w.Op, Flags: w.Flags, SGL: segs(w.SGL), Imm: w.Imm, InvRKey: w.InvRKey, RemoteAddr: w.RemoteAddr, RKey: w.RKey,
		CompareAdd: w.CompareAdd, Swap: w.Swap, AH: d.ahs[w.AH], RemoteQPN: w.RemoteQPN, RemoteQKey: w.RemoteQKey}
	if w.Op == ib.WRBindMW {
		wr.Bind = swqe.BindInfo{MW: d.mws[w.Bind.MW], RKey: w.Bind.RKey, Addr: w.Bind.Addr, Length: w.Bind.Length, Access: w.Bind.Access}
		if m := d.mrs[w.Bind.MR]; m != nil {
			wr.Bind.MR = m.Region
		}
	}
	if w.Flags&ib.SendInline != 0 {
		// The library copies inline data; the engine takes the copy.
		for _, s := range w.SGL {
			b := make([]byte, s.Length)
			if n, err := d.mem.ReadV([]mr.Op{{Addr: s.Addr, Buf: b}}); err != nil || n < 1 {
				return ib.EFAULT
			}
			wr.Inline = append(wr.Inline, b...)
		}
	}
	_, err := d.dev.PostSend(q, []swqe.SendWR{wr})
	return ib.ErrnoOf(err)
}

func (d *device) PostRecv(name string, w *RecvWR) ib.Errno {
	q := d.qps[name]
	if q == nil {
		return ib.EINVAL
	}
	_, err := d.dev.PostRecv(q, []swqe.RecvWR{{WRID: w.ID, SGL: segs(w.SGL)}})
	return ib.ErrnoOf(err)
}

func (d *device) PostSRQRecv(name string, w *RecvWR) ib.Errno {
	s := d.srqs[name]
	if s == nil {
		return ib.EINVAL
	}
	_, err := d.dev.PostSRQRecv(s, []swqe.RecvWR{{WRID: w.ID, SGL: segs(w.SGL)}})
	return ib.ErrnoOf(err)
}
