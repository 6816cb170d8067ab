package cm

import (
	"strconv"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// state (enum ib_cm_state) is the state of an exchange.
type state uint8

const (
	stIdle       state = iota
	stREQSent          // REQ_SENT
	stMRAREQRcvd       // MRA_REQ_RCVD: the peer has asked for more time
	stREQRcvd          // MRA_REQ_SENT: the program thinks; duplicates are answered by MRA
	stREPSent          // REP_SENT
	stMRAREPRcvd       // MRA_REP_RCVD
	stREPRcvd          // MRA_REP_SENT: likewise
	stEstablished
	stDREQSent
	stDREQRcvd
	stTimeWait
	stSIDRSent
	stSIDRRcvd
)

var stateNames = [...]string{"IDLE", "REQ_SENT", "MRA_REQ_RCVD", "REQ_RCVD", "REP_SENT", "MRA_REP_RCVD", "REP_RCVD", "ESTABLISHED", "DREQ_SENT", "DREQ_RCVD", "TIMEWAIT", "SIDR_REQ_SENT", "SIDR_REQ_RCVD"}

func (s state) String() string { return stateNames[s] }

// Keys of the tables. They find the exchange that a repeated or stale message is about.
type (
	remoteID struct {
		guid uint64
		id   CommID
	}
	remoteQPN struct {
		guid uint64
		qpn  ib.QPN
	}
	sidrKey struct {
		src ib.GID
		id  CommID
	}
)

// conn (struct cm_id_private) is one exchange with a peer: a connection, an attempt, or
// a SIDR request.
type conn struct {
	m     *Manager
	id    *ID // nil: its id was destroyed, only the peer has to be answered
	port  *Port
	state state
	timer timer

	localID, remoteID CommID
	tid               uint64 // of what is sent next: that of the REQ, later of the peer's DREQ
	ownTID            uint64 // of own requests
	av                ib.AV  // where messages go
	service           ServiceID

	// remoteGUID and the keys of the tables, if it is in them.
	remoteGUID uint64
	remoteQPN  ib.QPN
	idKey      remoteID
	qpnKey     remoteQPN
	sidr       sidrKey

	// Repetition of the last request.
	last       MAD
	interval   time.Duration
	retries    int // left
	maxRetries int
	avTimeout  uint8 // av.timeout: the ACK timeout of the QP

	// For the QP; see qpattr.go.
	qpType             ib.QPType
	localQPN           ib.QPN
	pathMTU            ib.MTU
	pathAV             ib.AV
	sqPSN, rqPSN       ib.PSN
	responderResources uint8
	initiatorDepth     uint8
	retryCount         uint8
	rnrRetryCount      uint8
}

func (m *Manager) newConn(id *ID, p *Port) *conn {
	c := &conn{m: m, id: id, port: p}
	c.timer.conn = c
	var host uint32
	c.localID, host = m.newCommID()
	c.ownTID = uint64(m.cfg.AgentID)<<32 | uint64(host)
	m.conns[c.localID] = c
	return c
}

func (c *conn) String() string {
	return "comm id 0x" + strconv.FormatUint(uint64(c.localID), 16) + " (" + c.state.String() + ")"
}

// free forgets the exchange.
func (c *conn) free() {
	c.reset()
	delete(c.m.conns, c.localID)
}

// reset (kernel: cm_reset_to_idle) ends the exchange. It stays known until its id is
// destroyed.
func (c *conn) reset() {
	c.m.disarm(&c.timer)
	c.leaveTables()
	c.state = stIdle
	if c.id == nil {
		delete(c.m.conns, c.localID)
	}
}

func (c *conn) leaveTables() {
	if c.m.remoteIDs[c.idKey] == c {
		delete(c.m.remoteIDs, c.idKey)
	}
	if c.m.remoteQPNs[c.qpnKey] == c {
		delete(c.m.remoteQPNs, c.qpnKey)
	}
	if c.m.sidrs[c.sidr] == c {
		delete(c.m.sidrs, c.sidr)
	}
}

// enterTimeWait (kernel: cm_enter_timewait) waits until no packet of the connection can
// be under way any more. Others may use its comm ID and QPN from now on; duplicates are
// told apart only among live connections.
func (c *conn) enterTimeWait(now vtime.Time) {
	c.leaveTables()
	c.state = stTimeWait
	c.m.arm(&c.timer, now.Add(ibTime(c.avTimeout)))
}

// transmit sends a message once.
func (c *conn) transmit(tid uint64, mod uint32, msg Message) {
	mad := Encode(Header{TID: tid, AttrMod: mod}, msg)
	c.m.ctr.Sent[msg.Attr()-AttrREQ]++
	c.m.send(c.port, c.av, &mad)
}

// request sends a message and repeats it until it is answered.
func (c *conn) request(now vtime.Time, tid uint64, mod uint32, msg Message) {
	c.last = Encode(Header{TID: tid, AttrMod: mod}, msg)
	c.m.ctr.Sent[msg.Attr()-AttrREQ]++
	c.m.send(c.port, c.av, &c.last)
	c.retries = c.maxRetries
	c.m.arm(&c.timer, now.Add(c.interval))
}

// expire is called when the timer has run.
func (c *conn) expire(now vtime.Time) {
	switch c.state {
	case stREQSent, stMRAREQRcvd, stREPSent, stMRAREPRcvd, stDREQSent, stSIDRSent:
		if c.retries > 0 {
			c.retries--
			c.m.ctr.Retried[DecodeHeader(c.last[:]).Attr-AttrREQ]++
			c.m.send(c.port, c.av, &c.last)
			c.m.arm(&c.timer, now.Add(c.interval))
			return
		}
		c.giveUp(now)
	case stTimeWait:
		id := c.id
		c.reset()
		if id != nil {
			id.timeWaitExit()
		}
	}
}

// giveUp (kernel: cm_process_send_error) ends an exchange that got no answer.
func (c *conn) giveUp(now vtime.Time) {
	id, u := c.id, Unanswered{Attr: DecodeHeader(c.last[:]).Attr, Sent: 1 + c.maxRetries, Every: c.interval}
	if c.state == stDREQSent {
		c.enterTimeWait(now)
		if id != nil {
			id.disconnected(-int(ib.ETIMEDOUT), u)
		}
		return
	}
	c.reset()
	if id != nil {
		id.unreachable(-int(ib.ETIMEDOUT), nil, u)
	}
}

// about says for a REJ which message it is about, and whether the own comm ID may be
// told (kernel: cm_format_rej).
func (c *conn) about() (About, CommID) {
	switch c.state {
	case stREQRcvd:
		return AboutREQ, c.localID
	case stREPRcvd:
		return AboutREP, c.localID
	}
	return AboutOther, c.localID
}

// sendREJ (kernel: ib_send_cm_rej) refuses what the peer wants, and ends the exchange.
// It reports false if there is nothing to refuse any more.
func (c *conn) sendREJ(now vtime.Time, reason Reason, info, private []byte) bool {
	rej := &REJ{RemoteCommID: c.remoteID, Reason: reason, InfoLength: uint8(len(info))}
	rej.Message, rej.LocalCommID = c.about()
	copy(rej.Info[:], info)
	copy(rej.Private[:], private)
	switch c.state {
	case stREQSent, stMRAREQRcvd, stREQRcvd, stREPRcvd:
		c.reset()
	case stREPSent, stMRAREPRcvd:
		c.m.disarm(&c.timer)
		c.enterTimeWait(now)
	default:
		return false
	}
	c.transmit(c.tid, 0, rej)
	return true
}

// sendDREQ (kernel: ib_send_cm_dreq) asks the peer to disconnect. It reports false if
// there is no connection.
func (c *conn) sendDREQ(now vtime.Time) bool {
	if c.state != stEstablished {
		return false
	}
	c.state = stDREQSent
	c.request(now, c.ownTID, 0, &DREQ{LocalCommID: c.localID, RemoteCommID: c.remoteID, RemoteQPN: c.remoteQPN})
	return true
}

// sendDREP (kernel: ib_send_cm_drep) agrees to the peer's DREQ.
func (c *conn) sendDREP(now vtime.Time) bool {
	if c.state != stDREQRcvd {
		return false
	}
	c.enterTimeWait(now)
	c.transmit(c.tid, 0, &DREP{LocalCommID: c.localID, RemoteCommID: c.remoteID})
	return true
}

// destroy (kernel: cm_destroy_id) ends the exchange because its id goes away. It waits
// for nobody; what must outlive the id stays without one.
func (c *conn) destroy(now vtime.Time) {
	c.id = nil
	switch c.state {
	case stSIDRRcvd:
		c.answerSIDR(&SIDRRep{Status: SIDRRejected}, ECE{})
	case stREQSent, stMRAREQRcvd:
		guid := be.AppendUint64(nil, c.port.GUID)
		c.sendREJ(now, RejTimeout, guid, nil)
		return
	case stREQRcvd, stREPRcvd, stREPSent, stMRAREPRcvd:
		c.sendREJ(now, RejConsumerDefined, nil, nil)
		return
	case stEstablished:
		c.sendDREQ(now)
		c.enterTimeWait(now)
		return
	case stDREQSent:
		c.enterTimeWait(now)
		return
	case stDREQRcvd:
		c.sendDREP(now)
		return
	case stTimeWait:
		return
	}
	c.free()
}
