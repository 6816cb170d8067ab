// Package sweep spreads the points of a sweep over workers on any number of machines,
// by NATS JetStream.
//
// The jobs of all sweeps wait in one work queue. A worker pulls a job, tells the server
// while it works on it that it is alive, stores the result and acknowledges the job; if
// it falls silent the server gives the job to another. A result is stored under its
// job's number and only if none is there, so a job that was done twice counts once: a
// run depends on its point alone, and the digests say so.
//
// A sweep is known by what it consists of. Who asks for the same one again, after
// having been interrupted, finds the results that are there.
package sweep

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/simreport"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// Names on the server.
const (
	jobStream   = "RVTSIM_JOBS"
	jobSubject  = "rvtsim.job."
	jobConsumer = "workers"
	taskBucket  = "rvtsim-sweeps"
	resultsOf   = "rvtsim-results-"
)

// DefaultPatience is how long a worker may be silent before its job goes to another.
const DefaultPatience = 30 * time.Second

// maxTopology bounds the text of a topology in a sweep: a message of NATS has 1 MiB.
const maxTopology = 900 << 10

// Task is what all points of a sweep share.
type Task struct {
	Name     string           `json:"name"`
	Path     string           `json:"path"` // of the topology, for messages
	Topology string           `json:"topology"`
	For      time.Duration    `json:"for_ns,omitempty"`
	Check    string           `json:"check"`
	Points   []topology.Point `json:"-"`
}

// NewTask makes a task of a sweep file that was read.
func NewTask(s *topology.Sweep, text []byte) (*Task, error) {
	if len(text) > maxTopology {
		return nil, fmt.Errorf("sweep: the topology has %d bytes, want at most %d", len(text), maxTopology)
	}
	return &Task{Name: s.Name, Path: s.Topology, Topology: string(text), For: s.For, Check: s.Check, Points: s.Points()}, nil
}

// id names the sweep: the same text and points give the same id.
func (t *Task) id() string {
	h := sha256.New()
	e := json.NewEncoder(h)
	_ = e.Encode(t) // a hash takes everything
	_ = e.Encode(t.Points)
	return hex.EncodeToString(h.Sum(nil)[:10])
}

// Result is the outcome of one point.
type Result struct {
	Point topology.Point    `json:"point"`
	Error string            `json:"error,omitempty"` // the point could not be run
	Sim   *simreport.Result `json:"result,omitempty"`
}

// run carries out one point.
func (t *Task) run(ctx context.Context, p topology.Point) (*Result, error) {
	r := &Result{Point: p}
	f, err := topology.ParseWith(t.Path, []byte(t.Topology), topology.Options{Nodes: p.Nodes, Set: p.Set})
	if err == nil {
		if t.For > 0 {
			f = f.For(t.For)
		}
		var o *runner.Outcome
		o, err = runner.RunVirtual(ctx, f, runner.Options{Seed: &p.Seed, Checks: runner.Checks(t.Check), Measure: true})
		if err == nil {
			r.Sim = simreport.Collect(o, runner.Checks(t.Check), 0)
			r.Sim.Thin(maxPorts)
		}
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		r.Error = err.Error()
	}
	return r, nil
}

// maxPorts is how many ports a result of a sweep keeps.
const maxPorts = 64

// Hub is a connection to a NATS cluster, with what sweeps need there.
type Hub struct {
	nc       *nats.Conn
	js       jetstream.JetStream
	tasks    jetstream.KeyValue
	jobs     jetstream.Consumer
	patience time.Duration
	replicas int
}

// Connect opens the hub and makes the queue if it is not there. patience is how long a
// worker may be silent; all members should agree on it.
func Connect(ctx context.Context, url string, patience time.Duration) (*Hub, error) {
	nc, err := nats.Connect(url, nats.Name("rvtsim"), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	if err != nil {
		return nil, fmt.Errorf("sweep: %s: %w", url, err)
	}
	h := &Hub{nc: nc, patience: patience}
	if err := h.open(ctx); err != nil {
		nc.Close()
		return nil, fmt.Errorf("sweep: %s: %w", url, err)
	}
	return h, nil
}

// open makes streams, with as many replicas as the cluster has servers, up to three. A
// cluster that has just come together may need a while to agree.
func (h *Hub) open(ctx context.Context) (err error) {
	if h.js, err = jetstream.New(h.nc); err != nil {
		return err
	}
	h.replicas = min(max(len(h.nc.Servers()), 1), 3)
	if h.replicas == 2 {
		h.replicas = 1
	}
	return again(ctx, func(ctx context.Context) error {
		stream, err := h.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
			Name: jobStream, Subjects: []string{jobSubject + ">"}, Retention: jetstream.WorkQueuePolicy,
			Replicas: h.replicas, Duplicates: time.Hour, MaxAge: 30 * 24 * time.Hour,
		})
		if err != nil {
			return err
		}
		h.jobs, err = stream.CreateOrUpdateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: jobConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: h.patience, MaxDeliver: -1, MaxAckPending: -1,
		})
		if err != nil {
			return err
		}
		h.tasks, err = h.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: taskBucket, Replicas: h.replicas})
		return err
	})
}

// Close ends the connection.
func (h *Hub) Close() { h.nc.Close() }

