package campaign

import (
	"math/rand/v2"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/workload"
)

// Purposes of random streams. One per concern, so that a draw added to one does not
// change what the others make of a seed.
const (
	streamShape uint64 = iota + 1
	streamNetwork
	streamNodes
	streamFlows
	streamFaults
)

func stream(seed, purpose uint64) *rand.Rand {
	return rand.New(rand.NewPCG(fabric.Mix(seed, 2*purpose), fabric.Mix(seed, 2*purpose+1)))
}

// plan is a world to run, drawn from a seed.
type plan struct {
	seed    uint64
	network mem.Config
	batch   int
	nodes   []rvt.Config
	flows   []flowPlan
	faults  []fault
	// healAt is when all faults end.
	healAt time.Duration
}

type flowPlan struct {
	from, to int
	spec     workload.Spec
	// wrong says that the flow breaks a rule and must fail.
	wrong bool
}

// hostile reports whether anything but time can go wrong in the world.
func (p *plan) hostile() bool {
	l := &p.network.Default
	// A slow link makes packets later than an impatient sender's timeout.
	return !l.Impairment.IsZero() || l.BandwidthBitsPerSecond > 0 || len(p.faults) > 0
}

func draw(seed uint64) *plan {
	r := stream(seed, streamShape)
	p := &plan{seed: seed, batch: pick(r, 0, 0, 1, 3, 128), healAt: time.Duration(50_000 << r.IntN(13))}
	nodes := 2 + r.IntN(4)
	calm := r.IntN(8) == 0
	p.network = drawNetwork(stream(seed, streamNetwork), calm)
	rn := stream(seed, streamNodes)
	profile := drawProfile(rn)
	mixed := rn.IntN(6) == 0
	for i := range nodes {
		if mixed {
			profile = drawProfile(rn)
		}
		p.nodes = append(p.nodes, p.drawNode(rn, i, profile))
	}
	rf := stream(seed, streamFlows)
	for range 1 + rf.IntN(4) {
		from, to := rf.IntN(nodes), rf.IntN(nodes)
		f := flowPlan{from: from, to: to, spec: drawFlow(rf, p, from, to)}
		if rf.IntN(12) == 0 {
			f.sabotage(rf)
		}
		p.flows = append(p.flows, f)
	}
	if !calm {
		p.faults = drawFaults(stream(seed, streamFaults), p)
	}
	return p
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// sometimes returns v once in n draws, else the zero value.
func sometimes[T any](r *rand.Rand, n int, v T) (zero T) {
	if r.IntN(n) == 0 {
		return v
	}
	return zero
}

func drawProfile(r *rand.Rand) qp.Profile {
	return pick(r, qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE)
}

func drawNetwork(r *rand.Rand, calm bool) mem.Config {
	l := mem.LinkConfig{Latency: time.Duration(r.IntN(20_000)), Jitter: sometimes(r, 2, time.Duration(r.IntN(5_000)))}
	if r.IntN(3) == 0 {
		l.BandwidthBitsPerSecond = pick[uint64](r, 1e9, 1e10, 1e11)
		if !calm {
			l.QueueBytes = sometimes(r, 2, 20_000+r.IntN(200_000))
		}
	}
	cfg := mem.Config{Default: l, Encode: r.IntN(4) == 0}
	if calm {
		return cfg
	}
	im := &cfg.Default.Impairment
	im.Loss = sometimes(r, 2, r.Float64()*0.1)
	im.Duplicate = sometimes(r, 2, r.Float64()*0.1)
	im.Corrupt = sometimes(r, 3, r.Float64()*0.05)
	if r.IntN(2) == 0 {
		im.Reorder = r.Float64() * 0.2
		im.ReorderDelay = time.Duration(1 + r.IntN(50_000))
	}
	im.Jitter = sometimes(r, 4, time.Duration(r.IntN(20_000)))
	if r.IntN(4) == 0 {
		im.Burst = fabric.Burst{GoodToBad: r.Float64() * 0.02, BadToGood: 0.1 + r.Float64()*0.5, LossBad: r.Float64() * 0.7}
	}
	return cfg
}

func (p *plan) drawNode(r *rand.Rand, i int, profile qp.Profile) rvt.Config {
	gid := ib.GIDFromIPv4(10, 0, 0, byte(i+1))
	cfg := rvt.DefaultConfig("node"+string(rune('a'+i)), gid)
	cfg.Profile = profile
	cfg.MTU = pick(r, ib.MTU256, ib.MTU1024, ib.MTU4096, ib.MTU4096)
	cfg.DistinctKeys = r.IntN(2) == 0
	cfg.Limits.WindowPackets = pick(r, 1, 2, 7, 64, 256, 256, 4096)
	if im := &p.network.Default.Impairment; im.Reorder > 0 || im.Jitter > 0 {
		// Each gap in a window makes the sender repeat the rest of it, and nothing
		// slows it down on a link without a bandwidth.
		cfg.Limits.WindowPackets = min(cfg.Limits.WindowPackets, 128)
	}
	cfg.Limits.MaxInline = pick(r, 0, 64, 1024)
	cfg.Seed = r.Uint64()
	return cfg
}

var ops = map[ib.QPType][]ib.WROpcode{
	ib.QPTypeRC: {ib.WRSend, ib.WRSendWithImm, ib.WRSendWithInv, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead, ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd},
	ib.QPTypeUC: {ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm},
	ib.QPTypeUD: {ib.WRSend, ib.WRSendWithImm},
}

func drawFlow(r *rand.Rand, p *plan, from, to int) workload.Spec {
	s := workload.DefaultSpec()
	s.Name = "flow" + string(rune('0'+len(p.flows)))
	s.Seed = r.Uint64()
	s.Transport = pick(r, ib.QPTypeRC, ib.QPTypeRC, ib.QPTypeRC, ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD)
	all := ops[s.Transport]
	s.Ops = nil
	for _, i := range r.Perm(len(all))[:1+r.IntN(len(all))] {
		s.Ops = append(s.Ops, workload.WeightedOp{Op: all[i], Weight: 1 + r.Uint64N(4)})
	}
	mtu := min(p.nodes[from].MTU, p.nodes[to].MTU)
	s.PathMTU = sometimes(r, 2, ib.MTU256+ib.MTU(r.IntN(int(mtu))))
	if s.Transport == ib.QPTypeUD {
		s.PathMTU = 0
	}
	s.Sizes = drawSizes(r, s.Transport, mtu)
	s.Count = 1 + r.Uint64N(150)
	s.Depth = 1 + r.IntN(40)
	s.QPs = 1 + r.IntN(3)
	s.Batch = pick(r, 0, 1, 4)
	s.SGEs = 1 + r.IntN(4)
	s.SignalEvery = pick(r, 1, 1, 1+r.IntN(s.Depth))
	s.Inline, s.Solicited = r.IntN(4) == 0, r.IntN(2) == 0
	s.Fence, s.Bidirectional, s.Events = r.IntN(5) == 0, r.IntN(3) == 0, r.IntN(2) == 0
	s.Start = sometimes(r, 3, time.Duration(r.IntN(1_000_000)))
	s.RateBitsPerSecond = sometimes(r, 6, uint64(1e8+r.Float64()*1e10))
	drawReceives(r, &s)
	s.Timeout = uint8(8 + r.IntN(8))
	s.RetryCnt = pick[uint8](r, 7, 7, 7, uint8(r.IntN(8)))
	if p.nodes[from].Profile.RetrySeven || p.nodes[to].Profile.RetrySeven {
		s.RetryCnt = min(s.RetryCnt, 6) // 7 tries for ever, also when the peer has failed
	}
	s.RNRRetry = pick[uint8](r, 7, 7, 7, uint8(r.IntN(8)))
	s.MinRNRTimer = uint8(1 + r.IntN(14))
	s.MaxRdAtomic = uint8(1 + r.IntN(16))
	s.MaxDestRdAtomic = s.MaxRdAtomic + uint8(r.IntN(8))
	if r.IntN(4) == 0 {
		psn := ib.PSN(0xffffff - r.IntN(200))
		s.PSN = &psn
	}
	s.Disorder = true
	return s
}

// sabotage makes a flow ask for what it may not have.
func (f *flowPlan) sabotage(r *rand.Rand) {
	s := &f.spec
	if s.Transport != ib.QPTypeRC {
		return
	}
	f.wrong = true
	if r.IntN(2) == 0 {
		s.RecvSize = r.IntN(s.Sizes.Longest() + 1)
		return
	}
	s.RKey = pick(r, workload.RKeyBad, workload.RKeyNoAccess, workload.RKeyOutOfRange)
}

func drawSizes(r *rand.Rand, t ib.QPType, mtu ib.MTU) workload.Sizes {
	most := pick(r, 8, 300, 5000, 5000, 20_000)
	if t == ib.QPTypeUD {
		most = min(most, mtu.Bytes())
	}
	if r.IntN(4) == 0 {
		return workload.Sizes{List: []int{0, 1, most, min(most, mtu.Bytes())}}
	}
	return workload.Sizes{Min: r.IntN(most + 1), Max: most}
}

func drawReceives(r *rand.Rand, s *workload.Spec) {
	s.RecvSize = s.Sizes.Longest() + r.IntN(100)
	s.RecvDepth = pick(r, 1, 1+r.IntN(8), s.Depth, 2*s.Depth)
	s.ReceiverDelay = sometimes(r, 4, time.Duration(r.IntN(5_000_000)))
	if r.IntN(3) == 0 {
		s.SRQSize = s.RecvDepth * s.QPs
		s.SRQLimit = sometimes(r, 2, r.IntN(s.SRQSize+1))
	}
}
