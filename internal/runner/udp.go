package runner

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// EnvError says that the machine did not allow what the file asks for: a port in use,
// an address that is not local.
type EnvError struct{ Err error }

func (e *EnvError) Error() string { return e.Err.Error() }
func (e *EnvError) Unwrap() error { return e.Err }

// udpRun is a run on sockets.
type udpRun struct {
	file    *topology.File
	seed    uint64
	sink    fabric.Sink
	ways    *Ways
	nodes   []*udpNode
	runs    []*flowRun
	tallies []tally
	start   vtime.Time

	// For nodes that are killed and come back; see restart.
	broken []bool     // flows that the death of a node cut short
	begun  []int      // how often a flow began anew
	former []*flowRun // what flows were before they began anew
	past   []*udpNode // nodes that were replaced
	due    []int      // restarts that are still to come, by node
	work   *workers
	// stopped says that the file's duration is over.
	stopped bool
}

// udpNode is a node with the goroutine that runs its programs.
type udpNode struct {
	index    int
	topo     *topology.Node
	dev      *rvt.Device
	node     *node.Node
	port     fabric.Port
	impaired *fabric.Impaired
	apps     []*workload.Endpoint
	appOf    map[any]*workload.Endpoint
	wake     chan struct{}
	ended    chan struct{} // closed when the goroutine is; nil before it starts
	done     atomic.Bool   // its programs have nothing more to do
	progress atomic.Uint64
	killed   atomic.Bool
	misuse   []strict.Report // owned by the device's owner
}

// RunUDP carries the file out in real time: each node has a UDP socket of its own and
// a goroutine that is its programs.
func RunUDP(ctx context.Context, f *topology.File, o Options) (*Outcome, error) {
	seed := o.seed(f)
	f = f.WithSeed(seed)
	r := &udpRun{
		file: f, seed: seed, sink: o.Sink, tallies: make([]tally, len(f.Nodes)), runs: make([]*flowRun, len(f.Flows)),
		broken: make([]bool, len(f.Flows)), begun: make([]int, len(f.Flows)), due: restartsOf(f),
	}
	defer r.close()
	var err error
	if r.ways, err = NewWays(f, seed); err != nil {
		return nil, err
	}
	for i := range f.Nodes {
		n, err := r.openNode(i, 0)
		if err != nil {
			return nil, err
		}
		r.nodes = append(r.nodes, n)
	}
	r.start = node.Now()
	for i := range f.Flows {
		if err := r.addFlow(i); err != nil {
			return nil, err
		}
	}
	r.gate()
	r.start = node.Now()
	finished := r.run(ctx, o.Progress)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := r.work.failed.Load(); err != nil {
		return nil, &EnvError{*err}
	}
	elapsed := node.Now().Sub(r.start)
	done := make([]bool, len(r.runs))
	for i, run := range r.runs {
		done[i] = finished || r.flowDone(run)
	}
	r.close() // from here on nobody else touches devices and endpoints
	out := r.outcome(done)
	out.Seed, out.Elapsed = seed, elapsed
	return out, nil
}

// openNode opens a node's socket and device. life is how often it was killed before.
func (r *udpRun) openNode(i, life int) (*udpNode, error) {
	t := &r.file.Nodes[i]
	cfg := udp.DefaultConfig(gidOf(t))
	cfg.Port = t.Address.Port()
	cfg.Now = node.Now
	socket, err := udp.Open(cfg)
	if err != nil {
		return nil, &EnvError{fmt.Errorf("node %s: %w", t.Name, err)}
	}
	dcfg := deviceConfig(r.file, i, r.seed)
	dcfg.MTU, dcfg.Judge = min(dcfg.MTU, socket.MTU()), node.Judge
	if life > 0 {
		// Numbers that its peers may still send to are not used again soon.
		dcfg.Seed = fabric.Mix(dcfg.Seed, uint64(life))
		dcfg.FirstQPN = ib.QPN(restartQPN * (1 + life%(int(ib.QPNMulticast)/restartQPN-1)))
	}
	n := &udpNode{index: i, topo: t, appOf: map[any]*workload.Endpoint{}, wake: make(chan struct{}, 1)}
	guard(t, &dcfg, &n.misuse)
	if n.dev, err = rvt.New(dcfg); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	var port fabric.Port = socket
	if r.sink != nil {
		port = fabric.NewTap(port, r.sink, false, node.Now)
	}
	n.impaired = fabric.NewImpaired(port, nil, node.Now)
	if err := setPolicies(r.file, i, r.seed, r.ways, n.impaired); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	n.port = socket
	n.node, err = node.New(n.dev, n.impaired, node.Config{Events: n.onEvents})
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return n, nil
}

// restartQPN is how far the queue pair numbers of a restarted node lie from those before.
const restartQPN = 1 << 14

