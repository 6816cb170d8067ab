package fabric

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

var (
	gidA = ib.GIDFromIPv4(10, 0, 0, 1)
	gidB = ib.GIDFromIPv4(10, 0, 0, 2)
	ab   = &wire.Path{Src: gidA, Dst: gidB}
	ba   = &wire.Path{Src: gidB, Dst: gidA}
)

func mustImpair(t testing.TB, cfg ImpairmentConfig, seed uint64) *Impairment {
	t.Helper()
	im, err := NewImpairment(cfg, seed)
	require.NoError(t, err)
	return im
}

// fates asks for n packets with rising PSN, one per microsecond.
func fates(im *Impairment, n int) []Verdict {
	out := make([]Verdict, n)
	for i := range out {
		out[i] = im.Fate(vtime.Time(i)*1000, ab, PacketInfo{PSN: ib.PSN(i)})
	}
	return out
}

func TestZeroConfigPasses(t *testing.T) {
	im := mustImpair(t, ImpairmentConfig{}, 1)
	before := *im
	for _, v := range fates(im, 100) {
		require.Equal(t, Verdict{Copies: 1}, v)
	}
	require.Equal(t, before, *im, "a zero configuration must make no draws")
	require.False(t, im.Active())
	var none *Impairment
	require.False(t, none.Active())
	require.Equal(t, Verdict{Copies: 1}, none.Fate(0, ab, PacketInfo{}))
}

func TestFateDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawConfig(t)
		seed := rapid.Uint64().Draw(t, "seed")
		a, err := NewImpairment(cfg, seed)
		require.NoError(t, err)
		b, _ := NewImpairment(cfg, seed)
		require.Equal(t, fates(a, 200), fates(b, 200))
	})
}

func TestSeedsDiffer(t *testing.T) {
	cfg := ImpairmentConfig{Loss: 0.5}
	require.NotEqual(t, fates(mustImpair(t, cfg, 1), 100), fates(mustImpair(t, cfg, 2), 100))
}

func drawConfig(t *rapid.T) ImpairmentConfig {
	prob := rapid.SampledFrom([]float64{0, 0.01, 0.3, 1})
	dur := rapid.SampledFrom([]time.Duration{0, 1, time.Microsecond, time.Millisecond})
	c := ImpairmentConfig{
		Loss: prob.Draw(t, "loss"), Duplicate: prob.Draw(t, "dup"), Corrupt: prob.Draw(t, "corrupt"),
		Delay: dur.Draw(t, "delay"), Jitter: dur.Draw(t, "jitter"),
	}
	if c.ReorderDelay = dur.Draw(t, "reorder delay"); c.ReorderDelay > 0 {
		c.Reorder = prob.Draw(t, "reorder")
	}
	if rapid.Bool().Draw(t, "burst") {
		c.Burst = Burst{0.1, 0.4, 0.01, 0.9}
	}
	if rapid.Bool().Draw(t, "rule") {
		c.Rules = []Rule{DropNth(7), {Match: Match{PSNs: []ib.PSN{3, 4}}, Action: ActionDuplicate}}
	}
	return c
}

