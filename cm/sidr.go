package cm

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// sendSIDRReq (kernel: ib_send_cm_sidr_req) asks for the QP behind a service ID.
func (c *conn) sendSIDRReq(now vtime.Time, private []byte) {
	req := &SIDRReq{RequestID: c.localID, PKey: ib.PKeyDefault, ServiceID: c.service}
	copy(req.Private[:], private)
	c.state = stSIDRSent
	c.request(now, c.ownTID, 0, req)
}

// handleSIDRReq (kernel: cm_sidr_req_handler). Once answered, a request is forgotten: a
// repeated one is a new one.
func (m *Manager) handleSIDRReq(a *arrival, req *SIDRReq) {
	key := sidrKey{a.path.Src, req.RequestID}
	if m.sidrs[key] != nil {
		m.duplicate(AttrSIDRReq)
		return
	}
	refuse := func(s SIDRStatus) {
		m.reply(a, &SIDRRep{RequestID: req.RequestID, Status: s, ServiceID: req.ServiceID})
	}
	if !m.listening(a.port, req.ServiceID) {
		refuse(SIDRUnsupported)
		return
	}
	listener, hdr := m.matchHeader(a.port, req.ServiceID, req.Private[:], ib.QPTypeUD)
	if listener == nil {
		refuse(SIDRRejected)
		return
	}
	if listener.backlogLeft == 0 {
		m.ctr.DropBacklog++
		return
	}
	c := m.newConn(nil, a.port)
	c.state, c.tid, c.remoteID, c.service, c.av, c.sidr = stSIDRRcvd, a.h.TID, req.RequestID, req.ServiceID, a.av, key
	c.qpType = ib.QPTypeUD
	m.sidrs[key] = c
	child := listener.child(c, &hdr)
	m.raise(Event{Type: EventConnectRequest, ID: child, Listener: listener,
		Conn: ConnParam{Private: append([]byte(nil), req.Private[PrivateHeaderBytes:]...)}})
}

// answerSIDR (kernel: ib_send_cm_sidr_rep) answers the request and forgets it. It
// reports false if there is none.
func (c *conn) answerSIDR(rep *SIDRRep, ece ECE) bool {
	if c.state != stSIDRRcvd {
		return false
	}
	rep.RequestID, rep.ServiceID = c.remoteID, c.service
	rep.VendorHigh, rep.VendorLow = uint16(ece.VendorID>>16&0xff), uint8(ece.VendorID)
	c.transmit(c.tid, ece.Options, rep)
	c.reset()
	return true
}

// handleSIDRRep (kernel: cm_sidr_rep_handler).
func (m *Manager) handleSIDRRep(a *arrival, rep *SIDRRep) {
	c := m.find(rep.RequestID, 0)
	if c == nil || c.state != stSIDRSent {
		m.ctr.DropUnknown++
		return
	}
	id := c.id
	c.reset()
	if id != nil {
		id.resolvedService(a, c, rep)
	}
}
