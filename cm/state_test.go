package cm

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// sourcePort is that of the packets of both QPs of a connection.
func TestFlowLabelDecidesSourcePort(t *testing.T) {
	require.Equal(t, uint16(0xc49e), wire.SourcePort(0x28494, 0x11, 0x12), "as captured with the REQ of cm_rc_rping")
	w := newWorld(t, 2, nil)
	a, b := w.established()
	attr := func(id *ID) ib.AV {
		q, _, err := id.InitQPAttr(ib.StateRTR)
		require.NoError(t, err)
		return q.AV
	}
	require.Equal(t, (31*uint32(a.src.Port)+7471)&0xfffff, attr(a).FlowLabel)
	require.Equal(t, attr(a).FlowLabel, attr(b).FlowLabel)
}

// peer is a frame-level peer: it sees what a manager sends and sends what it likes.
type peer struct {
	w   *world
	n   *node // the manager under test
	gid ib.GID
	got []Message
	hdr []Header
}

const peerGUID = 0xfeedface

func newPeer(w *world) *peer {
	p := &peer{w: w, n: w.nodes[0], gid: ib.GIDFromIPv4(10, 77, 0, 99)}
	w.fate = func(_ int, pkt *Packet) []time.Duration {
		require.Equal(w.t, p.gid, pkt.AV.DGID)
		h, m, err := Decode(pkt.MAD[:])
		require.NoError(w.t, err)
		p.got, p.hdr = append(p.got, m), append(p.hdr, h)
		return nil
	}
	return p
}

func (p *peer) send(m Message) {
	mad := Encode(Header{TID: 0x77}, m)
	p.n.m.Receive(p.w.now, p.n.port, &wire.Path{Src: p.gid, Dst: p.n.gid}, mad[:])
	p.n.m.check(p.w.t)
	p.w.flush()
}

// take returns what was sent since the last call.
func (p *peer) take() []Message {
	p.w.flush()
	out := p.got
	p.got = nil
	return out
}

// req is a REQ that a listener on port 7 takes.
func (p *peer) req(id CommID, qpn ib.QPN) *REQ {
	r := &REQ{LocalCommID: id, LocalQPN: qpn, ServiceID: NewServiceID(PSTCP, 7), LocalCAGUID: peerGUID, StartingPSN: 5, PathMTU: ib.MTU4096,
		RemoteResponseTimeout: 20, LocalResponseTimeout: 20, MaxCMRetries: 15, RetryCount: 6, RNRRetryCount: 5, ResponderResources: 3, InitiatorDepth: 5,
		Primary: Path{LocalGID: p.gid, RemoteGID: p.n.gid, HopLimit: 63, FlowLabel: 9, AckTimeout: 17}}
	PrivateHeader{IPVersion: 4, SrcPort: 1000, Src: p.gid, Dst: p.n.gid}.Put(r.Private[:])
	return r
}

// passive brings a passive exchange into a state.
func (p *peer) passive(s state) *ID {
	p.n.listen(PSTCP, ib.QPTypeRC, 7, 0)
	p.send(p.req(100, 200))
	id := p.n.last(EventConnectRequest).ID
	if s == stREQRcvd {
		return id
	}
	require.NoError(p.w.t, id.Accept(p.w.now, ConnParam{QPN: 0x55}))
	p.w.flush()
	switch s {
	case stREPSent:
		return id
	case stMRAREPRcvd:
		p.send(&MRA{LocalCommID: 100, RemoteCommID: id.conn.localID, Message: AboutREP, ServiceTimeout: 12})
		return id
	}
	p.send(&RTU{LocalCommID: 100, RemoteCommID: id.conn.localID})
	return p.later(id, s)
}

