package dcqcn

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/vtime"
)

const (
	gbps = 1_000_000_000
	us   = vtime.Time(time.Microsecond)
)

func params() *Params {
	p := Default(100 * gbps)
	return &p
}

// TestCut: the first notification halves the rate, and each cut takes alpha/2.
//
// req: CC-RP-02 CC-RP-03
func TestCut(t *testing.T) {
	p, f := params(), new(Flow)
	require.EqualValues(t, 100*gbps, f.Rate(p))
	require.Zero(t, f.ReadyAt(p, 5*us), "nobody complained: the port alone is the limit")
	f.CNP(p, 10*us)
	require.True(t, f.Limited())
	require.EqualValues(t, 50*gbps, f.Rate(p), "alpha begins at 1")
	require.EqualValues(t, One, f.Alpha())

	// One step of alpha's timer without notification: alpha = 1 - g.
	f.CNP(p, 65*us) // the rate's timer made a step of fast recovery at the same instant
	require.EqualValues(t, One-One/256+One/256/256, f.Alpha(), "(1-g)(1-g)+g, from 1")
	before := 75.0 * gbps
	require.InEpsilon(t, before*(1-(1-1.0/256)/2), f.Rate(p), 1e-6)
}

// TestRecovery follows the timer: five steps halfway back to the rate before the cut,
// then the target rises by the additive increase.
//
// req: CC-RP-04
func TestRecovery(t *testing.T) {
	p, f := params(), new(Flow)
	f.CNP(p, 0)
	f.CNP(p, 0) // 25 Gbit/s, with a target of 50
	want, target := 25.0*gbps, 50.0*gbps
	for step := 1; step <= 12; step++ {
		at := vtime.Time(step) * 55 * us
		f.ReadyAt(p, at-1)
		require.InEpsilon(t, want, f.Rate(p), 1e-6, "just before step %d", step)
		if step > 5 {
			target += 40e6
		}
		want = (want + target) / 2
		f.ReadyAt(p, at)
		require.InEpsilon(t, want, f.Rate(p), 1e-6, "step %d", step)
	}
}

// TestByteCounterAndHyperIncrease: bytes make steps of their own, and when both counters
// are beyond fast recovery the target rises by the hyper increase times their excess.
//
// req: CC-RP-04
func TestByteCounterAndHyperIncrease(t *testing.T) {
	p, f := params(), new(Flow)
	p.ByteCounter, p.RateTimer, p.AlphaTimer = 10_000, time.Millisecond, time.Second
	f.CNP(p, 0)
	f.CNP(p, 0)
	for range 5 {
		f.Sent(p, 1, 10_000)
	}
	rate, target := 25.0*gbps, 50.0*gbps
	for range 5 {
		rate = (rate + target) / 2
	}
	require.InEpsilon(t, rate, f.Rate(p), 1e-6)
	f.Sent(p, 1, 9_999)
	require.InEpsilon(t, rate, f.Rate(p), 1e-6, "a byte is missing")
	f.Sent(p, 1, 1)
	target += 40e6
	rate = (rate + target) / 2
	require.InEpsilon(t, rate, f.Rate(p), 1e-6, "additive: the timer has made no step")

	for i := 1; i <= 6; i++ { // six steps of the timer: the sixth makes min(T, BC) six
		f.ReadyAt(p, vtime.Time(i)*vtime.Time(time.Millisecond))
		switch i {
		case 6:
			target += 200e6
		default:
			target += 40e6 // the byte counter is beyond fast recovery
		}
		rate = (rate + target) / 2
		require.InEpsilon(t, rate, f.Rate(p), 1e-6, "step %d", i)
	}
}

// TestPacing: packets of a limited flow leave at its rate, to the nanosecond over many.
//
// req: CC-PACE-01
func TestPacing(t *testing.T) {
	p, f := params(), new(Flow)
	p.RateTimer, p.AlphaTimer, p.ByteCounter = time.Hour, time.Hour, 1<<40
	f.CNP(p, 0)
	f.CNP(p, 0) // 25 Gbit/s: 1,000 bytes take 320 ns
	f.rate = 24_999_999_999
	now := vtime.Time(0)
	for range 100_000 {
		require.Equal(t, now, f.ReadyAt(p, now))
		f.Sent(p, now, 1_000)
		next := f.ReadyAt(p, now)
		require.InDelta(t, 320, float64(next-now), 1)
		now = next
	}
	require.InDelta(t, math.Round(100_000*8_000*1e9/24_999_999_999.0), float64(now), 1)
}

