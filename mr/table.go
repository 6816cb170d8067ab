package mr

import (
	"github.com/rvtsim/rvtsim/ib"
)

// PD identifies a protection domain within one device.
type PD uint32

// SGE (struct ibv_sge) is a scatter/gather entry: registered local memory by address
// and lkey.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   ib.LKey
}

// Region (kernel: rvt_mregion) is a registered memory region.
type Region struct {
	LKey   ib.LKey   // lkey
	RKey   ib.RKey   // equal to LKey unless the table is set to tell them apart
	PD     PD        // pd
	IOVA   uint64    // iova: the address that SGEs and peers use for the first byte
	Length uint64    // length in bytes
	Access ib.Access // access_flags

	mem     Memory
	base    uint64 // address of the first byte in mem
	windows int    // memory windows bound to it
	live    bool
	invalid bool // lkey_invalid: set by an invalidation
}

// Live reports whether the region is registered.
func (r *Region) Live() bool { return r.live }

// Revoke invalidates the region's keys for good. It is for fault injection.
func (r *Region) Revoke() { r.invalid = true }

// Windows returns the number of memory windows bound to the region.
func (r *Region) Windows() int { return r.windows }

// seg returns the piece [va, va+n) of the region; the caller has checked the range.
func (r *Region) seg(va uint64, n uint32) Seg {
	return Seg{Mem: r.mem, Addr: r.base + (va - r.IOVA), Len: n}
}

// covers reports whether [va, va+n) lies in the region, without overflow.
func (r *Region) covers(va, n uint64) bool {
	off := va - r.IOVA
	return va >= r.IOVA && off <= r.Length && n <= r.Length-off
}

// indexShift leaves 16 bits of index, 8 of generation and 8 that belong to the
// consumer (ibv_inc_rkey), as rdmavt with lkey_table_size 16.
const (
	indexShift = 16
	maxIndex   = 1 << 16
	genMask    = 0xff
)

// Table (kernel: rvt_lkey_table) maps keys to regions and windows.
type Table struct {
	// DistinctKeys makes rkeys differ from lkeys, so that a program that mixes them
	// up is found out. rdmavt's are equal.
	DistinctKeys bool
	// RemoteRKeyOnly gives a region without remote rights no rkey (0), as rxe does.
	RemoteRKeyOnly bool
	// InvalidateAny lets SEND_WITH_INV and LOCAL_INV invalidate an ordinary region,
	// as rdmavt does. IBTA allows only type 2 windows (and fast registered regions).
	InvalidateAny bool
	// Reuse is asked before a key is given out, if a region was deregistered: true lets its
	// key serve again at once. Nil: a key is not used again soon. The owner's.
	Reuse func() bool

	freed uint32 // key of the region deregistered last, 0 if none
	slots []slot
	next  int
	gen   uint32
	used  int
	limit int
}

type slot struct {
	region *Region
	window *Window
}

// NewTable returns a table that holds at most limit regions and windows (0: as many
// as keys can tell apart). firstGen seeds the generation counter.
func NewTable(limit int, firstGen uint32) *Table {
	if limit <= 0 || limit > maxIndex {
		limit = maxIndex
	}
	return &Table{limit: limit, gen: firstGen}
}

// Len returns the number of regions and windows.
func (t *Table) Len() int { return t.used }

// alloc finds a slot and a fresh key, round robin, so that a freed key is not reused
// soon.
func (t *Table) alloc() (int, uint32, bool) {
	if t.used >= t.limit {
		return 0, 0, false
	}
	if t.Reuse != nil && t.freed != 0 && t.Reuse() {
		if i := int(t.freed >> indexShift); t.slots[i] == (slot{}) {
			t.used++
			return i, t.freed, true
		}
	}
	if len(t.slots) < t.limit {
		// Grow before reuse: a stale key then meets an empty slot for longest.
		t.slots = append(t.slots, slot{})
		t.next = len(t.slots) - 1
	}
	for t.slots[t.next].region != nil || t.slots[t.next].window != nil {
		t.next = (t.next + 1) % len(t.slots)
	}
	i := t.next
	t.next = (t.next + 1) % len(t.slots)
	t.gen++
	key := uint32(i)<<indexShift | (t.gen&genMask)<<8
	if key == 0 {
		key = 1 << 8
		t.gen++
	}
	t.used++
	return i, key, true
}