// later brings an established exchange further.
func (p *peer) later(id *ID, s state) *ID {
	t := p.w.t
	switch s {
	case stDREQSent:
		require.NoError(t, id.Disconnect(p.w.now))
	case stDREQRcvd, stTimeWait:
		p.send(&DREQ{LocalCommID: 100, RemoteCommID: id.conn.localID, RemoteQPN: id.conn.localQPN})
		if s == stTimeWait {
			require.NoError(t, id.Disconnect(p.w.now))
		}
	}
	p.w.flush()
	require.Equal(t, s, id.conn.state)
	return id
}

// active brings an active exchange into a state.
func (p *peer) active(s state) *ID {
	id := p.n.resolved(PSTCP, ib.QPTypeRC, Addr{}, AddrOf(p.gid, 7))
	require.NoError(p.w.t, id.Connect(p.w.now, ConnParam{QPN: 0x55, ResponderResources: 1, RetryCount: 9, RNRRetryCount: 9}))
	p.w.flush()
	switch s {
	case stREQSent:
		return id
	case stMRAREQRcvd:
		p.send(&MRA{LocalCommID: 100, RemoteCommID: id.conn.localID, Message: AboutREQ, ServiceTimeout: 12})
		return id
	}
	p.send(p.rep(id))
	if s == stREPRcvd {
		return id
	}
	require.NoError(p.w.t, id.Establish(p.w.now))
	return p.later(id, s)
}

func (p *peer) rep(id *ID) *REP {
	return &REP{LocalCommID: 100, RemoteCommID: id.conn.localID, LocalQPN: 200, StartingPSN: 6, LocalCAGUID: peerGUID, TargetACKDelay: 15, RNRRetryCount: 4, ResponderResources: 2, InitiatorDepth: 8}
}

// stimulus is one of the things that can happen to an exchange.
type stimulus struct {
	name  string
	apply func(p *peer, id *ID)
}

var (
	peerREJ = stimulus{"REJ 28", func(p *peer, id *ID) {
		about := AboutOther
		remote := id.conn.remoteID
		if remote == 0 {
			about = AboutREQ
			remote = 100
		}
		p.send(&REJ{LocalCommID: remote, RemoteCommID: id.conn.localID, Message: about, Reason: RejConsumerDefined})
	}}
	peerStale = stimulus{"REJ 10", func(p *peer, id *ID) {
		about := AboutOther
		if id.conn.remoteID == 0 {
			about = AboutREQ
		}
		p.send(&REJ{LocalCommID: 100, RemoteCommID: id.conn.localID, Message: about, Reason: RejStaleConn})
	}}
	peerGone = stimulus{"REJ 4", func(p *peer, id *ID) {
		rej := &REJ{LocalCommID: 100, Message: AboutOther, Reason: RejTimeout, InfoLength: 8}
		be.PutUint64(rej.Info[:], peerGUID)
		p.send(rej)
	}}
	peerDREQ = stimulus{"DREQ", func(p *peer, id *ID) {
		p.send(&DREQ{LocalCommID: 100, RemoteCommID: id.conn.localID, RemoteQPN: id.conn.localQPN})
	}}
	wrongDREQ = stimulus{"DREQ wrong QPN", func(p *peer, id *ID) {
		p.send(&DREQ{LocalCommID: 100, RemoteCommID: id.conn.localID, RemoteQPN: id.conn.localQPN + 1})
	}}
	peerDREP = stimulus{"DREP", func(p *peer, id *ID) { p.send(&DREP{LocalCommID: 100, RemoteCommID: id.conn.localID}) }}
	peerRTU  = stimulus{"RTU", func(p *peer, id *ID) { p.send(&RTU{LocalCommID: 100, RemoteCommID: id.conn.localID}) }}
	peerREQ  = stimulus{"REQ again", func(p *peer, id *ID) { p.send(p.req(100, 200)) }}
	peerREP  = stimulus{"REP again", func(p *peer, id *ID) { p.send(p.rep(id)) }}
	disc     = stimulus{"disconnect", func(p *peer, id *ID) { require.NoError(p.w.t, id.Disconnect(p.w.now)) }}
	reject   = stimulus{"reject", func(p *peer, id *ID) { _ = id.Reject(p.w.now, 0, []byte("no")) }}
	accept   = stimulus{"accept", func(p *peer, id *ID) { _ = id.Accept(p.w.now, ConnParam{QPN: 0x55}) }}
	confirm  = stimulus{"establish", func(p *peer, id *ID) { _ = id.Establish(p.w.now) }}
	commEst  = stimulus{"COMM_EST", func(p *peer, id *ID) { _ = id.Notify(p.w.now, ib.EventCommEst) }}
	destroy  = stimulus{"destroy", func(p *peer, id *ID) { id.Destroy(p.w.now) }}
	silence  = stimulus{"silence", func(p *peer, id *ID) { p.w.run(5 * time.Minute) }}
)

