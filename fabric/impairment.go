package fabric

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// PacketInfo is what an [Impairment] may look at in a packet.
type PacketInfo struct {
	Opcode ib.Opcode
	PSN    ib.PSN
	DestQP ib.QPN
	Bytes  int // BTH to ICRC
}

// InfoOf describes p, whose encoded length is bytes.
func InfoOf(p *wire.Packet, bytes int) PacketInfo {
	return PacketInfo{Opcode: p.Opcode, PSN: p.PSN, DestQP: p.DestQP, Bytes: bytes}
}

// PeekInfo reads the BTH at the start of an encoded packet; ok is false if b is too
// short to hold one.
func PeekInfo(b []byte) (info PacketInfo, ok bool) {
	if len(b) < 12 {
		return PacketInfo{Bytes: len(b)}, false
	}
	be24 := func(i int) uint32 { return uint32(b[i])<<16 | uint32(b[i+1])<<8 | uint32(b[i+2]) }
	return PacketInfo{Opcode: ib.Opcode(b[0]), DestQP: ib.QPN(be24(5)), PSN: ib.PSN(be24(9)), Bytes: len(b)}, true
}

// CorruptKind is how a copy of a packet is damaged.
type CorruptKind uint8

const (
	CorruptNone CorruptKind = iota
	// CorruptICRC makes the ICRC wrong, which is how any flipped bit looks to a
	// receiver: it drops the packet.
	CorruptICRC
	// CorruptPayload flips a bit of the payload, and the ICRC is that of the changed
	// packet: no receiver can tell.
	CorruptPayload
)

// FlipAt is the bit of a payload of n bytes, n > 0, that [CorruptPayload] flips.
func FlipAt(p PacketInfo, n int) (index int, bit byte) {
	h := Mix(uint64(p.PSN)<<32|uint64(p.DestQP), uint64(n))
	return int(h % uint64(n)), 1 << (h >> 60 & 7)
}

// MaxCopies is the most copies of one packet that a [Verdict] can ask for.
const MaxCopies = 2

// Verdict is the fate of one packet.
type Verdict struct {
	// Reason is LossNone unless Drop.
	Reason LossReason
	Drop   bool
	// Copies is 1 for a packet that just passes, 2 for a duplicated one, 0 if Drop.
	Copies uint8
	// Corrupt concerns the first copy; a duplicate is always sound.
	Corrupt CorruptKind
	// Reordered says that Delay[0] includes the reorder delay.
	Reordered bool
	// Delay of each copy. A reordered packet's duplicate is not held back.
	Delay [MaxCopies]time.Duration
	held  time.Duration // the reorder delay inside Delay[0]
}

// pass is the verdict of a perfect network.
var pass = Verdict{Copies: 1}

// Impairment decides the fate of packets from a configuration and a seed. The same
// seed and the same sequence of calls give the same verdicts. It is a pure policy:
// who asks must carry the verdict out. It is not safe for concurrent use.
type Impairment struct {
	cfg   ImpairmentConfig
	rules []ruleState
	idle  bool // nothing configured: Fate returns at once

	loss, dup, reorder, corrupt, tamper, burst chance
	lossGood, lossBad                          uint64 // thresholds, drawn from burstLoss
	badToGood                                  uint64
	bad                                        bool // the burst chain is in its bad state
	burstLoss, jitter, dupJitter               rand.PCG

	parts map[pair]struct{} // looked up, never ranged over
}

type pair struct{ src, dst ib.GID }

type ruleState struct {
	Rule
	seen, picked uint64
}

// chance is a probability with a random stream of its own.
type chance struct {
	threshold uint64
	rng       rand.PCG
}

// One stream per concern. The numbers are part of what a seed means: never reuse one.
const (
	streamLoss uint64 = iota + 1
	streamDuplicate
	streamReorder
	streamCorrupt
	streamBurst
	streamBurstLoss
	streamJitter
	streamDupJitter
	streamTamper
)