// TestStreamsAreIndependent: switching on another concern must not move the loss of
// this one, nor the duplicates, and so on.
func TestStreamsAreIndependent(t *testing.T) {
	all := ImpairmentConfig{
		Loss: 0.2, Duplicate: 0.2, Reorder: 0.2, ReorderDelay: time.Hour, Corrupt: 0.2,
		Burst: Burst{0.1, 0.3, 0, 1}, Jitter: time.Millisecond,
		Rules: []Rule{DropNth(3)},
	}
	const n = 500
	both := fates(mustImpair(t, all, 9), n)
	loss := fates(mustImpair(t, ImpairmentConfig{Loss: 0.2}, 9), n)
	dup := fates(mustImpair(t, ImpairmentConfig{Duplicate: 0.2}, 9), n)
	bad := fates(mustImpair(t, ImpairmentConfig{Corrupt: 0.2}, 9), n)
	reorder := fates(mustImpair(t, ImpairmentConfig{Reorder: 0.2, ReorderDelay: time.Hour}, 9), n)
	jitter := fates(mustImpair(t, ImpairmentConfig{Jitter: time.Millisecond}, 9), n)
	passed := 0
	for i, v := range both {
		if loss[i].Drop {
			require.True(t, v.Drop, "packet %d", i)
		}
		if (i+1)%3 == 0 {
			require.Equal(t, LossRule, v.Reason, "packet %d", i)
		}
		if v.Drop {
			continue
		}
		passed++
		require.Equal(t, dup[i].Copies, v.Copies)
		require.Equal(t, bad[i].Corrupt, v.Corrupt)
		require.Equal(t, reorder[i].Reordered, v.Reordered)
		require.Equal(t, jitter[i].Delay[0]+reorder[i].Delay[0], v.Delay[0])
	}
	require.Greater(t, passed, 100)
}

func TestRates(t *testing.T) {
	const n = 20000
	im := mustImpair(t, ImpairmentConfig{Loss: 0.1, Duplicate: 0.25, Corrupt: 0.05, Reorder: 0.5, ReorderDelay: 1, Jitter: 999}, 3)
	var lost, dup, bad, re, jit float64
	for _, v := range fates(im, n) {
		if v.Drop {
			lost++
			require.Equal(t, Verdict{Drop: true, Reason: LossRandom}, v)
			continue
		}
		dup += float64(v.Copies - 1)
		bad += float64(v.Corrupt)
		if v.Reordered {
			re++
			v.Delay[0]--
		}
		require.LessOrEqual(t, v.Delay[0], time.Duration(999))
		jit += float64(v.Delay[0])
	}
	pass := n - lost
	// Five standard deviations, and the seed is fixed: this does not flicker.
	near := func(name string, got, want float64) {
		require.InDelta(t, want, got, 5*math.Sqrt(want*(1-want)/pass), name)
	}
	near("loss", lost/n, 0.1)
	near("duplicate", dup/pass, 0.25)
	near("corrupt", bad/pass, 0.05)
	near("reorder", re/pass, 0.5)
	require.InDelta(t, 499.5, jit/pass, 10)
}

func TestBurst(t *testing.T) {
	// The chain alternates between the states; only the bad one loses.
	im := mustImpair(t, ImpairmentConfig{Burst: Burst{GoodToBad: 1, BadToGood: 1, LossBad: 1}}, 1)
	for i, v := range fates(im, 10) {
		require.Equal(t, i%2 == 0, v.Drop, "packet %d", i)
		if v.Drop {
			require.Equal(t, LossBurst, v.Reason)
		}
	}
	// Mean length of a run of losses is 1/BadToGood.
	im = mustImpair(t, ImpairmentConfig{Burst: Burst{GoodToBad: 0.02, BadToGood: 0.25, LossBad: 1}}, 5)
	runs, lost, prev := 0, 0, false
	for _, v := range fates(im, 50000) {
		if v.Drop {
			lost++
			if !prev {
				runs++
			}
		}
		prev = v.Drop
	}
	require.InDelta(t, 4, float64(lost)/float64(runs), 0.4)
	require.InDelta(t, 50000*0.02/0.27, float64(lost), 600)
}