// passiveTable and activeTable: state, what happens, the state after that, what is sent,
// and which events are raised.
type row struct {
	from   state
	what   stimulus
	to     state
	sent   []Attr
	events []EventType
}

var passiveTable = []row{
	{stREQRcvd, peerREQ, stREQRcvd, []Attr{AttrMRA}, nil},
	{stREQRcvd, accept, stREPSent, []Attr{AttrREP}, nil},
	{stREQRcvd, reject, stIdle, []Attr{AttrREJ}, nil},
	{stREQRcvd, destroy, stIdle, []Attr{AttrREJ}, nil},
	{stREQRcvd, peerGone, stIdle, nil, nil},
	{stREQRcvd, peerREJ, stIdle, nil, nil},
	{stREQRcvd, peerDREQ, stREQRcvd, nil, nil},
	{stREQRcvd, disc, stREQRcvd, nil, nil},
	{stREQRcvd, silence, stREQRcvd, nil, nil},
	{stREPSent, peerRTU, stEstablished, nil, []EventType{EventEstablished}},
	{stREPSent, peerREQ, stREPSent, nil, nil},
	{stREPSent, peerDREQ, stDREQRcvd, nil, []EventType{EventDisconnected}},
	{stREPSent, peerREJ, stIdle, nil, []EventType{EventRejected}},
	{stREPSent, peerGone, stIdle, nil, []EventType{EventRejected}},
	{stREPSent, peerStale, stTimeWait, nil, []EventType{EventRejected}},
	{stREPSent, commEst, stEstablished, nil, []EventType{EventEstablished}},
	{stREPSent, destroy, stTimeWait, []Attr{AttrREJ}, nil},
	{stREPSent, accept, stTimeWait, []Attr{AttrREJ}, nil},
	{stREPSent, disc, stREPSent, nil, nil},
	{stMRAREPRcvd, peerRTU, stEstablished, nil, []EventType{EventEstablished}},
	{stMRAREPRcvd, peerDREQ, stDREQRcvd, nil, []EventType{EventDisconnected}},
	{stMRAREPRcvd, peerREJ, stIdle, nil, []EventType{EventRejected}},
	{stMRAREPRcvd, destroy, stTimeWait, []Attr{AttrREJ}, nil},
	{stEstablished, peerREQ, stEstablished, nil, nil},
	{stEstablished, peerRTU, stEstablished, nil, nil},
	{stEstablished, accept, stEstablished, nil, nil},
	{stEstablished, reject, stEstablished, nil, nil},
	{stEstablished, commEst, stEstablished, nil, nil},
}

