package workload

import (
	"errors"
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
)

// Spec describes a flow. Both endpoints need equal specs: each computes from it what
// the other one sends. DefaultSpec gives a complete one.
type Spec struct {
	// Name is for messages. Seed decides everything that is drawn: operations, sizes,
	// contents, first PSNs.
	Name string
	Seed uint64

	Transport ib.QPType // RC, UC or UD
	Ops       []WeightedOp
	Sizes     Sizes
	// Count is the work requests per QP and direction; 0 goes on until Stop.
	Count uint64
	// Depth is the work requests outstanding per QP, and the size of the send queue.
	Depth int
	QPs   int
	// Batch is how many work requests one call posts at most; 0 means 16.
	Batch int
	// SGEs is the pieces that a message is gathered from and scattered to; 0 means 1.
	SGEs int
	// SignalEvery asks for a completion of each so many-th work request and of the
	// last one. 1: of each. At most Depth.
	SignalEvery int
	Inline      bool // post with INLINE where operation and max_inline_data allow it
	Solicited   bool
	Fence       bool
	// Bidirectional lets the server post the same number of work requests back.
	Bidirectional bool
	// HoldAt is how many work requests each QP may post until [Endpoint.Allow] lets it
	// go on: the next message depends on what the program receives. 0: no bound.
	HoldAt uint64
	// Start delays the first post; RateBitsPerSecond limits the payload that each QP
	// posts, 0 does not.
	Start             time.Duration
	RateBitsPerSecond uint64

	// SRQSize > 0 gives each receiving endpoint one shared receive queue of that size
	// instead of a queue per QP; SRQLimit arms SRQ_LIMIT_REACHED, again after each.
	SRQSize, SRQLimit int
	RecvDepth         int // receives kept posted per QP; 0: none are posted
	RecvSize          int // bytes of each receive; UD adds the network header by itself
	ReceiverDelay     time.Duration
	// Events arms the completion queues and expects a Step for each notification;
	// else the host steps the endpoint whenever its device did something.
	Events bool

	PathMTU         ib.MTU  // 0: the smaller one of the two ports
	PSN             *ib.PSN // first PSN of the first QP; nil draws it
	Timeout         uint8   // local ACK timeout code
	RetryCnt        uint8
	RNRRetry        uint8
	MinRNRTimer     uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	RKey            RKeyChoice

	// Verify fills messages with a pattern and checks it. Without it the accounting
	// of completions is still checked.
	Verify bool
	// Disorder says that the network between may duplicate or reorder packets, so
	// that UC and UD receivers see messages twice or out of order. RC hides it.
	Disorder bool
}

// WeightedOp is one operation of a mix. Weights are relative.
type WeightedOp struct {
	Op     ib.WROpcode
	Weight uint64
}

// Sizes are the lengths of messages in bytes. Atomics have 8 whatever it says.
type Sizes struct {
	// Min and Max bound a length that is drawn; equal ones fix it. List, if not
	// empty, is taken in turn instead.
	Min, Max int
	List     []int
}

// Fixed returns sizes that are all n bytes.
func Fixed(n int) Sizes { return Sizes{Min: n, Max: n} }

// Longest returns the longest length in bytes.
func (s *Sizes) Longest() int {
	if len(s.List) == 0 {
		return s.Max
	}
	longest := 0
	for _, n := range s.List {
		longest = max(longest, n)
	}
	return longest
}

// RKeyChoice says which rkey one-sided operations use.
type RKeyChoice uint8

const (
	RKeyGood       RKeyChoice = iota
	RKeyBad                   // no region has it
	RKeyNoAccess              // its region lacks the remote rights
	RKeyOutOfRange            // the right one, with an address behind its region
)

// atomicBytes is the length of every atomic.
const atomicBytes = 8

// Limits of a Spec, so that a mistyped number does not exhaust memory.
const (
	MaxQPs         = 1 << 14
	MaxArenaBytes  = 1 << 31 // memory of one endpoint
	MaxSGEs        = 16
	defaultBatch   = 16
	maxBatch       = 256
	maxWindowsHeld = 1 << 12 // memory windows per QP for SEND_WITH_INV
)

// DefaultSpec returns a flow of one RC SEND of 64 bytes.
func DefaultSpec() Spec {
	return Spec{
		Name: "flow", Transport: ib.QPTypeRC, Ops: []WeightedOp{{ib.WRSend, 1}}, Sizes: Fixed(64),
		Count: 1, Depth: 16, QPs: 1, SignalEvery: 1, RecvDepth: 32, RecvSize: 64,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 16, MaxDestRdAtomic: 16, Verify: true,
	}
}