// PolicyOf is what a link from node i to node j does to packets, nil if it is perfect.
func PolicyOf(l *topology.Link, seed uint64, i, j int) (*fabric.Impairment, error) {
	c := impairment(&l.Impairment)
	if c.IsZero() {
		return nil, nil
	}
	return fabric.NewImpairment(c, fabric.Mix(seed, uint64(i)<<20|uint64(j)))
}

// onEvents takes the device's events; the node is locked.
func (n *udpNode) onEvents(evs []rvt.Event) {
	for i := range evs {
		var app *workload.Endpoint
		switch ev := &evs[i]; {
		case ev.QP != nil:
			app = n.appOf[ev.QP.Context]
		case ev.CQ != nil:
			app = n.appOf[ev.CQ.Context]
		case ev.SRQ != nil:
			app = n.appOf[ev.SRQ.Context]
		}
		if app != nil {
			app.OnEvent(evs[i])
		}
	}
	n.kick()
}

func (n *udpNode) kick() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (r *udpRun) close() {
	for _, n := range r.nodes {
		_ = n.node.Close() // the run is over; what it could not send does not matter
	}
}

// catchUp is longer than a goroutine waits for a processor on a machine that is not overloaded:
// one that blocks in a system call keeps its processor for some milliseconds.
const catchUp = 10 * time.Millisecond

// addFlow sets up both ends of a flow and connects them: at the beginning, or anew.
func (r *udpRun) addFlow(i int) error {
	t := &r.file.Flows[i]
	spec := flowSpec(r.file, i, r.seed)
	if n := r.begun[i]; n > 0 {
		spec.Seed = fabric.Mix(spec.Seed, uint64(n))
	}
	from, to := r.nodes[t.From], r.nodes[t.To]
	c, err := workload.NewClient(spec, from.dev)
	if err != nil {
		return err
	}
	s, err := workload.NewServer(spec, to.dev)
	if err != nil {
		return err
	}
	c.CatchUp, s.CatchUp = catchUp, catchUp
	run := newFlowRun(t, c, s)
	run.from, run.to = from, to
	run.watch(c, &r.tallies[t.From], run.clientLat)
	run.watch(s, &r.tallies[t.To], run.serverLat)
	var ci, si workload.Info
	steps := []struct {
		n *udpNode
		f func(now vtime.Time) error
	}{
		{from, func(now vtime.Time) (err error) { ci, err = c.Setup(now); return err }},
		{to, func(now vtime.Time) (err error) { si, err = s.Setup(now); return err }},
		{to, func(now vtime.Time) error { return s.Connect(now, ci) }},
		{from, func(now vtime.Time) error { return c.Connect(now, si) }},
	}
	for _, st := range steps {
		var ferr error
		if err := st.n.node.Do(func(_ *rvt.Device, now vtime.Time) { ferr = st.f(now) }); err != nil {
			return &EnvError{err}
		}
		if ferr != nil {
			return ferr
		}
	}
	to.attach(s)
	from.attach(c)
	r.runs[i] = run
	return nil
}

// gate lets flows wait for each other where the file's patterns do.
func (r *udpRun) gate() {
	for _, run := range r.runs {
		if after := run.topo.After; after >= 0 {
			_ = run.from.node.Do(func(*rvt.Device, vtime.Time) { gate(run.client, r.runs[after].server, func() {}) })
		}
	}
}

func (n *udpNode) attach(e *workload.Endpoint) {
	_ = n.node.Do(func(*rvt.Device, vtime.Time) {
		n.apps = append(n.apps, e)
		n.appOf[e] = e
	})
}

// spinLimit is how often a node's programs find nothing to do before they block; a
// program that polls would go on, but two of them may share a core with the engine.
const spinLimit = 200

// programs runs the node's endpoints until the run or the node is over.
func (n *udpNode) programs(w *workers) {
	idle := 0
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		progress, at, err := n.step()
		if err != nil {
			if !n.killed.Load() {
				w.fail(err)
			}
			return
		}
		if progress || n.node.Progress() {
			idle = 0
			continue
		}
		if idle++; idle < spinLimit {
			runtime.Gosched()
			continue
		}
		n.node.Park()
		wait := time.Duration(pollEvery)
		if n.done.Load() {
			wait = 10 * time.Millisecond
		}
		if d := at.Sub(node.Now()); d < wait {
			wait = max(d, 0)
		}
		timer.Reset(wait)
		select {
		case <-n.wake:
			idle = 0
		case <-timer.C:
		case <-w.stop:
			return
		}
	}
}

// pollEvery is how long a program that polls sleeps once it has found nothing to do
// for a while.
const pollEvery = 200 * time.Microsecond

