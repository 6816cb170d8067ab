package rdmacm

import (
	"context"
	"errors"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/cm/gsi"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// ID (struct rdma_cm_id) is an address, a listener, or one end of a connection, with the
// QP that goes with it. It serves one attempt to connect.
//
// An id with an event channel is asynchronous: calls return at once and what came of
// them is an event. An id without is synchronous: a call that causes an event waits for
// it, keeps it until the next such call (see [ID.Event]), and returns its failure as an
// error.
type ID struct {
	// Context is the program's. Set it before others know the id.
	Context any

	a       *agent
	core    *cm.ID
	sync    bool
	unacked counter
	// request (of an id that a CONNECT_REQUEST made) is what the peer asked for.
	request *ConnParam

	// Under the agent's lock.
	ch     *EventChannel
	groups []group

	mu           sync.Mutex
	event        *Event // synchronous: the last one
	connectError bool   // CONNECT_ERROR was reported: what the peer says later is no news
	qp           *verbs.QP
	pd           *verbs.PD
	srq          bool // the QP receives from a shared queue
	send, recv   half
	// A passive endpoint gives these to the ids of its requests.
	passiveAttr *verbs.QPInitAttr
	passivePD   *verbs.PD
	connectData []byte // ai_connect
}

// half is a completion queue of an id's QP.
type half struct {
	cq   *verbs.CQ
	ch   *verbs.CompChannel // nil: the program's own queue
	turn chan struct{}      // a token: who may wait for a completion
}

// CreateID (rdma_create_id) makes an id on a device. Without a channel it is
// synchronous. Port space UDP is for datagrams, the others for connections.
func CreateID(ch *EventChannel, dev *verbs.Device, space PortSpace) (*ID, error) {
	typ := ib.QPTypeRC
	if space == UDP {
		typ = ib.QPTypeUD
	}
	return createID(ch, dev, space, typ)
}

func createID(ch *EventChannel, dev *verbs.Device, space PortSpace, typ ib.QPType) (*ID, error) {
	a, err := agentOf(dev)
	if err != nil {
		return nil, err
	}
	var id *ID
	err = a.gsi.Do(func(m *cm.Manager, _ nowTime) error {
		core, err := m.CreateID(space, typ)
		if err == nil {
			id = newID(a, core, ch)
		}
		return err
	})
	if errors.Is(err, gsi.ErrGone) {
		err = ib.NewVerbError(ib.ENODEV, "create_id", dev.Name(), "the device is closed")
	}
	return id, err
}

// newID wraps an id of the manager. The caller is the agent's owner.
func newID(a *agent, core *cm.ID, ch *EventChannel) *ID {
	id := &ID{a: a, core: core, ch: ch}
	id.send.turn, id.recv.turn = make(chan struct{}, 1), make(chan struct{}, 1)
	if ch == nil {
		id.ch, id.sync = CreateEventChannel(), true
	}
	id.ch.use(1)
	core.Context = id
	return id
}

func (ch *EventChannel) use(n int) {
	ch.mu.Lock()
	ch.ids += n
	ch.mu.Unlock()
}

func (id *ID) String() string {
	s := ""
	_ = id.a.do(func(*cm.Manager, nowTime) error { s = id.core.String(); return nil })
	return s
}

func (id *ID) err(errno ib.Errno, verb, reason string) error {
	return ib.NewVerbError(errno, verb, "", reason)
}

// Device returns the device that the id is on.
func (id *ID) Device() *verbs.Device { return id.a.dev }

// QPType returns the type of QP that the id is for.
func (id *ID) QPType() ib.QPType { return id.core.QPType() }

// LocalAddr (rdma_get_local_addr, rdma_get_src_port) returns the id's own address.
func (id *ID) LocalAddr() (a netip.AddrPort) {
	_ = id.a.do(func(*cm.Manager, nowTime) error { a = fromAddr(id.core.Local()); return nil })
	return a
}

// RemoteAddr (rdma_get_peer_addr, rdma_get_dst_port) returns the peer's address, the
// zero AddrPort if there is none.
func (id *ID) RemoteAddr() (a netip.AddrPort) {
	_ = id.a.do(func(*cm.Manager, nowTime) error { a = fromAddr(id.core.Remote()); return nil })
	return a
}

// Event returns the event that the last call of a synchronous id has waited for, nil if
// none. It is acknowledged by the next call.
func (id *ID) Event() *Event {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.event
}

// keep makes e the event of a synchronous id and lets go of the one before.
func (id *ID) keep(e *Event) {
	id.mu.Lock()
	old := id.event
	id.event = e
	id.mu.Unlock()
	if old != nil {
		old.Ack()
	}
}

// complete (librdmacm: ucma_complete) ends a call of a synchronous id: it waits for the
// event.
func (id *ID) complete(ctx context.Context) error {
	if !id.sync {
		return nil
	}
	id.keep(nil)
	e, err := id.channel().Get(ctx)
	if err != nil {
		return err
	}
	id.keep(e)
	return e.Err()
}

func (id *ID) channel() (ch *EventChannel) {
	id.a.gsi.Lock()
	defer id.a.gsi.Unlock()
	return id.ch
}

// BindAddr (rdma_bind_addr) gives the id its own address. Port 0 chooses a free one; the
// unspecified address stands for every address of the device.
func (id *ID) BindAddr(addr netip.AddrPort) error {
	return id.a.do(func(*cm.Manager, nowTime) error { return id.core.Bind(toAddr(addr)) })
}

// ResolveAddr (rdma_resolve_addr) finds the way to dst. src may be the zero AddrPort.
// ADDR_RESOLVED or ADDR_ERROR follows.
func (id *ID) ResolveAddr(ctx context.Context, src, dst netip.AddrPort, timeout time.Duration) error {
	err := id.a.do(func(_ *cm.Manager, now nowTime) error {
		return id.core.ResolveAddr(now, toAddr(src), toAddr(dst), timeout)
	})
	if err != nil {
		return err
	}
	return id.complete(ctx)
}

// ResolveRoute (rdma_resolve_route) makes the path to the destination. ROUTE_RESOLVED
// follows. EINVAL for a timeout that is not positive.
func (id *ID) ResolveRoute(ctx context.Context, timeout time.Duration) error {
	err := id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.ResolveRoute(now, timeout) })
	if err != nil {
		return err
	}
	return id.complete(ctx)
}

