package mr

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// Window (struct ibv_mw) is a memory window: an rkey of its own that can be pointed
// at a piece of a region. Type 1 is bound by ibv_bind_mw and open to every QP of its
// domain; type 2 is bound by a work request and open to the QP that bound it.
type Window struct {
	Type ib.MWType
	PD   PD
	RKey ib.RKey // changes its low byte with each bind

	region *Region // nil while unbound
	va     uint64
	length uint64
	access ib.Access
	qpn    ib.QPN // type 2: the only QP that may use it
	live   bool
}

// Bound reports whether the window currently gives access to memory.
func (w *Window) Bound() bool { return w.region != nil }

// Region returns the region it is bound to, nil if none.
func (w *Window) Region() *Region { return w.region }

// String names the window as errors do.
func (w *Window) String() string { return "mw " + w.RKey.String() }

// WindowsThat returns the windows for which f holds, in the order of the table.
func (t *Table) WindowsThat(f func(*Window) bool) []*Window {
	var ws []*Window
	for i := range t.slots {
		if w := t.slots[i].window; w != nil && f(w) {
			ws = append(ws, w)
		}
	}
	return ws
}

// boundTo is the refusal of a change to a region that windows are bound to. It names one:
// there is hardly ever another.
func (t *Table) boundTo(verb string, r *Region) error {
	ws := t.WindowsThat(func(w *Window) bool { return w.region == r })
	why := "the memory window " + ws[0].String() + " is bound to it"
	if more := len(ws) - 1; more > 0 {
		why = "the memory window " + ws[0].String() + " and " + strconv.Itoa(more) + " more are bound to it"
	}
	return ib.NewVerbError(ib.EBUSY, verb, "mr "+r.LKey.String(), why)
}

// AllocWindow (ibv_alloc_mw) adds an unbound window.
func (t *Table) AllocWindow(pd PD, typ ib.MWType) (*Window, error) {
	const verb = "alloc_mw"
	if typ != ib.MWType1 && typ != ib.MWType2 {
		return nil, ib.NewVerbError(ib.EINVAL, verb, "", "type is neither 1 nor 2")
	}
	i, key, ok := t.alloc()
	if !ok {
		return nil, ib.NewVerbError(ib.ENOMEM, verb, "", "no key left: the device's limit of memory regions and windows is reached")
	}
	w := &Window{Type: typ, PD: pd, RKey: ib.RKey(key), live: true}
	t.slots[i].window = w
	return w, nil
}

// FreeWindow (ibv_dealloc_mw) removes a window, bound or not.
func (t *Table) FreeWindow(w *Window) error {
	s := t.slotOf(uint32(w.RKey))
	if !w.live || s == nil || s.window != w {
		return ib.NewVerbError(ib.EINVAL, "dealloc_mw", w.String(), "already deallocated")
	}
	w.unbind()
	*s = slot{}
	w.live = false
	t.used--
	return nil
}

// FindWindow returns the window that rkey names now, nil if there is none.
func (t *Table) FindWindow(rkey ib.RKey) *Window {
	if s := t.slotOf(uint32(rkey)); s != nil && s.window != nil && s.window.RKey == rkey {
		return s.window
	}
	return nil
}

// FindRegion returns the region with this lkey, nil if there is none.
func (t *Table) FindRegion(lkey ib.LKey) *Region {
	if s := t.slotOf(uint32(lkey)); s != nil && s.region != nil && s.region.LKey == lkey {
		return s.region
	}
	return nil
}

// Bind carries out a BIND_MW work request of the QP qpn in domain pd: the window
// gives access acc to [va, va+length) of region r from now on, under the key newKey.
// Length 0 unbinds a type 1 window. The cause is the binding rule that is broken
// (IBTA 10.6.7.2; rxe_check_bind_mw).
func (t *Table) Bind(pd PD, qpn ib.QPN, w *Window, newKey ib.RKey, r *Region, va, length uint64, acc ib.Access) ib.Cause {
	switch {
	case w == nil || !w.live:
		return ib.CauseBindMW
	case w.PD != pd:
		return ib.CauseBindPD
	case uint32(w.RKey)^uint32(newKey) > 0xff:
		return ib.CauseBindKey
	case w.Type == ib.MWType2 && w.region != nil:
		return ib.CauseBindBound
	case w.Type == ib.MWType2 && length == 0:
		return ib.CauseBindEmpty
	}
	if length == 0 {
		w.unbind()
		w.RKey = newKey
		return ib.CauseNone
	}
	if c := w.mayBind(pd, r, va, length, acc); c != ib.CauseNone {
		return c
	}
	w.unbind()
	r.windows++
	w.region, w.va, w.length, w.access, w.RKey = r, va, length, acc, newKey
	w.qpn = 0
	if w.Type == ib.MWType2 {
		w.qpn = qpn
	}
	return ib.CauseNone
}

// mayBind checks the region and the rights of a BIND_MW.
func (w *Window) mayBind(pd PD, r *Region, va, length uint64, acc ib.Access) ib.Cause {
	switch {
	// A window has no use for LOCAL_WRITE, but rxe accepts it and programs pass it.
	case acc&^(ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessZeroBased) != 0 || acc&ib.AccessZeroBased != 0 && w.Type == ib.MWType1:
		return ib.CauseBindMW
	case r == nil || !r.live || r.invalid:
		return ib.CauseBindMW
	case r.PD != pd:
		return ib.CauseBindPD
	case r.Access&ib.AccessMWBind == 0 || r.Access&ib.AccessZeroBased != 0:
		return ib.CauseBindRegion
	case !r.covers(va, length):
		return ib.CauseBindRange
	case acc&(ib.AccessRemoteWrite|ib.AccessRemoteAtomic) != 0 && r.Access&ib.AccessLocalWrite == 0:
		return ib.CauseBindAccess
	}
	return ib.CauseNone
}

func (w *Window) unbind() {
	if w.region != nil {
		w.region.windows--
		w.region = nil
	}
}

// check resolves a remote access through the window.
func (w *Window) check(pd PD, qpn ib.QPN, rkey ib.RKey, va, n uint64, acc ib.Access) (Seg, ib.Cause) {
	r := w.region
	switch {
	case w.RKey != rkey:
		return Seg{}, ib.CauseRKey
	case r == nil || r.invalid:
		return Seg{}, ib.CauseRKeyGone
	case w.PD != pd:
		return Seg{}, ib.CauseRKeyPD
	case w.Type == ib.MWType2 && w.qpn != qpn:
		return Seg{}, ib.CauseRKeyQP
	case w.access&acc != acc:
		return Seg{}, ib.CauseRKeyAccess
	}
	start := w.va
	if w.access&ib.AccessZeroBased != 0 {
		start = 0
	}
	off := va - start
	if va < start || off > w.length || n > w.length-off || n > ib.MaxMsgBytes {
		return Seg{}, ib.CauseRKeyRange
	}
	return r.seg(w.va+off, uint32(n)), ib.CauseNone
}

// invalidate unbinds a type 2 window at the request of the QP it is bound to.
func (w *Window) invalidate(pd PD, qpn ib.QPN, rkey ib.RKey) bool {
	if w.Type != ib.MWType2 || w.region == nil || w.RKey != rkey || w.PD != pd || w.qpn != qpn {
		return false
	}
	w.unbind()
	return true
}

// ReleaseQP unbinds the type 2 windows of a QP that is destroyed or reset.
func (t *Table) ReleaseQP(qpn ib.QPN) {
	for i := range t.slots {
		if w := t.slots[i].window; w != nil && w.Type == ib.MWType2 && w.qpn == qpn {
			w.unbind()
		}
	}
}