var activeTable = []row{
	{stREQSent, peerREJ, stIdle, nil, []EventType{EventRejected}},
	{stREQSent, peerStale, stTimeWait, nil, []EventType{EventRejected}},
	{stREQSent, peerREP, stREPRcvd, nil, []EventType{EventConnectResponse}},
	{stREQSent, destroy, stIdle, []Attr{AttrREJ}, nil},
	{stREQSent, reject, stIdle, []Attr{AttrREJ}, nil},
	{stREQSent, confirm, stIdle, []Attr{AttrREJ}, nil},
	{stREQSent, disc, stREQSent, nil, nil},
	{stREQSent, peerDREP, stREQSent, nil, nil},
	{stMRAREQRcvd, peerREP, stREPRcvd, nil, []EventType{EventConnectResponse}},
	{stMRAREQRcvd, peerREJ, stIdle, nil, []EventType{EventRejected}},
	{stMRAREQRcvd, destroy, stIdle, []Attr{AttrREJ}, nil},
	{stREPRcvd, peerREP, stREPRcvd, []Attr{AttrMRA}, nil},
	{stREPRcvd, confirm, stEstablished, []Attr{AttrRTU}, nil},
	{stREPRcvd, reject, stIdle, []Attr{AttrREJ}, nil},
	{stREPRcvd, destroy, stIdle, []Attr{AttrREJ}, nil},
	{stREPRcvd, peerREJ, stTimeWait, nil, []EventType{EventRejected}},
	{stREPRcvd, peerDREQ, stREPRcvd, nil, nil},
	{stREPRcvd, silence, stREPRcvd, nil, nil},
	{stEstablished, peerREP, stEstablished, []Attr{AttrRTU}, nil},
	{stEstablished, confirm, stEstablished, nil, nil},
}

// bothTable holds for either side.
var bothTable = []row{
	{stEstablished, disc, stDREQSent, []Attr{AttrDREQ}, nil},
	{stEstablished, peerDREQ, stDREQRcvd, nil, []EventType{EventDisconnected}},
	{stEstablished, wrongDREQ, stEstablished, nil, nil},
	{stEstablished, peerREJ, stTimeWait, nil, []EventType{EventRejected}},
	{stEstablished, peerDREP, stEstablished, nil, nil},
	{stEstablished, destroy, stTimeWait, []Attr{AttrDREQ}, nil},
	{stEstablished, silence, stEstablished, nil, nil},
	{stDREQSent, peerDREP, stTimeWait, nil, []EventType{EventDisconnected}},
	{stDREQSent, peerDREQ, stDREQRcvd, nil, []EventType{EventDisconnected}},
	{stDREQSent, peerREJ, stTimeWait, nil, []EventType{EventRejected}},
	{stDREQSent, destroy, stTimeWait, nil, nil},
	{stDREQSent, disc, stDREQSent, nil, nil},
	{stDREQRcvd, disc, stTimeWait, []Attr{AttrDREP}, nil},
	{stDREQRcvd, destroy, stTimeWait, []Attr{AttrDREP}, nil},
	{stDREQRcvd, peerDREQ, stDREQRcvd, nil, nil},
	{stDREQRcvd, peerREQ, stDREQRcvd, nil, nil},
	{stDREQRcvd, peerDREP, stTimeWait, nil, nil},
	{stTimeWait, peerDREQ, stTimeWait, []Attr{AttrDREP}, nil},
	{stTimeWait, peerREJ, stTimeWait, nil, nil},
	{stTimeWait, disc, stTimeWait, nil, nil},
	{stTimeWait, destroy, stTimeWait, nil, nil},
}

// req: CM-REJ-03 CM-REJ-04 CM-DISC-01 CM-DISC-04
func TestStates(t *testing.T) {
	for _, side := range []struct {
		name  string
		make  func(*peer, state) *ID
		table []row
	}{
		{"passive", (*peer).passive, passiveTable}, {"active", (*peer).active, activeTable},
		{"passive", (*peer).passive, bothTable}, {"active", (*peer).active, bothTable},
	} {
		for _, r := range side.table {
			t.Run(side.name+"/"+r.from.String()+"/"+r.what.name, func(t *testing.T) {
				w := newWorld(t, 1, nil)
				p := newPeer(w)
				id := side.make(p, r.from)
				c := id.conn
				require.Equal(t, r.from, c.state)
				p.take()
				before := len(p.n.types(id))
				r.what.apply(p, id)
				var sent []Attr
				for _, m := range p.take() {
					sent = append(sent, m.Attr())
				}
				require.Equal(t, r.sent, sent)
				require.Equal(t, r.to, c.state)
				var events []EventType
				events = append(events, p.n.types(id)[before:]...)
				require.Equal(t, r.events, events)
				p.n.m.check(t)
				// Whatever the state, destroying the ids ends everything in time.
				for len(p.n.m.ids) > 0 {
					p.n.m.ids[0].Destroy(w.now)
				}
				w.run(time.Hour)
				w.checkEmpty()
			})
		}
	}
}

