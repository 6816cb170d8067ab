package verbs

import (
	"context"
	"runtime"
	"sync"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// CompChannel (struct ibv_comp_channel) is where armed completion queues announce
// completions.
type CompChannel struct {
	dev   *Device
	queue eventQueue[*CQ]
	cqs   int // under the node's lock
	dead  bool
}

// CreateCompChannel (ibv_create_comp_channel) creates a channel.
func (d *Device) CreateCompChannel() (*CompChannel, error) {
	// Each event in the queue stands for one ReqNotify of the program, so the queue
	// needs no limit.
	ch := &CompChannel{dev: d, queue: newEventQueue[*CQ](0)}
	err := d.do("create_comp_channel", func(*rvt.Device, vtime.Time) error {
		d.channels++
		d.live[ch] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ch, nil
}

// Get (ibv_get_cq_event) waits for the next event and returns its queue. An event means
// that a completion was added after the queue was armed; it may have been polled
// meanwhile. Every event must be acknowledged with [CQ.AckEvents].
//
// To miss nothing: poll until the queue is empty, arm it, poll once more, and only then
// wait. Get fails with the context's error, or ENODEV when the device is closed.
func (ch *CompChannel) Get(ctx context.Context) (*CQ, error) {
	ch.dev.strict.waiting(ch)
	return ch.queue.take(ctx, func(c *CQ) { c.comp.add() }, ch.dev.node.Park)
}

// TryGet is Get for a channel whose descriptor does not block: EAGAIN if there is no
// event.
func (ch *CompChannel) TryGet() (*CQ, error) {
	c, ok, err := ch.queue.tryTake(func(c *CQ) { c.comp.add() })
	if err == nil && !ok {
		err = ib.NewVerbError(ib.EAGAIN, "get_cq_event", "", "no event waits")
	}
	return c, err
}

// Destroy (ibv_destroy_comp_channel) removes the channel; EBUSY while queues use it.
// Goroutines that wait in Get return with EINVAL.
func (ch *CompChannel) Destroy() error {
	const verb = "destroy_comp_channel"
	return ch.dev.do(verb, func(*rvt.Device, vtime.Time) error {
		switch {
		case ch.dead:
			return ib.NewVerbError(ib.EINVAL, verb, "", "already destroyed")
		case ch.cqs > 0:
			return ib.NewVerbError(ib.EBUSY, verb, "", "completion queues use it")
		}
		ch.dead = true
		ch.dev.channels--
		delete(ch.dev.live, ch)
		ch.queue.close(ib.NewVerbError(ib.EINVAL, "get_cq_event", "", "the channel was destroyed"))
		return nil
	})
}

// CQ (struct ibv_cq) is a completion queue.
type CQ struct {
	// Context (cq_context) is the program's. Set it before others know the queue.
	Context any

	dev  *Device
	core *cq.CQ
	ch   *CompChannel // nil: the queue announces nothing

	// pollMu makes the caller the queue's one consumer. It is taken after the node's
	// lock, or without it.
	pollMu sync.Mutex
	dead   bool // destroyed; changed under both locks
	empty  uint32

	comp, async ackCount
}

// CreateCQ (ibv_create_cq) creates a queue for exactly cqe completions. ch may be nil,
// for a queue that is only polled.
func (d *Device) CreateCQ(cqe int, ch *CompChannel) (*CQ, error) {
	const verb = "create_cq"
	c := &CQ{dev: d, ch: ch}
	err := d.do(verb, func(dev *rvt.Device, _ vtime.Time) (err error) {
		if ch != nil && (ch.dead || ch.dev != d) {
			return ib.NewVerbError(ib.EINVAL, verb, "", "the channel is destroyed or another device's")
		}
		if c.core, err = dev.CreateCQ(cqe, nil); err != nil {
			return err
		}
		c.core.Context = c
		d.strict.newCQ(c)
		d.cqs++
		if ch != nil {
			ch.cqs++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (c *CQ) String() string { return c.core.String() }

// CQE returns the queue's capacity.
func (c *CQ) CQE() int {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	return c.core.CQE()
}

// Poll (ibv_poll_cq) moves up to len(wc) completions to wc, oldest first, and returns
// their number. If there are none it drives the device once and looks again, so a loop
// around Poll is all that a program needs for progress.
//
// It fails with EINVAL once the queue is destroyed, and with ENODEV when the device is
// gone and the queue is empty. A completion's failure is in its Status, not in err.
func (c *CQ) Poll(wc []WC) (int, error) {
	n, err := c.take(wc)
	if n > 0 || err != nil || len(wc) == 0 {
		return n, err
	}
	if !c.dev.node.Progress() && c.idle() {
		runtime.Gosched()
	}
	n, err = c.take(wc)
	if n == 0 && err == nil && c.dev.node.Err() != nil {
		err = c.dev.gone("poll_cq")
	}
	return n, err
}

// take is Poll without progress.
func (c *CQ) take(wc []WC) (int, error) {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	if c.dead {
		return 0, ib.NewVerbError(ib.EINVAL, "poll_cq", c.String(), "the queue was destroyed")
	}
	if c.dev.strict != nil {
		return c.dev.strict.poll(c, wc), nil
	}
	return c.core.Poll(wc), nil
}

// idleYield is after how many idle polls the processor is offered to other goroutines.
// A program whose goroutines all poll would otherwise keep out those that do the work.
const idleYield = 32

// idle counts a poll that found nothing to do, and tells when to yield.
func (c *CQ) idle() bool {
	c.pollMu.Lock()
	defer c.pollMu.Unlock()
	c.empty++
	return c.empty%idleYield == 0
}

// ReqNotify (ibv_req_notify_cq) arms the queue: the next completion that is added sends
// one event to the channel and disarms it. With solicitedOnly, only receives that the
// sender marked as solicited and failed completions count. Completions that are there
// already send nothing, so poll again after arming. Arming a queue without a channel has
// no effect, as in C.
func (c *CQ) ReqNotify(solicitedOnly bool) error {
	const verb = "req_notify_cq"
	return c.dev.do(verb, func(dev *rvt.Device, _ vtime.Time) error {
		if c.dead {
			return ib.NewVerbError(ib.EINVAL, verb, c.String(), "the queue was destroyed")
		}
		c.dev.strict.arm(c)
		dev.ReqNotify(c.core, solicitedOnly)
		return nil
	})
}

// AckEvents (ibv_ack_cq_events) acknowledges n events that Get returned for this queue.
// EINVAL if so many are not open. Acknowledging several at once is cheaper.
func (c *CQ) AckEvents(n int) error {
	return c.comp.ack("ack_cq_events", c.String(), n)
}

// Resize (ibv_resize_cq) changes the capacity. Completions that wait stay, in order;
// EINVAL if they would not fit.
func (c *CQ) Resize(cqe int) error {
	const verb = "resize_cq"
	return c.dev.do(verb, func(dev *rvt.Device, _ vtime.Time) error {
		c.pollMu.Lock()
		defer c.pollMu.Unlock()
		if c.dead {
			return ib.NewVerbError(ib.EINVAL, verb, c.String(), "the queue was destroyed")
		}
		return dev.ResizeCQ(c.core, cqe, nil)
	})
}

// Destroy (ibv_destroy_cq) removes the queue; EBUSY while QPs use it. Like the C call
// it then waits until every event that Get or AsyncEvent delivered for the queue has
// been acknowledged; events that nobody fetched are dropped. If the context ends first
// it returns an [*UnackedError]; the queue is gone from the device all the same.
func (c *CQ) Destroy(ctx context.Context) error {
	const verb = "destroy_cq"
	again := false
	err := c.dev.do(verb, func(dev *rvt.Device, _ vtime.Time) error {
		if again = c.dead; again {
			return nil
		}
		if err := dev.DestroyCQ(c.core); err != nil {
			return err
		}
		c.pollMu.Lock()
		c.dead = true
		c.pollMu.Unlock()
		c.dev.strict.destroyCQ(c)
		c.dev.cqs--
		if c.ch != nil {
			c.ch.cqs--
			c.ch.queue.remove(func(o *CQ) bool { return o == c })
		}
		return nil
	})
	if err != nil {
		return err
	}
	return finish(ctx, c.dev, verb, c.String(), again, func(e *AsyncEvent) bool { return e.CQ == c }, &c.async, &c.comp)
}

// finish ends the destruction of an object: it drops the events that nobody fetched and
// waits for the acknowledgement of the others. Destroying an object again is an error
// unless it is to go on waiting.
func finish(ctx context.Context, d *Device, verb, object string, again bool, mine func(*AsyncEvent) bool, acks ...*ackCount) error {
	d.async.remove(mine)
	waited := false
	for _, a := range acks {
		if a.isOpen() {
			waited = true
			defer d.strict.unacked(verb, object, a)()
			if err := a.wait(ctx, verb, object); err != nil {
				return err
			}
		}
	}
	if again && !waited {
		return ib.NewVerbError(ib.EINVAL, verb, object, "already destroyed")
	}
	return nil
}
