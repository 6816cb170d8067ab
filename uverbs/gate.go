package uverbs

// PostGate is a [RingMemory] whose host passes doorbells one way (see [Context.Scan])
// and wants to know when it may: a post to a QP that takes no sends must be answered,
// because post_send then fails with EINVAL. The device's owner calls it.
type PostGate interface {
	// SetPostable says whether the QP of this handle takes sends from now on. At first
	// a QP takes none, and in the end again.
	SetPostable(qpHandle uint32, ok bool)
	// SetBusy says whether sends of the QP are under way from now on. Then what is posted
	// may wait a moment for company.
	SetBusy(qpHandle uint32, busy bool)
}

// showPostable tells the program's side whether posts to the QP are accepted.
func (o *qpObj) showPostable(ok bool) {
	ok = ok && !o.failing && !o.ctx.dev.cfg.AnswerPosts
	o.sq.setPostable(ok)
	if g, is := o.ctx.mem.(PostGate); is {
		g.SetPostable(o.handle, ok)
	}
}

// mostScanned is how many queue pairs a program may have whose posts wait for company: whoever
// sees to these looks at all of them, see [Context.Scan].
const mostScanned = 128

// showBusy tells the program's side whether sends are under way, unless it has too many queue
// pairs for posts to wait.
func (s *sqRing) showBusy() {
	if busy := s.cons != s.head && len(s.ctx.qps) <= mostScanned; busy != s.busy {
		s.busy = busy
		if s.gate != nil {
			s.gate.SetBusy(s.handle, busy)
		}
	}
}
