// Package vtime is the clock-free notion of time that the protocol core uses.
//
// A [Time] is an instant, a count of nanoseconds since the epoch of one run. Who
// owns the run decides what the epoch is: the virtual-time world starts at 0, the
// real-time shell at the start of the process. The core only ever receives a Time
// as an argument and hands one back as a deadline; it never reads a clock.
package vtime

import (
	"math"
	"time"
)

// Time is an instant in nanoseconds since the epoch of the run. It is a type of
// its own, so that an instant and an interval (time.Duration) cannot be mixed.
type Time int64

// Never is later than every other instant. A deadline of Never means "no deadline".
const Never Time = math.MaxInt64

// Add returns t+d. It saturates: Never stays Never, and an overflow gives Never.
func (t Time) Add(d time.Duration) Time {
	if t == Never {
		return Never
	}
	s := t + Time(d)
	if d > 0 && s < t {
		return Never
	}
	return s
}

// Sub returns the interval t-u. Either being Never gives the longest interval of
// the corresponding sign.
func (t Time) Sub(u Time) time.Duration {
	switch {
	case t == u:
		return 0
	case t == Never:
		return math.MaxInt64
	case u == Never:
		return math.MinInt64
	}
	return time.Duration(t - u)
}

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool { return t < u }

// Min returns the earlier of a and b.
func Min(a, b Time) Time {
	if a < b {
		return a
	}
	return b
}

// String prints the instant as a duration since the epoch, or "never".
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return time.Duration(t).String()
}
