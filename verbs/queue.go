package verbs

import (
	"context"
	"slices"
	"strconv"
	"sync"

	"github.com/rvtsim/rvtsim/ib"
)

// eventQueue is a queue of events that goroutines wait for. Its lock is the last one
// taken: whoever holds it takes no other but that of an ackCount.
type eventQueue[T any] struct {
	mu     sync.Mutex
	events []T
	most   int           // 0: no limit
	lost   uint64        // not queued because of the limit
	err    error         // set once the queue is closed
	ready  chan struct{} // a token while somebody may find something
	done   chan struct{} // closed with the queue
}

func newEventQueue[T any](most int) eventQueue[T] {
	return eventQueue[T]{most: most, ready: make(chan struct{}, 1), done: make(chan struct{})}
}

// push appends an event and wakes a waiter. On a closed or full queue it is lost.
func (q *eventQueue[T]) push(e T) {
	q.mu.Lock()
	switch {
	case q.err != nil:
	case q.most > 0 && len(q.events) >= q.most:
		q.lost++
	default:
		q.events = append(q.events, e)
	}
	q.mu.Unlock()
	q.signal()
}

func (q *eventQueue[T]) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// isEmpty reports whether no event waits.
func (q *eventQueue[T]) isEmpty() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.events) == 0
}

// tryTake removes the oldest event. delivered is called for it under the queue's lock,
// so that who removes an object's events knows which of them are out.
func (q *eventQueue[T]) tryTake(delivered func(T)) (e T, ok bool, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return e, false, q.err
	}
	e = q.events[0]
	delivered(e)
	q.events = slices.Delete(q.events, 0, 1)
	if len(q.events) > 0 {
		q.signal() // one token stood for all of them
	}
	return e, true, nil
}

// take waits for an event. park is called before it blocks.
func (q *eventQueue[T]) take(ctx context.Context, delivered func(T), park func()) (e T, err error) {
	for first := true; ; first = false {
		e, ok, err := q.tryTake(delivered)
		if ok || err != nil {
			return e, err
		}
		if err := ctx.Err(); err != nil {
			return e, err
		}
		if first {
			park()
			continue
		}
		select {
		case <-q.ready:
		case <-q.done:
		case <-ctx.Done():
		}
	}
}

// remove drops the events of an object that goes away.
func (q *eventQueue[T]) remove(match func(T) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.events = slices.DeleteFunc(q.events, match)
}

// close wakes all waiters. Events that wait can still be taken; then err comes.
func (q *eventQueue[T]) close(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
		close(q.done)
	}
}

// ackCount counts events that were delivered and not acknowledged. An object is not
// gone before all its events are acknowledged, so that who holds an event can rely on
// the object it names.
type ackCount struct {
	mu   sync.Mutex
	open int
	zero chan struct{} // closed when open becomes 0; nil if nobody waits
}

func (a *ackCount) add() {
	a.mu.Lock()
	a.open++
	a.mu.Unlock()
}

// ack acknowledges n events; EINVAL if so many are not open.
func (a *ackCount) ack(verb, object string, n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if n < 0 || n > a.open {
		return ib.NewVerbError(ib.EINVAL, verb, object, strconv.Itoa(n)+" events acknowledged, "+strconv.Itoa(a.open)+" are open")
	}
	a.open -= n
	if a.open == 0 && a.zero != nil {
		close(a.zero)
		a.zero = nil
	}
	return nil
}

// wait returns when no event is open.
func (a *ackCount) wait(ctx context.Context, verb, object string) error {
	a.mu.Lock()
	if a.open == 0 {
		a.mu.Unlock()
		return nil
	}
	if a.zero == nil {
		a.zero = make(chan struct{})
	}
	zero := a.zero
	a.mu.Unlock()
	select {
	case <-zero:
		return nil
	case <-ctx.Done():
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.open == 0 {
		return nil
	}
	return &UnackedError{Verb: verb, Object: object, Events: a.open, Err: ctx.Err()}
}

// UnackedError says that an object was destroyed in the device, but that the call gave
// up to wait for the acknowledgement of its events. Destroying the object again goes on
// waiting.
type UnackedError struct {
	Verb, Object string
	Events       int   // delivered and not acknowledged
	Err          error // the context's
}

func (e *UnackedError) Error() string {
	return e.Verb + ": " + e.Object + ": " + strconv.Itoa(e.Events) + " delivered events are not acknowledged: " + e.Err.Error()
}

// Unwrap returns the context's error.
func (e *UnackedError) Unwrap() error { return e.Err }

func (a *ackCount) isOpen() bool { return a.count() > 0 }

// count returns how many events are open.
func (a *ackCount) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open
}
