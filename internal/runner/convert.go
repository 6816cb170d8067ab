package runner

import (
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/workload"
)

// gidOf is a node's address as a GID.
func gidOf(n *topology.Node) ib.GID { return udp.GIDFromAddr(n.Address.Addr()) }

// deviceConfig is the adapter that a node of the file describes.
func deviceConfig(f *topology.File, i int, seed uint64) rvt.Config {
	n := &f.Nodes[i]
	cfg := rvt.DefaultConfig(n.Name, gidOf(n))
	cfg.GUID = 0x0200_0000_0000_0000 | uint64(i+1)
	cfg.MTU = n.MTU
	cfg.Profile, _ = qp.ProfileByName(string(n.Profile)) // the file was checked
	cfg.Driver = qp.DriverByName(cfg.Profile.Name)
	cfg.Seed = fabric.Mix(seed, uint64(i))
	cfg.DistinctKeys = n.DistinctKeys
	cfg.Congestion = n.DCQCN
	l := &cfg.Limits
	l.MaxResRdAtom = n.Limits.MaxResRdAtomic
	l.MaxQP, l.MaxQPWR, l.MaxCQE, l.MaxSGE, l.MaxInline, l.MaxSRQWR = n.Limits.MaxQP, n.Limits.MaxQPWR, n.Limits.MaxCQE, n.Limits.MaxSGE, n.Limits.MaxInline, n.Limits.MaxSRQWR
	l.MaxQPRdAtom, l.MaxQPInitRdAtom = n.Limits.MaxRdAtomic, n.Limits.MaxRdAtomic
	return cfg
}

// guard puts a strict node's checks into the configuration of its adapter. What they find
// goes to found.
func guard(n *topology.Node, cfg *rvt.Config, found *[]strict.Report) {
	if n.Strict.Any() {
		strict.NewGuard(n.Strict, cfg.Seed, func(r strict.Report) { *found = append(*found, r) }, cfg)
	}
}

// flowSpec is the traffic that a flow of the file describes.
func flowSpec(f *topology.File, i int, seed uint64) workload.Spec {
	t := &f.Flows[i]
	s := workload.DefaultSpec()
	s.Name = t.Name
	s.Seed = fabric.Mix(seed, 1000+uint64(i))
	s.Transport = t.Transport
	s.Ops = s.Ops[:0]
	for _, o := range t.Ops {
		s.Ops = append(s.Ops, workload.WeightedOp{Op: o.Op.WROpcode(), Weight: o.Weight})
	}
	s.Sizes = sizes(&t.Sizes)
	s.Count, s.Depth, s.QPs = t.Count, t.Depth, t.QPs
	if t.Count > 0 {
		s.Depth = int(min(uint64(t.Depth), t.Count)) // more cannot be outstanding, and each has its memory
	}
	s.SignalEvery = min(signalEvery(t), s.Depth)
	s.Inline, s.Solicited, s.Fence = t.Inline, t.Solicited, t.Fence
	s.Bidirectional = t.Bidirectional
	s.Start, s.RateBitsPerSecond = t.Start, uint64(t.Rate)
	if t.SRQ != nil {
		s.SRQSize, s.SRQLimit = t.SRQ.Size, t.SRQ.Limit
	}
	s.RecvDepth, s.RecvSize, s.ReceiverDelay = t.RecvDepth, t.RecvSize, t.ReceiverDelay
	s.Events = t.Notify == topology.NotifyEvent
	s.PathMTU, s.PSN = t.PathMTU, t.PSN
	s.Timeout, s.RetryCnt, s.RNRRetry, s.MinRNRTimer = t.Timeout, t.RetryCnt, t.RNRRetry, t.MinRNRTimer
	s.MaxRdAtomic, s.MaxDestRdAtomic = uint8(t.MaxRdAtomic), uint8(t.MaxDestRdAtomic)
	s.RKey = map[topology.RKeyChoice]workload.RKeyChoice{topology.RKeyGood: workload.RKeyGood, topology.RKeyBad: workload.RKeyBad, topology.RKeyNoAccess: workload.RKeyNoAccess, topology.RKeyOutOfRange: workload.RKeyOutOfRange}[t.RKey]
	s.Verify = t.Verify
	if t.After >= 0 {
		s.HoldAt = 1
	}
	s.Disorder = disorder(f)
	return s
}

func sizes(t *topology.Sizes) workload.Sizes {
	switch t.Kind {
	case topology.SizeList:
		var s workload.Sizes
		for _, v := range t.Values {
			s.List = append(s.List, int(v))
		}
		return s
	case topology.SizeRange:
		return workload.Sizes{Min: int(t.Values[0]), Max: int(t.Values[1])}
	}
	return workload.Fixed(int(t.Values[0]))
}

