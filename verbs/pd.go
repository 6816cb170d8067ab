package verbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// PD (struct ibv_pd) is a protection domain: regions, windows, address handles and
// queue pairs work together only within one.
type PD struct {
	dev  *Device
	core *rvt.PD
}

// AllocPD (ibv_alloc_pd) creates a protection domain.
func (d *Device) AllocPD() (*PD, error) {
	p := &PD{dev: d}
	err := d.do("alloc_pd", func(dev *rvt.Device, _ vtime.Time) (err error) {
		if p.core, err = dev.AllocPD(); err == nil {
			d.pds++
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// Dealloc (ibv_dealloc_pd) removes the domain; EBUSY while something belongs to it.
func (p *PD) Dealloc() error {
	return p.dev.do("dealloc_pd", func(dev *rvt.Device, _ vtime.Time) error {
		err := dev.DeallocPD(p.core)
		if err == nil {
			p.dev.pds--
		}
		return err
	})
}

// Device returns the device that the domain belongs to.
func (p *PD) Device() *Device { return p.dev }

// MR (struct ibv_mr) is a registered memory region.
type MR struct {
	pd   *PD
	core *rvt.MR
	buf  []byte
	iova uint64
	lkey ib.LKey
	rkey ib.RKey
}

// RegMR (ibv_reg_mr) registers buf. SGEs and peers address it by the real address of
// its bytes: [MR.Addr]. The region keeps buf alive; until Dereg the device may read and
// write it as the access flags say.
//
// A program may watch memory that a peer writes, without a completion, by
// [sync/atomic] loads of 8-byte words at addresses that are multiples of 8. Of what one
// packet writes, the last such word is stored last and atomically. Atomic operations of
// peers and the program's own on the same word are atomic against each other.
func (p *PD) RegMR(buf []byte, access ib.Access) (*MR, error) {
	return p.reg(buf, nil, access)
}

// RegMRIOVA (ibv_reg_mr_iova) registers buf like RegMR, but known to SGEs and peers as
// starting at iova.
func (p *PD) RegMRIOVA(buf []byte, iova uint64, access ib.Access) (*MR, error) {
	return p.reg(buf, &iova, access)
}

func (p *PD) reg(buf []byte, iova *uint64, access ib.Access) (*MR, error) {
	mem := newMemory(buf)
	at := mem.base
	if iova != nil {
		at = *iova
	}
	m := &MR{pd: p, buf: buf}
	err := p.dev.do("reg_mr", func(dev *rvt.Device, _ vtime.Time) (err error) {
		m.core, err = dev.RegMR(p.core, p.dev.strict.watch(mem), mem.base, uint64(len(buf)), at, access)
		if err == nil {
			m.lkey, m.rkey, m.iova = m.core.LKey, m.core.RKey, m.core.IOVA
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Dereg (ibv_dereg_mr) ends the registration; the device does not touch the memory any
// more when Dereg returns. EBUSY while a memory window is bound to the region. QPs
// whose work still names it go to ERR.
func (m *MR) Dereg() error {
	return m.pd.dev.do("dereg_mr", func(dev *rvt.Device, now vtime.Time) error {
		m.pd.dev.strict.dereg(m)
		return dev.DeregMR(now, m.core)
	})
}

// LKey returns the key for SGEs.
func (m *MR) LKey() ib.LKey { return m.lkey }

// RKey returns the key for peers.
func (m *MR) RKey() ib.RKey { return m.rkey }

// Bytes returns the registered memory.
func (m *MR) Bytes() []byte { return m.buf }

// Addr returns the address of byte off, as SGEs and peers use it.
func (m *MR) Addr(off int) uint64 { return m.iova + uint64(off) }

// SGE returns the entry for n bytes from byte off on. It is not checked here: an entry
// that leaves the region fails when it is used.
func (m *MR) SGE(off, n int) SGE {
	return SGE{Addr: m.Addr(off), Length: uint32(n), LKey: m.lkey}
}

// MW (struct ibv_mw) is a memory window.
type MW struct {
	pd   *PD
	core *mr.Window
	typ  ib.MWType
	next ib.RKey // type 1: the key of the last bind posted
}

// AllocMW (ibv_alloc_mw) creates a memory window that is bound to nothing.
func (p *PD) AllocMW(typ ib.MWType) (*MW, error) {
	w := &MW{pd: p, typ: typ}
	err := p.dev.do("alloc_mw", func(dev *rvt.Device, _ vtime.Time) (err error) {
		if w.core, err = dev.AllocMW(p.core, typ); err == nil {
			w.next = w.core.RKey
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Dealloc (ibv_dealloc_mw) removes the window, bound or not.
func (w *MW) Dealloc() error {
	return w.pd.dev.do("dealloc_mw", func(dev *rvt.Device, _ vtime.Time) error { return dev.DeallocMW(w.core) })
}

// RKey returns the window's key. For a type 1 window it is the key of the last bind
// that was posted, for a type 2 window that of the last bind that was carried out.
func (w *MW) RKey() ib.RKey {
	var k ib.RKey
	_ = w.pd.dev.do("query_mw", func(*rvt.Device, vtime.Time) error { // a closed device has no keys
		k = w.core.RKey
		if w.typ == ib.MWType1 {
			k = w.next
		}
		return nil
	})
	return k
}

// AH (struct ibv_ah) is an address handle for datagrams.
type AH struct {
	pd   *PD
	core *swqe.AH
}

// CreateAH (ibv_create_ah) makes an address handle. av.IsGlobal must be set, and
// av.PortNum be 1.
func (p *PD) CreateAH(av AV) (*AH, error) {
	a := &AH{pd: p}
	err := p.dev.do("create_ah", func(dev *rvt.Device, _ vtime.Time) (err error) {
		a.core, err = dev.CreateAH(p.core, av)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Destroy (ibv_destroy_ah) removes the handle. Sends that were posted with it are not
// affected.
func (a *AH) Destroy() error {
	return a.pd.dev.do("destroy_ah", func(dev *rvt.Device, _ vtime.Time) error { return dev.DestroyAH(a.core) })
}
