package verbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/swqe"
)

// postChunk bounds how many work requests are handed to the core at once, and with it
// the memory that a device keeps for that.
const postChunk = 64

// PostSend (ibv_post_send) posts work requests in order and stops at the first bad one:
// the error is a [*BadWR] then, and those before it are posted.
//
// On an idle QP the work is sent before PostSend returns. On a busy one it leaves with
// the next pass: of CQ.Poll, of another post, or of the background goroutine.
func (q *QP) PostSend(wrs ...SendWR) error {
	return q.postSend("post_send", wrs, false)
}

// BindMW (ibv_bind_mw) posts a bind of a type 1 window under a new key, which
// [MW.RKey] returns from now on. b.RKey is not used. The completion is that of wrID.
func (q *QP) BindMW(wrID uint64, flags ib.SendFlags, b BindInfo) error {
	const verb = "bind_mw"
	if b.MW == nil || b.MW.typ != ib.MWType1 {
		return ib.NewVerbError(ib.EINVAL, verb, q.String(), "the window is not of type 1; type 2 is bound by PostSend")
	}
	return q.postSend(verb, []SendWR{{WRID: wrID, Opcode: ib.WRBindMW, Flags: flags, Bind: &b}}, true)
}

func (q *QP) postSend(verb string, wrs []SendWR, bindVerb bool) error {
	d := q.pd.dev
	dev, err := d.node.BeginPost()
	if err != nil {
		return &BadWR{0, d.gone(verb)}
	}
	if q.dead {
		d.node.End(node.SendLater)
		return &BadWR{0, q.destroyed(verb)}
	}
	urgency := node.SendLater
	if q.core.Outstanding() == 0 {
		urgency = node.SendNow
	}
	posted := 0
	for err == nil && posted < len(wrs) {
		chunk := wrs[posted:min(posted+postChunk, len(wrs))]
		bad := d.convert(verb, chunk, bindVerb)
		var n int
		if d.strict != nil {
			n, err = d.strict.postSend(dev, q, verb, d.send)
		} else {
			n, err = dev.PostSend(q.core, d.send)
		}
		posted += n
		if err == nil {
			err = bad
		}
	}
	if len(wrs) == 0 {
		_, err = dev.PostSend(q.core, nil) // the state is checked all the same
	}
	if err == nil && bindVerb {
		wrs[0].Bind.MW.next = wrs[0].Bind.RKey
	}
	d.node.End(urgency)
	if err != nil {
		return &BadWR{posted, err}
	}
	return nil
}

// convert fills d.send with what the core takes, up to the first request that only this
// package can know to be bad. Slices are copied, so that a caller's may live on its
// stack. The caller has the node's lock.
func (d *Device) convert(verb string, wrs []SendWR, bindVerb bool) error {
	d.send, d.sges, d.inline = d.send[:0], d.sges[:0], d.inline[:0]
	for i := range wrs {
		w := &wrs[i]
		s := swqe.SendWR{WRID: w.WRID, Opcode: w.Opcode, Flags: w.Flags, Imm: w.Imm, InvRKey: w.InvRKey,
			RemoteAddr: w.RemoteAddr, RKey: w.RKey, CompareAdd: w.CompareAdd, Swap: w.Swap, Flush: w.Flush,
			RemoteQPN: w.RemoteQPN, RemoteQKey: w.RemoteQKey, SGL: d.copySGL(w.SGL)}
		if w.Flags&ib.SendInline != 0 {
			from := len(d.inline)
			d.inline = append(d.inline, w.Inline...)
			s.Inline = d.inline[from:len(d.inline):len(d.inline)]
		}
		if w.AH != nil {
			if w.AH.pd.dev != d {
				return ib.NewVerbError(ib.EINVAL, verb, d.name, "the address handle is another device's")
			}
			s.AH = w.AH.core
		}
		if w.Opcode == ib.WRBindMW {
			if err := d.convertBind(verb, &s, w.Bind, bindVerb); err != nil {
				return err
			}
		}
		d.send = append(d.send, s)
	}
	return nil
}

func (d *Device) copySGL(sgl []SGE) []mr.SGE {
	from := len(d.sges)
	d.sges = append(d.sges, sgl...)
	return d.sges[from:len(d.sges):len(d.sges)]
}

func (d *Device) convertBind(verb string, s *swqe.SendWR, b *BindInfo, bindVerb bool) error {
	bad := func(reason string) error { return ib.NewVerbError(ib.EINVAL, verb, d.name, reason) }
	switch {
	case b == nil || b.MW == nil:
		return bad("BIND_MW without a window")
	case b.MW.pd.dev != d || b.MR != nil && b.MR.pd.dev != d:
		return bad("the window or region is another device's")
	case bindVerb:
		b.RKey = IncRKey(b.MW.next)
	case b.MW.typ == ib.MWType1:
		return bad("a type 1 window is bound by BindMW")
	}
	s.Bind = swqe.BindInfo{MW: b.MW.core, RKey: b.RKey, Addr: b.Addr, Length: b.Length, Access: b.Access}
	if b.MR != nil {
		s.Bind.MR = b.MR.core.Region
	}
	return nil
}

// PostRecv (ibv_post_recv) posts receives in order and stops at the first bad one; the
// error is a [*BadWR] then. A QP with an SRQ takes none: use [SRQ.PostRecv].
func (q *QP) PostRecv(wrs ...RecvWR) error {
	return q.pd.dev.postRecv("post_recv", wrs, func(dev *rvt.Device, wrs []swqe.RecvWR) (int, error) {
		if q.dead {
			return 0, q.destroyed("post_recv")
		}
		if d := q.pd.dev; d.strict != nil {
			return d.strict.postRecv(q.core, nil, wrs, func() (int, error) { return dev.PostRecv(q.core, wrs) })
		}
		return dev.PostRecv(q.core, wrs)
	})
}

func (d *Device) postRecv(verb string, wrs []RecvWR, post func(*rvt.Device, []swqe.RecvWR) (int, error)) error {
	dev, err := d.node.BeginPost()
	if err != nil {
		return &BadWR{0, d.gone(verb)}
	}
	posted := 0
	for {
		chunk := wrs[posted:min(posted+postChunk, len(wrs))]
		d.recv, d.sges = d.recv[:0], d.sges[:0]
		for i := range chunk {
			d.recv = append(d.recv, swqe.RecvWR{WRID: chunk[i].WRID, SGL: d.copySGL(chunk[i].SGL)})
		}
		var n int
		n, err = post(dev, d.recv)
		posted += n
		if err != nil || posted == len(wrs) {
			break
		}
	}
	d.node.End(node.SendLater)
	if err != nil {
		return &BadWR{posted, err}
	}
	return nil
}
