package workload

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func TestScriptFollowsWeightsAndSizes(t *testing.T) {
	s := DefaultSpec()
	s.Ops = []WeightedOp{{ib.WRSend, 3}, {ib.WRRDMARead, 1}, {ib.WRAtomicFetchAndAdd, 1}}
	s.Sizes = Sizes{Min: 10, Max: 20}
	sc := newScript(&s, toServer, 0)
	again := newScript(&s, toServer, 0)
	var ops [ib.NumWROpcodes]int
	sizes := map[int]int{}
	const n = 10000
	for i := range uint64(n) {
		m := sc.at(i)
		require.Equal(t, m, again.at(i))
		ops[m.op]++
		if m.op == ib.WRAtomicFetchAndAdd {
			require.Equal(t, atomicBytes, m.size)
		} else {
			sizes[m.size]++
		}
	}
	require.InDelta(t, 0.6*n, ops[ib.WRSend], 0.05*n)
	require.InDelta(t, 0.2*n, ops[ib.WRRDMARead], 0.05*n)
	require.Len(t, sizes, 11)
	other := newScript(&s, toClient, 0)
	require.NotEqual(t, sc.at(0).draw, other.at(0).draw)
	require.NotEqual(t, sc.content, other.content)
}

func TestNextFindsMessagesThatTakeAReceive(t *testing.T) {
	s := DefaultSpec()
	s.Ops = []WeightedOp{{ib.WRSend, 1}, {ib.WRRDMAWrite, 3}}
	s.Count = 50
	sc := newScript(&s, toServer, 1)
	want := []uint64{}
	for i := range s.Count {
		if sc.at(i).op == ib.WRSend {
			want = append(want, i)
		}
	}
	got := []uint64{}
	for m, ok := sc.next(0); ok; m, ok = sc.next(m.index + 1) {
		got = append(got, m.index)
	}
	require.Equal(t, want, got)
}

func TestSignaled(t *testing.T) {
	s := DefaultSpec()
	s.Count, s.SignalEvery = 10, 4
	var got []uint64
	for i := range s.Count {
		if s.signaled(i) {
			got = append(got, i)
		}
	}
	require.Equal(t, []uint64{3, 7, 9}, got)
}

func TestPatternFindsEveryDamagedByte(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	sc := newScript(&Spec{Ops: []WeightedOp{{ib.WRSend, 1}}}, toServer, 0)
	for range 300 {
		p := sc.pattern(r.Uint64N(1000))
		whole := make([]byte, 200)
		p.fill(whole)
		off := r.IntN(100)
		b := whole[off : off+r.IntN(100)]
		require.Equal(t, -1, p.mismatch(b, off))
		if len(b) > 0 {
			at := r.IntN(len(b))
			b[at] ^= 1 << r.IntN(8)
			require.Equal(t, at, p.mismatch(b, off))
		}
	}
}

func TestUntouched(t *testing.T) {
	b := make([]byte, 100)
	fillCanary(b)
	require.Equal(t, -1, untouched(b))
	for i := range b {
		b[i]++
		require.Equal(t, i, untouched(b))
		b[i]--
	}
}

// TestLayoutPiecesDoNotTouch draws specs and checks that no two pieces of memory
// overlap or touch, in the order in which containment walks them.
func TestLayoutPiecesDoNotTouch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	all := []ib.WROpcode{ib.WRSend, ib.WRSendWithInv, ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAndAdd}
	for range 500 {
		s := DefaultSpec()
		s.Ops = nil
		for _, i := range r.Perm(len(all))[:1+r.IntN(len(all))] {
			s.Ops = append(s.Ops, WeightedOp{all[i], 1})
		}
		s.Sizes = Sizes{Max: r.IntN(5000)}
		s.Depth, s.QPs, s.RecvDepth, s.RecvSize = 1+r.IntN(9), 1+r.IntN(4), r.IntN(9), r.IntN(6000)
		l := s.layout(role{r.IntN(2) == 0, r.IntN(2) == 0})
		end := 0
		piece := func(at, n int) {
			require.GreaterOrEqual(t, at, end+gapBytes/2, "%+v", l)
			end = at + n
		}
		longest := max(s.Sizes.Longest(), atomicBytes)
		for i := range l.sendSlots {
			piece(l.sendSlot(i), longest)
		}
		for i := range l.recvSlots {
			piece(l.recvSlot(i), l.recvBytes)
		}
		if l.atomicAt > 0 {
			require.Zero(t, l.remote(l.atomicAt)%8)
			piece(l.atomicAt, (s.QPs+1)*atomicBytes)
		}
		for i := range l.writeSlots {
			piece(l.writeSlot(i), longest)
		}
		if l.readBytes > 0 {
			piece(l.readAt, l.readBytes)
		}
		piece(l.total, 0)
	}
}

func TestValidate(t *testing.T) {
	s := DefaultSpec()
	require.NoError(t, s.Validate())
	for name, c := range map[string]struct {
		edit func(*Spec)
		want string
	}{
		"transport":  {func(s *Spec) { s.Transport = ib.QPTypeGSI }, "transport is GSI"},
		"no op":      {func(s *Spec) { s.Ops = nil }, "no operation"},
		"local op":   {func(s *Spec) { s.Ops = []WeightedOp{{ib.WRBindMW, 1}} }, "makes traffic"},
		"unknown op": {func(s *Spec) { s.Ops = []WeightedOp{{200, 1}} }, "makes traffic"},
		"UD read":    {func(s *Spec) { s.Transport, s.Ops = ib.QPTypeUD, []WeightedOp{{ib.WRRDMARead, 1}} }, "not an operation of UD"},
		"weight":     {func(s *Spec) { s.Ops = []WeightedOp{{ib.WRSend, 0}} }, "weight of SEND is 0"},
		"depth":      {func(s *Spec) { s.Depth = 0 }, "depth is 0"},
		"signal":     {func(s *Spec) { s.SignalEvery = 17 }, "signal_every is 17, want 1 to 16"},
		"sizes":      {func(s *Spec) { s.Sizes = Sizes{Min: 9, Max: 8} }, "sizes run from 9 to 8"},
		"list":       {func(s *Spec) { s.Sizes = Sizes{List: []int{4, -1}} }, "a size is -1"},
		"limit":      {func(s *Spec) { s.SRQSize, s.SRQLimit = 4, 5 }, "srq_limit is 5"},
		"memory":     {func(s *Spec) { s.Sizes, s.Depth, s.QPs = Fixed(1<<30), 100, 100 }, "bytes of memory"},
		"windows":    {func(s *Spec) { s.Ops, s.RecvDepth = []WeightedOp{{ib.WRSendWithInv, 1}}, 5000 }, "memory window"},
		"delay":      {func(s *Spec) { s.Start = -1 }, "delay is negative"},
	} {
		t.Run(name, func(t *testing.T) {
			s := DefaultSpec()
			c.edit(&s)
			require.ErrorContains(t, s.Validate(), c.want)
		})
	}
}
