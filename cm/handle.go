package cm

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// minInterval is the fastest that a REP is repeated, whatever the peer's REQ says.
const minInterval = 10 * time.Millisecond

// arrival is a message and where it came from.
type arrival struct {
	now  vtime.Time
	port *Port
	path *wire.Path
	h    Header
	av   ib.AV // back to the sender
}

// Receive takes a datagram that arrived at a port's QP1 with the right Q_Key. b is the
// payload without the network header and is not kept; path says where it came from.
// Anything may come: what makes no sense is dropped and counted.
func (m *Manager) Receive(now vtime.Time, p *Port, path *wire.Path, b []byte) {
	if len(b) < HeaderBytes || len(b) > MADBytes {
		m.ctr.DropLength++
		return
	}
	var mad MAD
	copy(mad[:], b) // Linux takes shorter ones too
	sgid, ok := p.gidIndex(path.Dst)
	if !ok || p.removed {
		m.ctr.DropGID++
		return
	}
	a := &arrival{now: now, port: p, path: path, av: ib.AV{DGID: path.Src, IsGlobal: true, SGIDIndex: sgid,
		TrafficClass: path.TClass, HopLimit: 64, PortNum: p.Num}}
	h, msg, err := Decode(mad[:])
	a.h = h
	if err != nil {
		m.foreign(a, &mad)
		return
	}
	m.ctr.Received[h.Attr-AttrREQ]++
	switch msg := msg.(type) {
	case *REQ:
		m.handleREQ(a, msg)
	case *REP:
		m.handleREP(a, msg)
	case *RTU:
		m.handleRTU(a, msg)
	case *REJ:
		m.handleREJ(a, msg)
	case *MRA:
		m.handleMRA(a, msg)
	case *DREQ:
		m.handleDREQ(a, msg)
	case *DREP:
		m.handleDREP(a, msg)
	case *SIDRReq:
		m.handleSIDRReq(a, msg)
	case *SIDRRep:
		m.handleSIDRRep(a, msg)
	default: // LAP, APR: Linux drops them on RoCE
		m.ctr.DropPath++
	}
}

// foreign answers a Get that nobody handles, of any class, and drops the rest.
func (m *Manager) foreign(a *arrival, mad *MAD) {
	if a.h.BaseVersion != BaseVersion || a.h.Method != MethodGet || a.h.Class == classSMP || a.h.Class == classSMPDir {
		m.ctr.DropHeader++
		return
	}
	mad[3] = methodGetRsp
	be.PutUint16(mad[4:], statusUnsupported)
	m.send(a.port, a.av, mad)
}

// reply answers a message that belongs to no exchange.
func (m *Manager) reply(a *arrival, msg Message) {
	mad := Encode(Header{TID: a.h.TID}, msg)
	m.ctr.Sent[msg.Attr()-AttrREQ]++
	m.send(a.port, a.av, &mad)
}

// issueREJ (kernel: cm_issue_rej) refuses a message without an exchange of its own.
func (m *Manager) issueREJ(a *arrival, remote CommID, about About, reason Reason, info []byte) {
	rej := &REJ{RemoteCommID: remote, Message: about, Reason: reason, InfoLength: uint8(len(info))}
	copy(rej.Info[:], info)
	m.reply(a, rej)
}

// duplicate counts a repeated message.
func (m *Manager) duplicate(a Attr) { m.ctr.Duplicates[a-AttrREQ]++ }

// find (kernel: cm_acquire_id) returns the exchange with exactly these comm IDs.
func (m *Manager) find(local, remote CommID) *conn {
	if c := m.conns[local]; c != nil && c.remoteID == remote {
		return c
	}
	return nil
}

// handleREQ (kernel: cm_req_handler).
func (m *Manager) handleREQ(a *arrival, req *REQ) {
	if old := m.remoteIDs[remoteID{req.LocalCAGUID, req.LocalCommID}]; old != nil {
		m.duplicate(AttrREQ)
		if old.state == stREQRcvd {
			old.transmit(old.tid, 0, &MRA{LocalCommID: old.localID, RemoteCommID: old.remoteID, Message: AboutREQ, ServiceTimeout: m.cfg.MRATimeout})
		}
		return
	}
	if old := m.remoteQPNs[remoteQPN{req.LocalCAGUID, req.LocalQPN}]; old != nil {
		// The peer has forgotten the connection that this QP had.
		m.issueREJ(a, req.LocalCommID, AboutREQ, RejStaleConn, nil)
		old.sendDREQ(a.now)
		return
	}
	if !m.listening(a.port, req.ServiceID) {
		m.issueREJ(a, req.LocalCommID, AboutREQ, RejInvalidServiceID, nil)
		return
	}
	sgid, ok := a.port.gidIndex(req.Primary.RemoteGID)
	if peer := req.Primary.LocalGID; !ok || peer.IsZero() || peer.IsMulticast() || peer.IsIPv4() != req.Primary.RemoteGID.IsIPv4() {
		own := a.port.GIDs[0]
		m.issueREJ(a, req.LocalCommID, AboutREQ, RejInvalidGID, own[:])
		return
	}
	listener, hdr := m.match(a.port, req)
	if listener == nil {
		m.issueREJ(a, req.LocalCommID, AboutREQ, RejConsumerDefined, nil)
		return
	}
	if listener.backlogLeft == 0 {
		m.ctr.DropBacklog++
		return
	}
	m.accommodate(a, req, listener, &hdr, sgid)
}

