package fabric

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// MaxDelay bounds every configured delay. An hour is far beyond any retry timer, and
// sums of a few such delays cannot overflow.
const MaxDelay = time.Hour

// MaxRules bounds the rules of one Impairment; each packet is matched against all.
const MaxRules = 256

// ImpairmentConfig says what a faulty network does to packets. The zero value is a
// perfect network and costs nothing.
type ImpairmentConfig struct {
	// Loss, Duplicate, Reorder and Corrupt are probabilities per packet, 0 to 1.
	// They are drawn from independent streams: switching one on does not change
	// which packets another one hits.
	Loss, Duplicate, Reorder, Corrupt float64
	// Tamper is the probability that a bit of a packet's payload is flipped and the
	// ICRC fits all the same, as a faulty switch that computes it anew would do. Packets
	// without payload are spared.
	Tamper float64
	// ReorderDelay is how long a reordered packet is held back, so that later ones
	// overtake it. Needed if Reorder is not 0.
	ReorderDelay time.Duration
	// ReorderPackets releases a held packet early, after this many later packets
	// went out, where the network counts them (see [Impaired]); 0 means never.
	ReorderPackets int
	// Burst is loss that comes in runs.
	Burst Burst
	// Delay is added to each packet, and a further uniform [0, Jitter]. Unlike the
	// jitter of a link, this one lets packets overtake each other.
	Delay, Jitter time.Duration
	// Rules pick single packets. All are tried in order; each that matches counts.
	Rules []Rule
}

// Burst is the Gilbert-Elliott model: a two-state Markov chain that makes a step per
// packet, with a loss probability for each state. It begins in the good state.
type Burst struct {
	GoodToBad, BadToGood float64 // transition probabilities per packet
	LossGood, LossBad    float64 // loss probability within a state
}

// Action is what a [Rule] does to the packets it picks.
type Action uint8

const (
	ActionDrop      Action = 1
	ActionDuplicate Action = 2
	ActionCorrupt   Action = 3
	ActionDelay     Action = 4
	ActionTamper    Action = 5
)

var actionNames = [...]string{"none", "drop", "duplicate", "corrupt", "delay", "tamper"}

func (a Action) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return "Action(" + strconv.Itoa(int(a)) + ")"
}

// Match selects packets. Every condition that is set must hold; an empty list, a zero
// GID and a zero instant are conditions that are not set.
type Match struct {
	Opcodes  []ib.Opcode
	PSNs     []ib.PSN
	DestQPs  []ib.QPN
	Src, Dst ib.GID
	// From and Until bound the instant: From <= now < Until.
	From, Until vtime.Time
}

// Rule applies an action to some of the packets that match: the first Skip pass
// untouched, of the others each Every-th is picked (0 and 1: each), until First have
// been picked (0: no limit).
//
// Skip 0, Every 3 picks the 3rd, 6th, 9th; First 2 picks the 1st and 2nd.
type Rule struct {
	Match  Match
	Skip   uint64
	Every  uint64
	First  uint64
	Action Action
	Delay  time.Duration // for ActionDelay, added to other delays
}

// DropNth is the rule that drops each n-th packet.
func DropNth(n uint64) Rule { return Rule{Every: n, Action: ActionDrop} }

// DropFirst is the rule that drops the next n packets that match.
func DropFirst(n uint64, m Match) Rule { return Rule{Match: m, First: n, Action: ActionDrop} }

// IsZero reports whether the configuration is that of a perfect network.
func (c *ImpairmentConfig) IsZero() bool {
	return c.Loss == 0 && c.Duplicate == 0 && c.Reorder == 0 && c.Corrupt == 0 && c.Tamper == 0 &&
		c.ReorderDelay == 0 && c.ReorderPackets == 0 && c.Burst == Burst{} &&
		c.Delay == 0 && c.Jitter == 0 && len(c.Rules) == 0
}