// TestRefusals checks the content of REJ in the states that may send one.
//
// req: CM-REJ-02
func TestRefusals(t *testing.T) {
	guid := be.AppendUint64(nil, 0x505400fffe770001)
	for _, c := range []struct {
		name    string
		make    func(*peer, state) *ID
		from    state
		what    stimulus
		about   About
		own     bool
		remote  CommID
		reason  Reason
		info    []byte
		private []byte
	}{
		{"request", (*peer).passive, stREQRcvd, reject, AboutREQ, true, 100, RejConsumerDefined, nil, []byte("no")},
		{"request destroyed", (*peer).passive, stREQRcvd, destroy, AboutREQ, true, 100, RejConsumerDefined, nil, nil},
		{"response", (*peer).active, stREPRcvd, reject, AboutREP, true, 100, RejConsumerDefined, nil, []byte("no")},
		{"reply destroyed", (*peer).passive, stREPSent, destroy, AboutOther, true, 100, RejConsumerDefined, nil, nil},
		{"given up", (*peer).active, stREQSent, destroy, AboutOther, true, 0, RejTimeout, guid, nil},
	} {
		w := newWorld(t, 1, nil)
		p := newPeer(w)
		id := c.make(p, c.from)
		own := id.conn.localID
		p.take()
		c.what.apply(p, id)
		got := p.take()
		require.Len(t, got, 1, c.name)
		want := &REJ{RemoteCommID: c.remote, Message: c.about, Reason: c.reason, InfoLength: uint8(len(c.info))}
		if c.own {
			want.LocalCommID = own
		}
		copy(want.Info[:], c.info)
		copy(want.Private[:], c.private)
		require.Equal(t, want, got[0], c.name)
	}
}

