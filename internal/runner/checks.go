package runner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/wire"
)

// Report turns an outcome into what is printed, with every expectation of the file
// checked.
func (o *Outcome) Report() *report.Run {
	r := &report.Run{Name: o.File.Name, Mode: report.ModeUDP, Seed: o.Seed, Elapsed: o.Elapsed}
	if o.Virtual {
		r.Mode = report.ModeVirtual
		r.Digest = fmt.Sprintf("%016x", o.Digest)
	}
	events := o.nodeEvents()
	for i := range o.Nodes {
		r.Nodes = append(r.Nodes, o.nodeStats(i, events[i]))
	}
	for i := range o.Flows {
		r.Flows = append(r.Flows, o.flowStats(&o.Flows[i]))
	}
	r.Expectations = o.Checks()
	return r
}

func (o *Outcome) nodeStats(i int, events [ib.EventWQFatal + 1]uint64) report.NodeStats {
	n, t := &o.Nodes[i], &o.File.Nodes[i]
	d := &n.Device
	s := report.NodeStats{
		Name: n.Name, Address: t.Address.String(), Profile: string(t.Profile),
		PacketsSent: d.SentPackets, PacketsReceived: d.RcvdPackets, BytesSent: d.SentBytes, BytesReceived: d.RcvdBytes,
		Retransmissions: report.Retransmissions{Packets: d.RetransPackets, Timeouts: d.RetryTimeout, SequenceNAKs: d.RcvdSeqNAK, RNRNAKs: d.RcvdRNRNAK, RNRTime: time.Duration(d.RNRNanos)},
	}
	for _, c := range n.Completions {
		op := c.Opcode
		if c.Status != ib.WCSuccess && c.Receive {
			op = ib.WCRecv
		}
		s.Completions = append(s.Completions, report.CompletionStats{Opcode: op, Status: c.Status, Count: c.Count, Bytes: c.Bytes, Latency: c.Latency})
	}
	for reason, packets := range o.drops(i) {
		if packets > 0 {
			s.Drops = append(s.Drops, report.DropStats{Reason: wire.DropReason(reason).String(), Packets: packets})
		}
	}
	for reason := fabric.LossReason(1); reason < fabric.NumLossReasons; reason++ {
		if k := n.Lost[reason]; k > 0 {
			s.Drops = append(s.Drops, report.DropStats{Reason: "network_" + reason.String(), Packets: k})
		}
	}
	if k := n.Port.RxOverflow; k > 0 {
		s.Drops = append(s.Drops, report.DropStats{Reason: "socket_overflow", Packets: k})
	}
	if k := n.Port.TxErrors; k > 0 {
		s.Drops = append(s.Drops, report.DropStats{Reason: "socket_refused", Packets: k})
	}
	for _, m := range n.Misuse {
		s.Misuse = append(s.Misuse, report.Misuse{Code: m.Code.ID, Object: m.Object, What: m.Code.Title, Detail: m.Text})
	}
	for ty, k := range events {
		if k > 0 {
			s.Events = append(s.Events, report.EventStats{Type: ib.EventType(ty), Count: k})
		}
	}
	return s
}

// drops are the packets that node i refused, by reason, its port's included.
func (o *Outcome) drops(i int) [wire.NumDropReasons]uint64 {
	n := &o.Nodes[i]
	d := n.Device.Dropped
	d[wire.DropBadICRC] += n.Port.RxBadICRC
	d[wire.DropTooShort] += n.Port.RxTooShort
	return d
}

// nodeEvents counts the events of all nodes, by node and type.
func (o *Outcome) nodeEvents() [][ib.EventWQFatal + 1]uint64 {
	list := make([][ib.EventWQFatal + 1]uint64, len(o.Nodes))
	for k := range o.Flows {
		f := &o.Flows[k]
		for ty := range f.Events {
			list[f.Flow.From][ty] += f.Client.Events[ty]
			list[f.Flow.To][ty] += f.Server.Events[ty]
		}
	}
	return list
}

func (o *Outcome) flowStats(f *FlowOutcome) report.FlowStats {
	t := f.Flow
	var ops []string
	for _, op := range t.Ops {
		ops = append(ops, string(op.Op))
	}
	s := report.FlowStats{
		Name: t.Name, From: o.File.Nodes[t.From].Name, To: o.File.Nodes[t.To].Name, Transport: t.Transport, Ops: strings.Join(ops, "+"),
		Posted: f.Posted, Completed: f.total(), Succeeded: f.Completed, Bytes: f.Bytes, Active: f.Elapsed,
		Latency: f.Latency, Retransmissions: f.Retransmitted, DataErrors: uint64(len(f.Violations)),
	}
	if t.Verify {
		s.DataVerified = f.Completed
	}
	return s
}

// total is how many send work requests are done, whatever their status.
func (f *FlowOutcome) total() uint64 {
	n := f.Completed
	for st, c := range f.Statuses {
		if st != int(ib.WCSuccess) {
			n += c
		}
	}
	return n
}

// Checks compares the outcome with every expectation of the file.
func (o *Outcome) Checks() (cs []report.Check) {
	var sum FlowOutcome
	sum.Latency = report.NewLatency()
	for i := range o.Flows {
		f := &o.Flows[i]
		cs = append(cs, o.expect(f.Flow.Name, &f.Flow.Expect.Expect, f)...)
		if want := f.Flow.Expect.QPState; want != nil {
			cs = append(cs, stateCheck(f, *want))
		}
		sum.add(f)
	}
	e := &o.File.Expect
	cs = append(cs, o.expect("", &e.Expect, &sum)...)
	for _, d := range e.Drops {
		n := o.dropCount(d.Reason)
		cs = append(cs, report.Check{What: "drops." + d.Reason, Want: d.Range.String(), Got: fmt.Sprint(n), OK: d.Range.Match(n)})
	}
	if want := e.Misuse; want != nil {
		n := uint64(0)
		for i := range o.Nodes {
			n += uint64(len(o.Nodes[i].Misuse))
		}
		cs = append(cs, report.Check{What: "misuse", Want: want.String(), Got: fmt.Sprint(n), OK: want.Match(n)})
	}
	return cs
}

