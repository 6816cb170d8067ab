package replay

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// player is a device of ours that plays one side of a conversation.
type player struct {
	flow   *Flow
	side   *Side
	client bool
	self   ib.GID
	peer   ib.GID

	dev  *rvt.Device
	pd   *rvt.PD
	buf  []byte
	mem  *mr.Slice
	mr   *rvt.MR
	cq   *cq.CQ
	qp   *qp.QP
	av   ib.AV
	out  rvt.Outbox
	sent []frame
	wcs  []cq.WC
	// refused is the verbs error that the real program got, too, or that our profile
	// gives instead.
	refused error
	actions []action
}

// newPlayer sets a device up as the side's adapter and program were.
func newPlayer(f *Flow, client bool, self, peer ib.GID, prof qp.Profile) (*player, error) {
	p := &player{flow: f, side: &f.Server, client: client, self: self, peer: peer}
	if client {
		p.side = &f.Client
	}
	cfg := rvt.DefaultConfig("replay", self)
	cfg.Profile = prof
	// How much is in flight is no matter of protocol, and a capture cannot answer to
	// another pace than its own.
	cfg.Profile.AdaptiveWindow = false
	cfg.MTU = ib.MTU1024 // what a 1500-byte link carries
	if mtu, _ := ib.MTUFromBytes(p.side.PathMTU); mtu > cfg.MTU && f.Client.Note != "" && len(f.Client.WC) > 0 {
		cfg.MTU = mtu // the link carried it, since the traffic completed
	}
	var err error
	if p.dev, err = rvt.New(cfg); err != nil {
		return nil, err
	}
	for _, step := range []func() error{p.memory, p.queue, p.connect, p.window} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// memory registers the side's buffer at its address and under its key.
func (p *player) memory() error {
	n := p.flow.Setup.SameBuffersSize
	if n < offResult+4096 {
		n = 65536
	}
	p.buf = make([]byte, n)
	base := 0x80
	if p.client {
		base = 0x40
	}
	for i := range p.buf {
		p.buf[i] = byte(base + i%61)
	}
	binary.LittleEndian.PutUint64(p.buf[offAtomic:], atomicInit)
	pd, err := p.dev.AllocPD()
	if err != nil {
		return err
	}
	p.pd = pd
	acc := ib.AccessLocalWrite | ib.AccessRemoteMask
	if !p.client {
		acc = ib.AccessLocalWrite | access(p.flow.Setup.ServerMRAccess)
	}
	va := uint64(p.side.VA)
	p.mem = mr.NewSlice(va, p.buf)
	if p.mr, err = p.dev.RegMR(pd, p.mem, va, uint64(n), va, acc); err != nil {
		return err
	}
	if p.binds() {
		return nil // the key in the file is the window's
	}
	return p.dev.Keys().Rekey(p.mr.Region, p.side.RKey)
}

func (p *player) binds() bool { return p.flow.Setup.ServerBindsMW && !p.client }

func (p *player) qpType() ib.QPType {
	return map[string]ib.QPType{"rc": ib.QPTypeRC, "uc": ib.QPTypeUC, "ud": ib.QPTypeUD}[p.flow.Setup.Transport]
}

func (p *player) queue() (err error) {
	if p.cq, err = p.dev.CreateCQ(128, nil); err != nil {
		return err
	}
	p.qp, err = p.dev.CreateQP(p.pd, &qp.InitAttr{SendCQ: p.cq, RecvCQ: p.cq, Type: p.qpType(),
		Cap: qp.Cap{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}})
	if err != nil {
		return err
	}
	if p.qp.QPN == p.side.QPN {
		return nil
	}
	return p.dev.Renumber(p.qp, p.side.QPN)
}

// connect brings the QP to RTS with the attributes that both programs used.
func (p *player) connect() error {
	s, side := &p.flow.Setup, p.side
	a := qp.Attr{State: ib.StateInit, PortNum: 1, AccessFlags: ib.AccessRemoteMask, QKey: qkeyGood}
	if !p.client {
		a.AccessFlags = access(s.ServerQPAccess)
	}
	p.av = ib.AV{DGID: p.peer, IsGlobal: true, PortNum: 1, HopLimit: 64}
	if s.AV != nil {
		p.av.TrafficClass, p.av.FlowLabel, p.av.HopLimit, p.av.SL = s.AV.TrafficClass, s.AV.FlowLabel, s.AV.HopLimit, s.AV.SL
	}
	a.AV = p.av
	a.PathMTU, _ = ib.MTUFromBytes(side.PathMTU)
	a.DestQPN, a.RQPSN, a.SQPSN = side.DestQPN, side.RQPSN, side.SQPSN
	a.MaxDestRdAtomic, a.MaxRdAtomic, a.MinRNRTimer = 16, 16, s.MinRNRTimer
	a.Timeout, a.RetryCnt, a.RNRRetry = s.Timeout, s.RetryCnt, s.RNRRetry
	for _, to := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		mask, _, ok := qp.TransitionMasks(p.qp.State, to, p.qp.Type)
		if !ok {
			return fmt.Errorf("replay: no way from %s to %s", p.qp.State, to)
		}
		a.State = to
		if err := p.dev.ModifyQP(0, p.qp, &a, mask|ib.AttrState); err != nil {
			p.refused = err
			return nil
		}
	}
	return nil
}

