package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
)

// The methods of this file are for fault injection. The device's owner calls them.

// FailPosts makes the next n sends that the program posts to a QP fail with ENOMEM. Those
// that are in its ring already were posted before. It reports false if the QP is not one
// of the context.
func (c *Context) FailPosts(d *rvt.Device, qpn ib.QPN, n int) bool {
	for _, o := range c.qps {
		if o.q.QPN != qpn {
			continue
		}
		if o.sq != nil {
			o.drain(d)
			o.failing = n > 0
			o.showPostable(o.postable())
		}
		o.q.InjectPostErrors(n)
		return true
	}
	return false
}

// Revoke makes memory regions of the program useless: that with the local or remote key
// key, or all if any is set. It returns how many.
func (c *Context) Revoke(d *rvt.Device, key uint32, any bool) (n int) {
	each(c, func(o *mrObj) {
		if any || uint32(o.mr.LKey) == key || uint32(o.mr.RKey) == key {
			d.Revoke(o.mr)
			n++
		}
	})
	return n
}

// EachQP calls f for every QP of the context.
func (c *Context) EachQP(f func(q *qp.QP)) {
	for _, o := range c.qps {
		f(o.q)
	}
}
