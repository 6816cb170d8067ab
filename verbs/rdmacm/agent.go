package rdmacm

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/wire"
)

const (
	// gsiRecvs is how many datagrams can wait at QP1 (Linux: IB_MAD_QP_RECV_SIZE). More
	// are lost; the retries of their senders repair that.
	gsiRecvs = 512
	// gsiSends is how many datagrams are under way at once. More wait in the manager.
	gsiSends = 256
	// ackDelay (local_ca_ack_delay) is what rxe says.
	ackDelay = 15
	// slotBytes is what a receive keeps of a datagram.
	slotBytes = ib.GRHBytes + cm.MADBytes
)

// agents are the connection managers of the devices of this process.
var agents = struct {
	sync.Mutex
	of map[*verbs.Device]*agent
}{of: map[*verbs.Device]*agent{}}

// agent runs the connection manager of one device: it owns QP1. Its lock is taken before
// those of the device and of event channels.
type agent struct {
	dev   *verbs.Device
	pd    *verbs.PD // of QP1, and the default for programs
	ch    *verbs.CompChannel
	sends *verbs.CQ
	recvs *verbs.CQ
	qp    *verbs.QP
	mr    *verbs.MR
	// excess is where the rest of datagrams goes that are longer than any message. All
	// receives share it, so that a long datagram is no error, and not a waste either.
	excess int

	mu    sync.Mutex
	m     *cm.Manager
	port  *cm.Port
	timer *time.Timer
	open  int // sends without a completion
	dead  bool
	wc    [64]verbs.WC
	out   [64]cm.Packet
	evs   [64]cm.Event
}

// Configure sets how the connection manager of a device behaves, before it is used for
// the first time: EBUSY later. Without it a device has cm.DefaultConfig and a random
// seed.
func Configure(dev *verbs.Device, cfg cm.Config) error {
	agents.Lock()
	defer agents.Unlock()
	if agents.of[dev] != nil {
		return ib.NewVerbError(ib.EBUSY, "configure", dev.Name(), "its connection manager runs already")
	}
	_, err := newAgent(dev, cfg)
	return err
}

// Start starts the connection manager of a device that has no ids yet, so that peers who
// call in vain are refused at once. A node without one looks like a node that is down.
func Start(dev *verbs.Device) error {
	_, err := agentOf(dev)
	return err
}

// agentOf returns the connection manager of a device, and starts it if need be.
func agentOf(dev *verbs.Device) (*agent, error) {
	if dev == nil {
		return nil, ib.NewVerbError(ib.EINVAL, "create_id", "", "there is no device")
	}
	agents.Lock()
	defer agents.Unlock()
	if a := agents.of[dev]; a != nil {
		return a, nil
	}
	cfg := cm.DefaultConfig()
	cfg.Seed = rand.Uint64() // a node that starts again must not look like its former self
	return newAgent(dev, cfg)
}

// newAgent starts a connection manager. The caller has the lock of agents.
func newAgent(dev *verbs.Device, cfg cm.Config) (*agent, error) {
	m, err := cm.New(cfg)
	if err != nil {
		return nil, err
	}
	a := &agent{dev: dev, m: m}
	if err := a.addPort(); err != nil {
		return nil, err
	}
	if err := a.createQP(); err != nil {
		a.undo()
		return nil, err
	}
	a.timer = time.AfterFunc(time.Hour, a.tick)
	agents.of[dev] = a
	go a.run()
	return a, nil
}

func (a *agent) addPort() error {
	attr, err := a.dev.QueryDevice()
	if err != nil {
		return err
	}
	port, err := a.dev.QueryPort(1)
	if err != nil {
		return err
	}
	cfg := cm.PortConfig{Name: attr.Name, GUID: attr.NodeGUID, Num: 1, MTU: port.ActiveMTU, AckDelay: ackDelay}
	for i := range port.GIDTableLen {
		g, err := a.dev.QueryGID(1, i)
		if err != nil {
			return err
		}
		cfg.GIDs = append(cfg.GIDs, g)
	}
	a.excess = port.ActiveMTU.Bytes() - cm.MADBytes
	a.port, err = a.m.AddPort(cfg)
	return err
}

// createQP makes QP1 and everything for it.
func (a *agent) createQP() (err error) {
	if a.pd, err = a.dev.AllocPD(); err != nil {
		return err
	}
	if a.ch, err = a.dev.CreateCompChannel(); err != nil {
		return err
	}
	if a.sends, err = a.dev.CreateCQ(gsiSends, a.ch); err != nil {
		return err
	}
	if a.recvs, err = a.dev.CreateCQ(gsiRecvs, a.ch); err != nil {
		return err
	}
	a.qp, err = a.pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeGSI, SendCQ: a.sends, RecvCQ: a.recvs, SQSigAll: true,
		Cap: verbs.QPCap{MaxSendWR: gsiSends, MaxRecvWR: gsiRecvs, MaxSendSGE: 1, MaxRecvSGE: 2, MaxInlineData: cm.MADBytes}})
	if err != nil {
		return err
	}
	if a.mr, err = a.pd.RegMR(make([]byte, gsiRecvs*slotBytes+a.excess), ib.AccessLocalWrite); err != nil {
		return err
	}
	for _, s := range []struct {
		attr verbs.QPAttr
		mask ib.AttrMask
	}{
		{verbs.QPAttr{State: ib.StateInit, QKey: ib.QKeyGSI}, ib.AttrState | ib.AttrPKeyIndex | ib.AttrQKey},
		{verbs.QPAttr{State: ib.StateRTR}, ib.AttrState},
		{verbs.QPAttr{State: ib.StateRTS}, ib.AttrState | ib.AttrSQPSN},
	} {
		if err := a.qp.Modify(&s.attr, s.mask); err != nil {
			return err
		}
	}
	for i := range gsiRecvs {
		if err := a.postRecv(uint64(i)); err != nil {
			return err
		}
	}
	return a.dev.Exempt(1, 2, 1)
}

