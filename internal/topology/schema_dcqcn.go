package topology

import (
	"errors"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/dcqcn"
)

// dcqcnDefaults are the parameters before a file is read. The line rate 0 stands for the
// bandwidth of the network.
func dcqcnDefaults() dcqcn.Params {
	p := dcqcn.Default(dcqcn.MaxLineRate)
	p.LineRate = 0
	return p
}

var dcqcnObject = object[dcqcn.Params]{
	title: "dcqcn",
	doc:   "Congestion control of an adapter, by DCQCN (Zhu et al., SIGCOMM 2015). Data packets may be marked by the `ecn` of queues; a receiver answers marked packets with congestion notification packets (CNP); a queue pair whose peer does so slows down and recovers. The defaults are the paper's, which are for 40 Gbit/s. Both ends of a flow need it.",
	fields: []field[dcqcn.Params]{
		{"line_rate", "rate", "bandwidth of `network`", "Rate that a queue pair begins with and recovers to.",
			dcqcnRate(func(p *dcqcn.Params) *uint64 { return &p.LineRate })},
		{"min_rate", "rate", "10Mbps", "Lowest rate of a queue pair.",
			dcqcnRate(func(p *dcqcn.Params) *uint64 { return &p.MinRate })},
		{"g", "probability", "1/256 (0.390625%)", "Weight of a notification in alpha, the estimate of congestion: alpha = (1-g) alpha + g. A cut takes alpha/2 of the rate.",
			func(d *decoder, v value, p *dcqcn.Params) {
				if g, ok := probability(d, v); ok {
					p.G = uint32(g * dcqcn.One)
				}
			}},
		{"alpha_timer", "duration", "55us", "After this long without a notification, and again after as long, alpha = (1-g) alpha.",
			put(positiveDuration, func(p *dcqcn.Params) *time.Duration { return &p.AlphaTimer })},
		{"rate_timer", "duration", "55us", "Time of one step of recovery.",
			put(positiveDuration, func(p *dcqcn.Params) *time.Duration { return &p.RateTimer })},
		{"byte_counter", "size", "10MiB", "Bytes on the wire that make a step of recovery, too.",
			func(d *decoder, v value, p *dcqcn.Params) {
				if n, ok := size(d, v); ok {
					p.ByteCounter = uint64(n)
				}
			}},
		{"fast_recovery", "count", "5", "Steps of either kind that go halfway back to the rate before the cut. Later ones raise that rate as well.",
			put(integer[uint32](1, 1000), func(p *dcqcn.Params) *uint32 { return &p.FastRecovery })},
		{"additive_increase", "rate", "40Mbps", "What a step adds after fast recovery.",
			dcqcnRate(func(p *dcqcn.Params) *uint64 { return &p.AdditiveIncrease })},
		{"hyper_increase", "rate", "200Mbps", "What it adds when time and bytes both have left fast recovery, times the steps since.",
			dcqcnRate(func(p *dcqcn.Params) *uint64 { return &p.HyperIncrease })},
		{"cnp_interval", "duration", "50us", "Least time between two CNPs of a queue pair.",
			put(duration, func(p *dcqcn.Params) *time.Duration { return &p.CNPInterval })},
		{"cnp_dscp", "0 to 63", "48", "Differentiated services code point of CNPs.",
			put(integer[uint8](0, 63), func(p *dcqcn.Params) *uint8 { return &p.CNPDSCP })},
	},
}

// dcqcnRate stores a rate as the bit/s that package dcqcn has.
func dcqcnRate(dst func(*dcqcn.Params) *uint64) func(*decoder, value, *dcqcn.Params) {
	return func(d *decoder, v value, p *dcqcn.Params) {
		if r, ok := rate(d, v); ok {
			*dst(p) = uint64(r)
		}
	}
}

// decodeDCQCN reads true, false, or parameters; what they leave out is as in was, the
// defaults of nodes, if that is on.
func decodeDCQCN(d *decoder, v value, was *dcqcn.Params) *dcqcn.Params {
	p := dcqcnDefaults()
	if was != nil {
		p = *was
	}
	if d.isMapping(v) {
		dcqcnObject.decode(d, v, &p)
		return &p
	}
	switch s, _ := d.text(v); s {
	case "true":
		return &p
	case "false":
		return nil
	}
	d.mismatch(v, "true, false, or a mapping such as {min_rate: 100Mbps, additive_increase: 100Mbps}")
	return nil
}

// finishDCQCN gives the parameters of all nodes their line rate and checks how they go
// together, when the network is known.
func (d *decoder) finishDCQCN(f *File) {
	seen := map[*dcqcn.Params]bool{}
	for i := range f.Nodes {
		p := f.Nodes[i].DCQCN
		if p == nil || seen[p] {
			continue
		}
		seen[p] = true
		path := f.entryPath(i) + ".dcqcn"
		if !d.given(path) {
			path = "defaults.node.dcqcn"
		}
		if p.LineRate == 0 {
			p.LineRate = uint64(f.Network.Bandwidth)
			if p.LineRate == 0 {
				d.problem(path, "found no line_rate, and network has no bandwidth; expected one or the other: a queue pair begins with that rate")
				continue
			}
			if !d.given(path + ".min_rate") {
				p.MinRate = min(p.MinRate, p.LineRate)
			}
		}
		d.checkDCQCN(path, p)
	}
}

// checkDCQCN reports what package dcqcn finds wrong, all in one place.
func (d *decoder) checkDCQCN(path string, p *dcqcn.Params) {
	err := p.Validate()
	if err == nil {
		return
	}
	var list []string
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		for _, e := range all.Unwrap() {
			list = append(list, strings.TrimPrefix(e.Error(), "dcqcn: "))
		}
	}
	d.problem(path, "%s", strings.Join(list, "; "))
}

// dcqcnKeys writes what differs from the defaults.
func dcqcnKeys(p *dcqcn.Params) string {
	var k keys
	def := dcqcnDefaults()
	putKey(&k, "line_rate", Rate(p.LineRate), 0)
	putKey(&k, "min_rate", Rate(p.MinRate), Rate(def.MinRate))
	if p.G != def.G {
		k.add("g: %v", float64(p.G)/dcqcn.One)
	}
	putKey(&k, "alpha_timer", p.AlphaTimer, def.AlphaTimer)
	putKey(&k, "rate_timer", p.RateTimer, def.RateTimer)
	putKey(&k, "byte_counter", p.ByteCounter, def.ByteCounter)
	putKey(&k, "fast_recovery", p.FastRecovery, def.FastRecovery)
	putKey(&k, "additive_increase", Rate(p.AdditiveIncrease), Rate(def.AdditiveIncrease))
	putKey(&k, "hyper_increase", Rate(p.HyperIncrease), Rate(def.HyperIncrease))
	putKey(&k, "cnp_interval", p.CNPInterval, def.CNPInterval)
	putKey(&k, "cnp_dscp", p.CNPDSCP, def.CNPDSCP)
	return "{" + strings.Join(k, ", ") + "}"
}
