package workload

import (
	"errors"
	"math"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// unlimited is what an endpoint may post that nobody holds back.
const unlimited = math.MaxUint64

// Allow raises the bound of [Spec.HoldAt]. The host steps the endpoint afterwards.
func (e *Endpoint) Allow(n uint64) {
	e.allowed = max(e.allowed, n)
	for _, c := range e.qps {
		e.list(c)
	}
}

// FailPosts makes the next n posts of a QP, or of each if which is -1, fail with ENOMEM.
// The endpoint tries again a little later, as a program does that finds its send queue
// full.
func (e *Endpoint) FailPosts(which, n int) {
	for i, c := range e.qps {
		if which < 0 || which == i {
			c.q.InjectPostErrors(n)
			c.refusals = n
		}
	}
}

// refused reports whether err is one that FailPosts caused, and counts it.
func (e *Endpoint) refused(c *conn, err error) bool {
	if c.refusals == 0 || !errors.Is(err, ib.ENOMEM) {
		return false
	}
	c.refusals--
	e.stats.PostErrors++
	return true
}

// SendCQ returns the completion queue of what the endpoint sends.
func (e *Endpoint) SendCQ() *cq.CQ { return e.scq }

// RecvCQ returns the completion queue of what it receives.
func (e *Endpoint) RecvCQ() *cq.CQ { return e.rcq }

// RevokeKey deregisters the memory that the peer may use. It does nothing if the flow
// offers none. EBUSY if a window is bound to it.
func (e *Endpoint) RevokeKey(now vtime.Time) error {
	if e.remote == nil {
		return nil
	}
	err := e.dev.DeregMR(now, e.remote)
	if err == nil {
		e.remote = nil
	}
	return err
}
