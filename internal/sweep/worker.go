package sweep

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/rvtsim/rvtsim/internal/topology"
)

// Work pulls jobs, of any sweep, and does them, jobs at a time, until the context ends.
// done, if not nil, is told of each result that was stored; it may be called by several
// goroutines.
func (h *Hub) Work(ctx context.Context, jobs int, done func(name string, p topology.Point)) error {
	w := &worker{hub: h, done: done, tasks: map[string]*Task{}, results: map[string]jetstream.KeyValue{}}
	var wg sync.WaitGroup
	errs := make([]error, jobs)
	for i := range jobs {
		wg.Go(func() { errs[i] = w.loop(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

type worker struct {
	hub  *Hub
	done func(string, topology.Point)

	mu      sync.Mutex
	tasks   map[string]*Task // by id of the sweep
	results map[string]jetstream.KeyValue
}

func (w *worker) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		batch, err := w.hub.jobs.Fetch(1, jetstream.FetchMaxWait(2*time.Second))
		if err != nil {
			// The cluster may be choosing a leader.
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
			continue
		}
		for msg := range batch.Messages() {
			if err := w.job(ctx, msg); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
	return nil
}

// job does one job and acknowledges it once its result is stored. If that is not to be,
// the job is given back.
func (w *worker) job(ctx context.Context, msg jetstream.Msg) error {
	id, number, ok := splitJob(msg.Subject())
	var p topology.Point
	if !ok || json.Unmarshal(msg.Data(), &p) != nil {
		return errors.Join(fmt.Errorf("sweep: %s is no job", msg.Subject()), msg.Term())
	}
	task, kv, err := w.sweep(ctx, id)
	switch {
	case errors.Is(err, jetstream.ErrKeyNotFound):
		return msg.Term() // the sweep is over: this is a job that came twice
	case err != nil:
		_ = msg.Nak() // the server will find out by itself if it does not hear this
		return nil
	}
	stop := w.hub.alive(ctx, msg)
	r, err := task.run(ctx, p)
	stop()
	if err != nil {
		_ = msg.Nak()
		return err
	}
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	err = again(ctx, func(ctx context.Context) error { _, err := kv.Create(ctx, number, data); return err })
	switch {
	case errors.Is(err, jetstream.ErrKeyExists): // another worker was first, with the same result
	case err != nil:
		_ = msg.Nak()
		return nil
	case w.done != nil:
		w.done(task.Name, p)
	}
	// An acknowledgement that gets lost means that the job is done once more, and that
	// the result is there already.
	_ = again(ctx, msg.DoubleAck)
	return nil
}

// alive tells the server that a job is being worked on until stop is called.
func (h *Hub) alive(ctx context.Context, msg jetstream.Msg) (stop func()) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(h.patience / 4)
		defer tick.Stop()
		for {
			select {
			case <-end:
				return
			case <-ctx.Done():
				return
			case <-tick.C:
				_ = msg.InProgress() // the next one may get through
			}
		}
	})
	return func() { close(end); wg.Wait() }
}

// sweep returns a sweep by its id, from memory or from the server.
func (w *worker) sweep(ctx context.Context, id string) (*Task, jetstream.KeyValue, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.tasks[id]; t != nil {
		return t, w.results[id], nil
	}
	var text []byte
	err := again(ctx, func(ctx context.Context) error {
		e, err := w.hub.tasks.Get(ctx, id)
		if err == nil {
			text = e.Value()
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	t := &Task{}
	if err := json.Unmarshal(text, t); err != nil {
		return nil, nil, fmt.Errorf("sweep: %s: %w", id, err)
	}
	kv, err := w.hub.results(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	w.tasks[id], w.results[id] = t, kv
	return t, kv, nil
}