// undo removes what createQP made before it failed. Nothing of it has events, and errors
// could only say that the device is gone.
func (a *agent) undo() {
	ctx := context.Background()
	if a.qp != nil {
		_ = a.qp.Destroy(ctx)
	}
	if a.mr != nil {
		_ = a.mr.Dereg()
	}
	for _, q := range []*verbs.CQ{a.sends, a.recvs} {
		if q != nil {
			_ = q.Destroy(ctx)
		}
	}
	if a.ch != nil {
		_ = a.ch.Destroy()
	}
	if a.pd != nil {
		_ = a.pd.Dealloc()
	}
}

func (a *agent) postRecv(i uint64) error {
	return a.qp.PostRecv(verbs.RecvWR{WRID: i, SGL: []verbs.SGE{a.mr.SGE(int(i)*slotBytes, slotBytes), a.mr.SGE(gsiRecvs*slotBytes, a.excess)}})
}

// run serves QP1 until the device is closed.
func (a *agent) run() {
	for _, q := range []*verbs.CQ{a.recvs, a.sends} {
		if q.ReqNotify(false) != nil {
			a.die()
			return
		}
	}
	a.serve()
	for {
		q, err := a.ch.Get(context.Background())
		if err != nil {
			a.die()
			return
		}
		_ = q.AckEvents(1) // one that Get gave
		if q.ReqNotify(false) != nil {
			a.die()
			return
		}
		a.serve()
	}
}

// serve takes what has arrived.
func (a *agent) serve() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		n, err := a.recvs.Poll(a.wc[:])
		if err != nil || n == 0 {
			break
		}
		for i := range a.wc[:n] {
			a.receive(&a.wc[i])
		}
		a.flush()
	}
	a.flush()
}

// receive gives one datagram to the manager.
func (a *agent) receive(wc *verbs.WC) {
	if wc.Status != ib.WCSuccess {
		return // flushed: the device goes down
	}
	b := a.mr.Bytes()[int(wc.WRID)*slotBytes:][:min(wc.ByteLen, slotBytes)]
	if path, ok := pathOf(b[:ib.GRHBytes]); ok && wc.ByteLen <= slotBytes {
		a.m.Receive(a.now(), a.port, &path, b[ib.GRHBytes:])
	}
	_ = a.postRecv(wc.WRID) // fails only when the device goes down
}

// pathOf reads the network header that precedes a datagram.
func pathOf(h []byte) (p wire.Path, ok bool) {
	if h[0]>>4 == 6 {
		first := binary.BigEndian.Uint32(h)
		return wire.Path{Src: ib.GID(h[8:24]), Dst: ib.GID(h[24:40]), TClass: uint8(first >> 20), FlowLabel: first & 0xfffff, HopLimit: h[7]}, true
	}
	ip := h[20:]
	if ip[0]>>4 != 4 {
		return p, false
	}
	return wire.Path{Src: ib.GIDFromIPv4(ip[12], ip[13], ip[14], ip[15]), Dst: ib.GIDFromIPv4(ip[16], ip[17], ip[18], ip[19]), TClass: ip[1], HopLimit: ip[8]}, true
}

func (a *agent) now() (t nowTime) { return a.dev.Node().Now() }

// flush sends what the manager has to send, hands on its events, and sets the timer. It
// follows every input.
func (a *agent) flush() {
	for !a.dead && a.m.Pending() {
		if a.open == gsiSends {
			n, err := a.sends.Poll(a.wc[:])
			if err != nil || n == 0 {
				break // the event of the next completion goes on
			}
			a.open -= n
			continue
		}
		n := a.m.Emit(a.out[:min(len(a.out), gsiSends-a.open)])
		for i := range a.out[:n] {
			a.send(&a.out[i])
		}
	}
	for n := a.m.PollEvents(a.evs[:]); n > 0; n = a.m.PollEvents(a.evs[:]) {
		for i := range a.evs[:n] {
			a.dispatch(&a.evs[i])
			a.evs[i] = cm.Event{}
		}
	}
	if at := a.m.Deadline(); at == never {
		a.timer.Stop()
	} else {
		a.timer.Reset(max(at.Sub(a.now()), 0))
	}
}

// send posts a datagram. One that cannot be sent is as good as lost.
func (a *agent) send(p *cm.Packet) {
	ah, err := a.pd.CreateAH(p.AV)
	if err != nil {
		return
	}
	err = a.qp.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: p.MAD[:], AH: ah, RemoteQPN: ib.QPNGSI, RemoteQKey: ib.QKeyGSI})
	if err == nil {
		a.open++
	}
	_ = ah.Destroy() // what was posted with it is not affected
}

// tick is called when the manager's deadline has come.
func (a *agent) tick() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.m.Expire(a.now())
	a.flush()
}

// do runs f as the owner of the manager.
func (a *agent) do(f func(m *cm.Manager, now nowTime) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := f(a.m, a.now())
	a.flush()
	return err
}

// die is called when the device is gone: all ids learn of it.
func (a *agent) die() {
	agents.Lock()
	if agents.of[a.dev] == a {
		delete(agents.of, a.dev)
	}
	agents.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.dead = true
	a.m.RemovePort(a.now(), a.port)
	a.flush()
}
