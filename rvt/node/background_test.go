package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// deaf loses what is written while deaf is set.
type deaf struct {
	*SwitchPort
	off  atomic.Bool
	lost int
}

func (p *deaf) WriteBatch(src []fabric.Datagram) (int, error) {
	if p.off.Load() {
		p.lost += len(src)
		return len(src), nil
	}
	return p.SwitchPort.WriteBatch(src)
}

// TestBackgroundServesTimers sends a message whose packets are lost. Nobody polls: the
// background goroutine must send it again when its timer is due, and not before.
func TestBackgroundServesTimers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ports []*deaf
		o := options{wrap: func(p fabric.Port) fabric.Port {
			d := &deaf{SwitchPort: p.(*SwitchPort)}
			ports = append(ports, d)
			return d
		}}
		o.cfg.Now = bubbleClock()
		a, b, qa, _ := pair(t, o)
		ports[0].off.Store(true)
		a.send(qa, a.write(1, b, 100))
		ports[0].off.Store(false)
		synctest.Wait()
		require.Equal(t, 1, ports[0].lost)
		timeout, _ := ib.AckTimeout(14)
		time.Sleep(timeout - time.Microsecond)
		synctest.Wait()
		require.Empty(t, a.poll())
		time.Sleep(time.Microsecond)
		synctest.Wait()
		wc := a.poll()
		require.Len(t, wc, 1)
		require.Equal(t, ib.WCSuccess, wc[0].Status)
		require.Equal(t, uint64(1), a.n.Counters().Device.RetryTimeout)
	})
}

// TestIdleSleeps lets an hour pass on two idle nodes.
func TestIdleSleeps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}}
		a, b, qa, _ := pair(t, o)
		a.send(qa, a.write(1, b, 100))
		time.Sleep(time.Second) // the retry timer's entry is gone as well
		synctest.Wait()
		require.Len(t, a.poll(), 1)
		before := a.n.Counters().Node
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Equal(t, before, a.n.Counters().Node)
		require.Equal(t, vtime.Never, b.n.sleepUntil)
	})
}

// TestPollerIsLeftAlone polls every 20 us while traffic arrives: the background
// goroutine must not wait in the port, where each packet would wake it. When polling
// stops it must be back within a nap.
func TestPollerIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}}
		a, b, qa, qb := pair(t, o)
		synctest.Wait() // the goroutine waits in the port
		for range fewPolls + 1 {
			b.n.Progress()
		}
		a.send(qa, a.write(1, b, 64)) // wakes it
		for range 100 {               // long enough for the nap to reach its full length
			b.n.Progress()
			time.Sleep(20 * time.Microsecond)
		}
		synctest.Wait()
		before := b.n.Counters().Node
		for i := range 200 {
			b.recv(qb, swqe.RecvWR{SGL: b.sge(0, 100)})
			a.send(qa, swqe.SendWR{WRID: uint64(i), Opcode: ib.WRSend, SGL: a.sge(0, 64)})
			synctest.Wait()
			time.Sleep(20 * time.Microsecond)
			b.n.Progress()
			require.Len(t, b.poll(), 1)
		}
		after := b.n.Counters().Node
		require.Equal(t, before.Waits, after.Waits)
		require.Equal(t, before.BackgroundPasses, after.BackgroundPasses)
		require.Equal(t, before.Wakeups, after.Wakeups)

		// One-sided traffic after the last poll. When the nap that it fell into ends, that
		// poll is long ago.
		time.Sleep(maxNap)
		synctest.Wait()
		a.send(qa, a.write(7, b, 64))
		synctest.Wait()
		require.Greater(t, b.n.Counters().Node.Waits, after.Waits)
		found := false
		for _, wc := range a.poll() {
			found = found || wc.WRID == 7
		}
		require.True(t, found)
	})
}

// TestParkHandsOver polls, then parks: the next packet must be served at once, not
// after a nap.
func TestParkHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var notified atomic.Int64
		o := options{cfg: Config{Now: bubbleClock()}}
		o.cfg.Events = func(evs []rvt.Event) { notified.Add(int64(len(evs))) }
		a, b, qa, qb := pair(t, o)
		synctest.Wait() // the goroutine waits in the port
		for range fewPolls + 1 {
			b.n.Progress()
		}
		a.send(qa, a.write(1, b, 64)) // wakes it
		for range 50 {
			b.n.Progress()
			time.Sleep(20 * time.Microsecond)
		}
		require.NotZero(t, b.n.bell.Napping.Load())
		b.recv(qb, swqe.RecvWR{SGL: b.sge(0, 100)})
		b.do(func(d *rvt.Device, _ vtime.Time) { d.ReqNotify(b.cq, false) })
		b.n.Park()
		before := b.n.now()
		a.send(qa, swqe.SendWR{Opcode: ib.WRSend, SGL: a.sge(0, 64)})
		synctest.Wait()
		require.Equal(t, int64(1), notified.Load())
		require.Equal(t, before, b.n.now())
		require.Len(t, b.poll(), 1)
	})
}

// TestPosterIsServed lets a program that has polled go on posting without a poll: what others
// send to it must not wait until it polls again.
func TestPosterIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}}
		a, b, qa, qb := pair(t, o)
		synctest.Wait()
		for range fewPolls + 1 {
			b.n.Progress()
		}
		a.send(qa, a.write(1, b, 64)) // wakes it
		for range 100 {
			b.n.Progress()
			time.Sleep(20 * time.Microsecond)
		}
		require.NotZero(t, b.n.bell.Napping.Load())
		a.poll()
		a.send(qa, a.write(7, b, 64))
		for start := b.n.now(); len(a.poll()) == 0; time.Sleep(20 * time.Microsecond) {
			b.send(qb, b.write(1, a, 64))
			require.Less(t, b.n.now().Sub(start), postsOnly*silence+2*maxNap)
		}
	})
}

