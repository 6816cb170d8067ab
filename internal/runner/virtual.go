package runner

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"time"
	"unsafe"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/hugepages"
	"github.com/rvtsim/rvtsim/internal/prefetch"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// Options are what the command line adds to a file.
type Options struct {
	// Seed replaces the file's seed if it is not nil.
	Seed *uint64
	// Sink captures every packet as it leaves its node, if it is not nil.
	Sink fabric.Sink
	// Progress, if not nil, is called now and then with the completions seen and
	// expected; total is 0 if the file gives no number.
	Progress func(done, total uint64)

	// The others are for virtual time.

	// Checks says what is checked; "" means CheckData.
	Checks Checks
	// Measure asks for Outcome.Measures.
	Measure bool
	// Events, if not nil, is called now and then with the events so far and the instant.
	Events func(n uint64, now time.Duration)
	// Until ends the run at a moment, if it is not nil. Trace is how many packets before
	// the end are kept as text.
	Until *Moment
	Trace int
}

func (o *Options) seed(f *topology.File) uint64 {
	if o.Seed != nil {
		return *o.Seed
	}
	return f.Seed
}

// virtualRun is a run in virtual time.
type virtualRun struct {
	file    *topology.File
	seed    uint64
	world   *sim.World
	nodes   []*sim.Node
	flows   []*sim.Flow
	runs    []*flowRun
	tallies []tally
	broken  []bool      // flows that the death of a node cut short
	begun   []int       // how often a flow began anew
	former  []*sim.Flow // what flows were before they began anew
	stopped bool        // the duration is over
	due     []int       // restarts that are still to come, by node

	firstOpen int // all flows before it are done
	checks    Checks
	probe     *probe // nil unless there are measures
	coarse    bool   // latencies are kept for entries of traffic only
	until     *Moment
	trace     *tracer // nil without
	err       error
	misuse    [][]strict.Report // by node
}

// RunVirtual carries the file out in virtual time. The outcome depends on nothing but
// the file and the seed.
func RunVirtual(ctx context.Context, f *topology.File, o Options) (*Outcome, error) {
	seed := o.seed(f)
	f = f.WithSeed(seed)
	r := &virtualRun{file: f, seed: seed, tallies: make([]tally, len(f.Nodes)), broken: make([]bool, len(f.Flows)), begun: make([]int, len(f.Flows)), runs: make([]*flowRun, len(f.Flows)), misuse: make([][]strict.Report, len(f.Nodes)), due: restartsOf(f)}
	r.checks, r.until = o.Checks, o.Until
	if o.Trace > 0 || o.Until != nil {
		r.trace = newTracer(f, o.Trace, o.Until)
	}
	if err := r.build(o.Sink); err != nil {
		return nil, err
	}
	if o.Measure {
		r.probe = newProbe(r)
		r.coarse = len(f.Flows)+len(f.Nodes) > fewHistograms
		for i := range r.tallies {
			r.tallies[i].coarse = r.coarse
		}
	}
	for i := range f.Flows {
		fl, err := r.startFlow(i)
		if err != nil {
			return nil, err
		}
		r.flows = append(r.flows, fl)
	}
	r.gate()
	faults := f.Schedule()
	for i := range faults {
		fault := &faults[i]
		r.world.At(vtime.Time(fault.At), func(vtime.Time) { r.inject(fault) })
	}
	if f.Duration > 0 {
		r.world.At(vtime.Time(f.Duration), func(vtime.Time) {
			r.stopped = true
			for _, fl := range r.flows {
				fl.Client.Stop()
				fl.Server.Stop()
			}
		})
	}
	if r.probe != nil {
		r.probe.schedule()
	}
	if err := r.run(ctx, &o); err != nil {
		return nil, err
	}
	return r.outcome(seed), nil
}

// fewHistograms is up to how many nodes and flows each gets histograms of its own; one
// takes 40 kB.
const fewHistograms = 512