// Validate returns everything that is wrong with the spec, joined, or nil.
func (s *Spec) Validate() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("workload: flow %q: "+format, append([]any{s.Name}, args...)...))
	}
	if s.Transport != ib.QPTypeRC && s.Transport != ib.QPTypeUC && s.Transport != ib.QPTypeUD {
		bad("transport is %v, want RC, UC or UD", s.Transport)
	}
	s.validateOps(bad)
	for _, v := range []struct {
		name           string
		n, least, most int
	}{
		{"depth", s.Depth, 1, 1 << 16}, {"qps", s.QPs, 1, MaxQPs}, {"batch", s.Batch, 0, maxBatch}, {"sges", s.SGEs, 0, MaxSGEs},
		{"signal_every", s.SignalEvery, 1, max(s.Depth, 1)}, {"recv_depth", s.RecvDepth, 0, 1 << 20}, {"recv_size", s.RecvSize, 0, 1 << 30},
		{"srq_size", s.SRQSize, 0, 1 << 20}, {"srq_limit", s.SRQLimit, 0, s.SRQSize}, {"size", s.Sizes.Longest(), 0, 1 << 30},
	} {
		if v.n < v.least || v.n > v.most {
			bad("%s is %d, want %d to %d", v.name, v.n, v.least, v.most)
		}
	}
	if len(s.Sizes.List) == 0 && (s.Sizes.Min < 0 || s.Sizes.Min > s.Sizes.Max) {
		bad("sizes run from %d to %d", s.Sizes.Min, s.Sizes.Max)
	}
	for _, n := range s.Sizes.List {
		if n < 0 {
			bad("a size is %d", n)
		}
	}
	if s.Start < 0 || s.ReceiverDelay < 0 {
		bad("a delay is negative")
	}
	if len(errs) == 0 && int64(s.arenaBytes()) > MaxArenaBytes {
		bad("needs %d bytes of memory at each end, at most %d", s.arenaBytes(), int64(MaxArenaBytes))
	}
	return errors.Join(errs...)
}

func (s *Spec) validateOps(bad func(string, ...any)) {
	if len(s.Ops) == 0 {
		bad("it has no operation")
	}
	for _, o := range s.Ops {
		p := swqe.Params(o.Op)
		switch {
		case p == nil || p.Has(swqe.OpReserved) || p.Has(swqe.OpLocal) || p.Has(swqe.OpPlacement):
			bad("%v is no operation that makes traffic", o.Op)
		case !p.Allowed(s.Transport):
			bad("%v is not an operation of %v", o.Op, s.Transport)
		case o.Weight == 0:
			bad("the weight of %v is 0", o.Op)
		}
	}
	if s.takes(ib.WRSendWithInv) {
		if w := s.windows(); w < 1 || w > maxWindowsHeld {
			bad("SEND_WITH_INV needs a memory window for each receive, in both directions one for each message: that is %d per QP, want 1 to %d", w, maxWindowsHeld)
		}
	}
}

// takes reports whether the mix has the operation.
func (s *Spec) takes(op ib.WROpcode) bool {
	for _, o := range s.Ops {
		if o.Op == op {
			return true
		}
	}
	return false
}

// any reports whether an operation of the mix has the flags.
func (s *Spec) any(f swqe.OpFlags) bool {
	for _, o := range s.Ops {
		if p := swqe.Params(o.Op); p != nil && p.Has(f) {
			return true
		}
	}
	return false
}

// TakesReceives reports whether messages of the flow use up receives at the peer.
func (s *Spec) TakesReceives() bool { return s.any(swqe.OpCredit) }

// windows is the number of memory windows per QP that SEND_WITH_INV goes round: one
// for each receive that can be posted. A window is bound again before the receive
// that used it is posted again, so the peer never meets one that is not bound. In a
// bidirectional flow the binding would wait in the send queue behind messages for
// which the peer has no receive, which waits for its binding likewise; so there each
// message has a window of its own.
func (s *Spec) windows() int {
	switch {
	case s.Bidirectional:
		return int(min(s.Count, maxWindowsHeld+1))
	case s.SRQSize > 0:
		return s.SRQSize
	}
	return s.RecvDepth
}

// reliable reports whether every message arrives or fails.
func (s *Spec) reliable() bool { return s.Transport == ib.QPTypeRC }

func (s *Spec) batch() int {
	if s.Batch == 0 {
		return defaultBatch
	}
	return s.Batch
}

func (s *Spec) sges() int { return max(s.SGEs, 1) }