// window binds the memory window whose key the client uses.
func (p *player) window() error {
	if !p.binds() {
		return nil
	}
	key := ib.RKey(p.side.RKey)
	big, err := p.dev.RegMR(p.pd, p.mem, uint64(p.side.VA), uint64(len(p.buf)), uint64(p.side.VA), ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind)
	if err != nil {
		return err
	}
	w, err := p.dev.AllocMW(p.pd, ib.MWType2)
	if err != nil {
		return err
	}
	if err := p.dev.Keys().RekeyWindow(w, uint32(key)&^0xff|uint32(uint8(key)-1)); err != nil {
		return err
	}
	_, err = p.dev.PostSend(p.qp, []swqe.SendWR{{WRID: 50, Opcode: ib.WRBindMW, Flags: ib.SendSignaled,
		Bind: swqe.BindInfo{MW: w, RKey: key, MR: big.Region, Addr: uint64(p.side.VA), Length: uint64(len(p.buf)), Access: ib.AccessRemoteRead | ib.AccessRemoteWrite}}})
	p.drain(0)
	return err
}

// postRecvs posts the side's receives.
func (p *player) postRecvs() error {
	s := &p.flow.Setup
	if p.client && !s.ServerPostsToo {
		return nil
	}
	for i := range s.RecvCount {
		addr := uint64(p.side.VA)
		if s.RecvCount > 1 && s.RecvBytes <= 256 {
			addr += uint64(256 * i)
		}
		wr := swqe.RecvWR{WRID: uint64(200 + i), SGL: []mr.SGE{{Addr: addr, Length: uint32(s.RecvBytes), LKey: p.mr.LKey}}}
		if _, err := p.dev.PostRecv(p.qp, []swqe.RecvWR{wr}); err != nil {
			return err
		}
	}
	return nil
}

// postOps posts the side's work requests.
func (p *player) postOps() error {
	ops, err := parseOps(p.side.Ops)
	if err != nil {
		return err
	}
	var ah *swqe.AH
	if p.qp.Type == ib.QPTypeUD {
		if ah, err = p.dev.CreateAH(p.pd, p.av); err != nil {
			return err
		}
	}
	for i := range ops {
		wr := ops[i].workRequest(i, p.side, p.mr.LKey, len(p.buf))
		if ah != nil {
			wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, p.side.DestQPN, qkeyGood
			if ops[i].badQKey {
				wr.RemoteQKey = qkeyBad
			}
		}
		if _, err := p.dev.PostSend(p.qp, []swqe.SendWR{wr}); err != nil {
			p.refused = err
			return nil
		}
	}
	return nil
}

// drain lets the device send all it wants, and polls.
func (p *player) drain(now vtime.Time) {
	var gather mr.Batch
	for more := true; more; {
		p.out.Reset()
		more = p.dev.Emit(now, &p.out, 64)
		for i := range p.out.Packets {
			t := &p.out.Packets[i]
			payload := make([]byte, t.Len)
			p.out.Gather(&gather, i, payload)
			f := frame{at: now, path: t.Path, pkt: t.Pkt}
			f.pkt.Payload = payload
			p.sent = append(p.sent, f)
		}
		gather.Read()
		p.dev.Commit(now)
	}
	var wcs [16]cq.WC
	for n := p.cq.Poll(wcs[:]); n > 0; n = p.cq.Poll(wcs[:]) {
		p.wcs = append(p.wcs, wcs[:n]...)
	}
	for i := range p.sent {
		if f := &p.sent[i]; f.raw == nil {
			f.raw = wire.AppendPacket(nil, &f.pkt)
		}
	}
}

// receive feeds one packet of the capture.
func (p *player) receive(now vtime.Time, f *frame) {
	path, pkt := f.path, f.pkt
	p.dev.Receive(now, &path, &pkt)
	p.dev.Commit(now)
	p.drain(now)
}

// advance runs timers up to, not including, instant to.
func (p *player) advance(to vtime.Time) {
	for at := p.dev.Deadline(); at < to; at = p.dev.Deadline() {
		p.dev.Expire(at)
		p.dev.Commit(at)
		p.drain(at)
	}
}

// linger is how long timers may run after the last packet of a capture.
const linger = 2 * time.Second