// TestNotificationInterval: one CNP for each interval, whatever is marked.
//
// req: CC-NP-01
func TestNotificationInterval(t *testing.T) {
	p, f := params(), new(Flow)
	require.True(t, f.Marked(p, 0), "the first packet marked, at the start of time as well")
	require.False(t, f.Marked(p, 1))
	require.False(t, f.Marked(p, 50*us-1))
	require.True(t, f.Marked(p, 50*us))
	require.False(t, f.Marked(p, 100*us-1))
}

// TestLongSilence: a flow that is not looked at for a day ends up at line rate, at the
// cost of no more steps than there are from the lowest rate.
//
// req: CC-RP-05
func TestLongSilence(t *testing.T) {
	p, f := params(), new(Flow)
	for i := range 1000 {
		f.CNP(p, vtime.Time(i)*us)
	}
	require.EqualValues(t, p.MinRate, f.Rate(p))
	require.LessOrEqual(t, f.ReadyAt(p, vtime.Time(24*time.Hour)), vtime.Time(24*time.Hour))
	require.False(t, f.Limited())
}

// TestBounds: whatever happens, the rate stays between the lowest and the line rate, alpha
// between 0 and 1, and looking more often makes no difference.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := params()
		p.MinRate = rapid.Uint64Range(1, 100*gbps).Draw(t, "min")
		p.G = rapid.Uint32Range(1, One).Draw(t, "g")
		p.AlphaTimer = time.Duration(rapid.IntRange(1, 100_000).Draw(t, "alpha timer"))
		p.RateTimer = time.Duration(rapid.IntRange(1, 100_000).Draw(t, "rate timer"))
		p.ByteCounter = rapid.Uint64Range(1, 1<<20).Draw(t, "bytes")
		require.NoError(t, p.Validate())
		var f, g Flow
		now := vtime.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += vtime.Time(rapid.IntRange(0, 200_000).Draw(t, "gap"))
			g.ReadyAt(p, now-now%7)
			switch rapid.IntRange(0, 2).Draw(t, "what") {
			case 0:
				f.CNP(p, now)
				g.CNP(p, now)
			case 1:
				f.Sent(p, now, 4242)
				g.Sent(p, now, 4242)
			default:
				require.Equal(t, f.ReadyAt(p, now), g.ReadyAt(p, now))
			}
			require.GreaterOrEqual(t, f.Rate(p), p.MinRate)
			require.LessOrEqual(t, f.Rate(p), p.LineRate)
			require.LessOrEqual(t, f.Alpha(), uint32(One))
		}
		f.advance(p, now)
		g.advance(p, now)
		require.Equal(t, f, g)
	})
}

func TestValidate(t *testing.T) {
	require.NoError(t, params().Validate())
	for _, rate := range []uint64{1, 1000, MaxLineRate} {
		p := Default(rate)
		if rate == MaxLineRate {
			require.ErrorContains(t, p.Validate(), "additive increase", "40 Mbit/s are too little for 1 Pbit/s")
			continue
		}
		require.NoError(t, p.Validate(), rate)
	}
	bad := Params{CNPInterval: -1, CNPDSCP: 64, HyperIncrease: MaxLineRate + 1}
	err := bad.Validate()
	for _, word := range []string{"line rate", "lowest rate", "g is", "alpha timer", "rate timer", "CNP interval", "byte counter", "additive increase", "hyper increase", "DSCP"} {
		require.ErrorContains(t, err, word)
	}
}

func TestFlowDoesNotAllocate(t *testing.T) {
	p, f, now := params(), new(Flow), vtime.Time(0)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		now += 10 * us
		if f.Marked(p, now) {
			f.CNP(p, now)
		}
		f.Sent(p, now, 1090)
	}))
}
