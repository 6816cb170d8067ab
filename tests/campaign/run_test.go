package campaign

import (
	"fmt"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
	"github.com/rvtsim/rvtsim/workload"
)

// maxEvents is far above what any plan needs: more is a storm of packets.
const maxEvents = 4_000_000

// outcome is what became of a plan.
type outcome struct {
	digest   uint64
	events   uint64
	at       vtime.Time
	messages uint64
	failures int // flows with a failed QP
	problems []string
}

func (o *outcome) problem(format string, args ...any) {
	o.problems = append(o.problems, fmt.Sprintf(format, args...))
}

// run lets a plan happen: faults until healAt, then a sound network, on which
// everything must come to an end in bounded time.
func (p *plan) run() (o outcome) {
	cfg := sim.Config{Seed: p.seed, Network: p.network, EmitBatch: p.batch, Check: true, Digest: sim.DigestAll}
	if *traceFlag {
		cfg.OnPacket = tracePacket
	}
	w, err := sim.New(cfg)
	if err != nil {
		o.problem("%v", err)
		return o
	}
	for _, cfg := range p.nodes {
		if _, err := w.AddNode(cfg); err != nil {
			o.problem("%v", err)
			return o
		}
	}
	var flows []*sim.Flow
	for _, f := range p.flows {
		fl, err := w.AddFlow(f.spec, w.Nodes()[f.from], w.Nodes()[f.to])
		if err != nil {
			o.problem("%v", err)
			return o
		}
		flows = append(flows, fl)
	}
	for _, f := range p.faults {
		f.schedule(w, flows)
	}
	done := func() bool {
		for _, f := range flows {
			if !f.Done() {
				return false
			}
		}
		return true
	}
	over := func() bool { return w.Stats().Events > maxEvents }
	w.RunUntil(vtime.Time(p.healAt), over)
	w.Network().Heal()
	bound := p.bound()
	w.RunUntil(vtime.Time(p.healAt).Add(bound), func() bool { return done() || over() })
	switch {
	case w.Err() != nil:
	case over():
		o.problem("%d events and no end, at %v:\n%s", w.Stats().Events, w.Now(), stuck(flows))
	case !done():
		o.problem("not done %v after the network healed at %v:\n%s", bound, p.healAt, stuck(flows))
	default:
		w.RunUntil(w.Now().Add(time.Second), over) // what is still in flight
	}
	o.collect(p, w, flows)
	return o
}

// bound is how long the world may take after it has healed.
func (p *plan) bound() (d time.Duration) {
	l := &p.network.Default
	for _, f := range p.flows {
		rtt := 2*l.Latency + 2*l.Jitter + 100*time.Microsecond
		if bw := l.BandwidthBitsPerSecond; bw > 0 {
			// All packets of a window of every QP may wait for each other.
			bytes := f.spec.Sizes.Longest() + 200*(f.spec.Sizes.Longest()/256+1)
			rtt += time.Duration(float64(bytes) * 8 / float64(bw) * float64(time.Second) * 64)
		}
		d += sim.LivenessBound(&f.spec, rtt)
	}
	return 4*d + 10*time.Second
}

func stuck(flows []*sim.Flow) string {
	var b strings.Builder
	for _, f := range flows {
		if !f.Done() {
			b.WriteString(f.Stuck())
		}
	}
	return b.String()
}

// collect checks the end of a world.
func (o *outcome) collect(p *plan, w *sim.World, flows []*sim.Flow) {
	o.digest, o.events, o.at = w.Digest(), w.Stats().Events, w.Now()
	if err := w.Err(); err != nil {
		o.problem("%v", err)
	}
	if err := w.CheckConservation(); err != nil {
		o.problem("%v", err)
	}
	for i, f := range flows {
		o.problems = append(o.problems, f.Verify()...)
		o.messages += f.Client.Stats().Completed + f.Server.Stats().Completed
		if f.Client.Failed() || f.Server.Failed() {
			o.failures++
			o.judgeFailure(p, i, f)
		}
	}
}

