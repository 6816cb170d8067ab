package dcqcn

import (
	"math/bits"
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// Flow is the reaction point and the notification point of one queue pair. The
// parameters, which must be valid, are passed to each call: all queue pairs of a
// device share them. The zero value is a flow at line rate that nobody complained of.
//
// The timers of the paper are no timers here: each call first makes up for the steps
// that were due since the last one.
type Flow struct {
	// Reaction point.
	limited bool       // a rate limit is in force; else the port alone is the limit
	rate    uint64     // current rate (R_C), bit/s
	target  uint64     // target rate (R_T), bit/s
	alpha   uint32     // estimate of congestion, 0 to One
	alphaAt vtime.Time // when alpha decays next
	rateAt  vtime.Time // when the timer makes its next step
	times   uint32     // steps of the timer since the last cut (T)
	counts  uint32     // steps of the byte counter since then (BC)
	bytes   uint64     // of the byte counter's step under way
	readyAt vtime.Time // when the next packet may leave
	carry   uint64     // what integer division left over of the last gap

	// Notification point.
	notified bool
	cnpAt    vtime.Time // of the last CNP
}

// Limited reports whether a rate limit is in force.
func (f *Flow) Limited() bool { return f.limited }

// Rate returns the current rate (R_C) in bit/s, as of the last call.
func (f *Flow) Rate(p *Params) uint64 {
	if !f.limited {
		return p.LineRate
	}
	return f.rate
}

// Alpha returns the estimate of congestion, from 0 to [One].
func (f *Flow) Alpha() uint32 { return f.alpha }

// CNP tells the reaction point of a notification: the rate is cut by alpha/2.
func (f *Flow) CNP(p *Params, now vtime.Time) {
	f.advance(p, now)
	if !f.limited {
		f.limited, f.rate, f.alpha = true, p.LineRate, One
		f.readyAt = now
	}
	f.target = f.rate
	f.rate = max(f.rate-scale(f.rate, f.alpha)/2, p.MinRate)
	f.alpha += uint32(scale(uint64(One-f.alpha), p.G))
	f.times, f.counts, f.bytes, f.carry = 0, 0, 0, 0
	f.alphaAt, f.rateAt = now.Add(p.AlphaTimer), now.Add(p.RateTimer)
}

// ReadyAt returns when the flow may send its next packet: now or earlier if at once.
func (f *Flow) ReadyAt(p *Params, now vtime.Time) vtime.Time {
	f.advance(p, now)
	if !f.limited {
		return 0
	}
	return f.readyAt
}

// Sent tells the reaction point of a packet of n bytes on the wire.
func (f *Flow) Sent(p *Params, now vtime.Time, n int) {
	f.advance(p, now)
	if !f.limited {
		return
	}
	for f.bytes += uint64(n); f.limited && f.bytes >= p.ByteCounter; f.bytes -= p.ByteCounter {
		f.counts++
		f.increase(p)
	}
	if !f.limited {
		return
	}
	if f.readyAt < now {
		f.readyAt, f.carry = now, 0
	}
	// n < 2^16, so the product stays below 2^50, and carry below 2^50.
	need := uint64(n)*8*uint64(time.Second) + f.carry
	f.carry = need % f.rate
	f.readyAt = f.readyAt.Add(time.Duration(need / f.rate))
}

// advance makes the steps of both timers that are due by now.
func (f *Flow) advance(p *Params, now vtime.Time) {
	for f.limited {
		switch {
		case f.alphaAt <= min(now, f.rateAt):
			f.decay(p)
		case f.rateAt <= now:
			f.rateAt = f.rateAt.Add(p.RateTimer)
			f.times++
			f.increase(p)
		default:
			return
		}
	}
}

// decay lowers alpha after a time without notification. At 0 there is nothing left to
// do.
func (f *Flow) decay(p *Params) {
	f.alpha -= max(uint32(scale(uint64(f.alpha), p.G)), min(f.alpha, 1))
	f.alphaAt = f.alphaAt.Add(p.AlphaTimer)
	if f.alpha == 0 {
		f.alphaAt = vtime.Never
	}
}

// increase is one step of recovery. At line rate the limit is lifted.
func (f *Flow) increase(p *Params) {
	switch {
	case max(f.times, f.counts) <= p.FastRecovery: // fast recovery
	case min(f.times, f.counts) > p.FastRecovery: // hyper increase
		f.target += uint64(min(f.times, f.counts)-p.FastRecovery) * p.HyperIncrease
	default: // additive increase
		f.target += p.AdditiveIncrease
	}
	f.target = min(f.target, p.LineRate)
	f.rate = (f.rate + f.target + 1) / 2 // rounded up, so that the target is reached
	f.carry = 0
	if f.rate >= p.LineRate {
		f.limited = false
	}
}

// Marked tells the notification point that a packet came with congestion experienced,
// and reports whether a CNP is due.
func (f *Flow) Marked(p *Params, now vtime.Time) (cnp bool) {
	if f.notified && now.Sub(f.cnpAt) < p.CNPInterval {
		return false
	}
	f.notified, f.cnpAt = true, now
	return true
}

// scale returns v times a fixed-point fraction of at most One, rounded down.
func scale(v uint64, fraction uint32) uint64 {
	hi, lo := bits.Mul64(v, uint64(fraction))
	return hi<<34 | lo>>30
}
