package runner

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// timed is a fault of the schedule.
type timed struct {
	at time.Duration
	do func()
}

func (r *udpRun) schedule() []timed {
	var s []timed
	if d := r.file.Duration; d > 0 {
		s = append(s, timed{d, r.stop})
	}
	faults := r.file.Schedule()
	for i := range faults {
		f := &faults[i]
		t := timed{f.At, func() { r.inject(f) }}
		k := len(s)
		for k > 0 && s[k-1].at > t.at {
			k--
		}
		s = append(s[:k], append([]timed{t}, s[k:]...)...)
	}
	return s
}

func (r *udpRun) stop() {
	r.stopped = true
	for _, run := range r.runs {
		_ = run.from.node.Do(func(*rvt.Device, vtime.Time) { run.client.Stop() })
		_ = run.to.node.Do(func(*rvt.Device, vtime.Time) { run.server.Stop() })
	}
}

// inject carries out a fault of the schedule.
func (r *udpRun) inject(f *topology.Fault) {
	switch f.Action {
	case topology.Partition, topology.Heal, topology.SetImpairment, topology.SetLink:
		if f.Action == topology.SetLink {
			_ = r.ways.Change(f) // the file was checked
		}
		for i, a := range r.nodes {
			for j, b := range r.nodes {
				if i != j && (f.Pair.Covers(i, j) || f.Switches.N > 0) {
					r.setLink(f, i, j, a, gidOf(b.topo))
				}
			}
		}
	case topology.KillNode:
		for i := f.Nodes.First; i < f.Nodes.First+f.Nodes.N; i++ {
			r.kill(i)
		}
	case topology.RestartNode:
		for i := f.Nodes.First; i < f.Nodes.First+f.Nodes.N; i++ {
			r.restart(i)
		}
	case topology.PortDown, topology.PortUp:
		for _, n := range r.nodes[f.Nodes.First : f.Nodes.First+f.Nodes.N] {
			_ = n.node.Do(func(d *rvt.Device, _ vtime.Time) { d.SetPort(f.Action == topology.PortUp) })
			n.kick()
		}
	default:
		r.file.Ends(f, func(i int, receiver bool) { r.injectFlow(f, r.runs[i], receiver) })
	}
}

// injectFlow carries out a fault at one end of a flow.
func (r *udpRun) injectFlow(f *topology.Fault, run *flowRun, receiver bool) {
	e, n := run.client, run.from
	if receiver {
		e, n = run.server, run.to
	}
	_ = n.node.Do(func(d *rvt.Device, now vtime.Time) { atEndpoint(d, now, e, f) })
	n.kick()
	if f.Action == topology.DelayCompletions {
		time.AfterFunc(f.Delay, func() {
			_ = n.node.Do(func(d *rvt.Device, _ vtime.Time) { release(d, e) })
			n.kick()
		})
	}
}

// setLink changes one direction, under the lock of its sender.
func (r *udpRun) setLink(f *topology.Fault, i, j int, n *udpNode, dst ib.GID) {
	if f.Action == topology.SetLink {
		w := r.ways.Between(i, j)
		_ = n.node.Do(func(*rvt.Device, vtime.Time) { n.impaired.SetWayFor(dst, w) })
		return
	}
	l := r.file.LinkBetween(i, j)
	if f.Action == topology.SetImpairment {
		l.Impairment = f.Impairment
	}
	if f.Action == topology.Partition {
		l.Impairment = topology.Impairment{Loss: 1}
	}
	p, err := PolicyOf(&l, r.file.Seed, i, j)
	if err != nil {
		return // cannot be: the file was checked
	}
	_ = n.node.Do(func(*rvt.Device, vtime.Time) { n.impaired.SetPolicyFor(dst, p) })
}

// restartsOf counts the restarts of each node in the schedule.
func restartsOf(f *topology.File) []int {
	n := make([]int, len(f.Nodes))
	for _, x := range f.Schedule() {
		if x.Action == topology.RestartNode {
			for i := x.Nodes.First; i < x.Nodes.First+x.Nodes.N; i++ {
				n[i]++
			}
		}
	}
	return n
}

// kill ends a node and remembers which flows that cut short.
func (r *udpRun) kill(i int) {
	n := r.nodes[i]
	if n.killed.Load() {
		return
	}
	for k, run := range r.runs {
		if t := &r.file.Flows[k]; (t.From == i || t.To == i) && !r.flowDone(run) {
			r.broken[k] = true
		}
	}
	n.killed.Store(true)
	_ = n.node.Close() // a dead adapter answers nothing
	n.kick()
	<-n.ended
}

// restart brings a node back that was killed, and begins its flows anew, those whose other
// end is alive.
func (r *udpRun) restart(i int) {
	r.due[i]--
	old := r.nodes[i]
	if !old.killed.Load() {
		return
	}
	life := 1
	for _, p := range r.past {
		if p.index == i {
			life++
		}
	}
	n, err := r.openNode(i, life)
	if err != nil {
		r.work.fail(err)
		return
	}
	r.past = append(r.past, old)
	r.nodes[i] = n
	for k, run := range r.runs {
		t := &r.file.Flows[k]
		if !r.broken[k] || t.From != i && t.To != i || r.nodes[t.From].killed.Load() || r.nodes[t.To].killed.Load() {
			continue
		}
		r.broken[k] = false
		r.begun[k]++
		if err := r.addFlow(k); err != nil {
			r.work.fail(err)
			return
		}
		r.former = append(r.former, run)
		if again := r.runs[k]; r.stopped {
			_ = again.from.node.Do(func(*rvt.Device, vtime.Time) { again.client.Stop() })
			_ = again.to.node.Do(func(*rvt.Device, vtime.Time) { again.server.Stop() })
		}
	}
	r.work.start(n)
}