// NewImpairment returns a policy for cfg, or every problem that cfg has. The rules
// are copied.
func NewImpairment(cfg ImpairmentConfig, seed uint64) (*Impairment, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	im := &Impairment{
		cfg:       cfg,
		loss:      newChance(cfg.Loss, seed, streamLoss),
		dup:       newChance(cfg.Duplicate, seed, streamDuplicate),
		reorder:   newChance(cfg.Reorder, seed, streamReorder),
		corrupt:   newChance(cfg.Corrupt, seed, streamCorrupt),
		tamper:    newChance(cfg.Tamper, seed, streamTamper),
		burst:     newChance(cfg.Burst.GoodToBad, seed, streamBurst),
		badToGood: threshold(cfg.Burst.BadToGood),
		lossGood:  threshold(cfg.Burst.LossGood),
		lossBad:   threshold(cfg.Burst.LossBad),
		burstLoss: newPCG(seed, streamBurstLoss),
		jitter:    newPCG(seed, streamJitter),
		dupJitter: newPCG(seed, streamDupJitter),
	}
	im.cfg.Rules = nil
	for _, r := range cfg.Rules {
		im.rules = append(im.rules, ruleState{Rule: r.clone()})
	}
	im.setIdle()
	return im, nil
}

// AddRule appends a rule at run time.
func (im *Impairment) AddRule(r Rule) error {
	if err := r.Validate(); err != nil {
		return err
	}
	if len(im.rules) >= MaxRules {
		return fmt.Errorf("fabric: impairment: %d rules already, no more fit", MaxRules)
	}
	im.rules = append(im.rules, ruleState{Rule: r.clone()})
	im.setIdle()
	return nil
}

// ClearRules removes all rules.
func (im *Impairment) ClearRules() {
	im.rules = im.rules[:0]
	im.setIdle()
}

// RuleHits returns how many packets rule i has picked; 0 if there is no such rule.
func (im *Impairment) RuleHits(i int) uint64 {
	if i < 0 || i >= len(im.rules) {
		return 0
	}
	return im.rules[i].picked
}

// Partition drops everything from src to dst, that direction only, until Heal.
func (im *Impairment) Partition(src, dst ib.GID) {
	if im.parts == nil {
		im.parts = make(map[pair]struct{})
	}
	im.parts[pair{src, dst}] = struct{}{}
	im.setIdle()
}

// Heal ends a partition from src to dst.
func (im *Impairment) Heal(src, dst ib.GID) {
	delete(im.parts, pair{src, dst})
	im.setIdle()
}

// HealAll ends all partitions.
func (im *Impairment) HealAll() {
	clear(im.parts)
	im.setIdle()
}

// Active reports whether Fate can do anything but let a packet pass.
func (im *Impairment) Active() bool { return im != nil && !im.idle }

func (im *Impairment) setIdle() {
	im.idle = im.cfg.IsZero() && len(im.rules) == 0 && len(im.parts) == 0
}

// Fate decides about one packet that is sent at now. Every concern that is switched on
// makes its draws for every packet, also for one that is lost anyhow, so that the
// streams stay in step with the packet sequence. A nil Impairment lets all pass.
func (im *Impairment) Fate(now vtime.Time, path *wire.Path, p PacketInfo) Verdict {
	if im == nil || im.idle {
		return pass
	}
	v := pass
	if im.loss.hit() {
		v.lose(LossRandom)
	}
	if im.stepBurst() {
		v.lose(LossBurst)
	}
	if im.dup.hit() {
		v.Copies = 2
	}
	if im.tamper.hit() {
		v.Corrupt = CorruptPayload
	}
	if im.corrupt.hit() {
		v.Corrupt = CorruptICRC
	}
	v.Delay[0] = im.cfg.Delay + uniform(&im.jitter, im.cfg.Jitter)
	if v.Copies == 2 {
		v.Delay[1] = im.cfg.Delay + uniform(&im.dupJitter, im.cfg.Jitter)
	}
	if im.reorder.hit() {
		v.Reordered = true
		v.held = im.cfg.ReorderDelay
		v.Delay[0] += v.held
	}
	for i := range im.rules {
		im.rules[i].apply(&v, now, path, p)
	}
	if len(im.parts) > 0 {
		if _, cut := im.parts[pair{path.Src, path.Dst}]; cut {
			v.lose(LossPartition)
		}
	}
	if v.Drop {
		return Verdict{Drop: true, Reason: v.Reason}
	}
	return v
}