// Validate returns all problems of the configuration, joined, or nil.
func (c *ImpairmentConfig) Validate() error {
	var errs []error
	for _, p := range []struct {
		name string
		v    float64
	}{
		{"loss", c.Loss}, {"duplicate", c.Duplicate}, {"reorder", c.Reorder}, {"corrupt", c.Corrupt}, {"tamper", c.Tamper},
		{"burst good_to_bad", c.Burst.GoodToBad}, {"burst bad_to_good", c.Burst.BadToGood},
		{"burst loss_good", c.Burst.LossGood}, {"burst loss_bad", c.Burst.LossBad},
	} {
		if !(p.v >= 0 && p.v <= 1) { // written so that NaN fails
			errs = append(errs, fmt.Errorf("fabric: impairment: %s is %v, want a probability between 0 and 1", p.name, p.v))
		}
	}
	for _, d := range []struct {
		name string
		v    time.Duration
	}{{"delay", c.Delay}, {"jitter", c.Jitter}, {"reorder delay", c.ReorderDelay}} {
		errs = append(errs, checkDelay(d.name, d.v))
	}
	if c.Reorder > 0 && c.ReorderDelay == 0 {
		errs = append(errs, errors.New("fabric: impairment: reorder needs a reorder delay"))
	}
	if c.ReorderPackets < 0 {
		errs = append(errs, fmt.Errorf("fabric: impairment: reorder packets is %d, want 0 or more", c.ReorderPackets))
	}
	if len(c.Rules) > MaxRules {
		errs = append(errs, fmt.Errorf("fabric: impairment: %d rules, at most %d", len(c.Rules), MaxRules))
	}
	for i := range c.Rules {
		if err := c.Rules[i].Validate(); err != nil {
			errs = append(errs, fmt.Errorf("rule %d: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

// Validate returns all problems of the rule, joined, or nil.
func (r *Rule) Validate() error {
	var errs []error
	if r.Action < ActionDrop || r.Action > ActionTamper {
		errs = append(errs, fmt.Errorf("fabric: impairment: action %s, want drop, duplicate, corrupt, delay or tamper", r.Action))
	}
	errs = append(errs, checkDelay("rule delay", r.Delay))
	if r.Action == ActionDelay && r.Delay == 0 {
		errs = append(errs, errors.New("fabric: impairment: action delay needs a delay"))
	}
	if r.Action != ActionDelay && r.Delay > 0 {
		errs = append(errs, fmt.Errorf("fabric: impairment: action %s has no use for a delay", r.Action))
	}
	for _, p := range r.Match.PSNs {
		if p > ib.PSNMask {
			errs = append(errs, fmt.Errorf("fabric: impairment: PSN %#x has more than 24 bits", uint32(p)))
		}
	}
	for _, q := range r.Match.DestQPs {
		if q > ib.QPNMask {
			errs = append(errs, fmt.Errorf("fabric: impairment: QPN %#x has more than 24 bits", uint32(q)))
		}
	}
	if m := &r.Match; m.Until != 0 && m.Until <= m.From {
		errs = append(errs, fmt.Errorf("fabric: impairment: window from %v until %v is empty", m.From, m.Until))
	}
	return errors.Join(errs...)
}

func checkDelay(name string, d time.Duration) error {
	if d < 0 || d > MaxDelay {
		return fmt.Errorf("fabric: impairment: %s is %v, want 0 to %v", name, d, MaxDelay)
	}
	return nil
}

// matches reports whether the packet meets every condition that is set.
func (m *Match) matches(now vtime.Time, src, dst ib.GID, p PacketInfo) bool {
	switch {
	case now < m.From, m.Until != 0 && now >= m.Until:
		return false
	case !m.Src.IsZero() && m.Src != src, !m.Dst.IsZero() && m.Dst != dst:
		return false
	}
	return oneOf(m.Opcodes, p.Opcode) && oneOf(m.PSNs, p.PSN) && oneOf(m.DestQPs, p.DestQP)
}

func oneOf[T comparable](list []T, v T) bool {
	if len(list) == 0 {
		return true
	}
	for _, x := range list {
		if x == v {
			return true
		}
	}
	return false
}
