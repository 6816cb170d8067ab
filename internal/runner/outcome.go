package runner

import (
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// Outcome is everything that a run showed.
type Outcome struct {
	File    *topology.File
	Virtual bool
	Seed    uint64
	Elapsed time.Duration
	Digest  uint64 // of a virtual run
	Nodes   []NodeOutcome
	Flows   []FlowOutcome
	// Stuck describes the flows that were not done when the time was over.
	Stuck []string
	// Notes are remarks for the reader: what the mode does not model.
	Notes []string
	// Measures are there if they were asked for.
	Measures *Measures
	// Trace are the last packets before the end, oldest first, if they were asked for.
	Trace []string
	// Reached reports whether the run ended at the moment of Options.Until.
	Reached bool
	// Restarts is how often flows began anew because a node came back.
	Restarts int
}

// NodeOutcome is what one node did.
type NodeOutcome struct {
	Name        string
	Device      qp.Counters
	Port        fabric.PortCounters // zero in virtual time
	Lost        [fabric.NumLossReasons]uint64
	Completions []CompletionCount
	Killed      bool
	Misuse      []strict.Report
}

// CompletionCount counts completions of one kind. The opcode of a failed one is
// undefined; Receive tells the queue it came from.
type CompletionCount struct {
	Receive bool
	Opcode  ib.WCOpcode
	Status  ib.WCStatus
	Count   uint64
	Bytes   uint64
	Latency *report.Latency // of sends
}

// FlowOutcome is what one flow did, over both its ends.
type FlowOutcome struct {
	Flow           *topology.Flow
	Client, Server workload.Stats
	Posted         uint64 // by both ends
	Completed      uint64
	Bytes          uint64 // payload that arrived at its destination or was read
	Statuses       [ib.NumWCStatuses]uint64
	RecvStatuses   [ib.NumWCStatuses]uint64
	Events         [ib.EventWQFatal + 1]uint64
	Retransmitted  uint64
	Elapsed        time.Duration // from the first post to the last completion, of a send or a receive
	Done           bool
	Violations     []string
	States         []ib.QPState
	// Story explains the first failure of the flow; empty if there was none.
	Story   string
	Latency *report.Latency
}

// tally counts completions of a node.
type tally struct {
	send, recv [ib.NumWCStatuses]map[ib.WCOpcode]*CompletionCount
	last       *CompletionCount
	failed     bool // there was a completion that is no success
	// coarse keeps no latencies: with very many nodes their histograms fill the memory.
	coarse bool
}

func (t *tally) add(wc *cq.WC, receive bool) {
	table := &t.send
	if receive {
		table = &t.recv
	}
	op := wc.Opcode
	if wc.Status != ib.WCSuccess {
		op = 0 // undefined
	}
	if int(wc.Status) >= len(table) {
		return
	}
	m := &table[wc.Status]
	if *m == nil {
		*m = map[ib.WCOpcode]*CompletionCount{}
	}
	c := (*m)[op]
	if c == nil {
		c = &CompletionCount{Receive: receive, Opcode: op, Status: wc.Status}
		(*m)[op] = c
	}
	c.Count++
	t.failed = t.failed || wc.Status != ib.WCSuccess
	if wc.Status == ib.WCSuccess {
		c.Bytes += uint64(wc.ByteLen)
	}
	t.last = c
}

// Record implements workload.Recorder: the latency of the completion counted last.
func (t *tally) Record(ns int64) {
	if t.coarse {
		return
	}
	if t.last.Latency == nil {
		t.last.Latency = report.NewLatency()
	}
	t.last.Latency.Record(ns)
}

// list returns the counts in a fixed order: sends before receives, success first.
func (t *tally) list() []CompletionCount {
	var out []CompletionCount
	for _, table := range []*[ib.NumWCStatuses]map[ib.WCOpcode]*CompletionCount{&t.send, &t.recv} {
		for _, m := range table {
			for op := range 256 {
				if c := m[ib.WCOpcode(op)]; c != nil {
					out = append(out, *c)
				}
			}
		}
	}
	return out
}

// flowRun is a flow in progress.
type flowRun struct {
	topo           *topology.Flow
	client, server *workload.Endpoint
	from, to       *udpNode        // on sockets, where the ends are
	clientLat      *report.Latency // one each: they are filled by different goroutines
	serverLat      *report.Latency
}

func newFlowRun(t *topology.Flow, client, server *workload.Endpoint) *flowRun {
	return &flowRun{topo: t, client: client, server: server, clientLat: report.NewLatency(), serverLat: report.NewLatency()}
}

// watch routes what an endpoint reports to the tally of its node and the histograms.
func (r *flowRun) watch(e *workload.Endpoint, t *tally, lat workload.Recorder) {
	prev := e.Hooks.Completion
	count := func(receive bool) func(vtime.Time, *cq.WC) {
		return func(now vtime.Time, wc *cq.WC) {
			if prev != nil {
				prev(now, wc)
			}
			t.add(wc, receive)
		}
	}
	e.Hooks.Completion, e.Hooks.RecvCompletion = count(false), count(true)
	e.Hooks.Latency = tee{lat, t}
}

// tee records twice.
type tee struct{ a, b workload.Recorder }

// Record implements workload.Recorder.
func (t tee) Record(ns int64) {
	t.a.Record(ns)
	t.b.Record(ns)
}

// outcome sums a flow up.
func (r *flowRun) outcome() FlowOutcome {
	c, s := r.client.Stats(), r.server.Stats()
	o := FlowOutcome{Flow: r.topo, Client: *c, Server: *s, Latency: report.NewLatency()}
	o.Latency.Merge(r.clientLat)
	o.Latency.Merge(r.serverLat)
	o.Posted, o.Completed = c.Posted+s.Posted, c.Completed+s.Completed
	o.Bytes = c.Bytes + s.Bytes
	for i := range o.Statuses {
		o.Statuses[i] = c.Statuses[i] + s.Statuses[i]
		o.RecvStatuses[i] = c.RecvStatuses[i] + s.RecvStatuses[i]
	}
	for i := range o.Events {
		o.Events[i] = c.Events[i] + s.Events[i]
	}
	for _, e := range []*workload.Endpoint{r.client, r.server} {
		for _, q := range e.QPs() {
			o.Retransmitted += q.NRCResends
		}
	}
	for _, q := range r.client.QPs() {
		o.States = append(o.States, q.State)
	}
	if last := max(c.LastCompletion, s.LastCompletion, c.LastReceived, s.LastReceived); last > vtime.Time(r.topo.Start) {
		o.Elapsed = last.Sub(vtime.Time(r.topo.Start))
	}
	return o
}
