package rpma

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rdmacm"
)

// Conn (struct rpma_conn) is a connection.
type Conn struct {
	req  *ConnReq // owns the id and the queues
	id   *rdmacm.ID
	ch   *rdmacm.EventChannel
	page *verbs.MR // where the READ of a flush puts its bytes

	direct atomic.Bool // the other side writes directly to persistent memory

	mu      sync.Mutex
	private []byte
	deleted bool
}

func newConn(r *ConnReq, ch *rdmacm.EventChannel) (*Conn, error) {
	page, err := r.peer.pd.RegMR(make([]byte, flushBytes), ib.AccessLocalWrite)
	if err != nil {
		return nil, err
	}
	return &Conn{req: r, id: r.id, ch: ch, page: page, private: r.private}, nil
}

// ConnEvent (enum rpma_conn_event) is what happened to a connection.
type ConnEvent int

const (
	ConnUndefined   ConnEvent = -1 // RPMA_CONN_UNDEFINED: none
	ConnEstablished ConnEvent = 0  // RPMA_CONN_ESTABLISHED
	ConnClosed      ConnEvent = 1  // RPMA_CONN_CLOSED: either side has disconnected
	ConnLost        ConnEvent = 2  // RPMA_CONN_LOST: it cannot be used any more
	ConnRejected    ConnEvent = 3  // RPMA_CONN_REJECTED: the other side has refused
	ConnUnreachable ConnEvent = 4  // RPMA_CONN_UNREACHABLE: the other side does not answer
)

func (e ConnEvent) String() string {
	switch e {
	case ConnUndefined:
		return "undefined"
	case ConnEstablished:
		return "established"
	case ConnClosed:
		return "closed"
	case ConnLost:
		return "lost"
	case ConnRejected:
		return "rejected"
	case ConnUnreachable:
		return "unreachable"
	}
	return "ConnEvent(" + strconv.Itoa(int(e)) + ")"
}

// NextEvent (rpma_conn_next_event) waits for what happens next. ErrNoEvent if the
// context ends; with one that has ended it looks without waiting. ErrUnknown for an
// event that means nothing to a connection.
func (c *Conn) NextEvent(ctx context.Context) (ConnEvent, error) {
	const op = "conn_next_event"
	e, err := c.ch.Get(ctx)
	if err != nil {
		return ConnUndefined, eventError(op, err)
	}
	defer e.Ack()
	switch e.Type {
	case rdmacm.Established:
		c.mu.Lock()
		if c.private == nil {
			c.private = e.Conn.Private
		}
		c.mu.Unlock()
		return ConnEstablished, nil
	case rdmacm.Disconnected, rdmacm.TimeWaitExit:
		return ConnClosed, nil
	case rdmacm.ConnectError, rdmacm.DeviceRemoval:
		return ConnLost, nil
	case rdmacm.Rejected:
		return ConnRejected, nil
	case rdmacm.Unreachable:
		return ConnUnreachable, nil
	}
	return ConnUndefined, fail(op, ErrUnknown, reason("unexpected "+e.Type.String()))
}

// Ready (rpma_conn_get_event_fd) returns a Go channel that becomes readable when
// NextEvent may return at once.
func (c *Conn) Ready() <-chan struct{} { return c.ch.Ready() }

// PrivateData (rpma_conn_get_private_data) returns what the other side has sent: 196
// bytes since ConnEstablished on the side that has connected, the 56 bytes of the
// request on the other; nil if there are none.
func (c *Conn) PrivateData() []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.private
}

// CQ (rpma_conn_get_cq) returns the main completion queue.
func (c *Conn) CQ() *CQ { return c.req.main }

// RCQ (rpma_conn_get_rcq) returns the completion queue of receives, nil if there is none
// of its own.
func (c *Conn) RCQ() *CQ { return c.req.rcq }

// QPNum (rpma_conn_get_qp_num) returns the number of the connection's QP, which its
// completions carry; 0 after Delete.
func (c *Conn) QPNum() ib.QPN {
	if qp := c.id.QP(); qp != nil {
		return qp.QPN()
	}
	return 0
}

// Wait (rpma_conn_wait) waits until a completion may be in one of the queues, and tells
// in which; that queue is armed again. It is for connections with one completion channel:
// ErrNotSharedChnl otherwise. The other errors are those of [CQ.Wait].
func (c *Conn) Wait(ctx context.Context) (q *CQ, isRCQ bool, err error) {
	const op = "conn_wait"
	if c.req.shared == nil {
		return nil, false, fail(op, ErrNotSharedChnl, nil)
	}
	got, err := c.req.shared.next(ctx)
	if err != nil {
		return nil, false, fail(op, ErrNoCompletion, err)
	}
	switch {
	case got == c.req.main.cq:
		q = c.req.main
	case c.req.rcq != nil && got == c.req.rcq.cq:
		q, isRCQ = c.req.rcq, true
	default:
		return nil, false, fail(op, ErrUnknown, nil)
	}
	return q, isRCQ, provider(op, q.cq.ReqNotify(false))
}

// CompReady (rpma_conn_get_compl_fd) returns a Go channel that becomes readable when
// Wait may return at once; ErrNotSharedChnl like Wait.
func (c *Conn) CompReady() (<-chan struct{}, error) {
	if c.req.shared == nil {
		return nil, fail("conn_get_compl_fd", ErrNotSharedChnl, nil)
	}
	return c.req.shared.readable(), nil
}

// ApplyRemotePeerCfg (rpma_conn_apply_remote_peer_cfg) tells the connection what the
// other side's node can do.
func (c *Conn) ApplyRemotePeerCfg(cfg PeerCfg) { c.direct.Store(cfg.DirectWriteToPmem) }

// Disconnect (rpma_conn_disconnect) ends the connection, or agrees to the other side's
// end of it; work that is open completes with ib.WCWRFlushErr. ConnClosed follows on
// both sides.
func (c *Conn) Disconnect(ctx context.Context) error {
	return provider("conn_disconnect", c.id.Disconnect(ctx))
}

// Delete (rpma_conn_delete) removes the connection and what belongs to it, in whatever
// state it is. Deleting twice does nothing.
func (c *Conn) Delete(ctx context.Context) error {
	c.mu.Lock()
	again := c.deleted
	c.deleted = true
	c.mu.Unlock()
	if again {
		return nil
	}
	err := c.page.Dereg()
	if e := c.req.destroy(ctx); err == nil {
		err = e
	}
	if e := c.ch.Destroy(); err == nil {
		err = e
	}
	return provider("conn_delete", err)
}
