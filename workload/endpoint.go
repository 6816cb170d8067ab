package workload

import (
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// Info is what an endpoint tells its peer before they connect.
type Info struct {
	GID  ib.GID
	MTU  ib.MTU
	QPs  []QPInfo
	RKey ib.RKey // of the remote region
	// NoAccessRKey names a region over the same memory without remote rights.
	NoAccessRKey ib.RKey
	RemoteBytes  uint64 // length of the remote region
}

// QPInfo is one QP of an Info. Windows are the first rkeys of its memory windows, if
// the flow has SEND_WITH_INV.
type QPInfo struct {
	QPN     ib.QPN
	PSN     ib.PSN
	Windows []ib.RKey
}

// Hooks are what an endpoint tells its host. Each may be nil.
type Hooks struct {
	// Latency is told how long a signaled work request took from post to completion.
	Latency Recorder
	// Completion sees every completion that was polled. wc is valid during the call.
	Completion func(now vtime.Time, wc *cq.WC)
	// RecvCompletion, if not nil, sees those of receives in its stead.
	RecvCompletion func(now vtime.Time, wc *cq.WC)
	// Received is told that a message has arrived and been checked.
	Received func(now vtime.Time)
}

// Recorder collects durations in nanoseconds, a histogram for example.
type Recorder interface{ Record(ns int64) }

// Endpoint is one end of a flow on one device. It belongs to the device's owner: all
// methods are called while owning the device.
type Endpoint struct {
	Spec  Spec
	Hooks Hooks
	// CatchUp is how far a flow may fall behind Spec.RateBitsPerSecond and still make up for
	// it: in real time a host that was late would otherwise post less than that. What waited
	// longer for its turn, or for room in the queue, is not made up for. Set before Connect.
	CatchUp time.Duration

	dev    *rvt.Device
	client bool
	role   role
	out    direction // of what it sends
	lay    layout
	peer   layout
	buf    []byte
	mem    *mr.Slice
	pd     *rvt.PD
	local  *rvt.MR
	remote *rvt.MR
	locked *rvt.MR // same memory, no remote rights
	scq    *cq.CQ
	rcq    *cq.CQ
	srq    *swqe.SRQ
	qps    []*conn
	index  map[ib.QPN]int // position in qps; looked up only

	info, peerInfo Info
	startAt        vtime.Time // of the first post
	recvAt         vtime.Time // of the first receive
	connected      bool
	recvStarted    bool
	paused         bool
	stopped        bool
	rearmSRQ       bool
	cqLost         bool // the send completion queue overflowed: nothing more is told
	refill         bool // receives have completed and not been posted again
	binding        int  // bindings posted and not completed
	err            error

	stats   Stats
	unsure  violations
	ready   []int // QPs that may have something to post, in order
	open    int   // QPs with work requests posted and not retired, or to be posted
	wakeAt  vtime.Time
	allowed uint64 // work requests that each QP may post in all; see Spec.HoldAt
	srqRing recvRing

	tmp    *Scratch // not nil
	shares bool     // tmp is the owner's
}

// Scratch is room that an endpoint needs only during a call, and memory whose contents
// mean nothing. Endpoints that share an owner may share it, which keeps it in the cache.
type Scratch struct {
	void  []byte // only ever zero
	wcs   [32]cq.WC
	wrs   []swqe.SendWR
	sges  []mr.SGE
	recvs []swqe.RecvWR
	rsges []mr.SGE
}

// Share makes the endpoint use s instead of room of its own.
//
// Messages of an endpoint that checks no contents then have none: all of its memory is
// that of the scratch, which stays zero.
func (e *Endpoint) Share(s *Scratch) { e.tmp, e.shares = s, true }

// void reports whether nobody looks at what the endpoint's memory holds.
func (e *Endpoint) void() bool {
	return e.shares && !e.Spec.Verify && !e.Spec.any(swqe.OpAtomic) && e.dev.Config().Guard == nil
}

// memory returns n bytes of zeros that nobody writes.
func (s *Scratch) memory(n int) []byte {
	if len(s.void) < n {
		s.void = make([]byte, n)
	}
	return s.void[:n:n]
}

// conn is one QP of an endpoint with what it sends and receives.
type conn struct {
	i    int
	q    *qp.QP
	send sender
	recv receiver
	ah   *swqe.AH
	peer QPInfo
	mws  []window
	down bool // a completion failed: nothing more is posted

	refusals int // posts that FailPosts made fail and that have not been seen to
}

// NewClient and NewServer return the two ends of a flow, bound to their devices. Setup
// comes next.
func NewClient(spec Spec, dev *rvt.Device) (*Endpoint, error) { return newEndpoint(spec, dev, true) }

// NewServer returns the end that answers; see NewClient.
func NewServer(spec Spec, dev *rvt.Device) (*Endpoint, error) { return newEndpoint(spec, dev, false) }

func newEndpoint(spec Spec, dev *rvt.Device, client bool) (*Endpoint, error) {
	if err := spec.Validate(); err != nil {
		return nil, err
	}
	e := &Endpoint{Spec: spec, dev: dev, client: client, wakeAt: vtime.Never, allowed: unlimited, tmp: new(Scratch)}
	if spec.HoldAt > 0 {
		e.allowed = spec.HoldAt
	}
	c, s := role{true, spec.Bidirectional}, role{spec.Bidirectional, true}
	e.role, e.out = c, toServer
	own, other := c, s
	if !client {
		e.role, e.out = s, toClient
		own, other = s, c
	}
	e.lay, e.peer = e.Spec.layout(own), e.Spec.layout(other)
	return e, nil
}

// Client reports whether the endpoint is the client of its flow.
func (e *Endpoint) Client() bool { return e.client }

// Device returns the device that the endpoint is bound to.
func (e *Endpoint) Device() *rvt.Device { return e.dev }

// QPs returns the endpoint's QPs in their order.
func (e *Endpoint) QPs() []*qp.QP {
	qs := make([]*qp.QP, len(e.qps))
	for i, c := range e.qps {
		qs[i] = c.q
	}
	return qs
}

// Stats returns the counters. They belong to the device's owner.
func (e *Endpoint) Stats() *Stats { return &e.stats }

// Err returns why the endpoint gave up posting, nil if it did not. Failed completions
// are no such reason: they are counted.
func (e *Endpoint) Err() error { return e.err }

// Violations returns what went against the rules, the first ones of many.
func (e *Endpoint) Violations() []string { return e.unsure.list }

// Name names the endpoint in messages.
func (e *Endpoint) Name() string {
	if e.client {
		return e.Spec.Name + " client"
	}
	return e.Spec.Name + " server"
}

func (e *Endpoint) violate(c *conn, format string, args ...any) {
	e.unsure.add(e.Name() + " qp " + c.q.QPN.String() + ": " + fmt.Sprintf(format, args...))
}

// Stop ends a flow without a count: what is posted still completes. At most
// SignalEvery more work requests are posted, so that the last one is signaled.
func (e *Endpoint) Stop() { e.stopped = true }

// Pause makes the endpoint leave its receives alone, as a program that hangs; Resume
// undoes it. Sending goes on.
func (e *Endpoint) Pause() { e.paused = true }

// Resume ends a Pause. The host steps the endpoint afterwards.
func (e *Endpoint) Resume() { e.paused = false }

// OnEvent takes an asynchronous event that concerns the endpoint's objects.
func (e *Endpoint) OnEvent(ev rvt.Event) {
	if ev.Comp {
		e.stats.Notifications++
		return
	}
	if int(ev.Type) < len(e.stats.Events) {
		e.stats.Events[ev.Type]++
	}
	switch {
	case ev.Type == ib.EventSRQLimitReached:
		e.rearmSRQ = true
	case ev.Type == ib.EventCQErr && ev.CQ == e.scq && e.scq.Overflowed():
		e.cqLost = true
		for _, c := range e.qps {
			c.down = true
			e.list(c)
		}
	}
}

// Step does what there is to do at now: it polls, checks, posts receives, and posts
// sends. It returns whether it did anything. The host then lets the device emit.
func (e *Endpoint) Step(now vtime.Time) (progress bool) {
	if !e.connected {
		return false
	}
	for {
		did := e.pollSends(now)
		if e.role.receives && !e.paused {
			did = e.stepReceives(now) || did
		}
		if e.role.sends {
			did = e.post(now) || did
		}
		progress = progress || did
		if !e.arm() || !did {
			return progress
		}
	}
}

// arm asks for a notification of the next completion and reports whether completions
// arrived meanwhile, for which none will come.
func (e *Endpoint) arm() (missed bool) {
	if !e.Spec.Events {
		return false
	}
	missed = e.dev.ReqNotify(e.scq, false)
	if e.role.receives && !e.paused {
		missed = e.dev.ReqNotify(e.rcq, false) || missed
	}
	return missed
}

// Deadline returns when Step has something to do even if nothing happens: a start
// delay or the pace of a rate. vtime.Never if nothing is due.
func (e *Endpoint) Deadline() vtime.Time {
	at := e.wakeAt
	if e.connected && e.role.receives && !e.recvStarted && !e.paused && e.binding == 0 {
		at = vtime.Min(at, e.recvAt)
	}
	return at
}

// Done reports whether the endpoint expects nothing more: all that it posted is
// retired, and all that a reliable peer sends has arrived. A receiver on UC and UD,
// and one whose peer sends until it is stopped, is always done.
func (e *Endpoint) Done() bool {
	if !e.connected || e.open > 0 {
		return false
	}
	if !e.role.receives || !e.Spec.reliable() || e.Spec.Count == 0 {
		return true
	}
	for _, c := range e.qps {
		if !c.failed() && !c.recv.complete {
			return false
		}
	}
	return true
}

// PairDone reports whether a flow has come to its end, good or bad, as seen from both
// ends: all that was posted is retired, and all that was sent on QPs that did not fail
// has arrived.
func PairDone(client, server *Endpoint) bool {
	if !client.SendsDone() || !server.SendsDone() {
		return false
	}
	if s := &client.Spec; !s.reliable() || s.Count == 0 {
		return true
	}
	for i, c := range client.qps {
		d := server.qps[i]
		if !c.failed() && !d.failed() && !(d.recv.complete && (c.recv.complete || !client.role.receives)) {
			return false
		}
	}
	return true
}

// SendsDone reports whether everything that the endpoint will post is retired.
func (e *Endpoint) SendsDone() bool { return e.connected && e.open == 0 }

func (c *conn) failed() bool { return c.down || c.q.State == ib.StateErr }

// Failed reports whether any QP has failed.
func (e *Endpoint) Failed() bool {
	for _, c := range e.qps {
		if c.down {
			return true
		}
	}
	return e.err != nil
}

// CompletionDriven reports that without an event, a completion in one of its queues or its
// deadline the endpoint has nothing to do in a Step.
func (e *Endpoint) CompletionDriven() bool { return true }

// EventDriven reports whether the endpoint needs a Step only for events.
func (e *Endpoint) EventDriven() bool { return e.Spec.Events }

// RemoteMemory returns the part of the endpoint's memory that its peer may write. Do
// not modify it.
func (e *Endpoint) RemoteMemory() []byte { return e.buf[e.lay.remoteAt:] }
