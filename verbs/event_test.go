package verbs

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func TestEventAfterArm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		a, b, qa, qb := pair(t, networks[0], ib.QPTypeRC)
		send := func(flags ib.SendFlags) {
			require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, 8)}))
			require.NoError(t, qa.PostSend(SendWR{Opcode: ib.WRSend, Flags: flags, SGL: a.sgl(0, 8)}))
			synctest.Wait()
			time.Sleep(10 * time.Millisecond)
			synctest.Wait()
		}
		none := func() {
			_, err := b.ch.TryGet()
			require.ErrorIs(t, err, ib.EAGAIN)
		}
		send(0)
		none() // not armed
		require.NoError(t, b.cq.ReqNotify(false))
		none() // the completion was there before
		send(0)
		send(0)
		c, err := b.ch.Get(ctx)
		require.NoError(t, err)
		require.Same(t, b.cq, c)
		none() // one event for each arm
		require.NoError(t, b.cq.ReqNotify(true))
		send(0)
		none()
		send(ib.SendSolicited)
		_, err = b.ch.Get(ctx)
		require.NoError(t, err)
		require.NoError(t, b.cq.AckEvents(2))
		require.ErrorIs(t, b.cq.AckEvents(1), ib.EINVAL)
		require.ErrorIs(t, b.cq.AckEvents(-1), ib.EINVAL)
		b.ok(5)
		_, err = b.ch.Get(over())
		require.ErrorIs(t, err, context.Canceled)
		require.NoError(t, a.d.Shutdown())
		require.NoError(t, b.d.Shutdown())
	})
}

// TestNoLostWakeup arms, polls, and waits, while the peer sends at random moments. If
// ever an event is missing, Get does not return.
func TestNoLostWakeup(t *testing.T) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) {
			rounds := 3000
			if testing.Short() {
				rounds = 300
			}
			a, b, qa, qb := pair(t, n, ib.QPTypeRC)
			ctx := within(t)
			for range 64 {
				require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, 64)}))
			}
			go func() { // the sender keeps some messages under way and sometimes pauses
				rng := rand.New(rand.NewPCG(1, 2))
				wc, open := make([]WC, 8), 0
				for sent := 0; sent < rounds || open > 0; {
					if open < 8 && sent < rounds {
						if qa.PostSend(SendWR{WRID: uint64(sent), Opcode: ib.WRSend, SGL: a.sgl(0, 8)}) != nil {
							return
						}
						sent, open = sent+1, open+1
					}
					k, err := a.cq.Poll(wc)
					if err != nil {
						return
					}
					open -= k
					for range rng.IntN(2000) {
						_ = rng.Uint64()
					}
				}
			}()
			received, events, wc := 0, 0, make([]WC, 4)
			drain := func() int {
				total := 0
				for {
					k, err := b.cq.Poll(wc)
					require.NoError(t, err)
					for range k {
						require.NoError(t, qb.PostRecv(RecvWR{SGL: b.sgl(0, 64)}))
					}
					total += k
					if k == 0 {
						return total
					}
				}
			}
			for received < rounds {
				require.NoError(t, b.cq.ReqNotify(false))
				if k := drain(); k > 0 {
					received += k
					continue
				}
				c, err := b.ch.Get(ctx)
				require.NoError(t, err, "%d of %d received, %d events", received, rounds, events)
				require.Same(t, b.cq, c)
				events++
				received += drain()
			}
			require.Equal(t, rounds, received)
			require.NoError(t, b.cq.AckEvents(events))
			t.Logf("%d messages, %d sleeps", rounds, events)
		})
	}
}

// TestSeveralGetters gives each event to exactly one of them.
func TestSeveralGetters(t *testing.T) {
	a, b, qa, _ := pair(t, networks[0], ib.QPTypeRC)
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	var cqs []*CQ
	var qps []*QP
	for range 4 {
		c, err := b.d.CreateCQ(16, b.ch)
		require.NoError(t, err)
		q, err := b.pd.CreateQP(QPInitAttr{Type: ib.QPTypeRC, SendCQ: c, RecvCQ: c, Cap: QPCap{MaxRecvWR: 4, MaxRecvSGE: 1}})
		require.NoError(t, err)
		require.NoError(t, c.ReqNotify(false))
		cqs, qps = append(cqs, c), append(qps, q)
	}
	got := make(chan *CQ, 16)
	for range 3 {
		go func() {
			for {
				c, err := b.ch.Get(ctx)
				if err != nil {
					return
				}
				got <- c
			}
		}()
	}
	for _, q := range qps { // a flushed receive is a completion
		require.NoError(t, q.ToInit(DefaultConnParams(b.d.GID(), 0)))
		require.NoError(t, q.PostRecv(RecvWR{}))
		require.NoError(t, q.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	}
	seen := map[*CQ]int{}
	for range cqs {
		select {
		case c := <-got:
			seen[c]++
			require.NoError(t, c.AckEvents(1))
		case <-ctx.Done():
			t.Fatal("an event is missing")
		}
	}
	for _, c := range cqs {
		require.Equal(t, 1, seen[c])
	}
	_, _ = a, qa
}

func TestDestroyWaitsForAcks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, peer := openSwitch(t)
		h := newHost(t, d)
		q := h.qp(ib.QPTypeRC, nil)
		require.NoError(t, q.ToInit(DefaultConnParams(d.GID(), 0)))
		require.NoError(t, h.cq.ReqNotify(false))
		require.NoError(t, q.PostRecv(RecvWR{}))
		require.NoError(t, q.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
		c, err := h.ch.Get(t.Context())
		require.NoError(t, err)
		require.NoError(t, q.Destroy(t.Context()))

		err = c.Destroy(over())
		var unacked *UnackedError
		require.ErrorAs(t, err, &unacked)
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 1, unacked.Events)
		_, err = c.Poll(make([]WC, 1))
		require.ErrorIs(t, err, ib.EINVAL, "gone from the device")

		done := make(chan error)
		go func() { done <- c.Destroy(t.Context()) }()
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("destroyed with an open event: %v", err)
		default:
		}
		require.NoError(t, c.AckEvents(1))
		require.NoError(t, <-done)
		require.NoError(t, h.ch.Destroy())
		require.NoError(t, h.mr.Dereg())
		require.NoError(t, h.pd.Dealloc())
		require.NoError(t, d.Close())
		require.NoError(t, peer.Close())
	})
}