func (t *Table) slotOf(key uint32) *slot {
	if i := int(key >> indexShift); i < len(t.slots) {
		return &t.slots[i]
	}
	return nil
}

// Register (ibv_reg_mr) adds a region of length bytes that starts at base in mem and
// is known to SGEs and peers as iova. Errors: EINVAL for length 0, a wrapping range,
// remote write or atomic without LOCAL_WRITE, unknown flags; ENOMEM for a full table.
func (t *Table) Register(pd PD, mem Memory, base, length, iova uint64, acc ib.Access) (*Region, error) {
	const verb = "reg_mr"
	if err := checkRegister(verb, base, length, iova, acc); err != nil {
		return nil, err
	}
	i, key, ok := t.alloc()
	if !ok {
		return nil, ib.NewVerbError(ib.ENOMEM, verb, "", "no key left: the device's limit of memory regions and windows is reached")
	}
	if acc&ib.AccessZeroBased != 0 {
		iova = 0
	}
	r := &Region{LKey: ib.LKey(key), RKey: ib.RKey(key), PD: pd, IOVA: iova, Length: length, Access: acc, mem: mem, base: base, live: true}
	if t.DistinctKeys {
		r.RKey = ib.RKey(key ^ 0x80)
	}
	if t.RemoteRKeyOnly && acc&ib.AccessRemoteMask == 0 {
		r.RKey = 0
	}
	t.slots[i].region = r
	return r, nil
}

func checkRegister(verb string, base, length, iova uint64, acc ib.Access) error {
	const known = ib.AccessLocalWrite | ib.AccessRemoteMask | ib.AccessMWBind | ib.AccessZeroBased | ib.AccessHugeTLB | ib.AccessFlushGlobal | ib.AccessFlushPersistent
	switch {
	case length == 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "length is 0")
	case base+length < base || iova+length < iova:
		return ib.NewVerbError(ib.EINVAL, verb, "", "address plus length wraps")
	case acc&^(known|ib.AccessOptionalMask) != 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "access flags "+(acc&^(known|ib.AccessOptionalMask)).String()+" are not supported")
	case acc&ib.AccessFlushPersistent != 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "FLUSH_PERSISTENT needs persistent memory, and there is none")
	case acc&(ib.AccessRemoteWrite|ib.AccessRemoteAtomic) != 0 && acc&ib.AccessLocalWrite == 0:
		return ib.NewVerbError(ib.EINVAL, verb, "", "REMOTE_WRITE or REMOTE_ATOMIC needs LOCAL_WRITE")
	}
	return nil
}

// Reregister (ibv_rereg_mr) changes a region in place; nil mem leaves the memory, a
// negative pd or access pointer nil leaves that attribute. The keys stay.
func (t *Table) Reregister(r *Region, pd *PD, acc *ib.Access, mem Memory, base, length, iova uint64) error {
	const verb = "rereg_mr"
	if !r.live {
		return ib.NewVerbError(ib.EINVAL, verb, "mr "+r.LKey.String(), "already deregistered")
	}
	if r.windows > 0 {
		return t.boundTo(verb, r)
	}
	a := r.Access
	if acc != nil {
		a = *acc
	}
	if mem == nil {
		mem, base, length, iova = r.mem, r.base, r.Length, r.IOVA
	}
	if err := checkRegister(verb, base, length, iova, a); err != nil {
		return err
	}
	if pd != nil {
		r.PD = *pd
	}
	r.Access, r.mem, r.base, r.Length, r.IOVA = a, mem, base, length, iova
	return nil
}

