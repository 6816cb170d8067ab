package rdmacm

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"sync"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/vtime"
)

type nowTime = vtime.Time

// Types that are used as the connection manager defines them.
type (
	// EventType (enum rdma_cm_event_type) is what an event tells.
	EventType = cm.EventType
	// PortSpace (enum rdma_port_space) is a set of port numbers of its own.
	PortSpace = cm.PortSpace
	// Reason is why a connection was refused.
	Reason = cm.Reason
)

// Port spaces.
const (
	TCP = cm.PSTCP // RDMA_PS_TCP: connections
	UDP = cm.PSUDP // RDMA_PS_UDP: datagrams
	IB  = cm.PSIB  // RDMA_PS_IB: any type of QP
)

// The types of events (RDMA_CM_EVENT_*).
const (
	AddrResolved    = cm.EventAddrResolved
	AddrError       = cm.EventAddrError
	RouteResolved   = cm.EventRouteResolved
	RouteError      = cm.EventRouteError
	ConnectRequest  = cm.EventConnectRequest
	ConnectResponse = cm.EventConnectResponse
	ConnectError    = cm.EventConnectError
	Unreachable     = cm.EventUnreachable
	Rejected        = cm.EventRejected
	Established     = cm.EventEstablished
	Disconnected    = cm.EventDisconnected
	DeviceRemoval   = cm.EventDeviceRemoval
	MulticastJoin   = cm.EventMulticastJoin
	MulticastError  = cm.EventMulticastError
	TimeWaitExit    = cm.EventTimeWaitExit
)

// Event (struct rdma_cm_event) is something that happened to an id. Acknowledge it with
// Ack; destroying the id waits for that.
type Event struct {
	Type EventType
	// ID is the id; of a CONNECT_REQUEST the new one, which the program owns now.
	ID *ID
	// Listener (listen_id) is where a CONNECT_REQUEST came in.
	Listener *ID
	// Status is 0 or minus an errno; for REJECTED the Reason, for UNREACHABLE it may be
	// the positive status of a datagram service's answer.
	Status int
	// Conn (param.conn) has the peer's parameters. Conn.Private is filled up with
	// zeros to the room that its message has.
	Conn ConnParam
	// UD (param.ud) says where to send datagrams.
	UD UDParam
	// Group is what a multicast event is about.
	Group netip.Addr

	mcast *cm.Mcast
	acked sync.Once
}

// ConnParam (struct rdma_conn_param) is what two programs tell each other.
type ConnParam struct {
	// Private is at most 56 bytes for Connect (180 for UD), 196 for Accept (136), 148
	// for Reject (136).
	Private            []byte
	ResponderResources uint8 // READs and atomics that this side answers at once; MaxResources: what the device has
	InitiatorDepth     uint8 // READs and atomics that this side has open at once; likewise
	FlowControl        bool
	RetryCount         uint8
	RNRRetryCount      uint8
	// SRQ and QPN are those of the id's QP, if it has one.
	SRQ bool
	QPN ib.QPN
}

// MaxResources (RDMA_MAX_RESP_RES, RDMA_MAX_INIT_DEPTH) stands for the most that the
// device, and for Accept the peer, has.
const MaxResources = 0xff

// UDParam (struct rdma_ud_param) says where to send datagrams.
type UDParam struct {
	AV   verbs.AV
	QPN  ib.QPN
	QKey ib.QKey
}

func (e *Event) String() string {
	s := e.Type.String()
	switch {
	case e.Type == Rejected:
		s += " (" + Reason(e.Status).String() + ")"
	case e.Status != 0:
		s += " (status " + strconv.Itoa(e.Status) + ")"
	}
	return s
}

// counts returns the id that an open event keeps alive.
func (e *Event) counts() *ID {
	if e.Listener != nil {
		return e.Listener
	}
	return e.ID
}

// Ack (rdma_ack_cm_event) says that the program is done with the event. Acknowledging
// twice does nothing.
func (e *Event) Ack() { e.acked.Do(func() { e.counts().unacked.done() }) }

// Err returns what went wrong, nil for a success: a [*RejectedError], or a
// [*verbs.VerbError] with the errno that a synchronous call would give.
func (e *Event) Err() error {
	switch {
	case e.Status == 0:
		return nil
	case e.Type == Rejected:
		return &RejectedError{Reason: Reason(e.Status), Private: e.Conn.Private}
	case e.Status < 0:
		return ib.NewVerbError(ib.Errno(-e.Status), "rdma_cm", e.ID.String(), e.Type.String())
	}
	return ib.NewVerbError(ib.Errno(e.Status), "rdma_cm", e.ID.String(), e.Type.String()+" with status "+strconv.Itoa(e.Status))
}

// RejectedError says that the peer has refused. It matches ib.ECONNREFUSED.
type RejectedError struct {
	Reason  Reason
	Private []byte // what the peer's Reject gave, filled up with zeros to 148 bytes
}

func (e *RejectedError) Error() string {
	return "rdma_cm: the peer refused: " + e.Reason.String() + " (ECONNREFUSED)"
}

// Is makes errors.Is(err, ib.ECONNREFUSED) true.
func (e *RejectedError) Is(target error) bool { return target == ib.ECONNREFUSED }

// EventChannel (struct rdma_event_channel) is where the events of ids come out.
type EventChannel struct {
	mu     sync.Mutex
	events []*Event
	ready  chan struct{} // a token while somebody may find something
	done   chan struct{}
	closed bool
	ids    int
}

