package cq

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
)

func wcs(c *CQ) (ids []uint64) {
	dst := make([]WC, c.CQE()+8)
	for i := range c.Poll(dst) {
		ids = append(ids, dst[i].WRID)
	}
	return ids
}

func enter(c *CQ, id uint64, s ib.WCStatus, solicited bool) bool {
	return c.Enter(&WC{WRID: id, Status: s}, solicited)
}

func TestCapacityIsExact(t *testing.T) {
	for cqe := uint32(1); cqe <= 9; cqe++ {
		for _, sticky := range []bool{true, false} {
			c := New(cqe, nil, sticky)
			require.Equal(t, int(cqe), c.CQE())
			for lap := range uint64(3) {
				for i := range uint64(cqe) {
					require.True(t, enter(c, lap*100+i, 0, false))
				}
				require.Equal(t, int(cqe), c.Len())
				require.Zero(t, c.Poll(make([]WC, 1)), "staged completions are not visible")
				c.Publish()
				require.Len(t, wcs(c), int(cqe))
			}
			for i := range uint64(cqe) {
				enter(c, i, 0, false)
			}
			c.Publish()
			require.False(t, c.Overflowed())
			require.False(t, enter(c, 99, 0, false))
			require.True(t, c.Overflowed())
			require.Len(t, wcs(c), int(cqe), "what was there can still be polled")
			require.Equal(t, !sticky, enter(c, 7, 0, false), "sticky: an overflowed queue never accepts again")
			require.NoError(t, c.Resize(cqe+1, nil))
			require.Equal(t, !sticky, enter(c, 8, 0, false), "not even after a resize")
		}
	}
}

func TestPollTakesInOrderAndOnce(t *testing.T) {
	c := New(4, nil, true)
	next, want := uint64(0), uint64(0)
	dst := make([]WC, 3)
	for range 50 {
		for c.Len() < 4 {
			require.True(t, enter(c, next, 0, false))
			next++
		}
		c.Publish()
		for _, n := range []int{0, 1, 2} {
			require.Equal(t, n, c.Poll(dst[:n]))
			for i := range n {
				require.Equal(t, want, dst[i].WRID)
				want++
			}
		}
	}
}

// req: ARM-03
func TestArmRules(t *testing.T) {
	const none, sol, next = NotifyNone, NotifySolicited, NotifyNext
	for _, r := range []struct {
		arm       []bool // solicitedOnly of each request
		state     Notify
		status    ib.WCStatus
		solicited bool
		fires     bool
	}{
		{nil, none, ib.WCSuccess, true, false},
		{[]bool{false}, next, ib.WCSuccess, false, true},
		{[]bool{true}, sol, ib.WCSuccess, false, false},
		{[]bool{true}, sol, ib.WCSuccess, true, true},
		{[]bool{true}, sol, ib.WCWRFlushErr, false, true}, // an error counts as solicited
		{[]bool{false, true}, next, ib.WCSuccess, false, true},
		{[]bool{true, false}, next, ib.WCSuccess, false, true},
		{[]bool{true, true}, sol, ib.WCSuccess, false, false},
	} {
		c := New(8, nil, true)
		for _, s := range r.arm {
			require.False(t, c.ReqNotify(s), "nothing is missed in an empty queue")
		}
		require.Equal(t, r.state, c.Notify())
		enter(c, 1, r.status, r.solicited)
		require.Equal(t, r.fires, c.Publish(), "%+v", r)
		if r.fires {
			require.Equal(t, none, c.Notify(), "one event for each arm")
			enter(c, 2, ib.WCLocLenErr, true)
			require.False(t, c.Publish())
			require.EqualValues(t, 1, c.Triggered())
		}
	}
}

func TestArmMissesWhatIsThere(t *testing.T) {
	c := New(8, nil, true)
	enter(c, 1, 0, false)
	c.Publish()
	require.True(t, c.ReqNotify(false), "a completion waits, and no event will come for it")
	require.False(t, c.Publish())
	enter(c, 2, 0, false)
	enter(c, 3, 0, false)
	require.True(t, c.Publish(), "two completions, one event")
	require.EqualValues(t, 1, c.Triggered())
}

func TestOverflowDoesNotFire(t *testing.T) {
	c := New(1, nil, true)
	enter(c, 1, 0, false)
	c.Publish()
	c.ReqNotify(false)
	require.False(t, enter(c, 2, 0, false))
	require.False(t, c.Publish())
	require.Equal(t, NotifyNext, c.Notify())
}