// TestREQRefused checks the requests that nobody gets to see.
//
// req: CM-REJ-06
func TestREQRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(r *REQ)
		reason Reason // 0: taken
	}{
		{"good", func(*REQ) {}, 0},
		{"no listener", func(r *REQ) { r.ServiceID++ }, RejInvalidServiceID},
		{"service ID of another kind", func(r *REQ) { r.ServiceID |= 1 << 60 }, RejInvalidServiceID},
		{"other port space", func(r *REQ) { r.ServiceID = NewServiceID(PSIB, 7) }, RejInvalidServiceID},
		{"remote GID not ours", func(r *REQ) { r.Primary.RemoteGID[15]++ }, RejInvalidGID},
		{"local GID zero", func(r *REQ) { r.Primary.LocalGID = ib.GID{} }, RejInvalidGID},
		{"local GID of another family", func(r *REQ) { r.Primary.LocalGID = ib.GID{0xfd, 15: 1} }, RejInvalidGID},
		{"header version", func(r *REQ) { r.Private[0] = 1 }, RejConsumerDefined},
		{"IP version 5", func(r *REQ) { r.Private[1] = 0x50 }, RejConsumerDefined},
		{"IPv6 header to an IPv4 listener", func(r *REQ) { r.Private[1] = 0x60 }, RejConsumerDefined},
		{"destination not ours", func(r *REQ) { r.Private[35]++ }, RejConsumerDefined},
		{"source 0.0.0.0", func(r *REQ) { copy(r.Private[16:20], []byte{0, 0, 0, 0}) }, RejConsumerDefined},
		{"source broadcast", func(r *REQ) { copy(r.Private[16:20], []byte{255, 255, 255, 255}) }, RejConsumerDefined},
		{"source loopback", func(r *REQ) { copy(r.Private[16:20], []byte{127, 0, 0, 1}) }, RejConsumerDefined},
		{"UC", func(r *REQ) { r.Transport = TransportUC }, RejConsumerDefined},
		{"XRC", func(r *REQ) { r.Transport, r.ExtTransport = TransportXRC, 1 }, RejConsumerDefined},
		{"limited P_Key", func(r *REQ) { r.PKey = 0x7fff }, 0},
		{"MTU 0, no retries, QPN 0", func(r *REQ) { r.PathMTU, r.MaxCMRetries, r.LocalQPN = 0, 0, 0 }, 0},
	} {
		w := newWorld(t, 1, nil)
		p := newPeer(w)
		p.n.listen(PSTCP, ib.QPTypeRC, 7, 0)
		r := p.req(100, 200)
		c.edit(r)
		p.send(r)
		got := p.take()
		if c.reason == 0 {
			require.Empty(t, got, c.name)
			require.Len(t, p.n.events, 1, c.name)
			continue
		}
		require.Empty(t, p.n.events, c.name)
		require.Len(t, got, 1, c.name)
		rej := got[0].(*REJ)
		require.Equal(t, c.reason, rej.Reason, c.name)
		require.Equal(t, CommID(0), rej.LocalCommID, c.name)
		require.Equal(t, AboutREQ, rej.Message, c.name)
		require.Equal(t, uint64(0x77), p.hdr[0].TID, c.name)
		if c.reason == RejInvalidGID {
			require.Equal(t, uint8(16), rej.InfoLength)
			require.True(t, bytes.HasPrefix(rej.Info[:], p.n.gid[:]))
		}
	}
}

// TestStale checks what a REQ or REP about a QP that has a live connection does.
//
// req: CM-REJ-05
func TestStale(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	id := p.passive(stEstablished)
	p.take()
	p.send(p.req(101, 200))
	got := p.take()
	require.Equal(t, RejStaleConn, got[0].(*REJ).Reason)
	require.Equal(t, AttrDREQ, got[1].Attr())
	require.Equal(t, stDREQSent, id.conn.state)
	p.send(&DREP{LocalCommID: 100, RemoteCommID: id.conn.localID})
	require.Equal(t, EventDisconnected, p.n.events[len(p.n.events)-1].Type)
	p.send(p.req(102, 200))
	require.Equal(t, EventConnectRequest, p.n.events[len(p.n.events)-1].Type, "the next attempt succeeds")

	w = newWorld(t, 1, nil)
	p = newPeer(w)
	old := p.active(stEstablished)
	id = p.n.resolved(PSTCP, ib.QPTypeRC, Addr{}, AddrOf(p.gid, 7))
	require.NoError(t, id.Connect(w.now, ConnParam{QPN: 0x56}))
	p.take()
	rep := p.rep(id)
	rep.LocalCommID = 101
	p.send(rep)
	got = p.take()
	require.Equal(t, &REJ{RemoteCommID: 101, Message: AboutREP, Reason: RejStaleConn}, got[0])
	require.Equal(t, stDREQSent, old.conn.state)
	require.Equal(t, EventRejected, p.n.last(EventRejected).Type, "the attempt ends; Linux would hang in REQ_SENT")
	require.Equal(t, stTimeWait, id.conn.state)
}