func TestUnfetchedEventsVanish(t *testing.T) {
	d, _ := openSwitch(t)
	h := newHost(t, d)
	q := h.qp(ib.QPTypeRC, nil)
	require.NoError(t, q.ToInit(DefaultConnParams(d.GID(), 0)))
	require.NoError(t, h.cq.ReqNotify(false))
	require.NoError(t, q.PostRecv(RecvWR{}))
	require.NoError(t, q.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	require.NoError(t, q.Destroy(over()))
	require.NoError(t, h.cq.Destroy(over()))
	_, err := h.ch.TryGet()
	require.ErrorIs(t, err, ib.EAGAIN)
}

func TestAsyncEvents(t *testing.T) {
	a, b, _, _ := pair(t, networks[0], ib.QPTypeRC)
	srq, err := b.pd.CreateSRQ(SRQAttr{MaxWR: 16, MaxSGE: 1})
	require.NoError(t, err)
	require.ErrorIs(t, srq.Modify(SRQAttr{Limit: 17}, SRQLimit), ib.EINVAL)
	require.ErrorIs(t, srq.Modify(SRQAttr{}, 1<<7), ib.EINVAL)
	require.NoError(t, srq.Modify(SRQAttr{Limit: 2}, SRQLimit))
	require.NoError(t, srq.PostRecv(RecvWR{WRID: 1, SGL: b.sgl(0, 8)}, RecvWR{WRID: 2, SGL: b.sgl(8, 8)}))
	qa, qb := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, srq)
	require.NoError(t, Connect(qa, qb))
	require.NoError(t, qa.PostSend(SendWR{Opcode: ib.WRSend, SGL: a.sgl(0, 8)}))
	b.ok(1)
	ctx := within(t)
	e, err := b.d.AsyncEvent(ctx)
	for err == nil && e.Type == ib.EventCommEst { // raised where the peer was quick
		e.Ack()
		e, err = b.d.AsyncEvent(ctx)
	}
	require.NoError(t, err)
	require.Equal(t, ib.EventSRQLimitReached, e.Type)
	require.Same(t, srq, e.SRQ)
	require.Contains(t, e.String(), "SRQ_LIMIT_REACHED of srq")
	attr, err := srq.Query()
	require.NoError(t, err)
	require.Equal(t, SRQAttr{MaxWR: 16, MaxSGE: 1}, attr)
	require.NoError(t, qb.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	last, err := b.d.AsyncEvent(ctx)
	require.NoError(t, err)
	require.Equal(t, ib.EventQPLastWQEReached, last.Type)
	require.Same(t, qb, last.QP)
	require.Error(t, qb.Destroy(over()), "its event is open")
	last.Ack()
	last.Ack()
	require.ErrorIs(t, qb.Destroy(over()), ib.EINVAL, "already gone, and nothing to wait for")
	require.Error(t, srq.Destroy(over()))
	e.Ack()
	_, err = b.d.AsyncEvent(over())
	require.ErrorIs(t, err, context.Canceled)
}

// TestAsyncFlood overflows a completion queue again and again; the events that nobody
// fetches are bounded.
func TestAsyncFlood(t *testing.T) {
	d, _ := openSwitch(t)
	h := newHost(t, d)
	small, err := d.CreateCQ(1, nil)
	require.NoError(t, err)
	q, err := h.pd.CreateQP(QPInitAttr{Type: ib.QPTypeRC, SendCQ: small, RecvCQ: small, Cap: QPCap{MaxRecvWR: 16, MaxRecvSGE: 1}})
	require.NoError(t, err)
	require.NoError(t, q.ToInit(DefaultConnParams(d.GID(), 0)))
	require.NoError(t, q.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	for range maxAsyncEvents + 101 {
		require.NoError(t, q.PostRecv(RecvWR{}))
	}
	require.Equal(t, uint64(100), d.AsyncEventsLost())
	e, err := d.AsyncEvent(within(t))
	require.NoError(t, err)
	require.Equal(t, ib.EventCQErr, e.Type)
	require.Same(t, small, e.CQ)
	e.Ack()
}

// TestTokenStandsForAllEvents: two goroutines may find the queue empty, then two events
// come and leave one token. Who takes the token must leave another one.
func TestTokenStandsForAllEvents(t *testing.T) {
	q := newEventQueue[int](0)
	q.push(1)
	q.push(2)
	<-q.ready
	e, ok, err := q.tryTake(func(int) {})
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, 1, e)
	require.Len(t, q.ready, 1)
}
