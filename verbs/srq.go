package verbs

import (
	"context"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// SRQ (struct ibv_srq) is a receive queue that several QPs share.
type SRQ struct {
	// Context (srq_context) is the program's. Set it before others know the queue.
	Context any

	pd    *PD
	core  *swqe.SRQ
	dead  bool // under the node's lock
	async ackCount
}

// CreateSRQ (ibv_create_srq) creates a shared receive queue.
func (p *PD) CreateSRQ(a SRQAttr) (*SRQ, error) {
	s := &SRQ{pd: p}
	err := p.dev.do("create_srq", func(dev *rvt.Device, _ vtime.Time) (err error) {
		if s.core, err = dev.CreateSRQ(p.core, a, nil); err == nil {
			s.core.Context = s
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *SRQ) String() string { return s.core.String() }

// do runs f if the queue still exists.
func (s *SRQ) do(verb string, f func(dev *rvt.Device) error) error {
	return s.pd.dev.do(verb, func(dev *rvt.Device, _ vtime.Time) error {
		if s.dead {
			return ib.NewVerbError(ib.EINVAL, verb, s.String(), "already destroyed")
		}
		return f(dev)
	})
}

// SRQAttrMask (enum ibv_srq_attr_mask) selects attributes of Modify.
type SRQAttrMask uint8

const (
	SRQMaxWR SRQAttrMask = 1 << iota // resize the queue
	SRQLimit                         // arm the limit event
)

// Modify (ibv_modify_srq) changes the size, or arms SRQ_LIMIT_REACHED: the event is
// raised once, when fewer than a.Limit receives are left after one was taken.
func (s *SRQ) Modify(a SRQAttr, mask SRQAttrMask) error {
	const verb = "modify_srq"
	if mask&^(SRQMaxWR|SRQLimit) != 0 {
		return ib.NewVerbError(ib.EINVAL, verb, s.String(), "the mask has unknown bits")
	}
	return s.do(verb, func(dev *rvt.Device) error {
		var size, limit *int
		if mask&SRQMaxWR != 0 {
			size = &a.MaxWR
		}
		if mask&SRQLimit != 0 {
			limit = &a.Limit
		}
		return dev.ModifySRQ(s.core, size, limit)
	})
}

// Query (ibv_query_srq) returns size and limit; the limit is 0 when it is not armed.
func (s *SRQ) Query() (SRQAttr, error) {
	var a SRQAttr
	err := s.do("query_srq", func(dev *rvt.Device) error {
		a = dev.QuerySRQ(s.core)
		return nil
	})
	return a, err
}

// PostRecv (ibv_post_srq_recv) posts receives in order and stops at the first bad one;
// the error is a [*BadWR] then.
func (s *SRQ) PostRecv(wrs ...RecvWR) error {
	return s.pd.dev.postRecv("post_srq_recv", wrs, func(dev *rvt.Device, wrs []swqe.RecvWR) (int, error) {
		if s.dead {
			return 0, ib.NewVerbError(ib.EINVAL, "post_srq_recv", s.String(), "already destroyed")
		}
		if d := s.pd.dev; d.strict != nil {
			return d.strict.postRecv(nil, s.core, wrs, func() (int, error) { return dev.PostSRQRecv(s.core, wrs) })
		}
		return dev.PostSRQRecv(s.core, wrs)
	})
}

// Destroy (ibv_destroy_srq) removes the queue and the receives in it; EBUSY while QPs
// use it. It waits for the acknowledgement of the queue's asynchronous events, like
// [CQ.Destroy].
func (s *SRQ) Destroy(ctx context.Context) error {
	const verb = "destroy_srq"
	again := false
	err := s.pd.dev.do(verb, func(dev *rvt.Device, _ vtime.Time) error {
		if again = s.dead; again {
			return nil
		}
		err := dev.DestroySRQ(s.core)
		if err == nil {
			s.pd.dev.strict.destroySRQ(s)
		}
		s.dead = err == nil
		return err
	})
	if err != nil {
		return err
	}
	return finish(ctx, s.pd.dev, verb, s.String(), again, func(e *AsyncEvent) bool { return e.SRQ == s }, &s.async)
}