// TestBellIsHeard rings without a call, as a program may that polls, and polls no more.
func TestBellIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var waits func(d *rvt.Device)
		o := options{cfg: Config{Now: bubbleClock(), Doorbells: func(d *rvt.Device) { waits(d) }}}
		a, b, qa, _ := pair(t, o)
		waits = func(d *rvt.Device) {
			_, err := d.PostSend(qa, []swqe.SendWR{a.write(9, b, 64)})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Zero(t, a.n.bell.Napping.Load(), "whoever rings has to call")
		for range fewPolls + 1 {
			a.n.Progress()
		}
		a.send(qa, a.write(1, b, 64)) // wakes it
		for range 50 {
			a.n.Progress()
			time.Sleep(20 * time.Microsecond)
		}
		require.Len(t, a.poll(), 1)
		require.NotZero(t, a.n.bell.Napping.Load())
		a.n.bell.Rung.Store(1)
		time.Sleep(2 * maxNap)
		synctest.Wait()
		done := a.poll()
		require.Len(t, done, 1)
		require.EqualValues(t, 9, done[0].WRID)
	})
}

// TestPassedAt has a port know when the pass is that reads from it.
func TestPassedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _, _ := pair(t, options{cfg: Config{Now: bubbleClock()}})
		synctest.Wait()
		at := vtime.Never
		a.n.cfg.PassedAt = &at
		time.Sleep(time.Millisecond)
		a.n.Progress()
		require.Equal(t, a.n.now(), at)
	})
}

// TestHeard lets a caller who owns the node take what the bell told of.
func TestHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		heard := 0
		a, _, _, _ := pair(t, options{cfg: Config{Now: bubbleClock(), Doorbells: func(*rvt.Device) { heard++ }}})
		synctest.Wait()
		require.NotNil(t, a.n.TryBegin())
		require.False(t, a.n.Heard())
		a.n.bell.Rung.Store(1)
		require.True(t, a.n.Heard())
		require.False(t, a.n.Heard())
		a.n.End(SendNow)
		require.Equal(t, 1, heard)
	})
}

// TestDeferredPostsLeave posts to a busy QP without ever polling.
func TestDeferredPostsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}}
		a, b, qa, _ := pair(t, o)
		synctest.Wait()
		for i := range 3 {
			d, err := a.n.Begin()
			require.NoError(t, err)
			_, err = d.PostSend(qa, []swqe.SendWR{a.write(uint64(i), b, 64)})
			require.NoError(t, err)
			a.n.End(SendLater)
		}
		synctest.Wait()
		require.Len(t, a.poll(), 3)
		require.NotZero(t, a.n.Counters().Node.Wakeups)
	})
}

// TestImpairedPort runs over a decorator that holds packets back: its deadlines must
// be served although nothing arrives meanwhile.
func TestImpairedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}}
		cfg := fabric.ImpairmentConfig{Delay: 10 * time.Millisecond}
		o.wrap = func(p fabric.Port) fabric.Port {
			policy, err := fabric.NewImpairment(cfg, 1)
			require.NoError(t, err)
			return fabric.NewImpaired(p, policy, o.cfg.Now)
		}
		a, b, qa, _ := pair(t, o)
		start := a.n.now()
		a.send(qa, a.write(1, b, 64))
		synctest.Wait()
		for len(a.poll()) == 0 {
			require.Less(t, a.n.now().Sub(start), time.Second)
			time.Sleep(time.Millisecond)
			synctest.Wait()
		}
		require.Equal(t, 20*time.Millisecond, a.n.now().Sub(start))
		require.Zero(t, a.n.Counters().Device.RetransPackets)
	})
}

// patient is a port that cannot wait.
type patient struct{ fabric.Port }

func TestPortThatCannotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}, wrap: func(p fabric.Port) fabric.Port { return patient{p} }}
		a, b, qa, _ := pair(t, o)
		require.Nil(t, a.n.wait)
		a.send(qa, a.write(1, b, 64))
		time.Sleep(3 * maxNap)
		synctest.Wait()
		require.Len(t, a.poll(), 1)
	})
}

// TestCloseEndsEverything relies on synctest.Test: it fails if a goroutine is left.
func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := options{cfg: Config{Now: bubbleClock()}}
		a, b, qa, _ := pair(t, o)
		a.send(qa, a.write(1, b, 1<<20))
		require.NoError(t, a.n.Close()) // in the middle of the transfer
		synctest.Wait()
		b.n.Progress()
		require.NoError(t, b.n.Err(), "the peer lives on")
		require.NoError(t, b.n.Close())
	})
}

// TestCourtesy: who moves a stream lets others run now and then, who does not after each pass.
func TestCourtesy(t *testing.T) {
	var c courtesy
	now, asked := vtime.Time(1), 0
	for range 100 {
		now = now.Add(yieldEvery / 10)
		if c.lets(now, streaming) {
			asked++
		}
		before := c
		require.True(t, c.lets(now, streaming-1))
		c = before
	}
	require.Equal(t, 10, asked)
}

// TestAwaitsRoom: it stays for packets that wait for room in the port as long as the port takes
// some now and then.
func TestAwaitsRoom(t *testing.T) {
	l, never := newLinger(Linger), newLinger(0)
	now := vtime.Time(time.Second)
	require.False(t, l.awaits(now, false), "none was taken lately")
	require.True(t, l.awaits(now, true))
	require.False(t, never.awaits(now, true))
	require.True(t, l.awaits(now.Add(Linger), false))
	require.True(t, l.awaits(now.Add(Linger), true))
	require.True(t, l.awaits(now.Add(2*Linger), false))
	require.False(t, l.awaits(now.Add(2*Linger+1), false))
}
