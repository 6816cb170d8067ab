package runner

import (
	"context"
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/sim"
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
	world   *sim.World
	nodes   []*sim.Node
	flows   []*sim.Flow
	runs    []*flowRun
	tallies []tally
}

// RunVirtual carries the file out in virtual time. The outcome depends on nothing but
// the file and the seed.
func RunVirtual(ctx context.Context, f *topology.File, o Options) (*Outcome, error) {
	seed := o.seed(f)
	r := &virtualRun{file: f, tallies: make([]tally, len(f.Nodes))}
	if err := r.build(seed, o.Sink); err != nil {
		return nil, err
	}
	for i := range f.Flows {
		if err := r.addFlow(i, seed); err != nil {
			return nil, err
		}
	}
	for i := range f.Faults {
		fault := &f.Faults[i]
		r.world.At(vtime.Time(fault.At), func(vtime.Time) { r.inject(fault) })
	}
	if f.Duration > 0 {
		r.world.At(vtime.Time(f.Duration), func(vtime.Time) {
			for _, fl := range r.flows {
				fl.Client.Stop()
				fl.Server.Stop()
			}
		})
	}
	if err := r.run(ctx, o.Progress); err != nil {
		return nil, err
	}
	return r.outcome(seed), nil
}

func (r *virtualRun) build(seed uint64, sink fabric.Sink) (err error) {
	cfg := sim.Config{Seed: seed, Network: mem.Config{Default: linkConfig(&r.file.Network), Sink: sink}}
	if r.world, err = sim.New(cfg); err != nil {
		return err
	}
	for i := range r.file.Nodes {
		n, err := r.world.AddNode(deviceConfig(r.file, i, seed))
		if err != nil {
			return err
		}
		r.nodes = append(r.nodes, n)
	}
	for i := range r.file.Nodes {
		for j := range r.file.Nodes {
			l := r.file.LinkBetween(i, j)
			if i == j || !r.named(i, j) {
				continue
			}
			if err := r.world.Network().SetLink(r.nodes[i].Index, r.nodes[j].Index, linkConfig(&l)); err != nil {
				return err
			}
		}
	}
	return nil
}

// named reports whether an entry of the file's links covers the direction.
func (r *virtualRun) named(i, j int) bool {
	for k := range r.file.Links {
		if r.file.Links[k].Pair.Covers(i, j) {
			return true
		}
	}
	return false
}

func (r *virtualRun) addFlow(i int, seed uint64) error {
	t := &r.file.Flows[i]
	fl, err := r.world.AddFlow(flowSpec(r.file, i, seed), r.nodes[t.From], r.nodes[t.To])
	if err != nil {
		return err
	}
	run := newFlowRun(t, fl.Client, fl.Server)
	run.watch(fl.Client, &r.tallies[t.From], run.clientLat)
	run.watch(fl.Server, &r.tallies[t.To], run.serverLat)
	r.flows = append(r.flows, fl)
	r.runs = append(r.runs, run)
	return nil
}

// inject carries out a fault of the schedule.
func (r *virtualRun) inject(f *topology.Fault) {
	switch f.Action {
	case topology.Partition, topology.Heal:
		r.pairs(f.Pair, func(a, b *sim.Node) {
			if f.Action == topology.Partition {
				r.world.Network().Partition(a.Index, b.Index)
			} else {
				r.world.Network().HealPartition(a.Index, b.Index)
			}
		})
	case topology.SetImpairment:
		r.pairs(f.Pair, func(a, b *sim.Node) { r.setImpairment(a, b, f) })
	case topology.ModifyQPError:
		e, n := r.end(f)
		for k, q := range e.QPs() {
			if (f.QP < 0 || f.QP == k) && q.State != ib.StateReset {
				_ = r.world.ModifyToError(n, q) // every state but RESET may go to ERR
			}
		}
	case topology.PauseReceiver:
		r.flows[f.Flow].Server.Pause()
	case topology.ResumeReceiver:
		r.flows[f.Flow].Server.Resume()
		r.world.Touch(r.flows[f.Flow].ServerNode)
	case topology.KillNode:
		r.world.Kill(r.nodes[f.Node])
	}
}

func (r *virtualRun) end(f *topology.Fault) (*workload.Endpoint, *sim.Node) {
	fl := r.flows[f.Flow]
	if f.Receiver {
		return fl.Server, fl.ServerNode
	}
	return fl.Client, fl.ClientNode
}

// pairs calls do for each direction that p selects.
func (r *virtualRun) pairs(p topology.Pair, do func(a, b *sim.Node)) {
	for i, a := range r.nodes {
		for j, b := range r.nodes {
			if i != j && p.Covers(i, j) {
				do(a, b)
			}
		}
	}
}

func (r *virtualRun) setImpairment(a, b *sim.Node, f *topology.Fault) {
	l := r.file.LinkBetween(int(a.Index), int(b.Index))
	l.Impairment = f.Impairment
	_ = r.world.Network().SetLink(a.Index, b.Index, linkConfig(&l)) // the file was checked
}

// checkEvery is how many events pass between two looks at the context.
const checkEvery = 4096

func (r *virtualRun) run(ctx context.Context, progress func(done, total uint64)) error {
	limit := vtime.Time(r.file.Timeout)
	total := expectedTotal(r.file)
	for {
		n := 0
		done := false
		r.world.RunUntil(limit, func() bool {
			n++
			done = n%16 == 0 && r.done()
			return done || n >= checkEvery
		})
		if progress != nil {
			progress(r.completed(), total)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if done || r.done() || r.world.NextAt() > limit {
			return nil
		}
	}
}

func (r *virtualRun) done() bool {
	for _, f := range r.flows {
		if !f.Done() {
			return false
		}
	}
	return true
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
		no := NodeOutcome{Name: r.file.Nodes[i].Name, Device: *n.Dev.Counters(), Completions: r.tallies[i].list(), Killed: n.Dead()}
		no.Lost = r.world.Network().Counters(n.Index).Dropped
		o.Nodes = append(o.Nodes, no)
	}
	for i, run := range r.runs {
		fo := run.outcome()
		fo.Done = r.flows[i].Done()
		fo.Story = run.story(r.file.Nodes[run.topo.From].Name, r.file.Nodes[run.topo.To].Name)
		if fo.Done {
			fo.Violations = r.flows[i].Verify()
		} else {
			o.Stuck = append(o.Stuck, fmt.Sprintf("flow %s was not done after %v:\n%s", run.topo.Name, r.file.Timeout, r.flows[i].Stuck()))
		}
		o.Flows = append(o.Flows, fo)
	}
	if err := r.world.Err(); err != nil {
		o.Stuck = append(o.Stuck, err.Error())
	}
	return o
}