// accommodate makes the exchange and the id of a request.
func (m *Manager) accommodate(a *arrival, req *REQ, listener *ID, hdr *PrivateHeader, sgid uint8) {
	c := m.newConn(nil, a.port)
	p := &req.Primary
	c.tid, c.remoteID, c.service = a.h.TID, req.LocalCommID, req.ServiceID
	c.av = ib.AV{DGID: p.LocalGID, IsGlobal: true, SGIDIndex: sgid, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit, PortNum: a.port.Num}
	c.pathAV = c.av
	c.pathAV.FlowLabel, c.pathAV.SL = p.FlowLabel, p.SL
	c.remoteGUID, c.remoteQPN = req.LocalCAGUID, req.LocalQPN
	c.enterTables()
	c.interval = max(ibTime(req.LocalResponseTimeout), minInterval)
	c.maxRetries = int(req.MaxCMRetries)
	c.avTimeout = p.AckTimeout
	c.qpType = ib.QPTypeRC
	if req.Transport == TransportUC {
		c.qpType = ib.QPTypeUC
	}
	c.pathMTU, c.sqPSN = req.PathMTU, req.StartingPSN
	// The peer's resources bound what this side may start, and the other way round.
	c.initiatorDepth, c.responderResources = req.ResponderResources, req.InitiatorDepth
	c.retryCount, c.rnrRetryCount = req.RetryCount, req.RNRRetryCount
	c.state = stREQRcvd
	child := listener.child(c, hdr)
	child.route = routeOf(a.port, c, p, req.ServiceID)
	m.raise(Event{Type: EventConnectRequest, ID: child, Listener: listener, Conn: ConnParam{
		QPN: req.LocalQPN, QKey: req.LocalQKey, SRQ: req.SRQ, ResponderResources: req.InitiatorDepth, InitiatorDepth: req.ResponderResources,
		FlowControl: req.FlowControl, RetryCount: req.RetryCount, RNRRetryCount: req.RNRRetryCount,
		Private: append([]byte(nil), req.Private[PrivateHeaderBytes:]...), ECE: ECE{req.VendorID, a.h.AttrMod}}})
}

// enterTables makes the exchange findable by its peer. The caller has checked that the
// places are free.
func (c *conn) enterTables() {
	c.idKey, c.qpnKey = remoteID{c.remoteGUID, c.remoteID}, remoteQPN{c.remoteGUID, c.remoteQPN}
	c.m.remoteIDs[c.idKey], c.m.remoteQPNs[c.qpnKey] = c, c
}

// handleREP (kernel: cm_rep_handler).
func (m *Manager) handleREP(a *arrival, rep *REP) {
	c := m.find(rep.RemoteCommID, 0)
	if c == nil || c.state != stREQSent && c.state != stMRAREQRcvd {
		m.repeatedREP(rep)
		return
	}
	if m.remoteIDs[remoteID{rep.LocalCAGUID, rep.LocalCommID}] != nil {
		m.ctr.DropUnknown++
		return
	}
	if old := m.remoteQPNs[remoteQPN{rep.LocalCAGUID, rep.LocalQPN}]; old != nil {
		m.issueREJ(a, rep.LocalCommID, AboutREP, RejStaleConn, nil)
		old.sendDREQ(a.now)
		m.disarmAndReject(a.now, c, RejStaleConn, make([]byte, REJPrivateBytes))
		return
	}
	m.disarm(&c.timer)
	c.remoteID, c.remoteGUID, c.remoteQPN = rep.LocalCommID, rep.LocalCAGUID, rep.LocalQPN
	c.enterTables()
	c.state = stREPRcvd
	c.initiatorDepth, c.responderResources = rep.ResponderResources, rep.InitiatorDepth
	c.sqPSN, c.rnrRetryCount = rep.StartingPSN, rep.RNRRetryCount
	c.avTimeout = ackTimeout(rep.TargetACKDelay, c.avTimeout-1)
	c.id.replied(a, rep)
}

// disarmAndReject ends an exchange because of the peer's REJ, or as if it were one.
func (m *Manager) disarmAndReject(now vtime.Time, c *conn, reason Reason, private []byte) {
	m.disarm(&c.timer)
	id := c.id
	if reason == RejStaleConn || c.state == stREPRcvd || c.state == stEstablished || c.state == stDREQSent {
		c.enterTimeWait(now)
	} else {
		c.reset()
	}
	if id != nil {
		id.rejected(reason, private)
	}
}

