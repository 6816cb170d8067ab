package workload

import (
	"encoding/binary"
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// qkey guards the UD QPs of all flows.
const qkey ib.QKey = 0x1ee7c0de & (1<<31 - 1)

// Setup creates the endpoint's objects, with QPs in INIT, and returns what the peer
// needs. The error is that of the call that the device refused.
func (e *Endpoint) Setup(now vtime.Time) (Info, error) {
	if err := e.setup(now); err != nil {
		return Info{}, fmt.Errorf("workload: %s: %w", e.Name(), err)
	}
	return e.info, nil
}

func (e *Endpoint) setup(now vtime.Time) error {
	var err error
	if e.pd, err = e.dev.AllocPD(); err != nil {
		return err
	}
	if err := e.registerMemory(); err != nil {
		return err
	}
	s := &e.Spec
	windows := 0
	if e.role.receives && s.takes(ib.WRSendWithInv) {
		windows = s.windows()
	}
	sends, recvs := windows, e.lay.recvSlots
	if e.role.sends {
		sends += s.Depth
	}
	if e.scq, err = e.dev.CreateCQ(max(s.QPs*sends, 1), nil); err != nil {
		return err
	}
	if e.rcq, err = e.dev.CreateCQ(max(recvs, 1), nil); err != nil {
		return err
	}
	e.scq.Context, e.rcq.Context = e, e
	if s.SRQSize > 0 && e.role.receives && e.lay.recvSlots > 0 {
		e.srq, err = e.dev.CreateSRQ(e.pd, rvt.SRQAttr{MaxWR: s.SRQSize, MaxSGE: s.sges()}, nil)
		if err != nil {
			return err
		}
		e.srq.Context = e
		e.srqRing = newRecvRing(0, s.SRQSize)
		e.rearmSRQ = s.SRQLimit > 0
	}
	e.index = make(map[ib.QPN]int, s.QPs)
	e.info = Info{GID: e.dev.GIDs()[0], MTU: e.dev.Config().MTU}
	for i := range s.QPs {
		if err := e.createQP(now, i, sends, windows); err != nil {
			return err
		}
	}
	if e.remote != nil {
		e.info.RKey, e.info.NoAccessRKey = e.remote.RKey, e.locked.RKey
		e.info.RemoteBytes = e.remote.Length
	}
	return nil
}

// registerMemory makes the buffer and its regions: one for local use, and one for the
// peer with a twin that it may not use.
func (e *Endpoint) registerMemory() error {
	l := &e.lay
	if e.void() {
		e.buf = e.tmp.memory(l.total)
		e.mem = mr.NewSlice(localBase, e.buf)
		e.mem.Void = true
		return e.registerRegions()
	}
	e.buf = make([]byte, l.total)
	fillCanary(e.buf)
	if l.readBytes > 0 {
		readZonePattern(e.Spec.Seed, e.out).fill(e.buf[l.readAt : l.readAt+l.readBytes])
	}
	if l.atomicAt > 0 {
		for i := range e.Spec.QPs + 1 {
			binary.LittleEndian.PutUint64(e.buf[l.atomicWord(i):], 0)
		}
	}
	e.mem = mr.NewSlice(localBase, e.buf)
	return e.registerRegions()
}

func (e *Endpoint) registerRegions() error {
	l := &e.lay
	var err error
	e.local, err = e.dev.RegMR(e.pd, e.mem, localBase, uint64(l.remoteAt), localBase, ib.AccessLocalWrite)
	if err != nil {
		return err
	}
	n := uint64(l.total - l.remoteAt)
	if l.atomicAt == 0 && l.wndAt == 0 {
		return nil
	}
	at := localBase + uint64(l.remoteAt)
	if e.remote, err = e.dev.RegMR(e.pd, e.mem, at, n, remoteIOVA, ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind); err != nil {
		return err
	}
	e.locked, err = e.dev.RegMR(e.pd, e.mem, at, n, remoteIOVA, ib.AccessLocalWrite)
	return err
}

func (e *Endpoint) createQP(now vtime.Time, i, sends, windows int) error {
	s := &e.Spec
	c := &conn{i: i}
	recvs := 0
	if e.role.receives && e.lay.recvSlots > 0 && e.srq == nil {
		recvs = s.RecvDepth
		c.recv.ring = newRecvRing(i*recvs, recvs)
	}
	inline := 0
	if s.Inline {
		inline = min(e.dev.Config().Limits.MaxInline, max(s.Sizes.Longest(), 0))
	}
	var err error
	c.q, err = e.dev.CreateQP(e.pd, &qp.InitAttr{Context: e, SendCQ: e.scq, RecvCQ: e.rcq, SRQ: e.srq, Type: s.Transport,
		Cap: qp.Cap{MaxSendWR: max(sends, 1), MaxRecvWR: recvs, MaxSendSGE: s.sges(), MaxRecvSGE: s.sges(), MaxInlineData: inline}})
	if err != nil {
		return err
	}
	a := qp.Attr{State: ib.StateInit, PortNum: 1, QKey: qkey, AccessFlags: ib.AccessRemoteMask}
	m := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort
	if s.Transport == ib.QPTypeUD {
		m |= ib.AttrQKey
	} else {
		m |= ib.AttrAccessFlags
	}
	if err := e.dev.ModifyQP(now, c.q, &a, m); err != nil {
		return err
	}
	info := QPInfo{QPN: c.q.QPN, PSN: s.firstPSN(e.out, i)}
	for range windows {
		w, err := e.dev.AllocMW(e.pd, ib.MWType2)
		if err != nil {
			return err
		}
		key := nextKey(w.RKey)
		c.mws = append(c.mws, window{mw: w, next: key})
		info.Windows = append(info.Windows, key)
	}
	c.send = newSender(s, e.out, i, e.role.sends)
	c.recv.expect(newScript(s, e.out.other(), i))
	e.qps = append(e.qps, c)
	e.index[c.q.QPN] = i
	e.info.QPs = append(e.info.QPs, info)
	return nil
}

// firstPSN is where a QP starts to number its packets.
func (s *Spec) firstPSN(dir direction, i int) ib.PSN {
	if s.PSN != nil && dir == toServer {
		return s.PSN.Add(i)
	}
	return ib.PSN(mix(mix(s.Seed, seedPSN), uint64(dir)<<32|uint64(i))) & ib.PSNMask
}

// Connect takes the peer's Info and moves the QPs to RTS. The delays of the spec count
// from now.
func (e *Endpoint) Connect(now vtime.Time, peer Info) error {
	if len(peer.QPs) != len(e.qps) {
		return fmt.Errorf("workload: %s: the peer has %d QPs, this end has %d", e.Name(), len(peer.QPs), len(e.qps))
	}
	e.peerInfo = peer
	for i, c := range e.qps {
		c.peer = peer.QPs[i]
		if err := e.connectQP(now, c); err != nil {
			return fmt.Errorf("workload: %s: %w", e.Name(), err)
		}
	}
	e.connected = true
	e.startAt, e.recvAt = now.Add(e.Spec.Start), now.Add(e.Spec.ReceiverDelay)
	if e.role.sends {
		for i := range e.qps {
			e.ready = append(e.ready, i)
		}
		e.open = len(e.qps)
		e.wakeAt = e.startAt
	}
	if e.lay.wndAt > 0 {
		for _, c := range e.qps {
			for i := range c.mws {
				e.bind(c, i)
			}
		}
	}
	return nil
}

func (e *Endpoint) connectQP(now vtime.Time, c *conn) error {
	s := &e.Spec
	av := ib.AV{DGID: e.peerInfo.GID, IsGlobal: true, PortNum: 1, HopLimit: 64}
	mtu := s.PathMTU
	if mtu == 0 {
		mtu = min(e.peerInfo.MTU, e.dev.Config().MTU)
	}
	a := qp.Attr{State: ib.StateRTR, AV: av, PathMTU: mtu, DestQPN: c.peer.QPN, RQPSN: c.peer.PSN,
		MaxDestRdAtomic: s.MaxDestRdAtomic, MinRNRTimer: s.MinRNRTimer}
	m := ib.AttrState
	switch s.Transport {
	case ib.QPTypeRC:
		m |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		fallthrough
	case ib.QPTypeUC:
		m |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	default:
		ah, err := e.dev.CreateAH(e.pd, av)
		if err != nil {
			return err
		}
		c.ah = ah
	}
	if err := e.dev.ModifyQP(now, c.q, &a, m); err != nil {
		return err
	}
	a = qp.Attr{State: ib.StateRTS, SQPSN: e.info.QPs[c.i].PSN, Timeout: s.Timeout, RetryCnt: s.RetryCnt,
		RNRRetry: s.RNRRetry, MaxRdAtomic: s.MaxRdAtomic}
	m = ib.AttrState | ib.AttrSQPSN
	if s.Transport == ib.QPTypeRC {
		m |= ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
	}
	return e.dev.ModifyQP(now, c.q, &a, m)
}

// window is a memory window that the peer's SEND_WITH_INV invalidates.
type window struct {
	mw   *mr.Window
	next ib.RKey // key of the next binding
	busy bool    // the binding has not completed
}

// nextKey (ibv_inc_rkey) steps the part of a key that belongs to the consumer.
func nextKey(k ib.RKey) ib.RKey { return k&^0xff | (k+1)&0xff }

// bindWRID marks the completions of bindings. Messages never count that far.
const bindWRID = 1 << 47

// bind binds window i of c, with its next key.
func (e *Endpoint) bind(c *conn, i int) {
	w := &c.mws[i]
	wr := swqe.SendWR{WRID: uint64(c.i)<<48 | bindWRID | uint64(i), Opcode: ib.WRBindMW, Flags: ib.SendSignaled,
		Bind: swqe.BindInfo{MW: w.mw, RKey: w.next, MR: e.remote.Region, Addr: e.lay.remote(e.lay.wndAt), Length: 8, Access: ib.AccessRemoteWrite}}
	if _, err := e.dev.PostSend(c.q, []swqe.SendWR{wr}); err != nil {
		if c.q.State != ib.StateErr {
			e.fail(err)
		}
		return
	}
	w.busy = true
	e.binding++
	w.next = nextKey(w.next)
}

// fail notes why nothing more is posted.
func (e *Endpoint) fail(err error) {
	if e.err == nil {
		e.err = fmt.Errorf("workload: %s: %w", e.Name(), err)
	}
}