// step lets every endpoint do what there is to do.
func (n *udpNode) step() (progress bool, at vtime.Time, err error) {
	if _, err := n.node.Begin(); err != nil {
		return false, vtime.Never, err
	}
	now := n.node.Now()
	at = vtime.Never
	done := true
	var completed uint64
	for _, e := range n.apps {
		progress = e.Step(now) || progress
		at = vtime.Min(at, e.Deadline())
		done = done && (e.Done() || e.Failed())
		completed += e.Stats().Completed
	}
	n.progress.Store(completed)
	n.done.Store(done)
	n.node.End(node.SendNow)
	return progress, at, nil
}

// starved is how late a fault must be to show that this process was not running.
const starved = 5 * time.Millisecond

// workers are the goroutines that are the nodes' programs.
type workers struct {
	stop   chan struct{}
	failed atomic.Pointer[error]
	wg     sync.WaitGroup
}

func (w *workers) start(n *udpNode) {
	n.ended = make(chan struct{})
	w.wg.Go(func() {
		defer close(n.ended)
		n.programs(w)
	})
}

func (w *workers) fail(err error) { w.failed.CompareAndSwap(nil, &err) }

// run lets the programs work until they are done or the time is over.
func (r *udpRun) run(ctx context.Context, progress func(done, total uint64)) (finished bool) {
	r.work = &workers{stop: make(chan struct{})}
	for _, n := range r.nodes {
		r.work.start(n)
	}
	defer r.work.wg.Wait()
	defer close(r.work.stop)
	deadline := time.After(r.file.Timeout)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	schedule := r.schedule()
	total := expectedTotal(r.file)
	var slip time.Duration // how much later the faults are that are still to come
	for {
		select {
		case <-ctx.Done():
			return false
		case <-deadline:
			return r.finished()
		case <-tick.C:
		}
		now := node.Now().Sub(r.start)
		for len(schedule) > 0 && schedule[0].at+slip <= now {
			if late := now - schedule[0].at - slip; late > starved {
				slip += late // what is broken for a while stays so, though this process was not running
			}
			schedule[0].do()
			schedule = schedule[1:]
		}
		if progress != nil {
			progress(r.completed(), total)
		}
		if r.finished() || r.work.failed.Load() != nil {
			return r.finished()
		}
	}
}

// finished reports whether every flow has come to its end.
func (r *udpRun) finished() bool {
	for _, run := range r.runs {
		if !r.flowDone(run) {
			return false
		}
	}
	return true
}

// flowDone asks both ends, each under its node's lock.
func (r *udpRun) flowDone(run *flowRun) bool {
	from, to := run.from, run.to
	if r.due[from.index] > 0 && from.killed.Load() || r.due[to.index] > 0 && to.killed.Load() {
		return false // it begins anew when the node comes back, unless it was done
	}
	var done, failed bool
	if from.killed.Load() {
		done = true
	} else if from.node.Do(func(*rvt.Device, vtime.Time) { done, failed = run.client.Done(), run.client.Failed() }) != nil {
		return true
	}
	if !done || to.killed.Load() {
		return done
	}
	if failed && !run.topo.Bidirectional {
		return true // the server learns of a failure only if it hears of it
	}
	var served bool
	if to.node.Do(func(*rvt.Device, vtime.Time) { served = run.server.Done() }) != nil {
		return true
	}
	return served
}

func (r *udpRun) completed() uint64 {
	n := uint64(0)
	for _, u := range r.nodes {
		n += u.progress.Load()
	}
	return n
}

// add counts what a node did, or a node that was in its place before.
func (o *NodeOutcome) add(n *udpNode) {
	c := n.node.Counters()
	o.Device.Add(&c.Device)
	o.Port.Add(&c.Port)
	for r, k := range n.impaired.Stats().Lost {
		o.Lost[r] += k
	}
	o.Misuse = append(o.Misuse, n.misuse...)
}

// outcome sums the run up. The nodes are closed; done says which flows came to their
// end.
func (r *udpRun) outcome(done []bool) *Outcome {
	o := &Outcome{File: r.file}
	for i, n := range r.nodes {
		no := NodeOutcome{Name: n.topo.Name, Completions: r.tallies[i].list(), Killed: n.killed.Load()}
		no.add(n)
		for _, p := range r.past {
			if p.index == i {
				no.add(p)
			}
		}
		o.Nodes = append(o.Nodes, no)
	}
	for i, run := range r.runs {
		fo := run.outcome()
		fo.Done = done[i]
		fo.Story = run.story(run.from.topo.Name, run.to.topo.Name)
		if fo.Done {
			fo.Violations = workload.VerifyPair(run.client, run.server)
		} else {
			o.Stuck = append(o.Stuck, fmt.Sprintf("flow %s was not done after %v: client %d of %d posted work requests done, server received %d", run.topo.Name, r.file.Timeout, fo.Client.Completed, fo.Client.Posted, fo.Server.Received))
		}
		if fo.Elapsed > 0 {
			fo.Elapsed = max(fo.Elapsed-time.Duration(r.start), 0)
		}
		o.Flows = append(o.Flows, fo)
	}
	o.Restarts = len(r.former)
	return o
}