// again calls f until it succeeds: a cluster that has lost a server answers with errors
// for a while. It gives up after a minute or with the context.
func again(ctx context.Context, f func(context.Context) error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		err := f(short)
		cancel()
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) || permanent(err) {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// permanent reports whether trying again is no use.
func permanent(err error) bool {
	return errors.Is(err, jetstream.ErrKeyExists) || errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrBucketNotFound)
}

func (h *Hub) results(ctx context.Context, id string) (kv jetstream.KeyValue, err error) {
	err = again(ctx, func(ctx context.Context) error {
		kv, err = h.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: resultsOf + id, Replicas: h.replicas, MaxValueSize: 1 << 20})
		return err
	})
	return kv, err
}

// Submit queues every point of the task that has no result yet, waits for all results,
// and returns them in the order of the points. progress, if not nil, is told how many
// there are. When all are there it takes the sweep off the server.
func (h *Hub) Submit(ctx context.Context, t *Task, progress func(done, total int)) ([]*Result, error) {
	id := t.id()
	kv, err := h.results(ctx, id)
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	run, err := h.announce(ctx, id, text)
	if err != nil {
		return nil, err
	}
	c := &collector{hub: h, task: t, id: id, kv: kv, results: make([]*Result, len(t.Points)), progress: progress}
	if err := c.look(ctx); err != nil {
		return nil, err
	}
	for i, p := range t.Points {
		if c.results[i] == nil {
			if err := h.queue(ctx, id, run, i, p); err != nil {
				return nil, err
			}
		}
	}
	if err := c.wait(ctx); err != nil {
		return nil, err
	}
	// What cannot be removed now does no harm.
	_ = h.js.DeleteKeyValue(ctx, resultsOf+id)
	_ = h.tasks.Purge(ctx, id)
	return c.results, nil
}

// announce makes a sweep known to workers and returns a number for its run: that of the run
// that was interrupted if there is one, else one that no other has.
func (h *Hub) announce(ctx context.Context, id string, text []byte) (run uint64, err error) {
	err = again(ctx, func(ctx context.Context) error {
		var err error
		if run, err = h.tasks.Create(ctx, id, text); !errors.Is(err, jetstream.ErrKeyExists) {
			return err
		}
		e, err := h.tasks.Get(ctx, id)
		if err == nil {
			run = e.Revision()
		}
		return err
	})
	return run, err
}

// queue publishes a job. The server drops a second one of the same run and number.
func (h *Hub) queue(ctx context.Context, id string, run uint64, i int, p topology.Point) error {
	data, err := json.Marshal(p)
	if err != nil {
		return err
	}
	n := strconv.Itoa(i)
	return again(ctx, func(ctx context.Context) error {
		_, err := h.js.Publish(ctx, jobSubject+id+"."+n, data, jetstream.WithMsgID(id+"."+n+"."+strconv.FormatUint(run, 10)))
		return err
	})
}

// collector gathers the results of one sweep.
type collector struct {
	hub      *Hub
	task     *Task
	id       string
	kv       jetstream.KeyValue
	results  []*Result
	done     int
	progress func(done, total int)
}

// take accepts a result, the first for each job.
func (c *collector) take(key string, value []byte) error {
	i, err := strconv.Atoi(key)
	if err != nil || i < 0 || i >= len(c.results) {
		return fmt.Errorf("sweep: result %q belongs to no point", key)
	}
	if c.results[i] != nil {
		return nil
	}
	r := &Result{}
	if err := json.Unmarshal(value, r); err != nil {
		return fmt.Errorf("sweep: result %s: %w", key, err)
	}
	c.results[i] = r
	c.done++
	if c.progress != nil {
		c.progress(c.done, len(c.results))
	}
	return nil
}

// look takes the results that are there.
func (c *collector) look(ctx context.Context) error {
	return again(ctx, func(ctx context.Context) error {
		w, err := c.kv.WatchAll(ctx)
		if err != nil {
			return err
		}
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case e := <-w.Updates():
				if e == nil {
					return nil // no more for now
				}
				if err := c.take(e.Key(), e.Value()); err != nil {
					return err
				}
			}
		}
	})
}

// wait watches for results until all are there. A watch may end with the server that
// served it; then it is begun again and finds what it missed.
func (c *collector) wait(ctx context.Context) error {
	for c.done < len(c.results) {
		if err := ctx.Err(); err != nil {
			return err
		}
		w, err := c.kv.WatchAll(ctx)
		if err != nil {
			if err := c.look(ctx); err != nil {
				return err
			}
			continue
		}
		err = c.follow(ctx, w)
		_ = w.Stop()
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) follow(ctx context.Context, w jetstream.KeyWatcher) error {
	quiet := time.NewTimer(c.hub.patience)
	defer quiet.Stop()
	for c.done < len(c.results) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-quiet.C:
			return nil // look again, in case the watch is dead
		case e, ok := <-w.Updates():
			if !ok {
				return nil
			}
			if e == nil {
				continue
			}
			if err := c.take(e.Key(), e.Value()); err != nil {
				return err
			}
			quiet.Reset(c.hub.patience)
		}
	}
	return nil
}

// splitJob takes apart the subject of a job.
func splitJob(subject string) (id, number string, ok bool) {
	rest, ok := strings.CutPrefix(subject, jobSubject)
	if !ok {
		return "", "", false
	}
	return strings.Cut(rest, ".")
}
