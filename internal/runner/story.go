package runner

import (
	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/workload"
)

// story explains the first queue pair of a flow that failed of its own, with what its
// peer knows; "" if none did. Both ends have stopped.
func (r *flowRun) story(client, server string) string {
	for _, e := range []struct {
		own, other *workload.Endpoint
		otherName  string
	}{{r.client, r.server, server}, {r.server, r.client, client}} {
		for _, q := range e.own.QPs() {
			h := q.History()
			if text := explain.QP(&h, peerOf(q, e.other, e.otherName)); text != "" {
				return text
			}
		}
	}
	return ""
}

// peerOf finds the other end of a connection.
func peerOf(q *qp.QP, other *workload.Endpoint, name string) *explain.Peer {
	p := &explain.Peer{Name: name}
	for _, o := range other.QPs() {
		if o.QPN == q.Attr.DestQPN {
			h := o.History()
			p.QP = &h
		}
	}
	return p
}
