// Package simreport turns virtual runs of many nodes into results: tables for people,
// JSON and CSV for programs, and one self-contained HTML page with plots. A [Result] is
// one seed. Everything in it but the wall time depends on the file and the seed alone.
package simreport

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/runner"
)

// Schema names the JSON form. Fields may be added under the same name; when one changes
// or goes, the number rises.
const Schema = "rvtsim.sim/1"

// Result is what one seed gave. Durations are nanoseconds of virtual time, rates bits
// per second of payload.
type Result struct {
	Schema   string        `json:"schema"`
	Name     string        `json:"name"`
	Seed     uint64        `json:"seed"`
	Nodes    int           `json:"nodes"`
	Digest   string        `json:"digest"`
	OK       bool          `json:"ok"`
	Problems []string      `json:"problems"` // what failed; the first of many
	Kinds    []string      `json:"-"`        // of all that failed, without figures
	Elapsed  time.Duration `json:"elapsed_ns"`
	Events   uint64        `json:"events"`
	// Wall is how long the run took; 0 in results that are compared.
	Wall time.Duration `json:"wall_ns,omitempty"`

	Traffic  []Traffic  `json:"traffic"`
	Losses   Losses     `json:"losses"`
	Ports    []Port     `json:"ports"` // those that carried something, busiest first
	Series   Series     `json:"series"`
	Flows    []FlowLine `json:"-"`
	Restarts int        `json:"restarts"`
}

// Traffic sums up an entry of the file's traffic.
type Traffic struct {
	Name      string  `json:"name"`
	Pattern   string  `json:"pattern,omitempty"`
	Flows     int     `json:"flows"`
	Posted    uint64  `json:"posted"`
	Succeeded uint64  `json:"succeeded"`
	Bytes     uint64  `json:"payload_bytes"`
	RateBPS   int64   `json:"rate_bps"` // over the time of its slowest flow
	Resent    uint64  `json:"retransmitted_packets"`
	Latency   *Spread `json:"latency,omitempty"`         // of work requests
	Finish    *Spread `json:"completion_time,omitempty"` // of flows
	cdf       []Point // of latencies
	finishCDF []Point
}

// Spread is a distribution of durations in nanoseconds.
type Spread struct {
	Count uint64 `json:"count"`
	Min   int64  `json:"min_ns"`
	Mean  int64  `json:"mean_ns"`
	P50   int64  `json:"p50_ns"`
	P90   int64  `json:"p90_ns"`
	P99   int64  `json:"p99_ns"`
	P999  int64  `json:"p999_ns"`
	Max   int64  `json:"max_ns"`
}

// Losses is what went wrong on the way and what it cost.
type Losses struct {
	Packets      uint64            `json:"packets_sent"`
	Resent       uint64            `json:"retransmitted_packets"`
	SequenceNAKs uint64            `json:"sequence_naks"`
	RNRNAKs      uint64            `json:"rnr_naks"`
	Timeouts     uint64            `json:"timeouts"`
	TimeoutTime  time.Duration     `json:"time_in_timeouts_ns"` // over all queue pairs
	RNRTime      time.Duration     `json:"time_in_rnr_ns"`
	Marked       uint64            `json:"np_ecn_marked_roce_packets"` // congestion control, by mlx5's names
	CNPs         uint64            `json:"np_cnp_sent"`
	CNPsHandled  uint64            `json:"rp_cnp_handled"`
	Dropped      map[string]uint64 `json:"dropped"` // by reason, network and adapters
}

// Port is the use of one port.
type Port struct {
	Name     string  `json:"name"`
	Bytes    uint64  `json:"bytes"` // on the wire
	Packets  uint64  `json:"packets"`
	Use      float64 `json:"use"` // share of its bandwidth, 0 if that is unlimited
	Dropped  uint64  `json:"dropped"`
	Marked   uint64  `json:"marked"`
	MaxQueue uint64  `json:"max_queue_bytes"`
}

// Series are samples; sample i is at (i+1) times the step.
type Series struct {
	StepNS  int64               `json:"step_ns"`
	RateBPS map[string][]uint64 `json:"rate_bps"` // by entry of traffic
	Queue   []uint64            `json:"longest_queue_bytes"`
}

// FlowLine is one flow, for CSV.
type FlowLine struct {
	Name, From, To    string
	Posted, Succeeded uint64
	Bytes, Resent     uint64
	Elapsed           time.Duration
}

// Point is a place in a plot.
type Point struct{ X, Y float64 }

// mostProblems bounds what a result says about failures.
const mostProblems = 20

// Collect makes a result of an outcome that has measures.
func Collect(o *runner.Outcome, checks runner.Checks, wall time.Duration) *Result {
	r := &Result{
		Schema: Schema, Name: o.File.Name, Seed: o.Seed, Nodes: len(o.File.Nodes), Digest: fmt.Sprintf("%016x", o.Digest),
		Elapsed: o.Elapsed, Events: o.Measures.Events.Events, Wall: wall, Problems: []string{}, Restarts: o.Restarts,
	}
	r.judge(o, checks)
	r.addTraffic(o)
	r.addLosses(o)
	r.addPorts(o)
	r.addSeries(o)
	return r
}

