package rvt

import (
	"slices"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

// GIDs returns the port's GID table. Do not modify it.
func (d *Device) GIDs() []ib.GID { return d.env.GIDs }

// SetPort sets the port up or down. Down, every packet is dropped in both directions.
func (d *Device) SetPort(up bool) {
	if d.portUp == up {
		return
	}
	d.portUp = up
	ev := ib.EventPortErr
	if up {
		ev = ib.EventPortActive
	}
	d.env.Raise(Event{Type: ev})
}

// PortUp reports whether the port is active.
func (d *Device) PortUp() bool { return d.portUp }

// SetGIDs replaces the port's GID table; a zero GID is an empty entry. It raises events
// GID_CHANGE events (rxe: one for each entry that changed). QPs and address handles that
// name an entry which is empty now go on to send from the old address: entries keep what
// they refer to (ib_core: rdma_get_gid_attr).
func (d *Device) SetGIDs(gids []ib.GID, events int) {
	d.env.GIDs = slices.Clone(gids)
	for i, g := range gids {
		switch {
		case i == len(d.env.Sources):
			d.env.Sources = append(d.env.Sources, g)
		case !g.IsZero():
			d.env.Sources[i] = g
		}
	}
	for range events {
		d.env.Raise(Event{Type: ib.EventGIDChange})
	}
}

// GIDInUse reports whether a QP or an address handle names an entry of the GID table.
// It looks at all QPs.
func (d *Device) GIDInUse(index int) bool {
	if index < 0 || index > 255 {
		return false
	}
	if d.ahs[uint8(index)] > 0 {
		return true
	}
	return d.anyQP(func(q *qp.QP) bool {
		connected := q.Type == ib.QPTypeRC || q.Type == ib.QPTypeUC
		return connected && !q.Attr.AV.DGID.IsZero() && int(q.Attr.AV.SGIDIndex) == index
	})
}

// anyQP reports whether something holds for any QP; f must not depend on the order.
func (d *Device) anyQP(f func(*qp.QP) bool) bool {
	for _, q := range d.qps { //arch:sorted any order gives the same answer
		if f(q) {
			return true
		}
	}
	return false
}

// SetMTU changes the port's active MTU. Path MTUs of QPs stay what they are, as in the
// kernel: packets that are too long now are for the port to refuse. There is no event.
func (d *Device) SetMTU(m ib.MTU) {
	if m.Valid() {
		d.cfg.MTU, d.env.MTU = m, m
	}
}