// repeatedREP (kernel: cm_dup_rep_handler) answers a REP that was answered before.
func (m *Manager) repeatedREP(rep *REP) {
	c := m.find(rep.RemoteCommID, rep.LocalCommID)
	if c == nil {
		m.ctr.DropUnknown++
		return
	}
	m.duplicate(AttrREP)
	switch c.state {
	case stEstablished:
		c.transmit(c.tid, 0, &RTU{LocalCommID: c.localID, RemoteCommID: c.remoteID})
	case stREPRcvd:
		c.transmit(c.tid, 0, &MRA{LocalCommID: c.localID, RemoteCommID: c.remoteID, Message: AboutREP, ServiceTimeout: m.cfg.MRATimeout})
	}
}

// handleRTU (kernel: cm_rtu_handler).
func (m *Manager) handleRTU(_ *arrival, rtu *RTU) {
	c := m.find(rtu.RemoteCommID, rtu.LocalCommID)
	switch {
	case c == nil:
		m.ctr.DropUnknown++
	case c.state == stREPSent || c.state == stMRAREPRcvd:
		c.establish()
	default:
		m.duplicate(AttrRTU)
	}
}

// establish ends the passive side's wait for an RTU.
func (c *conn) establish() {
	c.m.disarm(&c.timer)
	c.state = stEstablished
	if c.id != nil {
		c.id.established()
	}
}

// handleREJ (kernel: cm_rej_handler).
func (m *Manager) handleREJ(a *arrival, rej *REJ) {
	var c *conn
	switch {
	case rej.Reason == RejTimeout:
		// Who gave up on a REQ never learnt the comm ID of this side.
		c = m.remoteIDs[remoteID{be.Uint64(rej.Info[:]), rej.LocalCommID}]
	case rej.Message == AboutREQ:
		c = m.find(rej.RemoteCommID, 0)
	default:
		c = m.find(rej.RemoteCommID, rej.LocalCommID)
	}
	if c != nil {
		switch c.state {
		case stREQSent, stMRAREQRcvd, stREPSent, stMRAREPRcvd, stREQRcvd, stREPRcvd, stEstablished, stDREQSent:
			m.disarmAndReject(a.now, c, rej.Reason, append([]byte(nil), rej.Private[:]...))
			return
		}
	}
	m.ctr.DropUnknown++
}

// handleMRA (kernel: cm_mra_handler). Only the first MRA in a state counts.
func (m *Manager) handleMRA(a *arrival, mra *MRA) {
	remote := mra.LocalCommID
	if mra.Message == AboutREQ {
		remote = 0
	}
	c := m.find(mra.RemoteCommID, remote)
	switch {
	case c != nil && c.state == stREQSent && mra.Message == AboutREQ:
		c.state = stMRAREQRcvd
	case c != nil && c.state == stREPSent && mra.Message == AboutREP:
		c.state = stMRAREPRcvd
	default:
		m.ctr.DropUnknown++
		return
	}
	c.interval = ibTime(mra.ServiceTimeout) + ibTime(c.avTimeout)
	m.arm(&c.timer, a.now.Add(c.interval))
}

// handleDREQ (kernel: cm_dreq_handler). The DREP waits for the program.
func (m *Manager) handleDREQ(a *arrival, dreq *DREQ) {
	c := m.find(dreq.RemoteCommID, dreq.LocalCommID)
	if c == nil {
		m.duplicate(AttrDREQ)
		m.reply(a, &DREP{LocalCommID: dreq.RemoteCommID, RemoteCommID: dreq.LocalCommID})
		return
	}
	if dreq.RemoteQPN != c.localQPN {
		m.ctr.DropUnknown++
		return
	}
	switch c.state {
	case stREPSent, stMRAREPRcvd, stDREQSent, stEstablished:
		m.disarm(&c.timer)
		c.state, c.tid = stDREQRcvd, a.h.TID
		if c.id != nil {
			c.id.disconnected(0, Unanswered{})
		}
	case stTimeWait, stIdle:
		m.duplicate(AttrDREQ)
		c.transmit(a.h.TID, 0, &DREP{LocalCommID: c.localID, RemoteCommID: c.remoteID})
	case stDREQRcvd:
		m.duplicate(AttrDREQ)
	default:
		m.ctr.DropUnknown++
	}
}

// handleDREP (kernel: cm_drep_handler).
func (m *Manager) handleDREP(a *arrival, drep *DREP) {
	c := m.find(drep.RemoteCommID, drep.LocalCommID)
	if c == nil || c.state != stDREQSent && c.state != stDREQRcvd {
		m.ctr.DropUnknown++
		return
	}
	m.disarm(&c.timer)
	c.enterTimeWait(a.now)
	if c.id != nil {
		c.id.disconnected(0, Unanswered{})
	}
}