func TestRules(t *testing.T) {
	for _, c := range []struct {
		name string
		rule Rule
		want []int // PSNs picked out of 0..11; even PSNs have opcode ACK
	}{
		{"all", Rule{}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}},
		{"every third", DropNth(3), []int{2, 5, 8, 11}},
		{"first two", DropFirst(2, Match{}), []int{0, 1}},
		{"skip", Rule{Skip: 10}, []int{10, 11}},
		{"skip, every, first", Rule{Skip: 1, Every: 4, First: 2}, []int{4, 8}},
		{"opcode", Rule{Match: Match{Opcodes: []ib.Opcode{ib.OpAcknowledge}}, Every: 2}, []int{2, 6, 10}},
		{"psn", Rule{Match: Match{PSNs: []ib.PSN{7, 3}}}, []int{3, 7}},
		{"qp", Rule{Match: Match{DestQPs: []ib.QPN{0x12}}}, []int{2, 5, 8, 11}},
		{"source", Rule{Match: Match{Src: gidA}, First: 1}, []int{0}},
		{"other source", Rule{Match: Match{Src: gidB}}, nil},
		{"other destination", Rule{Match: Match{Dst: gidA}}, nil},
		{"window", Rule{Match: Match{From: 3000, Until: 5000}}, []int{3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.rule.Action = ActionDrop
			im := mustImpair(t, ImpairmentConfig{Rules: []Rule{c.rule}}, 1)
			var got []int
			for i := range 12 {
				p := PacketInfo{PSN: ib.PSN(i), DestQP: ib.QPN(0x10 + i%3)}
				if i%2 == 0 {
					p.Opcode = ib.OpAcknowledge
				}
				if v := im.Fate(vtime.Time(i)*1000, ab, p); v.Drop {
					require.Equal(t, LossRule, v.Reason)
					got = append(got, i)
				}
			}
			require.Equal(t, c.want, got)
			require.EqualValues(t, len(c.want), im.RuleHits(0))
		})
	}
}

func TestRuleActions(t *testing.T) {
	im := mustImpair(t, ImpairmentConfig{Delay: 5}, 1)
	for _, r := range []Rule{
		{Match: Match{PSNs: []ib.PSN{1}}, Action: ActionDuplicate},
		{Match: Match{PSNs: []ib.PSN{2}}, Action: ActionCorrupt},
		{Match: Match{PSNs: []ib.PSN{3}}, Action: ActionDelay, Delay: 100},
	} {
		require.NoError(t, im.AddRule(r))
	}
	got := fates(im, 4)
	require.Equal(t, Verdict{Copies: 1, Delay: [2]time.Duration{5, 0}}, got[0])
	require.Equal(t, Verdict{Copies: 2, Delay: [2]time.Duration{5, 5}}, got[1])
	require.Equal(t, Verdict{Copies: 1, Corrupt: CorruptICRC, Delay: [2]time.Duration{5, 0}}, got[2])
	require.Equal(t, time.Duration(105), got[3].Delay[0])
	im.ClearRules()
	require.Equal(t, uint8(1), fates(im, 2)[1].Copies)
	require.Zero(t, im.RuleHits(0))
}

// TestDuplicateOfReorderedIsNotHeld: of a packet that is both, one copy is on time.
func TestDuplicateOfReorderedIsNotHeld(t *testing.T) {
	want := Verdict{Copies: 2, Reordered: true, held: 100, Delay: [2]time.Duration{105, 5}}
	base := ImpairmentConfig{Delay: 5, Reorder: 1, ReorderDelay: 100}
	random, rule := base, base
	random.Duplicate = 1
	rule.Rules = []Rule{{Action: ActionDuplicate}}
	require.Equal(t, want, fates(mustImpair(t, random, 1), 1)[0])
	require.Equal(t, want, fates(mustImpair(t, rule, 1), 1)[0])
}

func TestPartition(t *testing.T) {
	im := mustImpair(t, ImpairmentConfig{}, 1)
	im.Partition(gidA, gidB)
	require.True(t, im.Active())
	require.Equal(t, Verdict{Drop: true, Reason: LossPartition}, im.Fate(0, ab, PacketInfo{}))
	require.False(t, im.Fate(0, ba, PacketInfo{}).Drop, "one direction only")
	im.Heal(gidA, gidB)
	require.False(t, im.Active())
	im.Partition(gidA, gidB)
	im.Partition(gidB, gidA)
	im.HealAll()
	require.False(t, im.Fate(0, ab, PacketInfo{}).Drop)
}