// Listen (rdma_listen) takes requests. backlog bounds those that nobody has fetched; 0
// means the most that is allowed.
func (id *ID) Listen(backlog int) error {
	return id.a.do(func(*cm.Manager, nowTime) error { return id.core.Listen(backlog) })
}

// GetRequest (rdma_get_request) waits for a request at a synchronous listener and returns
// the new id, which is synchronous too and has a QP if the listener was made by CreateEP
// with attributes. [ID.Event] of the new id is the request until Accept, Reject or
// Destroy.
func (id *ID) GetRequest(ctx context.Context) (*ID, error) {
	const verb = "get_request"
	if !id.sync {
		return nil, id.err(ib.EINVAL, verb, "the id has an event channel: requests come there")
	}
	id.keep(nil)
	e, err := id.channel().Get(ctx)
	if err != nil {
		return nil, err
	}
	if e.Type != ConnectRequest {
		id.keep(e)
		if err := e.Err(); err != nil {
			return nil, err
		}
		return nil, id.err(ib.EINVAL, verb, "unexpected "+e.Type.String())
	}
	child := e.ID
	child.sync = true
	child.migrate(CreateEventChannel())
	child.keep(e)
	id.mu.Lock()
	attr, pd := id.passiveAttr, id.passivePD
	id.mu.Unlock()
	if attr != nil {
		if err := child.CreateQP(pd, *attr); err != nil {
			_ = child.Destroy(ctx)
			return nil, err
		}
	}
	return child, nil
}