// add sums flows up for the expectations of the run.
func (f *FlowOutcome) add(o *FlowOutcome) {
	f.Posted += o.Posted
	f.Completed += o.Completed
	f.Bytes += o.Bytes
	f.Retransmitted += o.Retransmitted
	f.Elapsed = max(f.Elapsed, o.Elapsed)
	for i := range f.Statuses {
		f.Statuses[i] += o.Statuses[i]
		f.RecvStatuses[i] += o.RecvStatuses[i]
	}
	for i := range f.Events {
		f.Events[i] += o.Events[i]
	}
	f.Violations = append(f.Violations, o.Violations...)
	f.Latency.Merge(o.Latency)
}

func stateCheck(f *FlowOutcome, want ib.QPState) report.Check {
	c := report.Check{Flow: f.Flow.Name, What: "qp_state", Want: want.String(), Got: want.String(), OK: true}
	for _, s := range f.States {
		if s != want {
			c.Got, c.OK = s.String(), false
		}
	}
	return c
}

func (o *Outcome) dropCount(reason string) (n uint64) {
	for i := range o.Nodes {
		for k, packets := range o.drops(i) {
			if reason == "total" || wire.DropReason(k).String() == reason {
				n += packets
			}
		}
	}
	return n
}

// expect evaluates the expectations that flows and the run share.
func (o *Outcome) expect(name string, e *topology.Expect, f *FlowOutcome) (cs []report.Check) {
	add := func(what, want, got string, ok bool) {
		cs = append(cs, report.Check{Flow: name, What: what, Want: want, Got: got, OK: ok})
	}
	if e.AllComplete {
		got := fmt.Sprintf("%d of %d", f.total(), f.Posted)
		add("all_complete", "all", got, f.total() == f.Posted && (name == "" || f.Done))
	}
	if e.DataOK {
		got := "right"
		if len(f.Violations) > 0 {
			got = f.Violations[0]
			if n := len(f.Violations) - 1; n > 0 {
				got += fmt.Sprintf(" (and %d more)", n)
			}
		}
		add("data_ok", "right", got, len(f.Violations) == 0)
	}
	// Completions that were not asked for count as successes too.
	sends := f.Statuses
	sends[ib.WCSuccess] = f.Completed
	cs = append(cs, statusChecks(name, "completions", e.Completions, &sends)...)
	cs = append(cs, statusChecks(name, "receives", e.Receives, &f.RecvStatuses)...)
	if r := e.Retransmissions; r != nil {
		add("retransmissions", r.String(), fmt.Sprint(f.Retransmitted), r.Match(f.Retransmitted))
	}
	for _, ev := range e.Events {
		n := uint64(0)
		if int(ev.Event) < len(f.Events) {
			n = f.Events[ev.Event]
		}
		add("events."+ev.Event.String(), ev.Range.String(), fmt.Sprint(n), ev.Range.Match(n))
	}
	if e.MaxLatency > 0 {
		var got time.Duration
		if f.Latency.Count() > 0 {
			got = time.Duration(f.Latency.Max())
		}
		add("max_latency", "at most "+e.MaxLatency.String(), got.String(), got <= e.MaxLatency)
	}
	if e.MinRate > 0 {
		rate := 0.0
		if f.Elapsed > 0 {
			rate = float64(f.Bytes) * 8 / f.Elapsed.Seconds()
		}
		add("min_rate", fmt.Sprintf("at least %.3g Mbit/s", float64(e.MinRate)/1e6), fmt.Sprintf("%.3g Mbit/s", rate/1e6), rate >= float64(e.MinRate))
	}
	return cs
}

// statusChecks compares counts per status; a status that the list does not name must
// not occur.
func statusChecks(name, what string, want []topology.StatusCount, got *[ib.NumWCStatuses]uint64) (cs []report.Check) {
	if want == nil {
		return nil
	}
	total := uint64(0)
	for _, n := range got {
		total += n
	}
	for st, n := range got {
		i := slices.IndexFunc(want, func(w topology.StatusCount) bool { return int(w.Status) == st })
		status := ib.WCStatus(st).String()
		switch {
		case i >= 0:
			cs = append(cs, report.Check{Flow: name, What: what + "." + status, Want: want[i].Count.String(), Got: fmt.Sprint(n), OK: want[i].Count.Match(n, total)})
		case n > 0:
			cs = append(cs, report.Check{Flow: name, What: what + "." + status, Want: "none", Got: fmt.Sprint(n)})
		}
	}
	return cs
}

// Stories returns the explanations of the flows that failed: of those whose
// expectations do not hold, or of all.
func (o *Outcome) Stories(r *report.Run, all bool) (texts []string) {
	for i := range o.Flows {
		f := &o.Flows[i]
		bad := slices.ContainsFunc(r.Expectations, func(c report.Check) bool { return !c.OK && c.Flow == f.Flow.Name })
		if f.Story != "" && (bad || all) {
			texts = append(texts, "flow "+f.Flow.Name+": "+f.Story)
		}
	}
	return texts
}