func TestValidateReportsAll(t *testing.T) {
	c := ImpairmentConfig{
		Loss: -0.1, Corrupt: 1.5, Duplicate: math.NaN(), Reorder: 0.5,
		Delay: -1, Jitter: 2 * time.Hour, ReorderPackets: -1, Burst: Burst{LossBad: 2},
		Rules: []Rule{
			{}, {Action: ActionDelay}, {Action: ActionDrop, Delay: 1},
			{Action: ActionDrop, Match: Match{PSNs: []ib.PSN{1 << 24}, DestQPs: []ib.QPN{1 << 24}, From: 5, Until: 5}},
		},
	}
	err := c.Validate()
	require.Error(t, err)
	for _, want := range []string{
		"loss is -0.1", "corrupt is 1.5", "duplicate is NaN", "reorder needs", "delay is -1ns", "jitter is 2h",
		"reorder packets is -1", "burst loss_bad is 2", "rule 0:", "action none", "rule 1:", "delay needs a delay",
		"rule 2:", "no use for a delay", "rule 3:", "PSN 0x1000000", "QPN 0x1000000", "is empty",
	} {
		require.Contains(t, err.Error(), want)
	}
	_, err = NewImpairment(c, 1)
	require.Error(t, err)
	require.NoError(t, (&ImpairmentConfig{}).Validate())
	require.ErrorContains(t, (&ImpairmentConfig{Rules: make([]Rule, MaxRules+1)}).Validate(), "at most 256")
	im := mustImpair(t, ImpairmentConfig{}, 1)
	require.Error(t, im.AddRule(Rule{}))
	for range MaxRules {
		require.NoError(t, im.AddRule(DropNth(2)))
	}
	require.Error(t, im.AddRule(DropNth(2)))
}

func TestFateDoesNotAllocate(t *testing.T) {
	im := mustImpair(t, ImpairmentConfig{
		Loss: 0.1, Duplicate: 0.1, Corrupt: 0.1, Jitter: 100, Burst: Burst{0.1, 0.1, 0, 1},
		Rules: []Rule{DropNth(10)},
	}, 1)
	im.Partition(gidB, gidA)
	require.Zero(t, testing.AllocsPerRun(1000, func() { im.Fate(5, ab, PacketInfo{PSN: 3}) }))
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for r := range LossReason(NumLossReasons) {
		s := r.String()
		require.NotEmpty(t, s)
		require.False(t, seen[s] || strings.Contains(s, "("), s)
		seen[s] = true
	}
	require.Equal(t, "LossReason(200)", LossReason(200).String())
	require.Equal(t, "drop", ActionDrop.String())
	require.Equal(t, "Action(9)", Action(9).String())
}

func TestPeekInfo(t *testing.T) {
	p := wire.Packet{Opcode: ib.OpWriteOnly, PSN: 0xabcdef, DestQP: 0x123456, AckReq: true, FECN: true}
	b := wire.AppendPacket(nil, &p)
	got, ok := PeekInfo(b)
	require.True(t, ok)
	require.Equal(t, InfoOf(&p, len(b)), got)
	_, ok = PeekInfo(b[:11])
	require.False(t, ok)
}

func BenchmarkFateIdle(b *testing.B) {
	im := mustImpair(b, ImpairmentConfig{}, 1)
	for b.Loop() {
		im.Fate(0, ab, PacketInfo{})
	}
}

func BenchmarkFateLossy(b *testing.B) {
	im := mustImpair(b, ImpairmentConfig{Loss: 0.01, Duplicate: 0.01, Reorder: 0.01, ReorderDelay: 1, Corrupt: 0.01}, 1)
	for b.Loop() {
		im.Fate(0, ab, PacketInfo{})
	}
}
