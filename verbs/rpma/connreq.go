package rpma

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rdmacm"
)

// ConnCfg (struct rpma_conn_cfg) describes connections. Start from NewConnCfg.
type ConnCfg struct {
	// Timeout is for each step of resolving an address.
	Timeout time.Duration
	// CQSize and RCQSize are the room in the main and the receive completion queue. With
	// an RCQSize of 0 there is one queue for everything.
	CQSize, RCQSize int
	// SQSize and RQSize are how many operations and receives may be open.
	SQSize, RQSize int
	// SharedCompChannel gives both completion queues one channel, for [Conn.Wait].
	SharedCompChannel bool
}

// NewConnCfg (rpma_conn_cfg_new) returns librpma's defaults.
func NewConnCfg() *ConnCfg {
	return &ConnCfg{Timeout: time.Second, CQSize: 10, SQSize: 10, RQSize: 10}
}

// inlineBytes is enough for an atomic write.
const inlineBytes = 8

// ConnReq (struct rpma_conn_req) is a connection that is not there yet.
type ConnReq struct {
	peer    *Peer
	id      *rdmacm.ID
	passive bool
	private []byte

	main, rcq *CQ
	channels  []*verbs.CompChannel
	shared    *notes

	mu   sync.Mutex
	gone bool // connected or deleted
}

// resolve looks an address up.
func resolve(ctx context.Context, addr, port string) (netip.AddrPort, error) {
	p, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if ip, err := netip.ParseAddr(addr); err == nil {
		return netip.AddrPortFrom(ip, uint16(p)), nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", addr)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(ips[0].Unmap(), uint16(p)), nil
}

// NewConnReq (rpma_conn_req_new) prepares a connection to addr and port. cfg may be nil,
// for the defaults. ErrInval without peer, address or port; ErrProvider when a step
// fails, be it the look-up of a name. The QP takes receives from now on.
func NewConnReq(ctx context.Context, peer *Peer, addr, port string, cfg *ConnCfg) (*ConnReq, error) {
	const op = "conn_req_new"
	if peer == nil || addr == "" || port == "" {
		return nil, inval(op, "no peer, address or port")
	}
	if cfg == nil {
		cfg = NewConnCfg()
	}
	dst, err := resolve(ctx, addr, port)
	if err != nil {
		return nil, provider(op, err)
	}
	id, err := rdmacm.CreateID(nil, peer.dev, rdmacm.TCP)
	if err != nil {
		return nil, provider(op, err)
	}
	r := &ConnReq{peer: peer, id: id}
	if err = id.ResolveAddr(ctx, netip.AddrPort{}, dst, cfg.Timeout); err == nil {
		if err = id.ResolveRoute(ctx, cfg.Timeout); err == nil {
			err = r.create(cfg)
		}
	}
	if err != nil {
		_ = r.destroy(ctx) // the first error counts
		return nil, provider(op, err)
	}
	return r, nil
}

// create makes the completion queues, armed, and the QP.
func (r *ConnReq) create(cfg *ConnCfg) (err error) {
	var n *notes
	if cfg.SharedCompChannel {
		if n, err = r.channel(); err != nil {
			return err
		}
		r.shared = n
	}
	if r.main, err = r.queue(n, cfg.CQSize); err != nil {
		return err
	}
	recv := r.main
	if cfg.RCQSize > 0 {
		if r.rcq, err = r.queue(n, cfg.RCQSize); err != nil {
			return err
		}
		recv = r.rcq
	}
	return r.id.CreateQP(r.peer.pd, verbs.QPInitAttr{SendCQ: r.main.cq, RecvCQ: recv.cq,
		Cap: verbs.QPCap{MaxSendWR: cfg.SQSize, MaxRecvWR: cfg.RQSize, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: inlineBytes}})
}

func (r *ConnReq) channel() (*notes, error) {
	ch, err := r.peer.dev.CreateCompChannel()
	if err != nil {
		return nil, err
	}
	r.channels = append(r.channels, ch)
	return newNotes(ch), nil
}

func (r *ConnReq) queue(n *notes, size int) (*CQ, error) {
	shared := n != nil
	if !shared {
		var err error
		if n, err = r.channel(); err != nil {
			return nil, err
		}
	}
	cq, err := r.peer.dev.CreateCQ(size, n.ch)
	if err != nil {
		return nil, err
	}
	return &CQ{cq, n, shared}, cq.ReqNotify(false)
}

// destroy removes everything that belongs to the connection.
func (r *ConnReq) destroy(ctx context.Context) (first error) {
	note := func(err error) {
		if first == nil {
			first = err
		}
	}
	if r.id.QP() != nil {
		note(r.id.DestroyQP(ctx))
	}
	for _, q := range []*CQ{r.rcq, r.main} {
		if q != nil {
			note(q.cq.Destroy(ctx))
		}
	}
	note(r.id.Destroy(ctx))
	for _, ch := range r.channels {
		note(ch.Destroy())
	}
	return first
}

// take makes the caller the one who uses the request up.
func (r *ConnReq) take() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := !r.gone
	r.gone = true
	return first
}

// PrivateData (rpma_conn_req_get_private_data) returns what the other side has sent with
// its request: 56 bytes, filled up with zeros. It is nil on the side that connects.
func (r *ConnReq) PrivateData() []byte { return r.private }