// TestUnknown checks messages about exchanges that do not exist.
//
// req: CM-WIRE-04
func TestUnknown(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	for _, m := range []Message{&REP{LocalCommID: 1, RemoteCommID: 2}, &RTU{LocalCommID: 1, RemoteCommID: 2}, &MRA{LocalCommID: 1, RemoteCommID: 2},
		&REJ{LocalCommID: 1, RemoteCommID: 2}, &REJ{LocalCommID: 1, Reason: RejTimeout}, &DREP{LocalCommID: 1, RemoteCommID: 2}, &SIDRRep{RequestID: 2}, &LAP{LocalCommID: 1, RemoteCommID: 2}, &APR{}} {
		p.send(m)
		require.Empty(t, p.take(), "%v", m.Attr())
	}
	p.send(&DREQ{LocalCommID: 1, RemoteCommID: 2, RemoteQPN: 3})
	require.Equal(t, []Message{&DREP{LocalCommID: 2, RemoteCommID: 1}}, p.take())
	require.Equal(t, uint64(0x77), p.hdr[0].TID)
	require.Equal(t, uint64(2), w.nodes[0].m.Counters().DropPath)
}

// TestForeign checks what is not a message of the connection manager.
//
// req: CM-WIRE-04 CM-WIRE-05
func TestForeign(t *testing.T) {
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	var out [2]Packet
	path := wire.Path{Src: ib.GIDFromIPv4(10, 0, 0, 9), Dst: n.gid, TClass: 4}
	for _, c := range []struct {
		name   string
		mad    MAD
		answer bool
	}{
		{"performance Get", MAD{0: 1, 1: 4, 2: 1, 3: 1, 17: 0x12}, true},
		{"CM ClassPortInfo Get", MAD{0: 1, 1: 7, 2: 2, 3: 1, 17: 1}, true},
		{"SMI Get", MAD{0: 1, 1: 0x81, 2: 1, 3: 1}, false},
		{"other Send", MAD{0: 1, 1: 6, 2: 1, 3: 3}, false},
		{"CM class version 1", MAD{0: 1, 1: 7, 2: 1, 3: 3, 17: 0x10}, false},
		{"CM unknown attribute", MAD{0: 1, 1: 7, 2: 2, 3: 3, 17: 0x30}, false},
		{"base version", MAD{0: 2, 1: 4, 2: 1, 3: 1}, false},
	} {
		n.m.Receive(1, n.port, &path, c.mad[:])
		k := n.m.Emit(out[:])
		require.Equal(t, c.answer, k == 1, c.name)
		if c.answer {
			want := c.mad
			want[3], want[5] = 0x81, 0x0c
			require.Equal(t, want, out[0].MAD, c.name)
			require.Equal(t, path.Src, out[0].AV.DGID)
			require.Equal(t, uint8(4), out[0].AV.TrafficClass, "a reply has the traffic class of what it answers")
		}
	}
	n.m.Receive(1, n.port, &path, make([]byte, 260))
	n.m.Receive(1, n.port, &path, make([]byte, 23))
	n.m.Receive(1, n.port, &wire.Path{Src: path.Src, Dst: path.Src}, make([]byte, 256))
	ctr := n.m.Counters()
	require.Equal(t, uint64(2), ctr.DropLength)
	require.Equal(t, uint64(1), ctr.DropGID)
	require.Equal(t, uint64(5), ctr.DropHeader)
	require.Zero(t, n.m.Emit(out[:]))
}

// timing collects when messages were sent.
func timing(w *world, d time.Duration) (at []vtime.Time) {
	old := w.fate
	w.fate = func(int, *Packet) []time.Duration { at = append(at, w.now); return nil }
	w.run(d)
	w.fate = old
	return at
}