func TestResize(t *testing.T) {
	for start := range uint64(6) { // where in the ring the entries lie
		c := New(5, nil, true)
		for i := range start {
			enter(c, i, 0, false)
			c.Publish()
			wcs(c)
		}
		for id := uint64(100); id < 103; id++ {
			enter(c, id, 0, false)
		}
		c.Publish()
		enter(c, 103, 0, false) // staged
		c.ReqNotify(false)
		err := c.Resize(3, nil)
		require.ErrorIs(t, err, ib.EINVAL)
		require.ErrorContains(t, err, "4 completions")
		require.Equal(t, 5, c.CQE(), "a refused resize changes nothing")
		require.NoError(t, c.Resize(4, nil))
		require.Equal(t, 4, c.CQE())
		require.False(t, enter(c, 200, 0, false))
		require.True(t, c.Publish(), "the queue stays armed")
		require.Equal(t, []uint64{100, 101, 102, 103}, wcs(c))
		require.NoError(t, c.Resize(9, nil))
		require.Zero(t, c.Len())
	}
}

func TestAmendTouchesOneQP(t *testing.T) {
	c := New(8, nil, true)
	c.Enter(&WC{WRID: 1, QPN: 5}, false)
	c.Publish()
	c.Enter(&WC{WRID: 2, QPN: 5}, false)
	c.Enter(&WC{WRID: 3, QPN: 6}, false)
	c.Amend(5, func(w *WC) { w.Status = ib.WCLocProtErr })
	c.Publish()
	dst := make([]WC, 8)
	require.Equal(t, 3, c.Poll(dst))
	require.Equal(t, ib.WCSuccess, dst[0].Status, "it was visible already")
	require.Equal(t, ib.WCLocProtErr, dst[1].Status)
	require.Equal(t, ib.WCSuccess, dst[2].Status)
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	if invariants.Race {
		t.Skip("the race detector allocates")
	}
	c := New(64, nil, true)
	w := WC{WRID: 1}
	dst := make([]WC, 32)
	require.Zero(t, testing.AllocsPerRun(200, func() {
		for range 32 {
			c.Enter(&w, false)
		}
		c.ReqNotify(false)
		c.Publish()
		c.Poll(dst)
	}))
}

// hostile is a ring whose tail belongs to a program that writes anything into it.
type hostile struct {
	t     *testing.T
	slots uint32
	tail  func() uint32
	wc    []WC
}

func (h *hostile) Slots() uint32 { return h.slots }
func (h *hostile) Put(slot uint32, wc *WC) {
	require.Less(h.t, slot, h.slots, "write outside the ring")
	h.wc[slot] = *wc
}
func (h *hostile) Peek(slot uint32, wc *WC) {
	require.Less(h.t, slot, h.slots, "read outside the ring")
	*wc = h.wc[slot]
}
func (h *hostile) StoreHead(slot uint32) {
	require.Less(h.t, slot, h.slots, "head outside the ring")
}
func (h *hostile) LoadTail() uint32 { return h.tail() }

func TestRunawayConsumer(t *testing.T) {
	n := uint32(0)
	h := &hostile{t: t, slots: 5, wc: make([]WC, 5), tail: func() uint32 { n++; return (n - 1) % 5 }}
	c := New(4, h, false)
	for i := range uint64(100) { // it takes what has not been shown to it yet
		enter(c, i, 0, false)
	}
	c.Publish()
}

// TestResizeShowsWhatWaits: completions that wait can be polled from the new ring at once.
func TestResizeShowsWhatWaits(t *testing.T) {
	c := New(4, nil, true)
	enter(c, 1, 0, false)
	enter(c, 2, 0, false)
	c.Publish()
	require.NoError(t, c.Resize(9, nil))
	require.Equal(t, []uint64{1, 2}, wcs(c))
}

func TestConsumerMovesDuringResize(t *testing.T) {
	tails := []uint32{3, 0}
	h := &hostile{t: t, slots: 5, wc: make([]WC, 5), tail: func() uint32 {
		v := tails[0]
		if len(tails) > 1 {
			tails = tails[1:]
		}
		return v
	}}
	c := New(4, h, false)
	c.head = 4
	_ = c.Resize(1, &hostile{t: t, slots: 2, wc: make([]WC, 2), tail: func() uint32 { return 0 }})
}

// FuzzCQ runs a queue against a slice. The first byte chooses between a well-behaved
// consumer, which is compared, and a hostile one, which must only do no harm.
func FuzzCQ(f *testing.F) {
	f.Add([]byte{0, 3, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0, 0, 0, 0, 4, 4, 8, 12})
	f.Add([]byte{1, 3, 0, 255, 0, 7, 0, 2, 4, 9, 6, 0, 0, 0, 0, 0, 0, 4, 200, 6, 6})
	f.Fuzz(func(t *testing.T, data []byte) {
		u8 := func() byte {
			if len(data) == 0 {
				return 0
			}
			v := data[0]
			data = data[1:]
			return v
		}
		if u8()&1 == 0 {
			fuzzModel(t, u8, &data)
		} else {
			fuzzHostile(t, u8, &data)
		}
	})
}

