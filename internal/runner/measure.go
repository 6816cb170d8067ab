package runner

import (
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/vtime"
)

// Checks says how closely a virtual run is watched.
type Checks string

// What may be checked.
const (
	CheckNone Checks = "none" // nothing, not even expectations
	CheckData Checks = "data" // expectations, contents of messages, completions
	CheckAll  Checks = "all"  // also every queue pair after every event, and that no packet vanished
)

// Measures is what a run in virtual time shows beside its outcome, if Options.Measure
// asks for it.
type Measures struct {
	Events  sim.Stats
	Entries []EntryMeasures // as in File.Entries
	Ports   []PortMeasures
	Series  Series
}

// EntryMeasures sums up the flows of an entry of traffic.
type EntryMeasures struct {
	Latency *report.Latency // of work requests, from post to completion
	Flows   *report.Latency // of flows, from start to the last completion
}

// PortMeasures is a port of the network.
type PortMeasures struct {
	Name      string
	Bandwidth uint64 // bits per second, 0: unlimited
	mem.PortStats
}

// Series are samples at equal distances.
type Series struct {
	Step  time.Duration
	Bytes [][]uint64 // by entry, then sample: payload completed since the run began
	Queue []uint64   // by sample: bytes in the longest queue
}

// mostSamples is how many samples a series has at most; it has at least half as many
// unless the run was very short.
const mostSamples = 512

// firstStep is the distance of samples at first; it doubles when there are too many.
const firstStep = time.Microsecond

// probe collects measures while a run goes on.
type probe struct {
	run    *virtualRun
	series Series
	ports  []mem.Port
	lat    []*report.Latency // by entry
}

func newProbe(r *virtualRun) *probe {
	p := &probe{run: r, ports: r.world.Network().Ports(), lat: make([]*report.Latency, len(r.file.Entries))}
	p.series.Step = firstStep
	if d := r.file.Duration; d > 0 {
		p.series.Step = max(d/(mostSamples/2), 1)
	}
	p.series.Bytes = make([][]uint64, len(r.file.Entries))
	for i := range p.lat {
		p.lat[i] = report.NewLatency()
	}
	return p
}

// schedule takes samples from now on.
func (p *probe) schedule() {
	w := p.run.world
	w.At(w.Now().Add(p.series.Step), func(now vtime.Time) {
		p.sample(now)
		p.schedule()
	})
}

func (p *probe) sample(now vtime.Time) {
	s := &p.series
	if len(s.Queue) == mostSamples {
		// Keep each second sample; the step doubles.
		for i := range s.Bytes {
			s.Bytes[i] = halve(s.Bytes[i])
		}
		s.Queue = halve(s.Queue)
		s.Step *= 2
		if int(now/vtime.Time(s.Step)) != len(s.Queue)+1 {
			return // between two samples of the new step
		}
	}
	sums := make([]uint64, len(s.Bytes))
	for i, fl := range p.run.flows {
		sums[p.run.file.Flows[i].Entry] += fl.Client.Stats().Bytes + fl.Server.Stats().Bytes
	}
	for i := range sums {
		s.Bytes[i] = append(s.Bytes[i], sums[i])
	}
	longest := uint64(0)
	for i := range p.ports {
		longest = max(longest, p.ports[i].QueueBytes(now))
	}
	s.Queue = append(s.Queue, longest)
}

// halve keeps the samples at even multiples of the step.
func halve(s []uint64) []uint64 {
	n := len(s) / 2
	for i := range n {
		s[i] = s[2*i+1]
	}
	return s[:n]
}

// measures sums everything up at the end.
func (p *probe) measures(o *Outcome) *Measures {
	m := &Measures{Events: p.run.world.Stats(), Series: p.series}
	for i := range p.lat {
		m.Entries = append(m.Entries, EntryMeasures{p.lat[i], report.NewLatency()})
	}
	for i := range o.Flows {
		if f := &o.Flows[i]; f.Elapsed > 0 {
			m.Entries[f.Flow.Entry].Flows.Record(int64(f.Elapsed))
		}
	}
	for i := range p.ports {
		port := &p.ports[i]
		port.Refresh()
		m.Ports = append(m.Ports, PortMeasures{p.portName(port), port.Config.BandwidthBitsPerSecond, port.Stats})
	}
	return m
}

// portName is such as "host-1", "host-1>sink" for a link set apart, or "leaf-2>sink".
func (p *probe) portName(port *mem.Port) string {
	f := p.run.file
	from := ""
	if port.From != mem.NoNode {
		from = f.Nodes[port.From].Name
	} else {
		from = f.Switches[port.FromSwitch].Name
	}
	switch {
	case port.To != mem.NoNode:
		return from + ">" + f.Nodes[port.To].Name
	case port.ToSwitch != mem.NoSwitch:
		return from + ">" + f.Switches[port.ToSwitch].Name
	}
	return from
}

// brokenRules are what went against the rules of the world itself: packets that
// vanished, and queue pairs whose state contradicts itself.
func (r *virtualRun) brokenRules() (problems []string) {
	if err := r.world.Err(); err != nil {
		problems = append(problems, err.Error())
	}
	if r.checks == CheckAll {
		if err := r.world.CheckConservation(); err != nil {
			problems = append(problems, err.Error())
		}
	}
	return problems
}

// Moment is a point of a run that Options.Until looks for.
type Moment struct {
	At      time.Duration // virtual time, if above 0
	Event   uint64        // number of an arrival, timer or call, if above 0
	What    string        // one of MomentNames, if not empty
	reached bool
}

// MomentNames are the things that a Moment can be about.
var MomentNames = []string{"drop", "nak", "rnr", "timeout", "error"}

// hit reports whether the run has come to the moment.
func (m *Moment) hit(r *virtualRun) bool {
	switch {
	case m.At > 0:
		m.reached = r.world.Now() >= vtime.Time(m.At)
	case m.Event > 0:
		m.reached = r.world.Stats().Events >= m.Event
	case m.What == "timeout", m.What == "error":
		m.reached = m.reached || r.counted(m.What)
	}
	return m.reached
}

// counted looks at the counters of all nodes.
func (r *virtualRun) counted(what string) bool {
	for i, n := range r.nodes {
		if c := n.Dev.Counters(); what == "timeout" && c.RetryTimeout > 0 {
			return true
		}
		if what == "error" && r.tallies[i].failed {
			return true
		}
	}
	return false
}

// String prints the moment as it is written on a command line.
func (m *Moment) String() string {
	switch {
	case m.At > 0:
		return m.At.String()
	case m.Event > 0:
		return fmt.Sprint(m.Event)
	}
	return m.What
}
