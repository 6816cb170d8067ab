package cm

import (
	"strconv"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// IDState (enum rdma_cm_state) is the state of an id as its program sees it.
type IDState uint8

const (
	IDIdle IDState = iota
	IDAddrQuery
	IDAddrResolved
	IDRouteResolved
	IDConnect    // connecting, connected, refused: everything since connect or the request
	IDDisconnect // DISCONNECTED was reported
	IDAddrBound
	IDListen
	IDDeviceRemoval
	IDDestroying
)

var idStateNames = [...]string{"IDLE", "ADDR_QUERY", "ADDR_RESOLVED", "ROUTE_RESOLVED", "CONNECT", "DISCONNECT", "ADDR_BOUND", "LISTEN", "DEVICE_REMOVAL", "DESTROYING"}

func (s IDState) String() string { return idStateNames[s] }

// ID (struct rdma_cm_id) is what a program has of the connection manager: an address, a
// listener, or one end of a connection. It serves one attempt to connect; after that it
// can only be destroyed.
//
// Methods that the state forbids return a [*ib.VerbError] whose Errno is the kernel's.
type ID struct {
	// Context is the host's.
	Context any

	m         *Manager
	pos       int // in m.ids
	space     PortSpace
	qpType    ib.QPType
	state     IDState
	destroyed bool

	src, dst  Addr
	bindKey   bindKey
	isBound   bool
	port      *Port // nil: no device yet
	sgidIndex uint8
	loopback  bool // resolved to a loopback address: there is no route
	route     *Route
	timer     timer // while the neighbour does not answer
	giveUpAt  vtime.Time
	askAgain  time.Duration // after so long

	reuse, afOnly, afOnlySet bool
	tos                      uint8
	ackTimeout               uint8
	ackTimeoutSet            bool

	conn   *conn
	psn    ib.PSN // where the peer starts
	qkey   ib.QKey
	silent bool // a request that was not accepted: its program sees no events

	backlogLeft int
	requests    []*ID // of a listener: made for requests that nobody has fetched
	listener    *ID   // of such a request

	mcasts []*Mcast
}

// Route is the path of an id (struct rdma_route).
type Route struct {
	Path
	MTU            ib.MTU
	PKey           uint16
	PacketLifeTime uint8 // IB time
	ServiceID      ServiceID
}

// QKeyUDP (kernel: RDMA_UDP_QKEY) is the Q_Key of datagrams between ids.
const QKeyUDP ib.QKey = 0x01234567

// CreateID (kernel: rdma_create_id) makes an id. typ is RC, UC or UD; it goes with the
// space: TCP takes RC, UDP takes UD. An id for XRC can be bound, listen and be resolved, as
// on Linux; it does not connect, since there are no queue pairs for it.
func (m *Manager) CreateID(space PortSpace, typ ib.QPType) (*ID, error) {
	switch {
	case space == PSTCP && typ == ib.QPTypeRC, (space == PSUDP || space == PSIPoIB) && typ == ib.QPTypeUD:
	case space == PSIB && (typ == ib.QPTypeRC || typ == ib.QPTypeUC || typ == ib.QPTypeUD || isXRC(typ)):
	default:
		return nil, ib.NewVerbError(ib.EINVAL, "create_id", "", "port space "+space.String()+" does not go with "+typ.String())
	}
	return m.newID(space, typ), nil
}

// isXRC reports whether a type is one of the two of XRC: IB_QPT_XRC_INI, IB_QPT_XRC_TGT.
func isXRC(typ ib.QPType) bool { return typ == 9 || typ == 10 }

func (m *Manager) newID(space PortSpace, typ ib.QPType) *ID {
	id := &ID{m: m, space: space, qpType: typ, psn: m.newPSN(), pos: len(m.ids)}
	id.timer.id = id
	m.ids = append(m.ids, id)
	return id
}

func (id *ID) String() string {
	return "id " + id.src.String() + " to " + id.dst.String() + " (" + id.state.String() + ")"
}

func (id *ID) err(errno ib.Errno, verb, reason string) error {
	return ib.NewVerbError(errno, verb, id.String(), reason)
}

// usable refuses calls on ids that are of no use any more.
func (id *ID) usable(verb string) error {
	switch {
	case id.destroyed:
		return id.err(ib.EINVAL, verb, "it was destroyed")
	case id.state == IDDeviceRemoval:
		return id.err(ib.ENXIO, verb, "its device was removed")
	}
	return nil
}

// want refuses calls in another state.
func (id *ID) want(verb string, s IDState) error {
	if err := id.usable(verb); err != nil {
		return err
	}
	if id.state != s {
		return id.err(ib.EINVAL, verb, "want state "+s.String())
	}
	return nil
}

// State returns the id's state.
func (id *ID) State() IDState { return id.state }

// Space returns the id's port space.
func (id *ID) Space() PortSpace { return id.space }

// QPType returns the type of QP that the id is for.
func (id *ID) QPType() ib.QPType { return id.qpType }

// Local returns the id's own address, Remote the peer's.
func (id *ID) Local() Addr { return id.src }

// Remote returns the peer's address; none for a listener.
func (id *ID) Remote() Addr { return id.dst }

// Port returns the port that the id uses; nil if none yet, or all.
func (id *ID) Port() *Port { return id.port }

// Route returns the id's path, nil before there is one.
func (id *ID) Route() *Route { return id.route }

// SGIDIndex returns where the id's own address is in the port's GID table.
func (id *ID) SGIDIndex() uint8 { return id.sgidIndex }

// SetTOS (RDMA_OPTION_ID_TOS) sets the traffic class of routes resolved later.
func (id *ID) SetTOS(tos uint8) error {
	if err := id.usable("set_option"); err != nil {
		return err
	}
	id.tos = tos
	return nil
}

// SetReuseAddr (RDMA_OPTION_ID_REUSEADDR) lets ids that all have it share a port. A
// listener does not share.
func (id *ID) SetReuseAddr(on bool) error {
	const verb = "set_option"
	if err := id.usable(verb); err != nil {
		return err
	}
	if on && id.state == IDListen || !on && id.state != IDIdle {
		return id.err(ib.EINVAL, verb, "too late to change REUSEADDR")
	}
	id.reuse = on
	return nil
}

// SetAFOnly (RDMA_OPTION_ID_AFONLY) keeps IPv4 requests away from an IPv6 wildcard.
func (id *ID) SetAFOnly(on bool) error {
	const verb = "set_option"
	if err := id.usable(verb); err != nil {
		return err
	}
	if id.state != IDIdle && id.state != IDAddrBound {
		return id.err(ib.EINVAL, verb, "too late to change AFONLY")
	}
	id.afOnly, id.afOnlySet = on, true
	return nil
}

// SetAckTimeout (RDMA_OPTION_ID_ACK_TIMEOUT) sets the QP's timeout; 0 means the
// default. Set it before the route is resolved.
func (id *ID) SetAckTimeout(t uint8) error {
	const verb = "set_option"
	if err := id.usable(verb); err != nil {
		return err
	}
	if id.qpType != ib.QPTypeRC || t > 31 {
		return id.err(ib.EINVAL, verb, "ACK_TIMEOUT is 5 bits, for RC")
	}
	id.ackTimeout, id.ackTimeoutSet = t, true
	return nil
}

// packetLifeTime returns the life time that the path of the id has.
func (id *ID) packetLifeTime() uint8 {
	if id.ackTimeoutSet && id.ackTimeout > 0 {
		return id.ackTimeout - 1
	}
	return id.m.cfg.PacketLifeTime
}

// ResolveAddr (kernel: rdma_resolve_addr) finds the port that leads to dst. src is none
// or an address to bind; an id that is bound keeps its address. ADDR_RESOLVED or
// ADDR_ERROR follows.
func (id *ID) ResolveAddr(now vtime.Time, src, dst Addr, timeout time.Duration) error {
	const verb = "resolve_addr"
	if err := id.usable(verb); err != nil {
		return err
	}
	switch {
	case !dst.valid():
		return id.err(ib.EINVAL, verb, "the destination is no IP address")
	case id.state != IDIdle && id.state != IDAddrBound:
		return id.err(ib.EINVAL, verb, "want state IDLE or ADDR_BOUND")
	case id.state == IDAddrBound && src.Family == FamilyNone:
		src = id.src
	}
	if src.Family == FamilyNone {
		src = Wildcard(dst.Family, 0)
	}
	if src.Family != dst.Family {
		return id.err(ib.EINVAL, verb, "source and destination are of different families")
	}
	if id.state == IDIdle {
		if err := id.Bind(src); err != nil {
			return err
		}
	}
	if dst.isBroadcast() {
		return id.err(ib.ENETUNREACH, verb, "broadcast")
	}
	id.dst = dst
	if id.space == PSIPoIB {
		id.addrError(ib.EINVAL)
		return nil
	}
	if (dst.IsAny() || dst.IsLoopback()) && !id.m.hasLoopback(dst.Family) {
		return id.resolveLoopback()
	}
	if id.port == nil {
		p, idx := id.m.routeTo(dst)
		if p == nil {
			id.addrError(ib.ENODEV)
			return nil
		}
		id.port, id.sgidIndex = p, idx
	}
	id.src.IP = id.port.GIDs[id.sgidIndex]
	switch errno := id.neighbour(); errno {
	case 0:
		id.addrResolved()
	case ib.EAGAIN:
		id.state, id.giveUpAt, id.askAgain = IDAddrQuery, now.Add(timeout), time.Millisecond
		id.m.arm(&id.timer, vtime.Min(id.giveUpAt, now.Add(id.askAgain)))
	default:
		return id.err(errno, verb, "there is no route to "+dst.String())
	}
	return nil
}

// neighbour asks whether the destination can be reached. A group always can.
func (id *ID) neighbour() ib.Errno {
	if f := id.m.cfg.Neighbour; f != nil && !id.dst.IP.IsMulticast() {
		return f(id.src.IP, id.dst.IP)
	}
	return 0
}

// expire asks the neighbour again (kernel: process_one_req). The kernel is told when it
// answers; here the questions follow each other the slower the longer it takes.
func (id *ID) expire(now vtime.Time) {
	if id.state != IDAddrQuery {
		return
	}
	switch errno := id.neighbour(); {
	case errno == 0:
		id.addrResolved()
	case errno != ib.EAGAIN:
		id.addrError(errno)
	case now >= id.giveUpAt:
		id.addrError(ib.ETIMEDOUT)
	default:
		id.askAgain = min(2*id.askAgain, time.Second)
		id.m.arm(&id.timer, vtime.Min(id.giveUpAt, now.Add(id.askAgain)))
	}
}

func (id *ID) addrResolved() {
	id.state = IDAddrResolved
	id.m.raise(Event{Type: EventAddrResolved, ID: id})
}

func (id *ID) addrError(errno ib.Errno) {
	id.state = IDAddrBound
	id.m.raise(Event{Type: EventAddrError, ID: id, Status: -int(errno)})
}

// resolveLoopback (kernel: cma_resolve_loopback) takes the first port. There is no route
// then: the loopback interface is not RoCE.
func (id *ID) resolveLoopback() error {
	if len(id.m.ports) == 0 {
		id.addrError(ib.ENODEV)
		return nil
	}
	id.port, id.loopback = id.m.ports[0], true
	if id.src.IsAny() {
		id.src.IP = id.dst.IP
		if id.dst.IsAny() {
			id.src.IP = loopbackIP(id.dst.Family)
		}
	}
	id.addrResolved()
	return nil
}

func loopbackIP(f Family) ib.GID {
	if f == FamilyIPv4 {
		return ib.GIDFromIPv4(127, 0, 0, 1)
	}
	return ib.GID{15: 1}
}

// hasLoopback tells whether a port has a loopback address of its own. Such a network is
// one of processes on one machine, and its addresses are ordinary ones.
func (m *Manager) hasLoopback(f Family) bool {
	for _, p := range m.ports {
		for _, g := range p.GIDs {
			if a := AddrOf(g, 0); a.Family == f && a.IsLoopback() {
				return true
			}
		}
	}
	return false
}

// routeTo chooses the port for a destination: the one whose address has most bits in
// common with it, the first of equals.
func (m *Manager) routeTo(dst Addr) (best *Port, index uint8) {
	most := -1
	for _, p := range m.ports {
		for i, g := range p.GIDs {
			if g.IsZero() || g.IsIPv4() != (dst.Family == FamilyIPv4) {
				continue
			}
			if n := commonBits(g, dst.IP); n > most {
				best, index, most = p, uint8(i), n
			}
		}
	}
	return best, index
}

func commonBits(a, b ib.GID) int {
	n := 0
	for n < 128 && (a[n/8]^b[n/8])&(0x80>>(n%8)) == 0 {
		n++
	}
	return n
}

// ResolveRoute (kernel: rdma_resolve_route) makes the path. ROUTE_RESOLVED follows at
// once.
func (id *ID) ResolveRoute(_ vtime.Time, timeout time.Duration) error {
	const verb = "resolve_route"
	if err := id.want(verb, IDAddrResolved); err != nil {
		return err
	}
	if timeout <= 0 {
		return id.err(ib.EINVAL, verb, "timeout "+strconv.FormatInt(int64(timeout), 10)+" is not positive")
	}
	if id.loopback {
		return id.err(ib.ENODEV, verb, "the loopback interface has no RDMA device")
	}
	label := id.src.FlowInfo & 0xfffff
	if id.src.Family != FamilyIPv6 || label == 0 {
		label = (31*uint32(id.src.Port) + uint32(id.dst.Port)) & 0xfffff
	}
	life := id.packetLifeTime()
	id.route = &Route{MTU: id.port.MTU, PKey: ib.PKeyDefault, PacketLifeTime: life, ServiceID: id.serviceID(),
		Path: Path{LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: id.src.IP, RemoteGID: id.dst.IP, FlowLabel: label,
			TrafficClass: id.tos, HopLimit: 64, AckTimeout: ackTimeout(id.port.AckDelay, life)}}
	id.state = IDRouteResolved
	id.m.raise(Event{Type: EventRouteResolved, ID: id})
	return nil
}

// SetRoute (kernel: rdma_set_ib_path) gives the id a path that somebody else has found,
// instead of ResolveRoute. Addresses and LIDs are the id's own: only the rest of r
// counts. ROUTE_RESOLVED follows at once.
func (id *ID) SetRoute(now vtime.Time, r Route) error {
	if !r.MTU.Valid() || r.PacketLifeTime > 30 {
		return id.err(ib.EINVAL, "set_option", "the path has no valid MTU or packet life time")
	}
	if err := id.ResolveRoute(now, time.Second); err != nil {
		return err
	}
	own := id.route
	own.MTU, own.PKey, own.PacketLifeTime = r.MTU, r.PKey, r.PacketLifeTime
	own.FlowLabel, own.HopLimit, own.TrafficClass, own.SL, own.PacketRate = r.FlowLabel, r.HopLimit, r.TrafficClass, r.SL, r.PacketRate
	own.AckTimeout = ackTimeout(id.port.AckDelay, r.PacketLifeTime)
	return nil
}

// serviceID returns what the id asks for, or for a listener what it offers.
func (id *ID) serviceID() ServiceID {
	port := id.dst.Port
	if id.dst.Family == FamilyNone {
		port = id.src.Port
	}
	return NewServiceID(id.space, port)
}

// routeOf is the route of an id that a request has made.
func routeOf(p *Port, c *conn, path *Path, s ServiceID) *Route {
	r := &Route{Path: *path, MTU: c.pathMTU, PKey: ib.PKeyDefault, ServiceID: s}
	r.LocalGID, r.RemoteGID = path.RemoteGID, path.LocalGID
	if path.AckTimeout > 0 {
		r.PacketLifeTime = path.AckTimeout - 1
	}
	return r
}