// lose marks a verdict as lost. The last reason wins; Fate asks in rising order of
// how deliberate the loss is.
func (v *Verdict) lose(r LossReason) { v.Drop, v.Reason = true, r }

// stepBurst moves the Gilbert-Elliott chain by one packet and says whether the state
// it is in now loses the packet.
func (im *Impairment) stepBurst() bool {
	if im.cfg.Burst == (Burst{}) {
		return false
	}
	u := im.burst.rng.Uint64()
	if im.bad {
		im.bad = !below(u, im.badToGood)
	} else {
		im.bad = below(u, im.burst.threshold)
	}
	u = im.burstLoss.Uint64()
	if im.bad {
		return below(u, im.lossBad)
	}
	return below(u, im.lossGood)
}

func (r *ruleState) apply(v *Verdict, now vtime.Time, path *wire.Path, p PacketInfo) {
	if r.First != 0 && r.picked >= r.First || !r.Match.matches(now, path.Src, path.Dst, p) {
		return
	}
	r.seen++
	if r.seen <= r.Skip || r.Every > 1 && (r.seen-r.Skip)%r.Every != 0 {
		return
	}
	r.picked++
	switch r.Action {
	case ActionDrop:
		v.lose(LossRule)
	case ActionDuplicate:
		if v.Copies == 1 {
			v.Copies, v.Delay[1] = 2, v.Delay[0]-v.held
		}
	case ActionCorrupt:
		v.Corrupt = CorruptICRC
	case ActionTamper:
		v.Corrupt = CorruptPayload
	case ActionDelay:
		for i := range v.Delay {
			v.Delay[i] += r.Delay
		}
	}
}

func (r Rule) clone() Rule {
	r.Match.Opcodes = slices.Clone(r.Match.Opcodes)
	r.Match.PSNs = slices.Clone(r.Match.PSNs)
	r.Match.DestQPs = slices.Clone(r.Match.DestQPs)
	return r
}

func newChance(p float64, seed, stream uint64) chance {
	return chance{threshold: threshold(p), rng: newPCG(seed, stream)}
}

// hit draws once, but not at all if the probability is 0.
func (c *chance) hit() bool { return c.threshold != 0 && below(c.rng.Uint64(), c.threshold) }

// threshold turns a probability into a bound for a 64-bit draw: 0 never, all ones
// always (see below).
func threshold(p float64) uint64 {
	if p >= 1 {
		return ^uint64(0)
	}
	return uint64(p * (1 << 64))
}

func below(u, threshold uint64) bool { return u < threshold || threshold == ^uint64(0) }

// newPCG separates streams by running seed and stream number through a mixer, since
// PCG generators whose states differ in few bits are correlated at first.
func newPCG(seed, stream uint64) rand.PCG {
	return *rand.NewPCG(Mix(seed, 2*stream), Mix(seed, 2*stream+1))
}

// Mix derives the seed of part n from the seed of the whole (the finaliser of
// SplitMix64). Neighbouring n give unrelated seeds.
func Mix(seed, n uint64) uint64 {
	z := seed + (n+1)*0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform draws from [0, d], but not at all if d is 0.
func uniform(rng *rand.PCG, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	hi, _ := bits.Mul64(rng.Uint64(), uint64(d)+1)
	return time.Duration(hi)
}
