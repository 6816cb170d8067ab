package udp

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
)

// bothPorts runs a test on the Linux and on the portable port.
func bothPorts(t *testing.T, test func(t *testing.T, open func(Config) waitingPort)) {
	t.Run("linux", func(t *testing.T) {
		test(t, func(c Config) waitingPort { return openTest(t, c) })
	})
	t.Run("portable", func(t *testing.T) {
		test(t, func(c Config) waitingPort {
			p, err := OpenPortable(c)
			require.NoError(t, err)
			t.Cleanup(func() { _ = p.Close() })
			return p
		})
	})
}

// inWait starts Wait in a goroutine and returns its result's channel.
func inWait(p waitingPort) <-chan error {
	c := make(chan error, 1)
	go func() { c <- p.Wait(time.Hour) }()
	return c
}

func requireReturns(t *testing.T, c <-chan error) error {
	t.Helper()
	select {
	case err := <-c:
		return err
	case <-time.After(testTimeout):
		t.Fatal("Wait does not return")
		return nil
	}
}

func TestWait(t *testing.T) {
	bothPorts(t, func(t *testing.T, open func(Config) waitingPort) {
		p, q := open(testConfig()), open(testConfig())
		start := time.Now()
		require.NoError(t, p.Wait(0))
		require.NoError(t, p.Wait(-time.Hour), "only looks")
		require.Less(t, time.Since(start), testTimeout)

		start = time.Now()
		require.NoError(t, p.Wait(20*time.Millisecond))
		require.GreaterOrEqual(t, time.Since(start), 19*time.Millisecond)

		p.Wake() // ends the next Wait
		require.NoError(t, requireReturns(t, inWait(p)))
		p.Wake()
		p.Wake()
		require.NoError(t, requireReturns(t, inWait(p)))
		start = time.Now()
		require.NoError(t, p.Wait(20*time.Millisecond), "two Wakes end one Wait")
		require.GreaterOrEqual(t, time.Since(start), 19*time.Millisecond)

		c := inWait(p)
		p.Wake()
		require.NoError(t, requireReturns(t, c))

		c = inWait(p)
		send(t, q, datagrams(p.LocalGID(), 64))
		require.NoError(t, requireReturns(t, c))
		receive(t, p, 1)
	})
}

// TestWakeIsNeverLost hands tokens from many wakers to one waiter: a lost Wake hangs.
func TestWakeIsNeverLost(t *testing.T) {
	bothPorts(t, func(t *testing.T, open func(Config) waitingPort) {
		p := open(testConfig())
		const wakers, each = 4, 500
		var mu sync.Mutex
		tokens := 0
		var wg sync.WaitGroup
		for range wakers {
			wg.Go(func() {
				for range each {
					mu.Lock()
					tokens++
					mu.Unlock()
					p.Wake()
				}
			})
		}
		deadline := time.Now().Add(testTimeout)
		for seen := 0; seen < wakers*each; {
			left := time.Until(deadline)
			require.Positive(t, left, "a Wake was lost: %d of %d", seen, wakers*each)
			require.NoError(t, p.Wait(left))
			mu.Lock()
			seen = tokens
			mu.Unlock()
		}
		wg.Wait()
	})
}

func TestClose(t *testing.T) {
	bothPorts(t, func(t *testing.T, open func(Config) waitingPort) {
		cfg := testConfig()
		p := open(cfg)
		c := inWait(p)
		require.NoError(t, p.Close())
		require.NoError(t, p.Close(), "twice is no error")
		require.ErrorIs(t, requireReturns(t, c), fabric.ErrClosed)
		_, err := p.ReadBatch(make([]fabric.Datagram, 1))
		require.ErrorIs(t, err, fabric.ErrClosed)
		_, err = p.WriteBatch(datagrams(gid1, 64))
		require.ErrorIs(t, err, fabric.ErrClosed)
		require.ErrorIs(t, p.Wait(time.Hour), fabric.ErrClosed)
		p.Wake()
		open(cfg) // the address is free again
	})
}

// TestCloseUnderTraffic closes ports while they read, write and wait.
func TestCloseUnderTraffic(t *testing.T) {
	bothPorts(t, func(t *testing.T, open func(Config) waitingPort) {
		for range 20 {
			cfg := testConfig()
			cfg.RecvBufferBytes = 0
			p := open(cfg)
			var wg sync.WaitGroup
			started := make(chan struct{})
			wg.Go(func() {
				src := datagrams(p.LocalGID(), repeat(64, 8)...)
				for i := 0; ; i++ {
					if _, err := p.WriteBatch(src); err != nil {
						require.ErrorIs(t, err, fabric.ErrClosed)
						return
					}
					if i == 20 {
						close(started)
					}
				}
			})
			wg.Go(func() {
				batch := make([]fabric.Datagram, 64)
				for {
					if _, err := p.ReadBatch(batch); err != nil {
						require.ErrorIs(t, err, fabric.ErrClosed)
						return
					}
					if err := p.Wait(time.Hour); err != nil {
						require.ErrorIs(t, err, fabric.ErrClosed)
						return
					}
				}
			})
			<-started
			require.NoError(t, p.Close())
			wg.Wait()
		}
	})
}

func TestLife(t *testing.T) {
	released := 0
	l := life{release: func() { released++ }}
	require.True(t, l.enter())
	require.True(t, l.enter())
	require.True(t, l.close())
	require.False(t, l.close())
	require.True(t, l.closed())
	require.False(t, l.enter())
	l.leave()
	l.leave()
	require.Zero(t, released, "close itself is inside")
	l.leave()
	require.Equal(t, 1, released)
	require.False(t, l.enter())
	require.Equal(t, 1, released)
}

// TestNap naps and is woken.
func TestNap(t *testing.T) {
	c := testConfig()
	c.QuietNaps = true
	p := openTest(t, c)
	p.Wake()
	require.NoError(t, p.Nap(time.Hour), "a Wake before ends it")
	const d = quietNap
	start := time.Now()
	require.NoError(t, p.Nap(d))
	require.GreaterOrEqual(t, time.Since(start), d)
	require.NoError(t, p.Nap(0))
	done := make(chan error, 1)
	go func() { done <- p.Nap(time.Hour) }()
	p.Wake()
	require.NoError(t, requireReturns(t, done))
	go func() { done <- p.Nap(time.Hour) }()
	require.NoError(t, p.Close())
	require.ErrorIs(t, requireReturns(t, done), fabric.ErrClosed)
	require.ErrorIs(t, p.Nap(0), fabric.ErrClosed)
}

// TestNapIsATimers leaves naps to the caller unless it is told otherwise.
func TestNapIsATimers(t *testing.T) {
	p := openTest(t, testConfig())
	require.ErrorIs(t, p.Nap(time.Hour), fabric.ErrNoWait)
	require.NoError(t, p.Nap(0))
}

// TestAsksForWhatComes: more messages than one are asked for only when they come without a
// pause, and no more than come.
func TestAsksForWhatComes(t *testing.T) {
	r := receiver{ask: 1, hdrs: make([]unix.Mmsghdr, 8)}
	r.learn(1, 1)
	require.Equal(t, 1, r.ask, "one is not many")
	for _, want := range []int{2, 4, 8, 8} {
		r.learn(r.ask, r.ask)
		require.Equal(t, want, r.ask)
	}
	r.learn(3, 8)
	require.Equal(t, 3, r.ask)
	require.False(t, r.full)
}
