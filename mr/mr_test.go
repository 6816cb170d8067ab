package mr

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

const everything = ib.AccessLocalWrite | ib.AccessRemoteMask | ib.AccessMWBind

func reg(t testing.TB, tab *Table, pd PD, base, n uint64, acc ib.Access) *Region {
	r, err := tab.Register(pd, NewSlice(0x1000, make([]byte, 0x1000)), base, n, base, acc)
	require.NoError(t, err)
	return r
}

func TestRegisterRefuses(t *testing.T) {
	tab := NewTable(2, 0)
	for _, c := range []struct {
		base, n, iova uint64
		acc           ib.Access
		word          string
	}{
		{0x1000, 0, 0x1000, 0, "length is 0"},
		{^uint64(0), 2, 0, 0, "wraps"},
		{0x1000, 2, ^uint64(0), 0, "wraps"},
		{0x1000, 8, 0x1000, ib.AccessRemoteWrite, "LOCAL_WRITE"},
		{0x1000, 8, 0x1000, ib.AccessRemoteAtomic, "LOCAL_WRITE"},
		{0x1000, 8, 0x1000, ib.AccessOnDemand, "not supported"},
	} {
		_, err := tab.Register(1, NewSlice(0, nil), c.base, c.n, c.iova, c.acc)
		require.ErrorIs(t, err, ib.EINVAL)
		require.ErrorContains(t, err, c.word)
	}
	r := reg(t, tab, 1, 0x1000, 8, ib.AccessRemoteRead|ib.AccessRelaxedOrdering)
	reg(t, tab, 1, 0x1000, 8, 0)
	_, err := tab.Register(1, NewSlice(0, nil), 0, 8, 0, 0)
	require.ErrorIs(t, err, ib.ENOMEM)
	require.NoError(t, tab.Deregister(r))
	require.ErrorIs(t, tab.Deregister(r), ib.EINVAL)
	again := reg(t, tab, 1, 0x1000, 8, 0)
	require.NotEqual(t, r.LKey, again.LKey, "a key is not used again at once")
}

func TestLKeyCauses(t *testing.T) {
	tab := NewTable(0, 0)
	tab.InvalidateAny = true
	r := reg(t, tab, 1, 0x1000, 0x100, 0)
	w := reg(t, tab, 1, 0x1000, 0x100, ib.AccessLocalWrite)
	dead := reg(t, tab, 1, 0x1000, 0x100, 0)
	require.True(t, tab.Invalidate(1, 5, dead.RKey))
	require.False(t, tab.Invalidate(1, 5, dead.RKey), "once")
	for _, c := range []struct {
		pd   PD
		e    SGE
		acc  ib.Access
		want ib.Cause
	}{
		{1, SGE{0x1000, 0x100, r.LKey}, 0, ib.CauseNone},
		{1, SGE{0x10ff, 1, r.LKey}, 0, ib.CauseNone},
		{1, SGE{0x1100, 1, r.LKey}, 0, ib.CauseLKeyRange},
		{1, SGE{0xfff, 1, r.LKey}, 0, ib.CauseLKeyRange},
		{1, SGE{0x1000, 0x101, r.LKey}, 0, ib.CauseLKeyRange},
		{1, SGE{^uint64(0), 0xffffffff, r.LKey}, 0, ib.CauseLKeyRange},
		{1, SGE{0x1000, 8, r.LKey + 1}, 0, ib.CauseLKeyUnknown},
		{1, SGE{0x1000, 8, 0xffff0000}, 0, ib.CauseLKeyUnknown},
		{2, SGE{0x1000, 8, r.LKey}, 0, ib.CauseLKeyPD},
		{1, SGE{0x1000, 8, r.LKey}, ib.AccessLocalWrite, ib.CauseLKeyAccess},
		{1, SGE{0x1000, 8, w.LKey}, ib.AccessLocalWrite, ib.CauseNone},
		{1, SGE{0x1000, 8, dead.LKey}, 0, ib.CauseLKeyInvalidated},
		{9, SGE{0, 0, 0xdead}, ib.AccessLocalWrite, ib.CauseNone}, // length 0: unchecked
	} {
		_, got := tab.CheckLKey(c.pd, c.e, c.acc)
		require.Equal(t, c.want, got, "%+v", c)
		require.Equal(t, c.want, tab.CheckSGL(c.pd, []SGE{{LKey: 1}, c.e}, c.acc))
	}
}

