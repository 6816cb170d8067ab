package cm

import (
	"strconv"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// EventType (enum rdma_cm_event_type) is what an event tells.
type EventType uint8

const (
	EventAddrResolved EventType = iota
	EventAddrError
	EventRouteResolved
	EventRouteError
	EventConnectRequest
	EventConnectResponse
	EventConnectError
	EventUnreachable
	EventRejected
	EventEstablished
	EventDisconnected
	EventDeviceRemoval
	EventMulticastJoin
	EventMulticastError
	EventAddrChange
	EventTimeWaitExit
)

var eventNames = [...]string{"ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE", "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "MULTICAST_JOIN", "MULTICAST_ERROR", "ADDR_CHANGE", "TIMEWAIT_EXIT"}

func (t EventType) String() string {
	if int(t) < len(eventNames) {
		return eventNames[t]
	}
	return "EventType(" + strconv.Itoa(int(t)) + ")"
}

// Event (struct rdma_cm_event) is something that happened to an id.
type Event struct {
	Type EventType
	// ID is the id; of a CONNECT_REQUEST the new one that was made for it.
	ID *ID
	// Listener is where a CONNECT_REQUEST came in.
	Listener *ID
	// Mcast is what a multicast event is about.
	Mcast *Mcast
	// Status is 0, minus an errno, the reason of a REJECTED, or the positive status of
	// a SIDR_REP for UNREACHABLE.
	Status int
	// Conn has the peer's parameters, from the receiver's point of view: it can copy
	// ResponderResources and InitiatorDepth into its own. Conn.Private has the length
	// of the message's field, filled up with zeros; it is the receiver's to keep.
	Conn ConnParam
	// AV, with Conn.QPN and Conn.QKey, says where to send datagrams.
	AV ib.AV
	// Unanswered is what was sent in vain, if the peer's silence is behind the event.
	Unanswered Unanswered
}

// Unanswered is a message that the peer has not answered, however often it was sent.
type Unanswered struct {
	Attr  Attr          // 0: none
	Sent  int           // how often
	Every time.Duration // the interval
}

// ECE (struct rdma_ucm_ece) are the enhanced connection options: a vendor and what it
// alone understands.
type ECE struct {
	VendorID uint32 // 24 bits
	Options  uint32
}

// ConnParam (struct rdma_conn_param) is what two programs tell each other about their
// ends of a connection.
type ConnParam struct {
	QPN                ib.QPN
	QKey               ib.QKey
	SRQ                bool
	ResponderResources uint8
	InitiatorDepth     uint8
	FlowControl        bool
	RetryCount         uint8 // more than 7 means 7
	RNRRetryCount      uint8 // likewise
	Private            []byte
	ECE                ECE
}

// event raises an event of the connection, if the program is to see it.
func (id *ID) event(e Event) {
	if id.silent || id.destroyed {
		return
	}
	e.ID = id
	id.m.raise(e)
}

// The following are called by the exchange (kernel: cma_ib_handler). Everything but the
// end of TIMEWAIT is news only in state CONNECT.

func (id *ID) unreachable(status int, private []byte, u Unanswered) {
	if id.state == IDConnect {
		id.event(Event{Type: EventUnreachable, Status: status, Conn: ConnParam{Private: private}, Unanswered: u})
	}
}

func (id *ID) rejected(reason Reason, private []byte) {
	if id.state == IDConnect {
		id.event(Event{Type: EventRejected, Status: int(reason), Conn: ConnParam{Private: private}})
	}
}

// replied tells of a REP. The program has to bring its QP up and call Establish.
func (id *ID) replied(a *arrival, rep *REP) {
	if id.state != IDConnect {
		return
	}
	id.event(Event{Type: EventConnectResponse, Conn: ConnParam{
		QPN: rep.LocalQPN, QKey: rep.LocalQKey, SRQ: rep.SRQ, ResponderResources: rep.InitiatorDepth, InitiatorDepth: rep.ResponderResources,
		FlowControl: rep.FlowControl, RNRRetryCount: rep.RNRRetryCount,
		Private: append([]byte(nil), rep.Private[:]...), ECE: ECE{rep.VendorID, a.h.AttrMod}}})
}

func (id *ID) established() {
	if id.state == IDConnect {
		id.event(Event{Type: EventEstablished})
	}
}

func (id *ID) disconnected(status int, u Unanswered) {
	if id.state == IDConnect {
		id.state = IDDisconnect
		id.event(Event{Type: EventDisconnected, Status: status, Unanswered: u})
	}
}

func (id *ID) timeWaitExit() {
	if id.state == IDDisconnect {
		id.event(Event{Type: EventTimeWaitExit})
	}
}

// resolvedService takes the answer to a SIDR_REQ (kernel: cma_sidr_rep_handler).
func (id *ID) resolvedService(a *arrival, c *conn, rep *SIDRRep) {
	if id.state != IDConnect {
		return
	}
	private := append([]byte(nil), rep.Private[:]...)
	switch {
	case rep.Status != SIDRValid:
		id.unreachable(int(rep.Status), private, Unanswered{})
	case !id.setQKey(rep.QKey):
		id.event(Event{Type: EventAddrError, Status: -int(ib.EINVAL)})
	default:
		id.event(Event{Type: EventEstablished, AV: c.pathAV, Conn: ConnParam{QPN: rep.QPN, QKey: rep.QKey, Private: private,
			ECE: ECE{uint32(rep.VendorHigh&0xff)<<16 | uint32(rep.VendorLow), a.h.AttrMod}}})
	}
}

// setQKey (kernel: cma_set_qkey) fixes the id's Q_Key; 0 asks for the default. It
// reports false if the id has another.
func (id *ID) setQKey(k ib.QKey) bool {
	switch {
	case k != 0 && id.qkey != 0 && k != id.qkey:
		return false
	case k != 0:
		id.qkey = k
	case id.qkey == 0:
		id.qkey = QKeyUDP
	}
	return true
}
