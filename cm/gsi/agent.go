// Package gsi puts a connection manager on a node: it owns the node's QP1, the general
// services interface, carries the datagrams of a [cm.Manager] over it, and gives the
// manager a clock.
//
// An [Agent] has one lock, which makes its holder the owner of the manager. It is taken
// before the node's.
package gsi

import (
	"errors"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

const (
	// maxRecvs is how many datagrams can wait at QP1, if the device allows so many. Linux
	// has 512 (IB_MAD_QP_RECV_SIZE). More are lost; the retries of their senders repair
	// that, but an id that is destroyed sends its DREQ once, and a thousand connections may
	// end in the same moment.
	maxRecvs = 4096
	// sends is how many datagrams are under way at once. More wait in the manager.
	sends = 256
	// slotBytes is what a receive keeps of a datagram.
	slotBytes = ib.GRHBytes + cm.MADBytes
	// slabBase is the address of the first receive's memory.
	slabBase = 0x10000
	// DefaultAckDelay (local_ca_ack_delay) is what rxe says.
	DefaultAckDelay = 15
)

// ErrGone is what calls return when the node does not work any more.
var ErrGone = errors.New("gsi: the device is gone")

// Config describes an agent.
type Config struct {
	// CM is the manager's configuration.
	CM cm.Config
	// Port is what the manager is to know of the node's port.
	Port cm.PortConfig
	// Events takes the manager's events, in order. The caller owns the manager: it may
	// use it, but must not call the agent, and must not keep the slice.
	Events func([]cm.Event)
	// Gone is called once when the node has stopped, before the manager's ids learn of
	// it. Nil means nothing.
	Gone func()
}

// Agent runs the connection manager of one node. Its methods are safe for concurrent use.
type Agent struct {
	cfg  Config
	node *node.Node

	// Of the device; used by its owner.
	pd       *rvt.PD
	sendCQ   *cq.CQ
	recvCQ   *cq.CQ
	qp       *qp.QP
	slab     *mr.Slice // where receives go
	lkey     ib.LKey
	excess   int // see createQP
	recvs    int // datagrams that can wait
	activity chan struct{}

	mu    sync.Mutex
	m     *cm.Manager
	port  *cm.Port
	timer *time.Timer
	open  int // sends whose completion was not polled
	dead  bool
	wc    [64]cq.WC
	out   [64]cm.Packet
	evs   [64]cm.Event
}

// New starts a connection manager on a node, until the node is closed or fails. The
// node has Events, because notifications come with them, and is not Manual.
func New(n *node.Node, cfg Config) (*Agent, error) {
	m, err := cm.New(cfg.CM)
	if err != nil {
		return nil, err
	}
	a := &Agent{cfg: cfg, node: n, m: m, activity: make(chan struct{}, 1)}
	if a.port, err = m.AddPort(cfg.Port); err != nil {
		return nil, err
	}
	d, err := n.Begin()
	if err != nil {
		return nil, err
	}
	if err = a.createQP(d); err != nil {
		a.undo(d)
	}
	n.End(node.SendNow)
	if err != nil {
		return nil, err
	}
	a.timer = time.AfterFunc(time.Hour, a.tick)
	go a.run()
	return a, nil
}

// createQP makes QP1 and everything for it. The receives share a place for what is
// longer than any message, so that a long datagram is no error and no waste either.
func (a *Agent) createQP(d *rvt.Device) (err error) {
	a.excess = ib.MTU4096.Bytes() - cm.MADBytes // the MTU may grow
	l := &d.Config().Limits
	a.recvs = min(maxRecvs, l.MaxQPWR, l.MaxCQE)
	a.slab = mr.NewSlice(slabBase, make([]byte, a.recvs*slotBytes+a.excess))
	if a.pd, err = d.AllocPD(); err != nil {
		return err
	}
	if a.sendCQ, err = d.CreateCQ(sends, nil); err != nil {
		return err
	}
	if a.recvCQ, err = d.CreateCQ(a.recvs, nil); err != nil {
		return err
	}
	a.sendCQ.Context, a.recvCQ.Context = a, a
	region, err := d.RegMR(a.pd, a.slab, slabBase, uint64(len(a.slab.Buf)), slabBase, ib.AccessLocalWrite)
	if err != nil {
		return err
	}
	a.lkey = region.LKey
	a.qp, err = d.CreateQP(a.pd, &qp.InitAttr{Context: a, Type: ib.QPTypeGSI, SendCQ: a.sendCQ, RecvCQ: a.recvCQ, SQSigAll: true,
		Cap: qp.Cap{MaxSendWR: sends, MaxRecvWR: a.recvs, MaxSendSGE: 1, MaxRecvSGE: 2, MaxInlineData: cm.MADBytes}})
	if err != nil {
		return err
	}
	for _, s := range []struct {
		attr qp.Attr
		mask ib.AttrMask
	}{
		{qp.Attr{State: ib.StateInit, QKey: ib.QKeyGSI}, ib.AttrState | ib.AttrPKeyIndex | ib.AttrQKey},
		{qp.Attr{State: ib.StateRTR}, ib.AttrState},
		{qp.Attr{State: ib.StateRTS}, ib.AttrState | ib.AttrSQPSN},
	} {
		if err := d.ModifyQP(a.node.Now(), a.qp, &s.attr, s.mask); err != nil {
			return err
		}
	}
	for i := range a.recvs {
		if err := a.postRecv(d, uint64(i)); err != nil {
			return err
		}
	}
	return nil
}

// undo removes what createQP made before it failed; errors could only say that the
// device is gone. The region goes with the device: nothing refers to it.
func (a *Agent) undo(d *rvt.Device) {
	if a.qp != nil {
		_ = d.DestroyQP(a.node.Now(), a.qp)
	}
	for _, q := range []*cq.CQ{a.sendCQ, a.recvCQ} {
		if q != nil {
			_ = d.DestroyCQ(q)
		}
	}
}

func (a *Agent) postRecv(d *rvt.Device, i uint64) error {
	sgl := [2]mr.SGE{
		{Addr: slabBase + i*slotBytes, Length: slotBytes, LKey: a.lkey},
		{Addr: slabBase + uint64(a.recvs*slotBytes), Length: uint32(a.excess), LKey: a.lkey},
	}
	_, err := d.PostRecv(a.qp, []swqe.RecvWR{{WRID: i, SGL: sgl[:]}})
	return err
}

// Notified implements node.Watcher: something has arrived, or was sent.
func (a *Agent) Notified() {
	select {
	case a.activity <- struct{}{}:
	default:
	}
}

// run serves QP1 until the node ends.
func (a *Agent) run() {
	for {
		a.mu.Lock()
		err := a.flush(true)
		a.mu.Unlock()
		if err != nil {
			a.die()
			return
		}
		select {
		case <-a.activity:
		case <-a.node.Done(): // the next flush fails
		}
	}
}

// tick is called when the manager's deadline has come.
func (a *Agent) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.dead {
		a.m.Expire(a.node.Now())
		_ = a.flush(false) // run learns of the end by itself
	}
}