// Deregister (ibv_dereg_mr) removes a region. Later use of its keys fails. EBUSY if a
// window is bound to it, EINVAL if it is gone already.
func (t *Table) Deregister(r *Region) error {
	const verb = "dereg_mr"
	s := t.slotOf(uint32(r.LKey))
	if !r.live || s == nil || s.region != r {
		return ib.NewVerbError(ib.EINVAL, verb, "mr "+r.LKey.String(), "already deregistered")
	}
	if r.windows > 0 {
		return t.boundTo(verb, r)
	}
	*s = slot{}
	r.live, t.freed = false, uint32(r.LKey)
	t.used--
	return nil
}

// CheckLKey (kernel: rvt_lkey_ok) checks one SGE for local use by a QP of domain pd
// with the rights acc, and resolves it. The zero-length SGE passes unchecked and
// gives an empty Seg.
func (t *Table) CheckLKey(pd PD, e SGE, acc ib.Access) (Seg, ib.Cause) {
	if e.Length == 0 {
		return Seg{}, ib.CauseNone
	}
	s := t.slotOf(uint32(e.LKey))
	if s == nil || s.region == nil || s.region.LKey != e.LKey {
		return Seg{}, ib.CauseLKeyUnknown
	}
	r := s.region
	switch {
	case r.invalid:
		return Seg{}, ib.CauseLKeyInvalidated
	case r.PD != pd:
		return Seg{}, ib.CauseLKeyPD
	case !r.covers(e.Addr, uint64(e.Length)):
		return Seg{}, ib.CauseLKeyRange
	case r.Access&acc != acc:
		return Seg{}, ib.CauseLKeyAccess
	}
	return r.seg(e.Addr, e.Length), ib.CauseNone
}

// CheckSGL checks a whole scatter/gather list.
func (t *Table) CheckSGL(pd PD, sgl []SGE, acc ib.Access) ib.Cause {
	for _, e := range sgl {
		if _, c := t.CheckLKey(pd, e, acc); c != ib.CauseNone {
			return c
		}
	}
	return ib.CauseNone
}

// Resolve appends to dst the pieces of the list that hold its bytes [off, off+n),
// checking each key it touches. Fewer bytes come out if the list is shorter.
func (t *Table) Resolve(dst []Seg, pd PD, sgl []SGE, off, n uint64, acc ib.Access) ([]Seg, ib.Cause) {
	for _, e := range sgl {
		if n == 0 {
			break
		}
		l := uint64(e.Length)
		if off >= l {
			off -= l
			continue
		}
		take := min(l-off, n)
		s, c := t.CheckLKey(pd, SGE{e.Addr + off, uint32(take), e.LKey}, acc)
		if c != ib.CauseNone {
			return dst, c
		}
		dst = append(dst, s)
		n -= take
		off = 0
	}
	return dst, ib.CauseNone
}

// CheckRKey (kernel: rvt_rkey_ok) checks a remote access of n bytes at va through a
// QP of domain pd and number qpn with the rights acc, and resolves it. rkey may name
// a region or a bound window.
func (t *Table) CheckRKey(pd PD, qpn ib.QPN, rkey ib.RKey, va, n uint64, acc ib.Access) (Seg, ib.Cause) {
	s := t.slotOf(uint32(rkey))
	if s == nil {
		return Seg{}, ib.CauseRKey
	}
	if w := s.window; w != nil {
		return w.check(pd, qpn, rkey, va, n, acc)
	}
	r := s.region
	switch {
	case r == nil || r.RKey != rkey:
		return Seg{}, ib.CauseRKey
	case r.invalid:
		return Seg{}, ib.CauseRKeyGone
	case r.PD != pd:
		return Seg{}, ib.CauseRKeyPD
	case !r.covers(va, n) || n > ib.MaxMsgBytes:
		return Seg{}, ib.CauseRKeyRange
	case r.Access&acc != acc:
		return Seg{}, ib.CauseRKeyAccess
	}
	return r.seg(va, uint32(n)), ib.CauseNone
}

