package qp

import (
	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// congestion is what a QP of a device with congestion control has besides (see package
// dcqcn): its rate limit as a sender of data, and the notification it owes as a receiver.
type congestion struct {
	flow   dcqcn.Flow
	wakeAt vtime.Time // when a packet that the limit holds back may go; Never if none is
	due    bool       // a CNP waits to be sent
	to     ib.GID     // where it goes
	toQPN  ib.QPN
}

func newCongestion(e *Env) *congestion {
	if e.Congestion == nil {
		return nil
	}
	return &congestion{wakeAt: vtime.Never}
}

func (c *congestion) reset() {
	if c != nil {
		*c = congestion{wakeAt: vtime.Never}
	}
}

// Flow returns the congestion control of the QP, for observers; nil without.
func (q *QP) Flow() *dcqcn.Flow {
	if q.cc == nil {
		return nil
	}
	return &q.cc.flow
}

// held reports whether the rate limit keeps data back at now. If there are any, it notes
// when they may go.
func (q *QP) held(now vtime.Time) bool {
	c := q.cc
	if c == nil {
		return false
	}
	c.wakeAt = vtime.Never
	at := c.flow.ReadyAt(q.Env.Congestion, now)
	if at <= now {
		return false
	}
	if q.resp.n > 0 || q.SCur != q.SHead {
		c.wakeAt = at
	}
	return true
}

// charge makes the packet that was emitted last count against the rate limit if it is a
// request or carries data, and lets switches mark it. Acknowledgements and CNPs are free.
func (q *QP) charge(now vtime.Time, o *Outbox) {
	if q.cc == nil {
		return
	}
	p := &o.Packets[len(o.Packets)-1]
	if p.Pkt.Opcode == ib.OpAcknowledge || p.Pkt.Opcode == ib.OpAtomicAck {
		return
	}
	p.Path.TClass = p.Path.TClass&^wire.ECNMask | wire.ECT0
	n := p.Pkt.HeaderBytes() + p.Len + int(p.Pkt.Pad) + wire.ICRCBytes
	q.cc.flow.Sent(q.Env.Congestion, now, n+wire.FrameOverheadBytes(p.Path.IsIPv4()))
}

// congested takes note of a packet that was marked on its way. The sender is told by a
// CNP.
func (q *QP) congested(now vtime.Time, from *wire.Path, pkt *wire.Packet) {
	c := q.cc
	if c == nil || from.TClass&wire.ECNMask != wire.ECNCE {
		return
	}
	q.Env.Ctr.ECNMarked++
	if !c.flow.Marked(q.Env.Congestion, now) {
		return
	}
	c.due, c.to, c.toQPN = true, from.Src, q.Attr.DestQPN
	if q.Type == ib.QPTypeUD {
		c.toQPN = pkt.DETH.SrcQP
	}
}

// emitCNP sends the notification that is due, if one is. It goes before everything else.
func (q *QP) emitCNP(o *Outbox) bool {
	c := q.cc
	if c == nil || !c.due {
		return false
	}
	c.due = false
	p := o.add()
	p.Pkt.Opcode = ib.OpcodeCNP
	p.Pkt.BECN = true
	q.bth(p, 0)
	p.Pkt.DestQP = c.toQPN
	p.Path.Dst = c.to
	p.Path.TClass = q.Env.Congestion.CNPDSCP<<2 | wire.ECT0
	q.Env.Ctr.SentCNP++
	return true
}

// ReceiveCNP takes a congestion notification packet that arrived over path from: the rate
// of what the QP sends goes down.
func (q *QP) ReceiveCNP(now vtime.Time, from *wire.Path, pkt *wire.Packet) wire.DropReason {
	connected := q.Type == ib.QPTypeRC || q.Type == ib.QPTypeUC
	switch {
	case q.cc == nil:
		return wire.DropUnknownOpcode
	case !q.can(ProcessRecvOK):
		return wire.DropQPState
	case !ib.PKeyMatch(pkt.PKey, ib.PKeyDefault):
		return wire.DropBadPKey
	case connected && from.Src != q.Attr.AV.DGID:
		return wire.DropWrongPath
	}
	q.cc.flow.CNP(q.Env.Congestion, now)
	q.Env.Ctr.HandledCNP++
	return wire.DropNone
}
