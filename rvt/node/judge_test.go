package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

func TestGrace(t *testing.T) {
	for _, c := range []struct{ late, waited, want time.Duration }{
		{0, 0, 0},
		{starved, 0, 0},
		{starved + 1, 0, starved + 1},
		{80 * time.Millisecond, 0, 80 * time.Millisecond},
		{time.Hour, 0, mostGrace},
		{time.Hour, 1, 0}, // once
	} {
		require.Equal(t, c.want, Grace(qp.Plea{Late: c.late, Waited: c.waited}))
	}
}

// latePair is two nodes on a machine that is so busy that a has its turn only now and then.
func latePair(t *testing.T, judge func(vtime.Time, qp.Plea) qp.Verdict) (a, b *end, qa *qp.QP, clock *vtime.Time) {
	clock = new(vtime.Time)
	*clock = vtime.Time(time.Second)
	a, b, qa, _ = pair(t, options{cfg: Config{Manual: true, Now: func() vtime.Time { return *clock }}, judge: judge})
	return a, b, qa, clock
}

// turn lets time pass, and gives a node as many passes as it likes, of which one at least
// comes after what it allows itself for reading.
func (e *end) turn(clock *vtime.Time, after time.Duration) {
	*clock = clock.Add(after)
	settle(e)
	*clock = clock.Add(grace)
	settle(e)
}

// TestPeerAsLateAsOneself: a requester that has its turn each 300 ms has a peer that has its
// turn each 200 ms, a moment too late for the timer. There is no retry left; what the peer
// answers is taken nevertheless. Without a host who knows that, the queue pair fails.
func TestPeerAsLateAsOneself(t *testing.T) {
	a, b, qa, clock := latePair(t, nil)
	qa.SRetry = 0
	a.send(qa, a.write(1, b, 64))
	a.turn(clock, 300*time.Millisecond)
	require.Equal(t, ib.StateErr, qa.State)

	a, b, qa, clock = latePair(t, Judge)
	qa.SRetry = 0
	a.send(qa, a.write(1, b, 64))
	a.turn(clock, 300*time.Millisecond)
	require.Equal(t, ib.StateRTS, qa.State, "its timer was late")
	*clock = clock.Add(200 * time.Millisecond)
	settle(b)
	settle(a)
	wcs := a.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.Zero(t, qa.NTimeouts)
}

// TestDeadPeerOfTheLate: whose every timer is late gives up all the same.
func TestDeadPeerOfTheLate(t *testing.T) {
	for _, late := range []time.Duration{20 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second} {
		a, b, qa, clock := latePair(t, Judge)
		a.send(qa, a.write(1, b, 64))
		timeout, _ := ib.AckTimeout(14)
		begun, turns := *clock, 0
		for ; qa.State == ib.StateRTS; turns++ {
			require.Less(t, turns, 50)
			a.turn(clock, max(timeout, min(late, mostGrace))+late)
		}
		require.Equal(t, ib.WCRetryExcErr, a.poll()[0].Status)
		require.EqualValues(t, 4, qa.NTimeouts, "three retries, and the end")
		require.LessOrEqual(t, turns, 2*4, "the peer is waited for once for each of them")
		require.Less(t, clock.Sub(begun), 4*2*(timeout+2*late+time.Second))
	}
}
