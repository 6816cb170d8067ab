package uverbs

// PostGate is a [RingMemory] whose host passes doorbells one way (see [Context.Scan])
// and wants to know when it may: a post to a QP that takes no sends must be answered,
// because post_send then fails with EINVAL. The device's owner calls it.
type PostGate interface {
	// SetPostable says whether the QP of this handle takes sends from now on. At first
	// a QP takes none, and in the end again.
	SetPostable(qpHandle uint32, ok bool)
}

// showPostable tells the program's side whether posts to the QP are accepted.
func (o *qpObj) showPostable(ok bool) {
	ok = ok && !o.failing && !o.ctx.dev.cfg.AnswerPosts
	o.sq.setPostable(ok)
	if g, is := o.ctx.mem.(PostGate); is {
		g.SetPostable(o.handle, ok)
	}
}