// Grants checks whether rkey gives a QP the rights acc, wherever in the memory.
func (t *Table) Grants(pd PD, qpn ib.QPN, rkey ib.RKey, acc ib.Access) ib.Cause {
	s := t.slotOf(uint32(rkey))
	if s == nil {
		return ib.CauseRKey
	}
	va := uint64(0)
	switch w := s.window; {
	case w != nil && w.access&ib.AccessZeroBased == 0:
		va = w.va
	case w == nil && s.region != nil:
		va = s.region.IOVA
	}
	_, c := t.CheckRKey(pd, qpn, rkey, va, 0, acc)
	return c
}

// Extent is the memory that a key stands for, and the rights it gives, for explanations.
type Extent struct {
	Start, Length uint64
	Access        ib.Access
}

// Extent returns what an lkey or rkey stands for now, zero if nothing has this key.
func (t *Table) Extent(key uint32) Extent {
	s := t.slotOf(key)
	if s == nil {
		return Extent{}
	}
	if w := s.window; w != nil {
		switch {
		case w.region == nil || uint32(w.RKey) != key:
			return Extent{}
		case w.access&ib.AccessZeroBased != 0:
			return Extent{Length: w.length, Access: w.access}
		}
		return Extent{w.va, w.length, w.access}
	}
	if r := s.region; r != nil && (uint32(r.LKey) == key || uint32(r.RKey) == key) {
		return Extent{r.IOVA, r.Length, r.Access}
	}
	return Extent{}
}

// Invalidate (kernel: rvt_invalidate_rkey) ends remote access through rkey, on
// request of a peer (SEND_WITH_INV) or of a local work request (LOCAL_INV).
func (t *Table) Invalidate(pd PD, qpn ib.QPN, rkey ib.RKey) bool {
	s := t.slotOf(uint32(rkey))
	if s == nil || rkey == 0 {
		return false
	}
	if w := s.window; w != nil {
		return w.invalidate(pd, qpn, rkey)
	}
	r := s.region
	if r == nil || r.RKey != rkey || r.PD != pd || !t.InvalidateAny || r.invalid {
		return false
	}
	r.invalid = true
	return true
}

// Rekey moves a region to a key chosen by the caller, as a replay needs that has to
// answer to keys of another adapter. EBUSY if the key's slot is taken.
func (t *Table) Rekey(r *Region, key uint32) error {
	if err := t.take(key, t.slotOf(uint32(r.LKey))); err != nil {
		return err
	}
	*t.slotOf(uint32(r.LKey)) = slot{}
	r.LKey, r.RKey = ib.LKey(key), ib.RKey(key)
	t.slotOf(key).region = r
	return nil
}

// RekeyWindow moves an unbound window to a key chosen by the caller.
func (t *Table) RekeyWindow(w *Window, key uint32) error {
	if err := t.take(key, t.slotOf(uint32(w.RKey))); err != nil {
		return err
	}
	*t.slotOf(uint32(w.RKey)) = slot{}
	w.RKey = ib.RKey(key)
	t.slotOf(key).window = w
	return nil
}

// take makes sure that key's slot exists and is free, or is the one to be moved.
func (t *Table) take(key uint32, own *slot) error {
	if t.slotOf(key) == own {
		return nil
	}
	for len(t.slots) <= int(key>>indexShift) {
		t.slots = append(t.slots, slot{})
	}
	if s := t.slotOf(key); s.region != nil || s.window != nil {
		return ib.NewVerbError(ib.EBUSY, "rekey", "key "+ib.RKey(key).String(), "its slot is taken")
	}
	return nil
}