// CreateEventChannel (rdma_create_event_channel) makes a channel. It serves ids of any
// devices.
func CreateEventChannel() *EventChannel {
	return &EventChannel{ready: make(chan struct{}, 1), done: make(chan struct{})}
}

// Destroy (rdma_destroy_event_channel) ends the channel; EBUSY while ids use it. In C
// that is not checked.
func (ch *EventChannel) Destroy() error {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.ids > 0 {
		return ib.NewVerbError(ib.EBUSY, "destroy_event_channel", "", strconv.Itoa(ch.ids)+" ids use it")
	}
	if !ch.closed {
		ch.closed = true
		close(ch.done)
	}
	return nil
}

func (ch *EventChannel) push(e *Event) {
	ch.mu.Lock()
	ch.events = append(ch.events, e)
	ch.mu.Unlock()
	ch.signal()
}

func (ch *EventChannel) signal() {
	select {
	case ch.ready <- struct{}{}:
	default:
	}
}

// tryTake removes the oldest event and counts it as delivered.
func (ch *EventChannel) tryTake() *Event {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if len(ch.events) == 0 {
		return nil
	}
	e := ch.events[0]
	ch.events = slices.Delete(ch.events, 0, 1)
	e.counts().unacked.add()
	if len(ch.events) > 0 {
		ch.signal() // one token stood for all
	}
	return e
}

// remove takes the events of an id out, which are its own and its unfetched requests.
func (ch *EventChannel) remove(id *ID) (out []*Event) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.events = slices.DeleteFunc(ch.events, func(e *Event) bool {
		if e.counts() != id && e.ID != id {
			return false
		}
		out = append(out, e)
		return true
	})
	return out
}

// Get (rdma_get_cm_event) waits for the next event. Like librdmacm it does for the
// program what the event asks for, if the id has a QP: on CONNECT_RESPONSE it brings the
// QP up, confirms, and reports ESTABLISHED (or CONNECT_ERROR); on REJECTED it takes the
// QP to ERR; on MULTICAST_JOIN it attaches the QP to the group.
//
// It fails with the context's error, or EINVAL when the channel is destroyed.
func (ch *EventChannel) Get(ctx context.Context) (*Event, error) {
	for {
		e, err := ch.TryGet()
		if err == nil || ib.ErrnoOf(err) != ib.EAGAIN {
			return e, err
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		select {
		case <-ch.ready:
		case <-ch.done:
		case <-ctx.Done():
		}
	}
}

// TryGet is Get for a channel whose descriptor does not block: EAGAIN if no event waits.
func (ch *EventChannel) TryGet() (*Event, error) {
	const verb = "get_cm_event"
	for {
		e := ch.tryTake()
		if e == nil {
			ch.mu.Lock()
			closed := ch.closed
			ch.mu.Unlock()
			if closed {
				return nil, ib.NewVerbError(ib.EINVAL, verb, "", "the channel was destroyed")
			}
			return nil, ib.NewVerbError(ib.EAGAIN, verb, "", "no event waits")
		}
		if e.process() {
			return e, nil
		}
		e.Ack()
	}
}

// Ready returns a Go channel that becomes readable when an event may wait, as the
// descriptor of the C API does. Follow it by TryGet until EAGAIN. It may become readable
// for nothing.
func (ch *EventChannel) Ready() <-chan struct{} { return ch.ready }

// dispatch takes the manager's events. The owner calls it.
func (a *agent) dispatch(evs []cm.Event) {
	for i := range evs {
		a.deliver(&evs[i])
	}
}

// deliver turns an event of the manager into one of a channel.
func (a *agent) deliver(e *cm.Event) {
	out := &Event{Type: e.Type, Status: e.Status, mcast: e.Mcast,
		Conn: ConnParam{Private: e.Conn.Private, ResponderResources: e.Conn.ResponderResources, InitiatorDepth: e.Conn.InitiatorDepth,
			FlowControl: e.Conn.FlowControl, RetryCount: e.Conn.RetryCount, RNRRetryCount: e.Conn.RNRRetryCount, SRQ: e.Conn.SRQ, QPN: e.Conn.QPN}}
	if e.Type == MulticastJoin || e.Type == Established && e.ID.QPType() == ib.QPTypeUD {
		out.UD = UDParam{AV: e.AV, QPN: e.Conn.QPN, QKey: e.Conn.QKey}
	}
	if e.Mcast != nil {
		out.Group = fromAddr(e.Mcast.Addr).Addr()
	}
	if e.Listener != nil {
		l := e.Listener.Context.(*ID)
		out.Listener = l
		out.ID = newID(a, e.ID, l.ch)
		out.ID.request = &out.Conn
		l.ch.push(out)
		return
	}
	out.ID = e.ID.Context.(*ID)
	out.ID.ch.push(out)
}

// fromAddr and toAddr convert addresses.
func fromAddr(a cm.Addr) netip.AddrPort {
	if a.Family == cm.FamilyNone {
		return netip.AddrPort{}
	}
	ip := netip.AddrFrom16(a.IP)
	if a.Family == cm.FamilyIPv4 {
		ip = ip.Unmap()
	}
	return netip.AddrPortFrom(ip, a.Port)
}

func toAddr(a netip.AddrPort) cm.Addr {
	switch {
	case !a.Addr().IsValid():
		return cm.Addr{}
	case a.Addr().Unmap().Is4():
		return cm.Addr{Family: cm.FamilyIPv4, IP: ib.GID(a.Addr().As16()), Port: a.Port()}
	}
	return cm.Addr{Family: cm.FamilyIPv6, IP: ib.GID(a.Addr().As16()), Port: a.Port()}
}