// signalEvery turns the file's choice into a period; the last work request always asks
// for a completion.
func signalEvery(t *topology.Flow) int {
	switch t.Signal.Kind {
	case topology.SignalEvery:
		return int(min(t.Signal.Every, uint64(t.Depth)))
	case topology.SignalLast:
		return t.Depth
	}
	return 1
}

// disorder reports whether the file's network, or a fault of its schedule, may
// duplicate or reorder packets.
func disorder(f *topology.File) bool {
	bad := func(im *topology.Impairment) bool {
		if im.Duplicate > 0 || im.Reorder > 0 || im.Tamper > 0 {
			return true
		}
		for _, r := range im.Rules {
			if r.Action == topology.RuleDuplicate || r.Action == topology.RuleDelay {
				return true
			}
		}
		return false
	}
	if bad(&f.Network.Impairment) {
		return true
	}
	for i := range f.Links {
		if bad(&f.Links[i].Impairment) {
			return true
		}
	}
	for i := range f.Faults {
		if f.Faults[i].Action == topology.SetImpairment && bad(&f.Faults[i].Impairment) {
			return true
		}
	}
	if f.Random.Count > 0 && slices.Contains(f.Random.Actions, topology.SetImpairment) {
		return true
	}
	return false
}

// impairment translates what goes wrong on a link.
func impairment(t *topology.Impairment) fabric.ImpairmentConfig {
	c := fabric.ImpairmentConfig{
		Loss: t.Loss, Duplicate: t.Duplicate, Reorder: t.Reorder, ReorderDelay: t.ReorderDelay, Corrupt: t.Corrupt, Tamper: t.Tamper,
		Burst: fabric.Burst{GoodToBad: t.Burst.Enter, BadToGood: t.Burst.Leave, LossBad: t.Burst.Loss},
	}
	switch {
	case c.Reorder == 0:
		c.ReorderDelay = 0 // files have a default: it alone makes no network imperfect
	case c.ReorderDelay == 0:
		c.ReorderDelay = 50 * time.Microsecond
	}
	for _, r := range t.Rules {
		var out fabric.Rule
		out.Skip = max(r.Nth, 1) - 1
		out.Every, out.First = r.Every, r.Count
		if r.Action == topology.RuleDelay {
			out.Delay = r.Delay
		}
		if r.HasOpcode {
			out.Match.Opcodes = []ib.Opcode{r.Opcode}
		}
		if r.HasPSN {
			out.Match.PSNs = []ib.PSN{r.PSN}
		}
		if r.HasDestQP {
			out.Match.DestQPs = []ib.QPN{r.DestQP}
		}
		out.Action = map[topology.RuleAction]fabric.Action{topology.RuleDrop: fabric.ActionDrop, topology.RuleDuplicate: fabric.ActionDuplicate, topology.RuleCorrupt: fabric.ActionCorrupt, topology.RuleDelay: fabric.ActionDelay, topology.RuleTamper: fabric.ActionTamper}[r.Action]
		if r.Every > 1 {
			c.Rules = append(c.Rules, everyFrom(out, r)...)
			continue
		}
		c.Rules = append(c.Rules, out)
	}
	return c
}

// everyFrom expresses "the n-th and then every k-th": fabric's rule picks the k-th of
// those it does not skip, so it has to skip k-1 fewer.
func everyFrom(out fabric.Rule, r topology.Rule) []fabric.Rule {
	nth := max(r.Nth, 1)
	if nth >= r.Every {
		out.Skip = nth - r.Every
		return []fabric.Rule{out}
	}
	// The first pick comes before a full period has passed: a rule of its own.
	first := out
	first.Skip, first.Every, first.First = nth-1, 1, 1
	out.Skip = nth
	if out.First > 0 {
		if out.First--; out.First == 0 {
			return []fabric.Rule{first}
		}
	}
	return []fabric.Rule{first, out}
}

// linkConfig is a link of the virtual network.
func linkConfig(l *topology.Link) mem.LinkConfig {
	c := mem.LinkConfig{
		Latency: l.Latency, Jitter: l.Jitter, BandwidthBitsPerSecond: uint64(l.Bandwidth), QueueBytes: int(l.Queue),
		MTU: l.MTU, ECN: mem.ECN{MinBytes: int(l.ECN.Min), MaxBytes: int(l.ECN.Max), Probability: l.ECN.Probability},
		Impairment: impairment(&l.Impairment),
	}
	if c.BandwidthBitsPerSecond == 0 {
		c.QueueBytes, c.ECN = 0, mem.ECN{} // of the network, for a link without limit
	}
	return c
}
