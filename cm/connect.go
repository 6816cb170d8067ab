package cm

import (
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// Connect (kernel: rdma_connect) starts the one attempt that an id is good for. For RC
// and UC it ends with CONNECT_RESPONSE, REJECTED or UNREACHABLE; for UD with
// ESTABLISHED, UNREACHABLE or ADDR_ERROR. p.Private is at most UserREQBytes, or
// UserSIDRBytes for UD.
func (id *ID) Connect(now vtime.Time, p ConnParam) error {
	const verb = "connect"
	if err := id.want(verb, IDRouteResolved); err != nil {
		return err
	}
	if isXRC(id.qpType) {
		return id.err(ib.EOPNOTSUPP, verb, "the device has no XRC")
	}
	most := UserREQBytes
	if id.qpType == ib.QPTypeUD {
		most = UserSIDRBytes
	}
	if len(p.Private) > most {
		return id.tooLong(verb, p.Private, most)
	}
	private := make([]byte, PrivateHeaderBytes+len(p.Private))
	ver := uint8(6)
	if id.src.Family == FamilyIPv4 {
		ver = 4
	}
	PrivateHeader{IPVersion: ver, SrcPort: id.src.Port, Src: id.src.IP, Dst: id.dst.IP}.Put(private)
	copy(private[PrivateHeaderBytes:], p.Private)

	r := id.route
	c := id.m.newConn(id, id.port)
	id.conn, id.state = c, IDConnect
	c.service, c.tid, c.qpType, c.localQPN = id.serviceID(), c.ownTID, id.qpType, p.QPN&ib.QPNMask
	c.av = ib.AV{DGID: r.RemoteGID, IsGlobal: true, SGIDIndex: id.sgidIndex, TrafficClass: r.TrafficClass, HopLimit: r.HopLimit, PortNum: id.port.Num}
	c.pathAV = c.av
	c.pathAV.FlowLabel, c.pathAV.SL = r.FlowLabel, r.SL
	c.maxRetries, c.interval = int(id.m.cfg.MaxCMRetries), ibTime(id.m.cfg.ResponseTimeout)
	if id.qpType == ib.QPTypeUD {
		c.sendSIDRReq(now, private)
		return nil
	}
	c.interval += 2 * ibTime(r.PacketLifeTime)
	c.sendREQ(now, id, &p, private)
	return nil
}

func (id *ID) tooLong(verb string, private []byte, most int) error {
	return id.err(ib.EINVAL, verb, strconv.Itoa(len(private))+" bytes of private data, the message has room for "+strconv.Itoa(most))
}

// sendREQ (kernel: ib_send_cm_req).
func (c *conn) sendREQ(now vtime.Time, id *ID, p *ConnParam, private []byte) {
	r, cfg := id.route, &id.m.cfg
	c.avTimeout = r.PacketLifeTime + 1
	c.pathMTU, c.rqPSN = r.MTU, id.psn
	c.responderResources, c.initiatorDepth = p.ResponderResources, p.InitiatorDepth
	c.retryCount, c.rnrRetryCount = min(7, p.RetryCount), min(7, p.RNRRetryCount)
	req := &REQ{
		LocalCommID: c.localID, VendorID: p.ECE.VendorID, ServiceID: c.service, LocalCAGUID: id.port.GUID, LocalQPN: c.localQPN,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth,
		RemoteResponseTimeout: cfg.ResponseTimeout, LocalResponseTimeout: cfg.ResponseTimeout, MaxCMRetries: cfg.MaxCMRetries,
		FlowControl: p.FlowControl, StartingPSN: id.psn, RetryCount: c.retryCount, RNRRetryCount: c.rnrRetryCount,
		PKey: r.PKey, PathMTU: r.MTU, SRQ: p.SRQ, Primary: r.Path,
	}
	if c.qpType == ib.QPTypeUC {
		req.Transport = TransportUC
	}
	copy(req.Private[:], private)
	c.state = stREQSent
	c.request(now, c.tid, p.ECE.Options, req)
}

// Accept (kernel: rdma_accept, passive side) answers a request. For RC and UC a REP goes
// out and ESTABLISHED, REJECTED or UNREACHABLE follows; for UD that is all. The QP must
// be able to receive by then. When Accept fails the peer is refused.
func (id *ID) Accept(now vtime.Time, p ConnParam) error {
	const verb = "accept"
	err := id.want(verb, IDConnect)
	switch {
	case err != nil:
		return err
	case id.conn == nil:
		return id.err(ib.EINVAL, verb, "there is no request")
	case id.qpType == ib.QPTypeUD:
		err = id.acceptSIDR(verb, &p)
	default:
		err = id.acceptREQ(now, verb, &p)
	}
	if err != nil {
		id.refuse(now, RejConsumerDefined, nil)
		return err
	}
	id.silent = false
	return nil
}

func (id *ID) acceptSIDR(verb string, p *ConnParam) error {
	if len(p.Private) > SIDRRepPrivateBytes {
		return id.tooLong(verb, p.Private, SIDRRepPrivateBytes)
	}
	if !id.setQKey(p.QKey) {
		return id.err(ib.EINVAL, verb, "the id has another Q_Key")
	}
	rep := &SIDRRep{QPN: p.QPN & ib.QPNMask, QKey: id.qkey}
	copy(rep.Private[:], p.Private)
	if !id.conn.answerSIDR(rep, p.ECE) {
		return id.err(ib.EINVAL, verb, "the request was answered")
	}
	return nil
}

// acceptREQ (kernel: ib_send_cm_rep).
func (id *ID) acceptREQ(now vtime.Time, verb string, p *ConnParam) error {
	c := id.conn
	if len(p.Private) > REPPrivateBytes {
		return id.tooLong(verb, p.Private, REPPrivateBytes)
	}
	if c.state != stREQRcvd {
		return id.err(ib.EINVAL, verb, "there is no request to accept: "+c.String())
	}
	c.localQPN, c.rqPSN = p.QPN&ib.QPNMask, id.psn
	c.responderResources, c.initiatorDepth = p.ResponderResources, p.InitiatorDepth
	rep := &REP{
		LocalCommID: c.localID, RemoteCommID: c.remoteID, LocalQPN: c.localQPN, StartingPSN: id.psn,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, TargetACKDelay: id.port.AckDelay,
		FlowControl: p.FlowControl, RNRRetryCount: min(7, p.RNRRetryCount), SRQ: p.SRQ, LocalCAGUID: id.port.GUID, VendorID: p.ECE.VendorID,
	}
	copy(rep.Private[:], p.Private)
	c.state = stREPSent
	c.request(now, c.tid, p.ECE.Options, rep)
	return nil
}

// Establish (kernel: rdma_accept, active side) confirms a CONNECT_RESPONSE: the QP is up.
// When it fails the peer is refused, and the attempt is over.
func (id *ID) Establish(now vtime.Time) error {
	const verb = "establish"
	if err := id.want(verb, IDConnect); err != nil {
		return err
	}
	c := id.conn
	if c == nil || c.state != stREPRcvd {
		reason := "there is no response to confirm"
		if c != nil {
			reason += ": " + c.String()
		}
		id.refuse(now, RejConsumerDefined, nil)
		return id.err(ib.EINVAL, verb, reason)
	}
	c.state = stEstablished
	c.transmit(c.tid, 0, &RTU{LocalCommID: c.localID, RemoteCommID: c.remoteID})
	return nil
}

// Reject (kernel: rdma_reject, rdma_reject_ece) refuses a request, or a response. The
// reason is RejConsumerDefined, which 0 stands for, or RejVendorOption.
func (id *ID) Reject(now vtime.Time, reason Reason, private []byte) error {
	const verb = "reject"
	if err := id.usable(verb); err != nil {
		return err
	}
	if reason == 0 {
		reason = RejConsumerDefined
	}
	most := REJPrivateBytes
	if id.qpType == ib.QPTypeUD {
		most = SIDRRepPrivateBytes
	}
	switch {
	case reason != RejConsumerDefined && reason != RejVendorOption:
		return id.err(ib.EINVAL, verb, "reason "+reason.String()+" is not a program's to give")
	case len(private) > most:
		return id.tooLong(verb, private, most)
	case id.conn == nil:
		return id.err(ib.EINVAL, verb, "there is nobody to refuse")
	case !id.refuse(now, reason, private):
		return id.err(ib.EINVAL, verb, "there is nothing to refuse: "+id.conn.String())
	}
	return nil
}

func (id *ID) refuse(now vtime.Time, reason Reason, private []byte) bool {
	c := id.conn
	switch {
	case c == nil:
		return false
	case id.qpType == ib.QPTypeUD:
		rep := &SIDRRep{Status: SIDRRejected}
		copy(rep.Private[:], private)
		return c.answerSIDR(rep, ECE{})
	}
	return c.sendREJ(now, reason, nil, private)
}

// Disconnect (kernel: rdma_disconnect) ends a connection, or agrees to the peer's end of
// it. It succeeds on every id that has tried to connect, whether or not there is
// anything to send. The QP is the caller's business.
func (id *ID) Disconnect(now vtime.Time) error {
	const verb = "disconnect"
	if err := id.usable(verb); err != nil {
		return err
	}
	if id.conn == nil {
		return id.err(ib.EINVAL, verb, "it never connected")
	}
	if id.qpType != ib.QPTypeUD && !id.conn.sendDREQ(now) {
		id.conn.sendDREP(now)
	}
	return nil
}

// Notify (kernel: rdma_notify) tells of an asynchronous event of the QP. COMM_EST, a
// packet before the RTU, establishes the connection: EISCONN if it is. PATH_MIG changes
// nothing. All others: EINVAL.
func (id *ID) Notify(_ vtime.Time, e ib.EventType) error {
	const verb = "notify"
	if err := id.usable(verb); err != nil {
		return err
	}
	c := id.conn
	switch {
	case c == nil || e != ib.EventCommEst && e != ib.EventPathMig:
		return id.err(ib.EINVAL, verb, e.String()+" means nothing here")
	case e == ib.EventPathMig:
		return nil
	case c.state == stEstablished:
		return id.err(ib.EISCONN, verb, "the connection is established")
	case c.state != stREPSent && c.state != stMRAREPRcvd:
		return id.err(ib.EINVAL, verb, "want REP_SENT: "+c.String())
	}
	c.establish()
	return nil
}

// Destroy (kernel: rdma_destroy_id) removes the id. The peer is told once; nothing is
// waited for. Requests of a listener that nobody fetched are refused. Destroying twice
// does nothing.
func (id *ID) Destroy(now vtime.Time) {
	if id.destroyed {
		return
	}
	id.destroyed, id.state = true, IDDestroying
	m := id.m
	m.disarm(&id.timer)
	for len(id.requests) > 0 {
		id.requests[0].Destroy(now)
	}
	id.Fetched()
	for _, mc := range slices.Clone(id.mcasts) {
		mc.leave()
	}
	if id.conn != nil {
		id.conn.destroy(now)
	}
	id.releasePort()
	last := len(m.ids) - 1
	m.ids[id.pos] = m.ids[last]
	m.ids[id.pos].pos = id.pos
	m.ids[last] = nil
	m.ids = m.ids[:last]
}

// remove (kernel: cma_remove_id_dev) is what a device's removal does to an id.
func (id *ID) remove(now vtime.Time) {
	id.m.disarm(&id.timer)
	if id.conn != nil {
		id.conn.destroy(now)
		id.conn = nil
	}
	for len(id.requests) > 0 {
		r := id.requests[0]
		r.Fetched()
	}
	id.releasePort()
	id.state = IDDeviceRemoval
	id.event(Event{Type: EventDeviceRemoval})
}