// Migrate (rdma_migrate_id) moves the id and its events to another channel, or makes it
// synchronous without one. EINVAL on a synchronous id without a channel; wait until its
// events are acknowledged before.
func (id *ID) Migrate(ctx context.Context, ch *EventChannel) error {
	const verb = "migrate_id"
	if id.sync && ch == nil {
		return id.err(ib.EINVAL, verb, "it is synchronous already")
	}
	if id.sync {
		id.keep(nil)
	}
	if err := id.unacked.wait(ctx, verb); err != nil {
		return err
	}
	id.sync = ch == nil
	if ch == nil {
		ch = CreateEventChannel()
	}
	id.migrate(ch)
	return nil
}

func (id *ID) migrate(ch *EventChannel) {
	id.a.gsi.Lock()
	defer id.a.gsi.Unlock()
	ch.use(1)
	for _, e := range id.ch.remove(id) {
		if e.ID != id { // a request at a listener
			e.ID.ch.use(-1)
			e.ID.ch = ch
			ch.use(1)
		}
		ch.push(e)
	}
	id.ch.use(-1)
	id.ch = ch
}

// SetTOS (RDMA_OPTION_ID_TOS) sets the traffic class. Set it before ResolveRoute.
func (id *ID) SetTOS(tos uint8) error {
	return id.a.do(func(*cm.Manager, nowTime) error { return id.core.SetTOS(tos) })
}

// SetReuseAddr (RDMA_OPTION_ID_REUSEADDR) lets ids share a port, except listeners.
func (id *ID) SetReuseAddr(on bool) error {
	return id.a.do(func(*cm.Manager, nowTime) error { return id.core.SetReuseAddr(on) })
}

// SetAFOnly (RDMA_OPTION_ID_AFONLY) keeps IPv4 requests away from an IPv6 listener.
func (id *ID) SetAFOnly(on bool) error {
	return id.a.do(func(*cm.Manager, nowTime) error { return id.core.SetAFOnly(on) })
}

// SetAckTimeout (RDMA_OPTION_ID_ACK_TIMEOUT) sets the QP's timeout, 4.096 us times 2^t.
// Set it before ResolveRoute.
func (id *ID) SetAckTimeout(t uint8) error {
	return id.a.do(func(*cm.Manager, nowTime) error { return id.core.SetAckTimeout(t) })
}

// Notify (rdma_notify) tells the connection manager of an asynchronous event of the QP:
// EventCommEst if data came before ESTABLISHED.
func (id *ID) Notify(e ib.EventType) error {
	return id.a.do(func(_ *cm.Manager, now nowTime) error { return id.core.Notify(now, e) })
}

// Destroy (rdma_destroy_id) removes the id: EBUSY while it has a QP. The peer of a
// connection is told, not waited for. Destroy then waits until all events of the id that
// were delivered have been acknowledged, and gives up with a [*verbs.UnackedError] when
// the context ends; the id is gone all the same. Destroying twice does nothing.
func (id *ID) Destroy(ctx context.Context) error {
	const verb = "destroy_id"
	id.mu.Lock()
	hasQP := id.qp != nil
	id.mu.Unlock()
	if hasQP {
		return id.err(ib.EBUSY, verb, "destroy its QP first")
	}
	id.keep(nil)
	_ = id.a.do(func(_ *cm.Manager, now nowTime) error {
		if id.core.State() != cm.IDDestroying {
			id.core.Destroy(now)
			id.ch.use(-1)
		}
		for _, e := range id.ch.remove(id) {
			if e.ID != id {
				e.ID.ch.use(-1) // a request nobody fetched, refused
			}
		}
		return nil
	})
	return id.unacked.wait(ctx, verb)
}