// judge lists what failed.
func (r *Result) judge(o *runner.Outcome, checks runner.Checks) {
	r.OK = true
	add := func(kind, s string) {
		r.OK = false
		if !slices.Contains(r.Kinds, kind) {
			r.Kinds = append(r.Kinds, kind)
		}
		if len(r.Problems) < mostProblems {
			r.Problems = append(r.Problems, s)
		}
	}
	if checks == runner.CheckNone {
		return
	}
	for _, c := range o.Checks() {
		if !c.OK && !o.Reached {
			who := "flow " + c.Flow
			if c.Flow == "" {
				who = "the run"
			}
			add(c.What, fmt.Sprintf("%s: %s: expected %s, saw %s", who, c.What, c.Want, c.Got))
		}
	}
	for _, s := range o.Stuck {
		add("not done", s)
	}
}

func (r *Result) addTraffic(o *runner.Outcome) {
	f := o.File
	for i := range f.Entries {
		e, m := &f.Entries[i], &o.Measures.Entries[i]
		r.Traffic = append(r.Traffic, Traffic{Name: e.Name, Pattern: string(e.Pattern), Flows: e.Flows.N,
			Latency: spread(m.Latency), Finish: spread(m.Flows), cdf: cdf(m.Latency), finishCDF: cdf(m.Flows)})
	}
	longest := make([]time.Duration, len(f.Entries))
	for i := range o.Flows {
		x := &o.Flows[i]
		t := &r.Traffic[x.Flow.Entry]
		t.Posted += x.Posted
		t.Succeeded += x.Completed
		t.Bytes += x.Bytes
		t.Resent += x.Retransmitted
		longest[x.Flow.Entry] = max(longest[x.Flow.Entry], x.Elapsed)
		r.Flows = append(r.Flows, FlowLine{x.Flow.Name, f.Nodes[x.Flow.From].Name, f.Nodes[x.Flow.To].Name, x.Posted, x.Completed, x.Bytes, x.Retransmitted, x.Elapsed})
	}
	for i := range r.Traffic {
		if longest[i] > 0 {
			r.Traffic[i].RateBPS = int64(float64(r.Traffic[i].Bytes) * 8 / longest[i].Seconds())
		}
	}
}

func (r *Result) addLosses(o *runner.Outcome) {
	l := &r.Losses
	l.Dropped = map[string]uint64{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		d := &n.Device
		l.Packets += d.SentPackets
		l.Resent += d.RetransPackets
		l.SequenceNAKs += d.RcvdSeqNAK
		l.RNRNAKs += d.RcvdRNRNAK
		l.Timeouts += d.RetryTimeout
		l.TimeoutTime += time.Duration(d.TimeoutNanos)
		l.RNRTime += time.Duration(d.RNRNanos)
		l.Marked += d.ECNMarked
		l.CNPs += d.SentCNP
		l.CNPsHandled += d.HandledCNP
		for reason, k := range n.Lost {
			if k > 0 {
				l.Dropped["network "+fabric.LossReason(reason).String()] += k
			}
		}
		for reason, k := range d.Dropped {
			if k > 0 {
				l.Dropped["adapter "+dropName(reason)] += k
			}
		}
	}
}

func (r *Result) addPorts(o *runner.Outcome) {
	for i := range o.Measures.Ports {
		p := &o.Measures.Ports[i]
		if p.Packets+p.Dropped == 0 {
			continue
		}
		port := Port{Name: p.Name, Bytes: p.Bytes, Packets: p.Packets, Dropped: p.Dropped, Marked: p.Marked, MaxQueue: p.MaxQueueBytes}
		if p.Bandwidth > 0 && o.Elapsed > 0 {
			port.Use = float64(p.Bytes) * 8 / float64(p.Bandwidth) / o.Elapsed.Seconds()
		}
		r.Ports = append(r.Ports, port)
	}
	slices.SortStableFunc(r.Ports, func(a, b Port) int {
		return cmp.Or(cmp.Compare(b.Use, a.Use), cmp.Compare(b.Bytes, a.Bytes))
	})
}

func (r *Result) addSeries(o *runner.Outcome) {
	s := &o.Measures.Series
	r.Series = Series{StepNS: int64(s.Step), RateBPS: map[string][]uint64{}, Queue: s.Queue}
	for i, sums := range s.Bytes {
		rates := make([]uint64, len(sums))
		last := uint64(0)
		for k, b := range sums {
			rates[k] = uint64(float64(b-min(last, b)) * 8 / s.Step.Seconds())
			last = b
		}
		r.Series.RateBPS[r.Traffic[i].Name] = rates
	}
}

func spread(l *report.Latency) *Spread {
	if l.Count() == 0 {
		return nil
	}
	return &Spread{l.Count(), l.Min(), l.Mean(), l.Percentile(50), l.Percentile(90), l.Percentile(99), l.Percentile(99.9), l.Max()}
}

// cdf is the share of what was recorded, over its duration in seconds.
func cdf(l *report.Latency) (points []Point) {
	if l.Count() == 0 {
		return nil
	}
	points = append(points, Point{float64(l.Min()) / 1e9, 0})
	for p := 1.0; p <= 99; p++ {
		points = append(points, Point{float64(l.Percentile(p)) / 1e9, p / 100})
	}
	for _, p := range []float64{99.5, 99.9, 100} {
		points = append(points, Point{float64(l.Percentile(p)) / 1e9, p / 100})
	}
	return points
}

// Thin drops what is bulky and of little use among very many results: all ports but the
// first n, and what JSON would not keep either.
func (r *Result) Thin(n int) {
	r.Ports = r.Ports[:min(len(r.Ports), n)]
	r.Flows, r.Kinds = nil, nil
}