// judgeFailure decides whether a failure had a reason. On a sound network none has,
// but for a receiver that was too slow for the sender's patience.
func (o *outcome) judgeFailure(p *plan, i int, f *sim.Flow) {
	spec := &p.flows[i].spec
	c, s := f.Client.Stats(), f.Server.Stats()
	for _, e := range []error{f.Client.Err(), f.Server.Err()} {
		if e != nil {
			o.problem("%v", e)
		}
	}
	var wrong, expected uint64
	for _, st := range blameless {
		if st == ib.WCRemAccessErr && spec.RKey != workload.RKeyGood {
			expected += c.Statuses[st] + s.Statuses[st]
			continue
		}
		wrong += c.Statuses[st] + s.Statuses[st] + c.RecvStatuses[st] + s.RecvStatuses[st]
	}
	if wrong > 0 && (!p.flows[i].wrong || spec.RKey != workload.RKeyGood) {
		o.problem("%s: %d completions that nothing explains: client %v, server %v", spec.Name, wrong, c.FirstFailure, s.FirstFailure)
	}
	if wrong+expected > 0 {
		return
	}
	retries := c.Statuses[ib.WCRetryExcErr] + s.Statuses[ib.WCRetryExcErr]
	rnr := c.Statuses[ib.WCRNRRetryExcErr] + s.Statuses[ib.WCRNRRetryExcErr]
	if rnr > 0 && spec.RNRRetry == 7 {
		o.problem("%s: RNR_RETRY_EXC_ERR although rnr_retry is 7", spec.Name)
	}
	if retries > 0 && rnr == 0 && !p.moved(i) && p.network.Default.BandwidthBitsPerSecond == 0 {
		o.judgeRetries(p, spec, f)
	}
	if !p.hostile() && retries > 0 && rnr == 0 {
		o.problem("%s failed on a sound network: client %v, server %v", spec.Name, c.FirstFailure, s.FirstFailure)
	}
}

// blameless are the statuses that only a broken rule of one end can cause.
var blameless = []ib.WCStatus{ib.WCLocLenErr, ib.WCLocProtErr, ib.WCLocQPOpErr, ib.WCBadRespErr, ib.WCRemInvReqErr, ib.WCRemAccessErr,
	ib.WCRemOpErr, ib.WCLocAccessErr, ib.WCMWBindErr, ib.WCFatalErr, ib.WCGeneralErr}

// moved reports whether a fault takes a QP of the flow to ERR, after which its peer
// asks in vain.
func (p *plan) moved(flow int) bool {
	for _, f := range p.faults {
		if f.flow == flow && f.kind == faultErr {
			return true
		}
	}
	return false
}

// judgeRetries looks at the end that gave up first. What was lost before the network
// healed can cost the last retry up to a timeout later; after that every question has
// an answer, as long as the peer lives.
func (o *outcome) judgeRetries(p *plan, spec *workload.Spec, f *sim.Flow) {
	timeout, _ := ib.AckTimeout(spec.Timeout)
	last := vtime.Time(p.healAt).Add(2*(timeout+4*time.Millisecond) + time.Millisecond)
	c, s := f.Client.Stats(), f.Server.Stats()
	first := c
	if c.FirstFailure.Status == ib.WCSuccess || s.FirstFailure.Status != ib.WCSuccess && s.FirstFailureAt < c.FirstFailureAt {
		first = s
	}
	if first.FirstFailure.Status == ib.WCRetryExcErr && first.FirstFailureAt > last {
		o.problem("%s: an end gave up at %v, long after the network healed at %v: %v", spec.Name, first.FirstFailureAt, p.healAt, first.FirstFailure)
	}
}

// tracePacket prints a packet as a device takes or drops it.
func tracePacket(now vtime.Time, n *sim.Node, f *mem.Frame, r wire.DropReason) {
	verdict := ""
	if r != wire.DropNone {
		verdict = " DROPPED " + r.String()
	}
	fmt.Printf("%14v %s %s%s\n", now, n.Name, f.Packet.String(), verdict)
}