func (r *virtualRun) build(sink fabric.Sink) (err error) {
	cfg := sim.Config{Seed: r.seed, Network: mem.Config{Default: linkConfig(&r.file.Network), Sink: sink}, Check: r.checks == CheckAll}
	if len(r.file.Nodes) >= hugeNodes {
		cfg.Network.Ahead = func(f *mem.Frame) { prefetch.Bytes(unsafe.Pointer(f), mem.FrameBytes) }
	}
	if r.trace != nil {
		cfg.OnPacket = r.trace.packet
	}
	if r.world, err = sim.New(cfg); err != nil {
		return err
	}
	for i := range r.file.Nodes {
		cfg := deviceConfig(r.file, i, r.seed)
		guard(&r.file.Nodes[i], &cfg, &r.misuse[i])
		n, err := r.world.AddNode(cfg)
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	return joinNodes(r.world.Network(), r.file, func(i int) mem.NodeIndex { return r.nodes[i].Index })
}

// startFlow sets flow i up and starts it: at the beginning, or anew after a restart.
func (r *virtualRun) startFlow(i int) (*sim.Flow, error) {
	t := &r.file.Flows[i]
	spec := flowSpec(r.file, i, r.seed)
	if n := r.begun[i]; n > 0 {
		spec.Seed = fabric.Mix(spec.Seed, uint64(n))
	}
	fl, err := r.world.AddFlow(spec, r.nodes[t.From], r.nodes[t.To])
	if err != nil {
		return nil, err
	}
	run := &flowRun{topo: t, client: fl.Client, server: fl.Server}
	if !r.coarse {
		run = newFlowRun(t, fl.Client, fl.Server)
	}
	run.watch(fl.Client, &r.tallies[t.From], r.recorder(t, run.clientLat))
	run.watch(fl.Server, &r.tallies[t.To], r.recorder(t, run.serverLat))
	r.runs[i] = run
	return fl, nil
}

// recorder is where latencies of a flow go: into its own histogram, that of its entry of
// traffic, or both.
func (r *virtualRun) recorder(t *topology.Flow, own *report.Latency) workload.Recorder {
	switch {
	case r.probe == nil:
		return own
	case own == nil:
		return r.probe.lat[t.Entry]
	}
	return tee{own, r.probe.lat[t.Entry]}
}

// gate lets flows wait for each other where the file's patterns do.
func (r *virtualRun) gate() {
	for i, fl := range r.flows {
		if after := r.file.Flows[i].After; after >= 0 {
			gate(fl.Client, r.flows[after].Server, func() { r.world.Wake(fl.ClientNode, fl.Client) })
		}
	}
}

// inject carries out a fault of the schedule.
func (r *virtualRun) inject(f *topology.Fault) {
	switch f.Action {
	case topology.Partition, topology.Heal:
		r.partition(f.Pair, f.Action == topology.Partition)
	case topology.SetImpairment:
		r.setImpairment(f)
	case topology.SetLink: // the file was checked
		_ = changeLink(r.world.Network(), f, func(i int) mem.NodeIndex { return r.nodes[i].Index })
	case topology.KillNode, topology.RestartNode, topology.PortDown, topology.PortUp:
		for i := f.Nodes.First; i < f.Nodes.First+f.Nodes.N; i++ {
			r.injectNode(f, i)
		}
	default:
		r.file.Ends(f, func(i int, receiver bool) { r.injectFlow(f, r.flows[i], receiver) })
	}
}

func (r *virtualRun) injectNode(f *topology.Fault, i int) {
	n := r.nodes[i]
	switch f.Action {
	case topology.KillNode:
		if !n.Dead() {
			r.kill(i)
		}
	case topology.RestartNode:
		r.due[i]--
		if n.Dead() {
			r.restart(i)
		}
	case topology.PortDown, topology.PortUp:
		r.world.SetPort(n, f.Action == topology.PortUp)
	}
}

// kill ends a node and remembers which flows that cut short.
func (r *virtualRun) kill(i int) {
	for k, fl := range r.flows {
		if t := &r.file.Flows[k]; (t.From == i || t.To == i) && !fl.Done() {
			r.broken[k] = true
		}
	}
	r.world.Kill(r.nodes[i])
}

// restart brings a node back and begins its flows anew, those whose other end is alive.
func (r *virtualRun) restart(i int) {
	if err := r.world.Restart(r.nodes[i]); err != nil {
		r.fail(err)
		return
	}
	for k := range r.flows {
		t := &r.file.Flows[k]
		if !r.broken[k] || t.From != i && t.To != i || r.nodes[t.From].Dead() || r.nodes[t.To].Dead() {
			continue
		}
		r.broken[k] = false
		r.begun[k]++
		fl, err := r.startFlow(k)
		if err != nil {
			r.fail(err)
			return
		}
		r.former = append(r.former, r.flows[k])
		r.flows[k] = fl
		r.firstOpen = 0
		if r.stopped {
			fl.Client.Stop()
			fl.Server.Stop()
		}
	}
}

// fail notes what should not happen in a file that was checked.
func (r *virtualRun) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// injectFlow carries out a fault at one end of a flow.
func (r *virtualRun) injectFlow(f *topology.Fault, fl *sim.Flow, receiver bool) {
	e, n, gone := fl.Client, fl.ClientNode, fl.ClientGone
	if receiver {
		e, n, gone = fl.Server, fl.ServerNode, fl.ServerGone
	}
	if gone() {
		return
	}
	atEndpoint(n.Dev, r.world.Now(), e, f)
	r.world.Touch(n)
	if f.Action == topology.DelayCompletions {
		r.world.At(r.world.Now().Add(f.Delay), func(vtime.Time) {
			if !gone() {
				release(n.Dev, e)
				r.world.Touch(n)
			}
		})
	}
}

// span is a run of the file's nodes as the network knows them.
func (r *virtualRun) span(s topology.Span) mem.Range {
	return mem.Range{First: r.nodes[s.First].Index, N: s.N}
}

func (r *virtualRun) partition(p topology.Pair, cut bool) {
	net := r.world.Network()
	if p.All && !cut {
		net.HealPartitions()
		return
	}
	if p.All {
		all := topology.Span{N: len(r.nodes)}
		p = topology.Pair{From: all, To: all}
	}
	set := net.HealRange
	if cut {
		set = net.PartitionRange
	}
	set(r.span(p.From), r.span(p.To))
	if p.Both {
		set(r.span(p.To), r.span(p.From))
	}
}

func (r *virtualRun) setImpairment(f *topology.Fault) {
	net, im := r.world.Network(), impairment(&f.Impairment)
	if f.Pair.All {
		_ = net.SetImpairments(im) // the file was checked
		return
	}
	eachPair(f.Pair, func(i, j int) { _ = net.SetImpairment(r.nodes[i].Index, r.nodes[j].Index, im) })
}

// checkEvery is how many events pass between two looks at the context.
const checkEvery = 4096

func (r *virtualRun) run(ctx context.Context, o *Options) error {
	limit := vtime.Time(r.file.Timeout)
	total := expectedTotal(r.file)
	for looks := uint(1); ; looks++ {
		r.hugePages(looks)
		n := 0
		done := false
		r.world.RunUntil(limit, func() bool {
			n++
			done = r.done() || r.until != nil && r.until.hit(r)
			return done || n >= checkEvery
		})
		if o.Progress != nil {
			o.Progress(r.completed(), total)
		}
		if o.Events != nil {
			o.Events(r.world.Stats().Events, time.Duration(r.world.Now()))
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if r.err != nil {
			return r.err
		}
		if done || r.done() || r.world.NextAt() > limit || r.world.Err() != nil {
			r.drain(limit)
			return nil
		}
	}
}

// drain lets arrive what UC and UD have sent when all flows are done: to them a message is
// done when it has left.
func (r *virtualRun) drain(limit vtime.Time) {
	unreliable := func(fl topology.Flow) bool { return fl.Transport != ib.QPTypeRC }
	if r.done() && slices.ContainsFunc(r.file.Flows, unreliable) {
		r.world.RunUntil(limit, func() bool { return r.world.Network().InFlight() == 0 })
	}
}

// hugePages asks for huge pages at the 1st, 4th, 16th, ... look, if there are enough nodes
// that it matters: queues get their memory when they are used first.
func (r *virtualRun) hugePages(looks uint) {
	if z := bits.TrailingZeros(looks); len(r.nodes) >= hugeNodes && looks == 1<<z && z%2 == 0 {
		_, _ = hugepages.Advise() // without them everything is the same, only slower
	}
}

// hugeNodes is from how many nodes on a world does not fit the caches.
const hugeNodes = 256

// done reports whether every flow is. A flow that is done stays so until a restart, so
// only the first that was not is asked.
func (r *virtualRun) done() bool {
	for r.firstOpen < len(r.flows) && r.flows[r.firstOpen].Done() && !r.waits(r.firstOpen) {
		r.firstOpen++
	}
	return r.firstOpen == len(r.flows)
}

// waits reports whether a flow that was cut short will begin anew.
func (r *virtualRun) waits(k int) bool {
	if !r.broken[k] {
		return false
	}
	for _, i := range [2]int{r.file.Flows[k].From, r.file.Flows[k].To} {
		if r.nodes[i].Dead() && r.due[i] > 0 {
			return true
		}
	}
	return false
}

func (r *virtualRun) completed() uint64 {
	n := uint64(0)
	for _, f := range r.flows {
		n += f.Client.Stats().Completed + f.Server.Stats().Completed
	}
	return n
}

// expectedTotal is how many work requests the file asks for, 0 if it does not say.
func expectedTotal(f *topology.File) uint64 {
	n := uint64(0)
	for i := range f.Flows {
		fl := &f.Flows[i]
		if fl.Count == 0 {
			return 0
		}
		k := fl.Count * uint64(fl.QPs)
		if fl.Bidirectional {
			k *= 2
		}
		n += k
	}
	return n
}

func (r *virtualRun) outcome(seed uint64) *Outcome {
	o := &Outcome{File: r.file, Virtual: true, Seed: seed, Elapsed: time.Duration(r.world.Now()), Digest: r.world.Digest()}
	for i, n := range r.nodes {
		no := NodeOutcome{Name: r.file.Nodes[i].Name, Device: n.Counters(), Completions: r.tallies[i].list(), Killed: n.Dead(), Misuse: r.misuse[i]}
		no.Lost = r.world.Network().Counters(n.Index).Dropped
		o.Nodes = append(o.Nodes, no)
	}
	for i, run := range r.runs {
		fo := run.outcome()
		fo.Done = r.flows[i].Done()
		fo.Story = run.story(r.file.Nodes[run.topo.From].Name, r.file.Nodes[run.topo.To].Name)
		switch {
		case fo.Done:
			fo.Violations = r.flows[i].Verify()
		case r.until != nil && r.until.reached: // it was not meant to be done
			o.Reached = true
		default:
			o.Stuck = append(o.Stuck, fmt.Sprintf("flow %s was not done after %v:\n%s", run.topo.Name, r.file.Timeout, r.flows[i].Stuck()))
		}
		o.Flows = append(o.Flows, fo)
	}
	for _, fl := range r.former {
		if fl.Done() {
			o.Stuck = append(o.Stuck, fl.Verify()...)
		}
	}
	o.Stuck = append(o.Stuck, r.brokenRules()...)
	o.Restarts = len(r.former)
	if r.trace != nil {
		o.Trace = r.trace.last()
	}
	if r.probe != nil {
		o.Measures = r.probe.measures(o)
	}
	return o
}