// TestTimers checks how often and how long everything is repeated, to the nanosecond.
//
// req: CM-TIME-01
func TestTimers(t *testing.T) {
	for _, c := range []struct {
		name     string
		make     func(*peer) *ID
		life     uint8
		interval time.Duration
		repeats  int
		event    EventType
		status   int
	}{
		{"REQ, Linux 6.1", func(p *peer) *ID { return p.active(stREQSent) }, 18, 6144 * time.Millisecond, 15, EventUnreachable, -110},
		{"REQ, Linux 6.12", func(p *peer) *ID { return p.active(stREQSent) }, 16, 4608 * time.Millisecond, 15, EventUnreachable, -110},
		{"REQ after MRA", func(p *peer) *ID { return p.active(stMRAREQRcvd) }, 18, 2064 * time.Millisecond, 15, EventUnreachable, -110},
		{"REP", func(p *peer) *ID { return p.passive(stREPSent) }, 18, 4096 * time.Millisecond, 15, EventUnreachable, -110},
		{"DREQ, active", func(p *peer) *ID { return p.active(stDREQSent) }, 18, 6144 * time.Millisecond, 15, EventDisconnected, -110},
		{"DREQ, passive", func(p *peer) *ID { return p.passive(stDREQSent) }, 18, 4096 * time.Millisecond, 15, EventDisconnected, -110},
	} {
		w := newWorld(t, 1, func(_ int, cfg *Config) { cfg.PacketLifeTime = c.life })
		p := newPeer(w)
		id := c.make(p)
		w.flush()
		start := w.now
		before := len(p.n.events)
		require.Equal(t, start.Add(c.interval), p.n.m.Deadline(), c.name)
		// Nothing happens a nanosecond before the deadline.
		p.n.m.Expire(start.Add(c.interval - 1))
		require.False(t, p.n.m.Pending(), c.name)
		at := timing(w, time.Duration(c.repeats+1)*c.interval-1)
		require.Len(t, at, c.repeats, c.name)
		for i, a := range at {
			require.Equal(t, start.Add(time.Duration(i+1)*c.interval), a, c.name)
		}
		require.Len(t, p.n.events, before, c.name)
		w.run(1)
		require.Equal(t, c.event, p.n.events[before].Type, c.name)
		require.Equal(t, c.status, p.n.events[before].Status, c.name)
		require.Same(t, id, p.n.events[before].ID)
		u := p.n.events[before].Unanswered
		require.Equal(t, [2]any{c.repeats + 1, c.interval}, [2]any{u.Sent, u.Every}, c.name)
		require.Contains(t, c.name, u.Attr.String())
	}
}

// TestTimeWait checks its length, and which ends of it are told.
//
// req: CM-DISC-03
func TestTimeWait(t *testing.T) {
	for _, c := range []struct {
		name string
		make func(*peer, state) *ID
		want time.Duration
	}{{"active", (*peer).active, 2048 * time.Millisecond}, {"passive", (*peer).passive, 512 * time.Millisecond}} {
		w := newWorld(t, 1, nil)
		p := newPeer(w)
		id := c.make(p, stTimeWait)
		require.Equal(t, w.now.Add(c.want), p.n.m.Deadline(), c.name)
		w.run(c.want)
		require.Equal(t, stIdle, id.conn.state)
		types := p.n.types(id)
		require.Equal(t, EventTimeWaitExit, types[len(types)-1], c.name)
		p.take()
		p.send(&DREQ{LocalCommID: 100, RemoteCommID: id.conn.localID, RemoteQPN: id.conn.localQPN})
		require.Equal(t, AttrDREP, p.take()[0].Attr(), "a lost DREP is repeated after TIMEWAIT too")
	}
	// REJ while established: TIMEWAIT ends without an event.
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	id := p.active(stEstablished)
	peerREJ.apply(p, id)
	w.run(time.Minute)
	types := p.n.types(id)
	require.Equal(t, EventRejected, types[len(types)-1])
}

// TestHostileREQ: a REQ with timeout 0 cannot make the manager a source of floods.
//
// req: CM-TIME-04
func TestHostileREQ(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	p.n.listen(PSTCP, ib.QPTypeRC, 7, 0)
	r := p.req(100, 200)
	r.LocalResponseTimeout = 0
	p.send(r)
	require.NoError(t, p.n.last(EventConnectRequest).ID.Accept(w.now, ConnParam{QPN: 1}))
	p.take()
	at := timing(w, time.Minute)
	require.Len(t, at, 15)
	require.GreaterOrEqual(t, at[1].Sub(at[0]), minInterval)
}
