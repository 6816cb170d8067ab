package rvt

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// PostRefused enqueues a work request that fails with LOC_QP_OP_ERR in its turn; see
// [qp.QP.PostRefused].
func (d *Device) PostRefused(q *qp.QP, wrID uint64) error {
	err := q.PostRefused(wrID)
	if err == nil {
		if g := d.cfg.Guard; g != nil {
			g.SendPosted(q, &swqe.SendWR{WRID: wrID, Flags: ib.SendSignaled})
		}
		d.link(q)
	}
	return err
}

// FlushRecv flushes receives that a program put into its own ring of a QP in ERR.
func (d *Device) FlushRecv(q *qp.QP) {
	if q.FlushRecv() > 0 {
		d.env.Publish()
	}
}

// Rereg says what ibv_rereg_mr changes; a nil pointer leaves that attribute.
type Rereg struct {
	PD     *PD
	Access *ib.Access
	// Mem is the new memory with the range Base, Length, IOVA.
	Mem                mr.Memory
	Base, Length, IOVA uint64
}

// ReregMR (ibv_rereg_mr) changes a region in place; its keys stay. QPs whose work
// names the region go to ERR, as if it had been deregistered. EBUSY if a window is
// bound to it.
func (d *Device) ReregMR(now vtime.Time, m *MR, c Rereg) error {
	d.flush(now)
	var id *mr.PD
	if c.PD != nil {
		if err := d.checkPD("rereg_mr", c.PD); err != nil {
			return err
		}
		id = &c.PD.ID
	}
	old := m.PD
	if g := d.cfg.Guard; g != nil && c.Mem != nil {
		c.Mem = g.Memory(c.Mem)
	}
	if err := d.env.Keys.Reregister(m.Region, id, c.Access, c.Mem, c.Base, c.Length, c.IOVA); err != nil {
		return err
	}
	if c.PD != nil {
		m.pd.users--
		m.pd = c.PD
		m.pd.users++
	}
	for _, q := range d.sortedQPs() {
		if q.PD == old {
			q.MRGone(m.LKey, m.RKey)
			d.touch(q)
		}
	}
	d.env.Publish()
	return nil
}
