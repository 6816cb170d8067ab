package model

import (
	"bytes"
	"errors"

	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// illegal is a call that must be refused with an errno and change nothing.
type illegal struct {
	name  string
	errno ib.Errno
	// spoil makes a good work request one that is refused; ok is false if the profile
	// takes it.
	spoil func(w *world, l *link, wr *swqe.SendWR) (ok bool)
}

var illegalSends = []illegal{
	{"too many gather entries", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags = ib.WRSend, 0
		wr.SGL = make([]mr.SGE, maxSGE+1)
		return true
	}},
	{"inline too long", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags, wr.Inline = ib.WRSend, ib.SendInline, bytes.Repeat([]byte{1}, maxInline+1)
		return true
	}},
	{"READ inline", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags, wr.Inline = ib.WRRDMARead, ib.SendInline, []byte{1}
		return l.rules.inlineRead
	}},
	{"atomic at an odd address", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags, wr.SGL = ib.WRAtomicFetchAndAdd, 0, w.sgl(l.node, []piece{{l.area(), 8, keyFull}})
		wr.RemoteAddr = memBase + 4
		return true
	}},
	{"atomic with 7 bytes", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags, wr.SGL = ib.WRAtomicCmpAndSwp, 0, w.sgl(l.node, []piece{{l.area(), 7, keyFull}})
		wr.RemoteAddr = memBase
		return true
	}},
	{"TSO on RC", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags, wr.SGL = ib.WRTSO, 0, nil
		return l.rules.badOpcodeAtPost
	}},
	{"more than max_msg_sz", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags = ib.WRSend, 0
		wr.SGL = []mr.SGE{{Length: 1 << 31, LKey: w.nodes[l.node].mrs[keyFull].LKey}, {Length: 1, LKey: w.nodes[l.node].mrs[keyFull].LKey}}
		return true
	}},
	{"bad lkey", ib.EINVAL, func(w *world, l *link, wr *swqe.SendWR) bool {
		wr.Opcode, wr.Flags, wr.SGL = ib.WRSend, 0, w.sgl(l.node, []piece{{l.area(), 1, keyDead}})
		return l.rules.lkeyAtPost
	}},
}

// illegalSend posts a list whose last entry is bad: what is before it stays posted.
func (w *world) illegalSend(l *link) {
	room := sqDepth - len(l.sends)
	if room == 0 {
		w.fullSendQueue(l)
		return
	}
	before := w.drawSends(l, between(w.t, 0, min(room-1, 2), "before"), true)
	c := oneOf(w.t, "illegal", illegalSends...)
	var wrs []swqe.SendWR
	for i := range before {
		wrs = append(wrs, w.sendWR(l, &before[i]))
	}
	wr := swqe.SendWR{WRID: w.nextID(), RKey: w.nodes[1-l.node].mrs[keyFull].RKey}
	if !c.spoil(w, l, &wr) {
		return
	}
	for i := range before {
		l.postSend(before[i])
	}
	n, err := w.nodes[l.node].Dev.PostSend(l.q, append(wrs, wr))
	w.refused(c.name, err, c.errno)
	if n != len(before) {
		w.t.Fatalf("%s: bad_wr is %d, want %d", c.name, n, len(before))
	}
	w.w.Touch(w.nodes[l.node].Node)
}

func (w *world) fullSendQueue(l *link) {
	o := w.drawSends(l, 1, true)[0]
	_, err := w.nodes[l.node].Dev.PostSend(l.q, []swqe.SendWR{w.sendWR(l, &o)})
	w.refused("send queue full", err, ib.ENOMEM)
}

func (w *world) illegalRecv(l *link) {
	d := w.nodes[l.node].Dev
	post := func(n int) (int, error) {
		wrs := make([]swqe.RecvWR, n)
		if l.shared {
			return d.PostSRQRecv(w.nodes[l.node].srq, wrs)
		}
		return d.PostRecv(l.q, wrs)
	}
	switch {
	case len(*l.recvs) == rqDepth:
		_, err := post(1)
		w.refused("receive queue full", err, ib.ENOMEM)
	case l.shared:
		_, err := d.PostRecv(l.q, make([]swqe.RecvWR, 1))
		w.refused("post_recv with an SRQ", err, ib.EINVAL)
	default:
		_, err := d.PostRecv(l.q, []swqe.RecvWR{{SGL: make([]mr.SGE, maxSGE+1)}})
		w.refused("too many scatter entries", err, ib.EINVAL)
	}
}

// illegalModify asks for changes of state that no table allows, or that lack or have
// an attribute too many.
func (w *world) illegalModify(l *link) {
	type change struct {
		name string
		a    qp.Attr
		mask ib.AttrMask
	}
	c := oneOf(w.t, "change",
		change{"to INIT", qp.Attr{State: ib.StateInit, PortNum: 1}, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags},
		change{"to RTR", qp.Attr{State: ib.StateRTR}, 0},
		change{"to SQE", qp.Attr{State: ib.StateSQE}, 0},
		change{"a Q_Key on RC", qp.Attr{State: ib.StateRTS}, ib.AttrQKey},
		change{"wrong cur_qp_state", qp.Attr{State: ib.StateRTS, CurState: ib.StateInit}, ib.AttrCurState},
		change{"no such state", qp.Attr{State: 17}, 0})
	err := w.nodes[l.node].Dev.ModifyQP(w.w.Now(), l.q, &c.a, c.mask|ib.AttrState)
	w.refused(c.name, err, ib.EINVAL)
}

func (w *world) refused(what string, err error, want ib.Errno) {
	if !errors.Is(err, want) {
		w.t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// TestIllegalCallsBeforeRTS posts where the state does not allow it.
func illegalBeforeRTS(t *rapid.T) {
	w := newWorld(t, drawPlan(t))
	l := w.links[0]
	w.modifyTo(l, ib.StateReset)
	d, send, recv := w.nodes[0].Dev, []swqe.SendWR{{Opcode: ib.WRSend}}, []swqe.RecvWR{{}}
	_, err := d.PostSend(l.q, send)
	w.refused("post_send in RESET", err, ib.EINVAL)
	if !l.shared {
		_, err = d.PostRecv(l.q, recv)
		w.refused("post_recv in RESET", err, ib.EINVAL)
	}
	required := []ib.AttrMask{ib.AttrPKeyIndex, ib.AttrPort, ib.AttrAccessFlags}
	missing := oneOf(t, "missing", required...)
	a := qp.Attr{State: ib.StateInit, PortNum: 1}
	full := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags
	w.refused("INIT with an attribute missing", d.ModifyQP(0, l.q, &a, full&^missing), ib.EINVAL)
	w.refused("INIT with one too many", d.ModifyQP(0, l.q, &a, full|ib.AttrSQPSN), ib.EINVAL)
	w.must(d.ModifyQP(0, l.q, &a, full))
	_, err = d.PostSend(l.q, send)
	w.refused("post_send in INIT", err, ib.EINVAL)
	if l.q.State != ib.StateInit || l.q.Outstanding() != 0 {
		t.Fatalf("refused calls changed the QP: %v, %d outstanding", l.q.State, l.q.Outstanding())
	}
}
