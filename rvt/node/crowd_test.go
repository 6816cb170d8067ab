package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/vtime"
)

// poller is a program that does nothing but poll, or sometimes something else.
type poller struct {
	now vtime.Time
	crowd
}

// polls makes polls in vain, gap apart, until it is to sleep or has polled n times. It returns
// how long it looked, and whether it is to sleep.
func (p *poller) polls(n int, gap time.Duration) (time.Duration, bool) {
	start := p.now
	for range n {
		p.now = p.now.Add(gap)
		if p.polled(p.now, false) {
			return p.now.Sub(start), true
		}
	}
	return p.now.Sub(start), false
}

// crowded loses the processor twice while it polls.
func (p *poller) crowded(t *testing.T) {
	for range 2 {
		_, sleeps := p.polls(2*densePolls, time.Microsecond)
		require.False(t, sleeps)
		p.now = p.now.Add(4 * time.Millisecond)
	}
	require.False(t, p.polled(p.now, false), "it looks anew")
	require.Greater(t, p.until, p.now)
}

func TestCrowd(t *testing.T) {
	const us = time.Microsecond
	for pace := range 3 {
		p := poller{vtime.Time(time.Second), newCrowd(pace)}
		_, sleeps := p.polls(100_000, us)
		require.False(t, sleeps, "it has a processor of its own")
		p.now = p.now.Add(10 * time.Millisecond)
		_, sleeps = p.polls(100_000, us)
		require.False(t, sleeps, "once is not a crowd")
	}

	p := poller{vtime.Time(time.Second), newCrowd(1)}
	p.crowded(t)
	looked, sleeps := p.polls(1000, us)
	require.True(t, sleeps)
	require.GreaterOrEqual(t, looked, longLook-us, "the first time it is tried")
	// Nothing ever comes while it looks: the peer waits for this processor.
	for range lookAgain - 1 {
		p.woke(p.now)
		looked, sleeps = p.polls(1000, us)
		require.True(t, sleeps)
		require.Less(t, looked, longLook/2)
	}
	p.woke(p.now)
	looked, _ = p.polls(1000, us)
	require.GreaterOrEqual(t, looked, longLook-us, "now and then it is tried again")
	// Something comes while it looks, though not at once.
	p.woke(p.now)
	_, sleeps = p.polls(4, us)
	require.False(t, sleeps)
	require.False(t, p.polled(p.now.Add(3*us), true))
	require.Positive(t, p.worth)
	p.now = p.now.Add(4 * us)
	looked, sleeps = p.polls(1000, us)
	require.True(t, sleeps)
	require.GreaterOrEqual(t, looked, longLook-2*us)

	// Later the processor was lost no more.
	p.now = p.now.Add(crowdLasts)
	_, sleeps = p.polls(10_000, us)
	require.False(t, sleeps)
}

// TestNoCrowd has programs that do other work between their polls: they never sleep.
func TestNoCrowd(t *testing.T) {
	for _, between := range []time.Duration{2 * denseGap, 100 * time.Microsecond, crowdSlice, 3 * time.Millisecond} {
		p := poller{vtime.Time(time.Second), newCrowd(1)}
		p.crowded(t)
		_, sleeps := p.polls(10_000, between)
		require.False(t, sleeps, between)
	}
	// Work after each message looks like a lost processor, but not while one polls in vain.
	p := poller{vtime.Time(time.Second), newCrowd(1)}
	for range 100 {
		_, sleeps := p.polls(50, time.Microsecond)
		require.False(t, sleeps)
		require.False(t, p.polled(p.now, true))
		p.now = p.now.Add(2 * time.Millisecond)
	}
}

// TestDoze has a poll sleep until a packet comes, and until a poll of another thread finds one.
func TestDoze(t *testing.T) {
	if !canDoze {
		t.Skip("nobody sleeps on this system")
	}
	for _, cfg := range []Config{{Doze: time.Hour}, {Doze: time.Hour, Manual: true}} {
		a, b, qa, _ := pair(t, options{cfg: cfg})
		b.n.mu.Lock()
		b.n.bed.sleepers.Add(1)
		was := b.n.bed.turns.Load()
		b.n.unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			b.n.doze(was)
		}()
		a.send(qa, a.write(1, b, 100))
		require.Eventually(t, func() bool {
			if cfg.Manual {
				settle(a, b)
			}
			select {
			case <-done:
				return true
			default:
				return false
			}
		}, time.Minute, time.Millisecond)
		require.Zero(t, b.n.bed.sleepers.Load())
	}
}