// Do runs f as the owner of the manager, sends what came of it and hands on the events.
// f must not call the agent. It returns ErrGone without running f when the node has
// stopped, otherwise what f returns.
func (a *Agent) Do(f func(m *cm.Manager, now vtime.Time) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dead {
		return ErrGone
	}
	err := f(a.m, a.node.Now())
	_ = a.flush(false)
	return err
}

// DoAlways is Do for calls that make sense on ids of a device that is gone: to look at
// them, and to destroy them.
func (a *Agent) DoAlways(f func(m *cm.Manager, now vtime.Time) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := f(a.m, a.node.Now())
	_ = a.flush(false)
	return err
}

// SetPort tells the manager what the node's port has become.
func (a *Agent) SetPort(gids []ib.GID, mtu ib.MTU) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.m.SetPort(a.port, gids, mtu)
}

// Lock makes the caller the owner, for what the host keeps beside the manager. He must
// not make the manager do anything: use Do for that.
func (a *Agent) Lock() { a.mu.Lock() }

// Unlock ends Lock.
func (a *Agent) Unlock() { a.mu.Unlock() }

// flush sends what the manager has to send, and with receive set takes what has arrived
// before; it hands on events and sets the timer. The caller has the lock.
func (a *Agent) flush(receive bool) error {
	var err error
	for !a.dead && (receive || a.m.Pending()) {
		var d *rvt.Device
		if d, err = a.node.Begin(); err != nil {
			break
		}
		more := a.exchange(d, receive)
		a.node.End(node.SendNow)
		a.deliver()
		if !more {
			break
		}
	}
	a.deliver()
	if at := a.m.Deadline(); at == vtime.Never {
		a.timer.Stop()
	} else {
		a.timer.Reset(max(at.Sub(a.node.Now()), 0))
	}
	return err
}