// counter counts events that were delivered and not acknowledged.
type counter struct {
	mu   sync.Mutex
	n    int
	zero chan struct{}
}

func (c *counter) add() {
	c.mu.Lock()
	c.n++
	c.mu.Unlock()
}

func (c *counter) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n == 0 && c.zero != nil {
		close(c.zero)
		c.zero = nil
	}
}

func (c *counter) wait(ctx context.Context, verb string) error {
	c.mu.Lock()
	if c.n == 0 {
		c.mu.Unlock()
		return nil
	}
	if c.zero == nil {
		c.zero = make(chan struct{})
	}
	zero := c.zero
	c.mu.Unlock()
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == 0 {
		return nil
	}
	return &verbs.UnackedError{Verb: verb, Object: "id", Events: c.n, Err: ctx.Err()}
}

// AddrInfo (struct rdma_addrinfo) says what CreateEP is to make.
type AddrInfo struct {
	// Passive (RAI_PASSIVE) asks for a listener on Src; otherwise the endpoint goes from
	// Src, which may be zero, to Dst.
	Passive  bool
	Src, Dst netip.AddrPort
	// Space is the port space; 0 means TCP.
	Space PortSpace
	// QPType is for space IB; RC if zero.
	QPType ib.QPType
	// Connect (ai_connect) precedes the private data of Connect.
	Connect []byte
}

// endpointTimeout is how long CreateEP gives each step of resolution.
const endpointTimeout = 2 * time.Second

// CreateEP (rdma_create_ep) makes a synchronous id that is ready to connect, or to
// listen. With attributes it has a QP; a listener's requests have one each. pd may be
// nil, for the device's default. On failure nothing is left.
func CreateEP(ctx context.Context, dev *verbs.Device, info AddrInfo, pd *verbs.PD, attr *verbs.QPInitAttr) (*ID, error) {
	typ := info.QPType
	switch {
	case info.Space == 0:
		info.Space, typ = TCP, ib.QPTypeRC
	case info.Space == UDP:
		typ = ib.QPTypeUD
	case typ == 0:
		typ = ib.QPTypeRC
	}
	id, err := createID(nil, dev, info.Space, typ)
	if err != nil {
		return nil, err
	}
	if info.Passive {
		err = id.BindAddr(info.Src)
		id.passivePD = pd
		if attr != nil {
			a := *attr
			id.passiveAttr = &a
		}
	} else {
		id.connectData = append([]byte(nil), info.Connect...)
		err = id.resolveEP(ctx, &info, pd, attr)
	}
	if err != nil {
		_ = id.DestroyEP(ctx) // the first error counts
		return nil, err
	}
	return id, nil
}

func (id *ID) resolveEP(ctx context.Context, info *AddrInfo, pd *verbs.PD, attr *verbs.QPInitAttr) error {
	if err := id.ResolveAddr(ctx, info.Src, info.Dst, endpointTimeout); err != nil {
		return err
	}
	if err := id.ResolveRoute(ctx, endpointTimeout); err != nil {
		return err
	}
	if attr == nil {
		return nil
	}
	return id.CreateQP(pd, *attr)
}

// DestroyEP (rdma_destroy_ep) destroys the id's QP, its queues, and the id.
func (id *ID) DestroyEP(ctx context.Context) error {
	if id.QP() != nil {
		if err := id.DestroyQP(ctx); err != nil {
			return err
		}
	}
	return id.Destroy(ctx)
}

// limits returns what the device allows as responder and as requester.
func (id *ID) limits() (resources, depth uint8, err error) {
	a, err := id.a.dev.QueryDevice()
	return uint8(a.Limits.MaxQPRdAtom), uint8(a.Limits.MaxQPInitRdAtom), err
}

func tooMany(verb, what string, n, most uint8) error {
	return ib.NewVerbError(ib.EINVAL, verb, "", what+" "+strconv.Itoa(int(n))+": the device has "+strconv.Itoa(int(most)))
}