func fuzzModel(t *testing.T, u8 func() byte, data *[]byte) {
	cqe, sticky := int(u8()%12)+1, u8()&1 != 0
	c := New(uint32(cqe), nil, sticky)
	var seen, staged []uint64
	var full bool
	armed, fires := NotifyNone, false
	id := uint64(0)
	for len(*data) > 0 {
		switch op := u8(); op % 8 {
		case 0, 1, 2:
			id++
			sol, bad := op&8 != 0, op&16 != 0
			ok := len(seen)+len(staged) < cqe && !(full && sticky)
			full = full || !ok
			require.Equal(t, ok, enter(c, id, ib.WCStatus(op&16>>4), sol))
			if ok {
				staged = append(staged, id)
				fires = fires || armed == NotifyNext || armed == NotifySolicited && (sol || bad)
			}
		case 3, 4:
			require.Equal(t, fires, c.Publish())
			if fires {
				armed = NotifyNone
			}
			seen, staged, fires = append(seen, staged...), nil, false
		case 5:
			dst := make([]WC, int(u8()%6))
			n := c.Poll(dst)
			require.Equal(t, min(len(dst), len(seen)), n)
			for i := range n {
				require.Equal(t, seen[i], dst[i].WRID)
			}
			seen = seen[n:]
		case 6:
			n := int(u8()%16) + 1
			err := c.Resize(uint32(n), nil)
			require.Equal(t, len(seen)+len(staged) > n, err != nil)
			if err == nil {
				cqe = n
			}
		case 7:
			if len(staged) > 0 {
				continue // which of the staged ones count is not worth modelling
			}
			sol := op&8 != 0
			require.Equal(t, len(seen) > 0, c.ReqNotify(sol))
			if !sol {
				armed = NotifyNext
			} else if armed == NotifyNone {
				armed = NotifySolicited
			}
		}
		require.Equal(t, len(seen)+len(staged), c.Len())
		require.Equal(t, full, c.Overflowed())
	}
}

func fuzzHostile(t *testing.T, u8 func() byte, data *[]byte) {
	cqe := uint32(u8()%6) + 1
	tail := func() uint32 {
		v := u8()
		if v > 250 {
			return ^uint32(0) >> (v - 250)
		}
		return uint32(v % 8)
	}
	ring := func(n uint32) *hostile { return &hostile{t: t, slots: n + 1, wc: make([]WC, n+1), tail: tail} }
	c := New(cqe, ring(cqe), u8()&1 != 0)
	for len(*data) > 0 {
		switch op := u8(); op % 8 {
		default:
			enter(c, 1, 0, op&8 != 0)
		case 4:
			c.Publish()
		case 5:
			n := uint32(u8()%6) + 1
			_ = c.Resize(n, ring(n))
		case 6:
			c.ReqNotify(op&8 != 0)
		}
		require.GreaterOrEqual(t, c.Len(), 0)
		require.LessOrEqual(t, c.Len(), c.CQE())
	}
}

// jumping is a ring whose consumer index jumps about.
type jumping struct {
	Ring
	tail uint32
}

func (h *jumping) LoadTail() uint32 { return h.tail }

// Whatever a program does to its index, no more is staged than the queue holds: what has
// not been shown cannot have been taken.
func TestStagedIsBounded(t *testing.T) {
	r := &jumping{Ring: NewRing(2)}
	c := New(2, r, false)
	for i := range 2 {
		require.True(t, c.Enter(&WC{WRID: uint64(i)}, false))
		r.tail = uint32(i + 1) // as if it had been polled
	}
	require.False(t, c.Enter(&WC{WRID: 9}, false))
	require.True(t, c.Overflowed())
}

// TestOrderOfOneQPIsKept: a queue that makes use of its freedom mixes the completions of
// different queue pairs, and keeps each one's in order.
func TestOrderOfOneQPIsKept(t *testing.T) {
	c := New(16, nil, false)
	var left []int
	c.Vary = func(n int) bool { left = append(left, n); return true }
	for i := range 6 {
		c.Enter(&WC{WRID: uint64(i), QPN: ib.QPN(i % 2)}, false)
	}
	c.Publish()
	wcs := make([]WC, 6)
	require.Equal(t, 6, c.Poll(wcs))
	next := [2]uint64{0, 1}
	mixed := false
	for i := range wcs {
		q := wcs[i].QPN
		require.Equal(t, next[q], wcs[i].WRID)
		next[q] += 2
		mixed = mixed || wcs[i].WRID != uint64(i)
	}
	require.True(t, mixed)
	require.IsDecreasing(t, left, "it is told how many remain")
}