// exchange moves one batch in each direction, as the owner of the device. It reports
// whether to come back.
func (a *Agent) exchange(d *rvt.Device, receive bool) (more bool) {
	if receive {
		n := d.PollCQ(a.recvCQ, a.wc[:])
		for i := range a.wc[:n] {
			a.receive(d, &a.wc[i])
		}
		// Armed before the last look, so that nothing is missed.
		more = n == len(a.wc) || d.ReqNotify(a.recvCQ, false)
	}
	for n := len(a.wc); n == len(a.wc); {
		n = d.PollCQ(a.sendCQ, a.wc[:])
		a.open -= n
	}
	for a.m.Pending() && a.open < sends {
		n := a.m.Emit(a.out[:min(len(a.out), sends-a.open)])
		for i := range a.out[:n] {
			a.send(d, &a.out[i])
		}
	}
	if a.m.Pending() {
		// They leave when the packets under way have left; that is announced.
		more = d.ReqNotify(a.sendCQ, false) || more
	}
	return more
}

// receive gives one datagram to the manager.
func (a *Agent) receive(d *rvt.Device, wc *cq.WC) {
	if wc.Status != ib.WCSuccess {
		return // flushed: the device goes down
	}
	b := a.slab.Buf[int(wc.WRID)*slotBytes:][:min(int(wc.ByteLen), slotBytes)]
	if path, ok := pathOf(b[:ib.GRHBytes]); ok && wc.ByteLen <= slotBytes {
		a.m.Receive(a.node.Now(), a.port, &path, b[ib.GRHBytes:])
	}
	_ = a.postRecv(d, wc.WRID) // fails only when the device goes down
}

// send posts a datagram. One that cannot be sent is as good as lost.
func (a *Agent) send(d *rvt.Device, p *cm.Packet) {
	ah, err := d.CreateAH(a.pd, p.AV)
	if err != nil {
		return
	}
	wr := [1]swqe.SendWR{{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: p.MAD[:], AH: ah, RemoteQPN: ib.QPNGSI, RemoteQKey: ib.QKeyGSI}}
	if _, err = d.PostSend(a.qp, wr[:]); err == nil {
		a.open++
	}
	_ = d.DestroyAH(ah) // what was posted with it is not affected
}

// deliver hands the manager's events on.
func (a *Agent) deliver() {
	for n := a.m.PollEvents(a.evs[:]); n > 0; n = a.m.PollEvents(a.evs[:]) {
		a.cfg.Events(a.evs[:n])
		clear(a.evs[:n])
	}
}

// die is called when the node has stopped: all ids learn of it.
func (a *Agent) die() {
	if a.cfg.Gone != nil {
		a.cfg.Gone()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = true
	a.m.RemovePort(a.node.Now(), a.port)
	a.deliver()
	a.timer.Stop()
}