func TestWindowRules(t *testing.T) {
	tab := NewTable(0, 0)
	r := reg(t, tab, 1, 0x1000, 0x100, everything)
	noBind := reg(t, tab, 1, 0x1000, 0x100, ib.AccessLocalWrite)
	readOnly := reg(t, tab, 1, 0x1000, 0x100, ib.AccessMWBind)
	w1, err := tab.AllocWindow(1, ib.MWType1)
	require.NoError(t, err)
	w2, err := tab.AllocWindow(1, ib.MWType2)
	require.NoError(t, err)
	_, err = tab.AllocWindow(1, 3)
	require.ErrorIs(t, err, ib.EINVAL)
	const rw = ib.AccessRemoteRead | ib.AccessRemoteWrite
	bind := func(w *Window, key ib.RKey, m *Region, va, n uint64, acc ib.Access) ib.Cause {
		return tab.Bind(1, 7, w, key, m, va, n, acc)
	}
	require.Equal(t, ib.CauseBindMW, bind(nil, 0, r, 0x1000, 8, rw))
	require.Equal(t, ib.CauseBindPD, tab.Bind(2, 7, w1, w1.RKey+1, r, 0x1000, 8, rw), "another domain")
	require.Equal(t, ib.CauseBindKey, bind(w1, w1.RKey+0x100, r, 0x1000, 8, rw), "only the low byte of the key may change")
	require.Equal(t, ib.CauseBindRegion, bind(w1, w1.RKey+1, noBind, 0x1000, 8, rw), "the region lacks MW_BIND")
	require.Equal(t, ib.CauseBindAccess, bind(w1, w1.RKey+1, readOnly, 0x1000, 8, rw), "write through a region without LOCAL_WRITE")
	require.Equal(t, ib.CauseNone, bind(w1, w1.RKey+1, readOnly, 0x1000, 8, ib.AccessRemoteRead))
	require.Equal(t, ib.CauseBindRange, bind(w1, w1.RKey+1, r, 0x10ff, 2, rw), "outside the region")
	require.Equal(t, ib.CauseBindMW, bind(w1, w1.RKey+1, r, 0x1000, 8, rw|ib.AccessMWBind), "not a remote right")
	require.Equal(t, ib.CauseBindMW, bind(w1, w1.RKey+1, r, 0x1000, 8, rw|ib.AccessZeroBased), "type 1 is never zero based")
	require.Equal(t, ib.CauseNone, bind(w1, w1.RKey+1, r, 0x1010, 8, rw|ib.AccessLocalWrite), "LOCAL_WRITE is passed over, as by rxe")
	require.Equal(t, ib.CauseNone, bind(w1, w1.RKey+1, r, 0x1010, 8, rw), "type 1 may be bound again")
	require.ErrorIs(t, tab.Deregister(r), ib.EBUSY)
	require.Zero(t, readOnly.Windows())
	_, c := tab.CheckRKey(1, 99, w1.RKey, 0x1010, 8, rw)
	require.Equal(t, ib.CauseNone, c, "type 1 is open to every QP of its domain")
	for _, bad := range []struct {
		pd    PD
		key   ib.RKey
		va, n uint64
		acc   ib.Access
		want  ib.Cause
	}{
		{1, w1.RKey, 0x100f, 1, rw, ib.CauseRKeyRange}, {1, w1.RKey, 0x1010, 9, rw, ib.CauseRKeyRange}, {2, w1.RKey, 0x1010, 8, rw, ib.CauseRKeyPD},
		{1, w1.RKey - 1, 0x1010, 8, rw, ib.CauseRKey}, {1, w1.RKey, 0x1010, 8, ib.AccessRemoteAtomic, ib.CauseRKeyAccess},
	} {
		_, c := tab.CheckRKey(bad.pd, 7, bad.key, bad.va, bad.n, bad.acc)
		require.Equal(t, bad.want, c, "%+v", bad)
	}
	require.Equal(t, ib.CauseNone, bind(w1, w1.RKey+1, nil, 0, 0, 0), "length 0 unbinds type 1")
	require.False(t, w1.Bound())

	require.Equal(t, ib.CauseBindEmpty, bind(w2, w2.RKey+1, r, 0x1000, 0, rw), "type 2 is unbound by invalidation")
	require.Equal(t, ib.CauseNone, bind(w2, w2.RKey+1, r, 0x1040, 16, rw|ib.AccessZeroBased))
	require.Equal(t, ib.CauseBindBound, bind(w2, w2.RKey+1, r, 0x1000, 8, rw), "bound already")
	s, c := tab.CheckRKey(1, 7, w2.RKey, 4, 12, rw)
	require.Equal(t, ib.CauseNone, c)
	require.EqualValues(t, 0x1044, s.Addr)
	_, c = tab.CheckRKey(1, 8, w2.RKey, 4, 12, rw)
	require.Equal(t, ib.CauseRKeyQP, c, "type 2 belongs to the QP that bound it")
	require.False(t, tab.Invalidate(1, 8, w2.RKey))
	require.False(t, tab.Invalidate(1, 7, r.RKey), "an ordinary region")
	require.Equal(t, Extent{0, 16, rw | ib.AccessZeroBased}, tab.Extent(uint32(w2.RKey)))
	require.True(t, tab.Invalidate(1, 7, w2.RKey))
	_, c = tab.CheckRKey(1, 7, w2.RKey, 4, 12, rw)
	require.Equal(t, ib.CauseRKeyGone, c)
	require.Zero(t, tab.Extent(uint32(w2.RKey)))
	require.NoError(t, tab.Deregister(r))
	require.Equal(t, ib.CauseBindMW, bind(w2, w2.RKey+1, r, 0x1000, 8, rw), "the region is gone")
	require.NoError(t, tab.FreeWindow(w2))
	require.ErrorIs(t, tab.FreeWindow(w2), ib.EINVAL)
}

