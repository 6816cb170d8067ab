package rpma

import (
	"context"
	"sync"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// WC (struct ibv_wc) is a completion. If its Status is not ib.WCSuccess only WRID,
// Status, QPN and VendorErr mean anything; GetWC sets the others to zero.
type WC = verbs.WC

// CQ (struct rpma_cq) is a completion queue of a connection. It belongs to the
// connection.
type CQ struct {
	cq     *verbs.CQ
	notes  *notes
	shared bool // with the connection's other queue
}

// GetWC (rpma_cq_get_wc with num_entries_got) moves completions to wc, as many as there
// are and fit, oldest first, and returns their number. Each is returned once.
//
// Every operation that fails completes; those that were posted with
// FlagCompletionAlways also when they succeed. The main queue of a connection that has a
// receive queue never returns completions of receives (RECV, RECV_RDMA_WITH_IMM): use
// [Conn.RCQ].
//
// Errors, n being 0: ErrInval if wc is empty; ErrNoCompletion if there is none;
// ErrProvider if polling failed, with the reason, such as a device that is gone.
// ErrUnknown is for providers that say no reason or return more than was asked for; this
// one does neither. A completion's failure is no error of GetWC. C forbids to leave out
// the number for more than one entry; here it is always returned.
func (q *CQ) GetWC(wc []WC) (n int, err error) {
	const op = "cq_get_wc"
	if len(wc) == 0 {
		return 0, inval(op, "no room for a completion")
	}
	n, err = q.cq.Poll(wc)
	switch {
	case err != nil:
		return 0, fail(op, ErrProvider, err)
	case n < 0 || n > len(wc):
		return 0, fail(op, ErrUnknown, nil)
	case n == 0:
		return 0, fail(op, ErrNoCompletion, nil)
	}
	for i := range wc[:n] {
		if w := &wc[i]; w.Status != ib.WCSuccess {
			*w = WC{WRID: w.WRID, Status: w.Status, QPN: w.QPN, VendorErr: w.VendorErr}
		}
	}
	return n, nil
}

// GetOneWC (rpma_cq_get_wc with num_entries 1 and num_entries_got NULL) is GetWC for a
// single completion.
func (q *CQ) GetOneWC() (WC, error) {
	var wc [1]WC
	_, err := q.GetWC(wc[:])
	return wc[0], err
}

// Wait (rpma_cq_wait) waits until a completion may be there, and arms the queue again.
// After it, take all completions before the next Wait, or a wake-up is missed. It may
// return for a completion that was taken already.
//
// ErrSharedChannel if the connection has one channel for both queues: use [Conn.Wait].
// ErrNoCompletion if the context ends or the channel is gone, ErrProvider if the queue
// cannot be armed.
func (q *CQ) Wait(ctx context.Context) error {
	const op = "cq_wait"
	if q.shared {
		return fail(op, ErrSharedChannel, nil)
	}
	if _, err := q.notes.next(ctx); err != nil {
		return fail(op, ErrNoCompletion, err)
	}
	return provider(op, q.cq.ReqNotify(false))
}

// Ready (rpma_cq_get_fd) returns a Go channel that becomes readable when Wait may return
// at once. ErrSharedChannel like Wait.
func (q *CQ) Ready() (<-chan struct{}, error) {
	if q.shared {
		return nil, fail("cq_get_fd", ErrSharedChannel, nil)
	}
	return q.notes.readable(), nil
}

// notes is a completion channel that can also be read as a Go channel.
type notes struct {
	ch *verbs.CompChannel

	mu     sync.Mutex
	queue  []*verbs.CQ
	pumped bool
	err    error
	ready  chan struct{}
	done   chan struct{}
}

func newNotes(ch *verbs.CompChannel) *notes {
	return &notes{ch: ch, ready: make(chan struct{}, 1), done: make(chan struct{})}
}

// readable starts to move events to the Go channel.
func (n *notes) readable() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.pumped {
		n.pumped = true
		go n.pump()
	}
	return n.ready
}

func (n *notes) pump() {
	for {
		q, err := n.get(context.Background())
		n.mu.Lock()
		if err != nil {
			n.err = err
			close(n.done)
			n.mu.Unlock()
			n.signal()
			return
		}
		n.queue = append(n.queue, q)
		n.mu.Unlock()
		n.signal()
	}
}

func (n *notes) signal() {
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

func (n *notes) get(ctx context.Context) (*verbs.CQ, error) {
	q, err := n.ch.Get(ctx)
	if err == nil {
		err = q.AckEvents(1)
	}
	return q, err
}

// next returns the queue of the next event.
func (n *notes) next(ctx context.Context) (*verbs.CQ, error) {
	n.mu.Lock()
	pumped := n.pumped
	n.mu.Unlock()
	if !pumped {
		return n.get(ctx)
	}
	for {
		n.mu.Lock()
		if len(n.queue) > 0 {
			q := n.queue[0]
			n.queue = n.queue[1:]
			if len(n.queue) > 0 {
				n.signal()
			}
			n.mu.Unlock()
			return q, nil
		}
		err := n.err
		n.mu.Unlock()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		select {
		case <-n.ready:
		case <-n.done:
		case <-ctx.Done():
		}
	}
}
