package verbs

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// ledger counts what happened to each work request.
type ledger struct {
	accepted, completed []atomic.Int32
	failed              atomic.Int64 // completions other than SUCCESS
}

func newLedger(n int) *ledger {
	return &ledger{accepted: make([]atomic.Int32, n), completed: make([]atomic.Int32, n)}
}

func (l *ledger) take(wcs []WC) {
	for _, wc := range wcs {
		l.completed[wc.WRID].Add(1)
		if wc.Status != ib.WCSuccess {
			l.failed.Add(1)
		}
	}
}

// balance requires that each accepted work request completed exactly once, and no other.
func (l *ledger) balance(t *testing.T) (accepted int) {
	for i := range l.accepted {
		require.Equal(t, l.accepted[i].Load(), l.completed[i].Load(), "wr %d", i)
		accepted += int(l.accepted[i].Load())
	}
	return accepted
}

// TestEveryWRIsAccountedFor lets several goroutines post to shared QPs, poll shared
// queues, query, resize and re-arm them, and at last takes the QPs to ERR in the middle
// of it.
func TestEveryWRIsAccountedFor(t *testing.T) {
	for _, n := range networks {
		t.Run(n.name, func(t *testing.T) { stress(t, n) })
	}
}

func stress(t *testing.T, n network) {
	const posters, qps = 4, 3
	perPoster := 1500
	if strictTests { // whose checks look at all that is posted
		perPoster = 200
	}
	a, b, _, _ := pair(t, n, ib.QPTypeRC)
	sends, recvs := newLedger(posters*perPoster), newLedger(posters*perPoster)
	var qa, qb []*QP
	for range qps {
		x, y := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
		require.NoError(t, Connect(x, y))
		qa, qb = append(qa, x), append(qb, y)
	}
	stop := make(chan struct{})
	var others, workers sync.WaitGroup
	background := func(f func()) {
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for _, side := range []struct {
		h *host
		l *ledger
	}{{a, sends}, {b, recvs}} {
		for range 2 {
			wc := make([]WC, 7)
			background(func() {
				k, err := side.h.cq.Poll(wc)
				if err != nil {
					t.Error(err)
				}
				side.l.take(wc[:k])
			})
		}
		size := 8192
		background(func() {
			size ^= 1
			if err := side.h.cq.Resize(size); err != nil {
				t.Error(err)
			}
			_ = side.h.cq.ReqNotify(false)
			for _, q := range append(qa, qb...) {
				if _, err := q.Query(); err != nil {
					t.Error(err)
				}
			}
			runtime.Gosched()
		})
	}
	for p := range posters {
		workers.Go(func() {
			for i := range perPoster {
				id := p*perPoster + i
				post(t, recvs, id, func() error { return qb[id%qps].PostRecv(RecvWR{WRID: uint64(id), SGL: b.sgl(0, 4096)}) })
				post(t, sends, id, func() error {
					return qa[id%qps].PostSend(SendWR{WRID: uint64(id), Opcode: ib.WRSend, SGL: a.sgl(id, 1+id%3000)})
				})
				if p == 0 && i == perPoster*2/3 {
					for _, q := range append(qa, qb...) { // the rest is flushed
						if err := q.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	workers.Wait()
	settled := func() bool {
		for _, l := range []*ledger{sends, recvs} {
			for i := range l.accepted {
				if l.completed[i].Load() < l.accepted[i].Load() {
					return false
				}
			}
		}
		return true
	}
	for deadline := time.Now().Add(20 * time.Second); !settled() && time.Now().Before(deadline); {
		runtime.Gosched()
	}
	close(stop)
	others.Wait()
	require.Equal(t, posters*perPoster, sends.balance(t))
	require.Equal(t, posters*perPoster, recvs.balance(t))
	require.NotZero(t, sends.failed.Load(), "nothing was flushed")
	for _, q := range append(qa, qb...) {
		require.NoError(t, q.Destroy(context.Background()))
	}
}

// post posts until there is room.
func post(t *testing.T, l *ledger, id int, f func() error) {
	for {
		err := f()
		switch {
		case err == nil:
			l.accepted[id].Add(1)
			return
		case errors.Is(err, ib.ENOMEM):
			runtime.Gosched()
		default:
			t.Error(err)
			return
		}
	}
}

// TestDestroyUnderFire creates, uses and destroys objects from many goroutines at once.
// Only the errors that the contract allows may come out of it.
func TestDestroyUnderFire(t *testing.T) {
	a, b, _, _ := pair(t, networks[0], ib.QPTypeRC)
	ctx := within(t)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 60 {
				if err := cycle(ctx, a, b); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	for _, h := range []*host{a, b} {
		require.NoError(t, h.d.Shutdown())
	}
}

func cycle(ctx context.Context, a, b *host) error {
	c, err := a.d.CreateCQ(64, a.ch)
	if err != nil {
		return err
	}
	q, err := a.pd.CreateQP(QPInitAttr{Type: ib.QPTypeRC, SendCQ: c, RecvCQ: c, SQSigAll: true, Cap: QPCap{MaxSendWR: 8, MaxSendSGE: 1}})
	if err != nil {
		return err
	}
	p, err := b.pd.CreateQP(QPInitAttr{Type: ib.QPTypeRC, SendCQ: b.cq, RecvCQ: b.cq})
	if err != nil {
		return err
	}
	if err := Connect(q, p); err != nil {
		return err
	}
	var wg sync.WaitGroup
	wg.Go(func() { // uses what the others destroy
		for range 20 {
			_ = q.PostSend(SendWR{Opcode: ib.WRRDMAWrite, SGL: a.sgl(0, 64), RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()})
			_, _ = c.Poll(make([]WC, 4))
			_ = c.ReqNotify(false)
			_, _ = q.Query()
		}
	})
	wg.Go(func() {
		if got, err := a.ch.TryGet(); err == nil {
			_ = got.AckEvents(1)
		}
	})
	err = errors.Join(q.Destroy(ctx), p.Destroy(ctx))
	wg.Wait()
	for { // no event of ours is open for long: whoever fetched it acknowledges it
		if got, e := a.ch.TryGet(); e == nil {
			_ = got.AckEvents(1)
			continue
		}
		break
	}
	return errors.Join(err, c.Destroy(ctx))
}