// failing is memory whose accesses to one address fail.
type failing struct {
	*Slice
	at uint64
}

func (m *failing) WriteV(ops []Op) (int, error) {
	for i := range ops {
		if ops[i].Addr == m.at {
			return i, errors.New("gone")
		}
		if _, err := m.Slice.WriteV(ops[i : i+1]); err != nil {
			return i, err
		}
	}
	return len(ops), nil
}

func TestBatchOrderAndFaults(t *testing.T) {
	a, b := &failing{NewSlice(0, make([]byte, 16)), 4}, NewSlice(0, make([]byte, 16))
	var batch Batch
	put := func(m Memory, at uint64, v byte, tag uint32) {
		batch.Add(Seg{m, at, 2}, []byte{v, v}, tag)
	}
	put(a, 0, 1, 10)
	put(a, 4, 2, 11) // fails
	put(a, 1, 3, 12) // over the first: order counts
	put(b, 0, 4, 13)
	put(a, 4, 5, 14) // fails
	put(b, 15, 6, 15)
	put(b, 2, 7, 16)
	require.Equal(t, 7, batch.Len())
	faults := batch.Write()
	require.Len(t, faults, 3)
	require.Equal(t, []uint32{11, 14, 15}, []uint32{faults[0].Tag, faults[1].Tag, faults[2].Tag})
	require.ErrorIs(t, faults[2].Err, ErrFault)
	require.Equal(t, []byte{1, 3, 3, 0, 0, 0}, a.Buf[:6])
	require.Equal(t, []byte{4, 4, 7, 7}, b.Buf[:4])
	require.Zero(t, batch.Len())
	require.Empty(t, batch.Write())
	n := batch.Spread([]Seg{{b, 0, 3}, {b, 8, 0}, {b, 2, 9}}, []byte("abcdef"), 0)
	require.Equal(t, 6, n)
	require.Empty(t, batch.Write())
	require.Equal(t, "abdef", string(b.Buf[:5]))
}

func TestResolveAcrossEntries(t *testing.T) {
	tab := NewTable(0, 0)
	r := reg(t, tab, 1, 0x1000, 0x100, 0)
	sgl := []SGE{{0x1000, 5, r.LKey}, {0, 0, 99}, {0x1080, 7, r.LKey}, {0x1010, 4, r.LKey}}
	for off := uint64(0); off <= 16; off++ {
		for n := uint64(0); n <= 18; n++ {
			segs, c := tab.Resolve(nil, 1, sgl, off, n, 0)
			require.Equal(t, ib.CauseNone, c)
			var got []uint64
			for _, s := range segs {
				for i := range uint64(s.Len) {
					got = append(got, s.Addr+i)
				}
			}
			var want []uint64
			for i := off; i < min(off+n, 16); i++ {
				want = append(want, []uint64{0x1000, 0x1001, 0x1002, 0x1003, 0x1004, 0x1080, 0x1081, 0x1082, 0x1083, 0x1084, 0x1085, 0x1086, 0x1010, 0x1011, 0x1012, 0x1013}[i])
			}
			require.Equal(t, want, got, "%d %d", off, n)
		}
	}
}