// Recv (rpma_conn_req_recv) posts a receive before there is a connection, so that it is
// there when the first message comes. See [Conn.Recv].
func (r *ConnReq) Recv(dst *MRLocal, off, n int, opContext uint64) error {
	return recv("conn_req_recv", r.id, dst, off, n, opContext)
}

// Delete (rpma_conn_req_delete) gives the request up. A request of the other side is
// refused. (In C the refused id stays behind.)
func (r *ConnReq) Delete(ctx context.Context) error {
	const op = "conn_req_delete"
	if !r.take() {
		return inval(op, "the request was connected or deleted")
	}
	var err error
	if r.passive {
		err = r.id.Reject(nil)
	}
	if e := r.destroy(ctx); err == nil {
		err = e
	}
	return provider(op, err)
}

// Connect (rpma_conn_req_connect) starts to connect, or takes the other side's request.
// The request is used up whatever the result. private goes to the other side: up to 56
// bytes to connect, 196 to take a request; nil means none, and an empty slice that is
// not nil is ErrInval. What came of it is the connection's first event.
func (r *ConnReq) Connect(ctx context.Context, private []byte) (*Conn, error) {
	const op = "conn_req_connect"
	if !r.take() {
		return nil, inval(op, "the request was connected or deleted")
	}
	if private != nil && len(private) == 0 {
		r.giveUp(ctx)
		return nil, inval(op, "private data of no length")
	}
	ch := rdmacm.CreateEventChannel()
	p := &rdmacm.ConnParam{Private: private, ResponderResources: rdmacm.MaxResources, InitiatorDepth: rdmacm.MaxResources,
		FlowControl: true, RetryCount: 7, RNRRetryCount: 7}
	// C accepts first, so that who waits at the endpoint may get events that are not his.
	err := r.id.Migrate(ctx, ch)
	switch {
	case err != nil:
	case r.passive:
		err = r.id.Accept(ctx, p)
	default:
		err = r.id.Connect(ctx, p)
	}
	var c *Conn
	if err == nil {
		c, err = newConn(r, ch)
	}
	if err != nil {
		r.giveUp(ctx)
		return nil, provider(op, err)
	}
	return c, nil
}

func (r *ConnReq) giveUp(ctx context.Context) {
	if r.passive {
		_ = r.id.Reject(nil) // an accept that failed has refused already
	}
	_ = r.destroy(ctx) // the first error counts
}

// Endpoint (struct rpma_ep) listens.
type Endpoint struct {
	peer *Peer
	ch   *rdmacm.EventChannel
	id   *rdmacm.ID
}

// Listen (rpma_ep_listen) listens at an address of the node, with the largest backlog.
func Listen(ctx context.Context, peer *Peer, addr, port string) (*Endpoint, error) {
	const op = "ep_listen"
	if peer == nil || addr == "" || port == "" {
		return nil, inval(op, "no peer, address or port")
	}
	src, err := resolve(ctx, addr, port)
	if err != nil {
		return nil, provider(op, err)
	}
	e := &Endpoint{peer: peer, ch: rdmacm.CreateEventChannel()}
	if e.id, err = rdmacm.CreateID(e.ch, peer.dev, rdmacm.TCP); err != nil {
		return nil, provider(op, err)
	}
	if err = e.id.BindAddr(src); err == nil {
		err = e.id.Listen(0)
	}
	if err != nil {
		_ = e.Shutdown(ctx)
		return nil, provider(op, err)
	}
	return e, nil
}

// Addr returns where the endpoint listens, which tells the port that was chosen for "0".
// It is an addition to the C API.
func (e *Endpoint) Addr() netip.AddrPort { return e.id.LocalAddr() }

// Ready (rpma_ep_get_fd) returns a Go channel that becomes readable when a request may
// wait.
func (e *Endpoint) Ready() <-chan struct{} { return e.ch.Ready() }

// Shutdown (rpma_ep_shutdown) ends listening. Requests that nobody has fetched are
// refused.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	err := e.id.Destroy(ctx)
	if err == nil {
		err = e.ch.Destroy()
	}
	return provider("ep_shutdown", err)
}

// NextConnReq (rpma_ep_next_conn_req) waits for a request. cfg may be nil, for the
// defaults. ErrNoEvent if the context ends, with its error as the cause; ErrInval if
// another event came, such as the removal of the device; ErrProvider when something
// fails, and the other side is refused then.
func (e *Endpoint) NextConnReq(ctx context.Context, cfg *ConnCfg) (*ConnReq, error) {
	const op = "ep_next_conn_req"
	if cfg == nil {
		cfg = NewConnCfg()
	}
	ev, err := e.ch.Get(ctx)
	if err != nil {
		return nil, eventError(op, err)
	}
	defer ev.Ack()
	if ev.Type != rdmacm.ConnectRequest {
		return nil, inval(op, "unexpected "+ev.Type.String())
	}
	r := &ConnReq{peer: e.peer, id: ev.ID, passive: true, private: ev.Conn.Private}
	if err := r.create(cfg); err != nil {
		r.giveUp(ctx)
		return nil, provider(op, err)
	}
	return r, nil
}

// eventError tells a wait that ended from one that failed.
func eventError(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fail(op, ErrNoEvent, err)
	}
	return provider(op, err)
}
