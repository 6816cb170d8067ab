package verbs

import (
	"slices"
	"sync"

	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/vtime"
)

// neighbours are the devices of this process, so that an explanation can tell what the
// peer knows.
var neighbours struct {
	sync.Mutex
	open []*Device
}

func joinNeighbours(d *Device) {
	neighbours.Lock()
	defer neighbours.Unlock()
	neighbours.open = append(neighbours.open, d)
}

func leaveNeighbours(d *Device) {
	neighbours.Lock()
	defer neighbours.Unlock()
	neighbours.open = slices.DeleteFunc(neighbours.open, func(o *Device) bool { return o == d })
}

// Explain tells in several lines why a completion of this QP failed: what became of the
// work request, how full the queue was, what the peer knows if it belongs to this
// process, and what to look at. The text is for people and may change.
func (q *QP) Explain(wc WC) string {
	h := q.History()
	return explain.Completion(&wc, &h, q.peer(&h))
}

// History returns what the QP knows about itself and about what failed. It works for a
// QP that was destroyed, and for one whose device is closed, as well.
func (q *QP) History() (h qp.History) {
	// Whoever owns the device, nobody changes the QP meanwhile: after Close the node
	// runs no more.
	if _, err := q.pd.dev.node.Begin(); err == nil {
		defer q.pd.dev.node.End(node.SendLater)
	}
	return q.core.History()
}

// peer finds the other end among the devices of this process, nil if it is not there or
// not to be told apart from others. It asks one device at a time.
func (q *QP) peer(h *qp.History) *explain.Peer {
	if q.typ.IsDatagram() || h.Attr.AV.DGID.IsZero() {
		return nil
	}
	neighbours.Lock()
	candidates := slices.DeleteFunc(slices.Clone(neighbours.open), func(d *Device) bool { return d.GID() != h.Attr.AV.DGID })
	neighbours.Unlock()
	var found *explain.Peer
	for _, d := range candidates {
		p := &explain.Peer{Name: d.name}
		err := d.do("explain", func(dev *rvt.Device, _ vtime.Time) error {
			if o := dev.QP(h.Attr.DestQPN); o != nil {
				oh := o.History()
				p.QP = &oh
			}
			return nil
		})
		if err != nil {
			continue
		}
		if p.QP != nil && p.QP.Attr.DestQPN == h.QPN && p.QP.Attr.AV.DGID == h.GID {
			return p
		}
		if found != nil {
			return nil // several networks in this process use the address
		}
		found = p
	}
	return found
}

// ExplainError tells in several lines what a refused call means and what to do about it.
func ExplainError(err error) string { return explain.Call(err) }
