package dcqcn

import (
	"errors"
	"fmt"
	"time"
)

// Params are the parameters of a device. The names in comments are those of the paper
// and, where they differ, of mlx5 (/sys/class/net/*/ecn).
type Params struct {
	// LineRate is the rate of the port in bit/s: what a flow begins with and recovers to.
	LineRate uint64
	// MinRate is the lowest rate of a flow in bit/s (rpg_min_rate).
	MinRate uint64
	// G is the weight of a notification in alpha (g, dce_tcp_g), in units of 1/One.
	G uint32
	// AlphaTimer is how long alpha waits for a notification before it decays (K).
	AlphaTimer time.Duration
	// RateTimer is the time of one increase step (T, rpg_time_reset).
	RateTimer time.Duration
	// ByteCounter is the bytes on the wire of one increase step (B, rpg_byte_reset).
	ByteCounter uint64
	// FastRecovery is how many steps go halfway back to the rate before the cut, before
	// the target itself rises (F, rpg_threshold).
	FastRecovery uint32
	// AdditiveIncrease and HyperIncrease raise the target, in bit/s for a step (R_AI and
	// R_HAI; rpg_ai_rate, rpg_hai_rate).
	AdditiveIncrease, HyperIncrease uint64
	// CNPInterval is the least time between two CNPs of a queue pair (N,
	// min_time_between_cnps).
	CNPInterval time.Duration
	// CNPDSCP is the differentiated services code point of CNPs (cnp_dscp).
	CNPDSCP uint8
}

// One is 1 as a fixed-point number: of [Params.G] and of alpha.
const One = 1 << 30

// MaxLineRate keeps the arithmetic of pacing in range, in bit/s.
const MaxLineRate = 1e15

// mostSteps bounds the steps from the lowest rate to the line rate, and with them the
// work of a Flow that was not looked at for long.
const mostSteps = 1 << 20

// Default returns the parameters that the paper recommends, for a port of that rate.
// They were chosen for 40 Gbit/s.
func Default(lineRate uint64) Params {
	return Params{
		LineRate: lineRate, MinRate: max(min(10e6, lineRate), 1), G: One / 256,
		AlphaTimer: 55 * time.Microsecond, RateTimer: 55 * time.Microsecond, ByteCounter: 10 << 20,
		FastRecovery: 5, AdditiveIncrease: 40e6, HyperIncrease: 200e6,
		CNPInterval: 50 * time.Microsecond, CNPDSCP: 48,
	}
}

// Validate returns everything that is wrong with the parameters, joined, or nil.
func (p *Params) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("dcqcn: "+format, args...)) }
	if p.LineRate == 0 || p.LineRate > MaxLineRate {
		bad("the line rate is %d bit/s, want 1 to %d", p.LineRate, uint64(MaxLineRate))
	}
	if p.MinRate == 0 || p.MinRate > p.LineRate {
		bad("the lowest rate is %d bit/s, want 1 to the line rate, %d", p.MinRate, p.LineRate)
	}
	if p.G == 0 || p.G > One {
		bad("g is %d/2^30, want more than 0 and at most 1", p.G)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"alpha timer", p.AlphaTimer}, {"rate timer", p.RateTimer}} {
		if d.d <= 0 {
			bad("the %s is %v, want more than 0", d.name, d.d)
		}
	}
	if p.CNPInterval < 0 {
		bad("the CNP interval is %v, want 0 or more", p.CNPInterval)
	}
	if p.ByteCounter == 0 {
		bad("the byte counter is 0, want more")
	}
	if p.AdditiveIncrease <= p.LineRate/mostSteps || p.AdditiveIncrease > MaxLineRate {
		bad("the additive increase is %d bit/s, want more than a 2^20th of the line rate", p.AdditiveIncrease)
	}
	if p.HyperIncrease > MaxLineRate {
		bad("the hyper increase is %d bit/s, want at most %d", p.HyperIncrease, uint64(MaxLineRate))
	}
	if p.CNPDSCP > 63 {
		bad("the DSCP of CNPs is %d, want 0 to 63", p.CNPDSCP)
	}
	return errors.Join(errs...)
}