// FuzzMR compares the table with a list that is searched from end to end.
func FuzzMR(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 0, 3, 3, 3, 3, 3, 3, 3})
	seed := []byte{}
	for i := range 500 {
		seed = append(seed, byte(i*i*7+i*3))
	}
	f.Add(seed)
	f.Fuzz(func(t *testing.T, data []byte) {
		u8 := func() byte {
			if len(data) == 0 {
				return 0
			}
			v := data[0]
			data = data[1:]
			return v
		}
		tab := NewTable(6, uint32(u8()))
		tab.DistinctKeys, tab.InvalidateAny = u8()&1 != 0, u8()&1 != 0
		m := model{t: t, tab: tab, bad: map[*Region]bool{}}
		for len(data) > 0 {
			m.step(u8)
		}
	})
}

type model struct {
	t    *testing.T
	tab  *Table
	live []*Region
	dead []*Region
	bad  map[*Region]bool
}

func (m *model) step(u8 func() byte) {
	acc := ib.Access(u8() & 0xf)
	pd := PD(u8() & 1)
	pick := func(l []*Region) *Region {
		if len(l) == 0 {
			return nil
		}
		return l[int(u8())%len(l)]
	}
	switch op := u8() % 8; op {
	case 0, 1:
		base, n := uint64(0x1000+int(u8())), uint64(u8())
		r, err := m.tab.Register(pd, NewSlice(0, nil), base, n, base, acc)
		ok := n > 0 && (acc&(ib.AccessRemoteWrite|ib.AccessRemoteAtomic) == 0 || acc&ib.AccessLocalWrite != 0)
		require.Equal(m.t, ok && len(m.live) < 6, err == nil)
		if err == nil {
			m.live = append(m.live, r)
		}
	case 2:
		if r := pick(m.live); r != nil {
			require.NoError(m.t, m.tab.Deregister(r))
			for i := range m.live {
				if m.live[i] == r {
					m.live = append(m.live[:i:i], m.live[i+1:]...)
					break
				}
			}
			m.dead = append(m.dead, r)
		}
	case 3:
		if r := pick(m.live); r != nil {
			ok := m.tab.InvalidateAny && r.PD == pd && !m.bad[r]
			require.Equal(m.t, ok, m.tab.Invalidate(pd, 1, r.RKey))
			m.bad[r] = m.bad[r] || ok
		}
	default:
		r := pick(m.live)
		if op == 7 {
			r = pick(m.dead)
		}
		if r == nil {
			return
		}
		va, n := r.IOVA+uint64(int8(u8())), uint64(u8())
		m.check(r, pd, va, n, acc)
	}
	require.Equal(m.t, len(m.live), m.tab.Len())
}

// check asks for an access and searches the list for the answer.
func (m *model) check(key *Region, pd PD, va, n uint64, acc ib.Access) {
	var lok, rok bool
	for _, r := range m.live {
		fits := r.PD == pd && !m.bad[r] && va >= r.IOVA && va+n <= r.IOVA+r.Length && r.Access&acc == acc
		lok = lok || fits && r.LKey == key.LKey
		rok = rok || fits && r.RKey == key.RKey
	}
	seg, c := m.tab.CheckLKey(pd, SGE{va, uint32(n), key.LKey}, acc)
	require.Equal(m.t, lok || n == 0, c == ib.CauseNone)
	if lok && n > 0 {
		require.Equal(m.t, va, seg.Addr)
	}
	_, c = m.tab.CheckRKey(pd, 1, key.RKey, va, n, acc)
	require.Equal(m.t, rok, c == ib.CauseNone)
}

// TestReuse: a freed key may serve again at once, if somebody wants it to, and then it
// stands for the new memory.
func TestReuse(t *testing.T) {
	tab, again := NewTable(0, 0), false
	tab.Reuse = func() bool { return again }
	a := reg(t, tab, 1, 0x1000, 0x100, everything)
	require.NoError(t, tab.Deregister(a))
	b := reg(t, tab, 1, 0x2000, 0x100, everything)
	require.NotEqual(t, a.LKey, b.LKey)
	again = true
	require.NoError(t, tab.Deregister(b))
	c := reg(t, tab, 1, 0x3000, 0x100, everything)
	require.Equal(t, b.LKey, c.LKey)
	d := reg(t, tab, 1, 0x4000, 0x100, everything)
	require.NotEqual(t, c.LKey, d.LKey, "the key is in use")
	_, cause := tab.CheckRKey(1, 7, b.RKey, 0x3000, 8, ib.AccessRemoteRead)
	require.Equal(t, ib.CauseNone, cause)
	_, cause = tab.CheckRKey(1, 7, b.RKey, 0x2000, 8, ib.AccessRemoteRead)
	require.Equal(t, ib.CauseRKeyRange, cause, "the old memory is gone")
	require.Equal(t, 2, tab.Len())
}
