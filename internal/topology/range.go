package topology

import (
	"math"
	"strconv"
	"strings"
)

// Range is a set of counts, Min to Max inclusive. The zero value is the range that
// holds 0 alone.
type Range struct {
	Min, Max uint64 // Max math.MaxUint64: no upper bound
}

// Any holds every count.
var Any = Range{0, math.MaxUint64}

// Exactly returns the range that holds n alone.
func Exactly(n uint64) Range { return Range{n, n} }

// Match reports whether n is in the range.
func (r Range) Match(n uint64) bool { return r.Min <= n && n <= r.Max }

// String prints the range so that [ParseRange] reads it back.
func (r Range) String() string {
	switch {
	case r == Any:
		return "any"
	case r.Min == r.Max:
		return strconv.FormatUint(r.Min, 10)
	case r.Max == math.MaxUint64:
		return ">=" + strconv.FormatUint(r.Min, 10)
	case r.Min == 0:
		return "<=" + strconv.FormatUint(r.Max, 10)
	}
	return strconv.FormatUint(r.Min, 10) + ".." + strconv.FormatUint(r.Max, 10)
}

// ParseRange reads "5", "1..5", "1..", "..5", ">=1", "<=5", ">1", "<5" or "any". ok
// is false for anything else and for a range that holds nothing.
func ParseRange(s string) (r Range, ok bool) {
	s = strings.TrimSpace(s)
	number := func(t string) uint64 {
		n, err := strconv.ParseUint(strings.TrimSpace(t), 10, 64)
		ok = ok && err == nil
		return n
	}
	ok = true
	lo, hi, dots := strings.Cut(s, "..")
	switch {
	case s == "any":
		return Any, true
	case dots && lo == "" && hi == "":
		return Range{}, false
	case dots:
		r = Any
		if lo != "" {
			r.Min = number(lo)
		}
		if hi != "" {
			r.Max = number(hi)
		}
	case strings.HasPrefix(s, ">="):
		r = Range{number(s[2:]), math.MaxUint64}
	case strings.HasPrefix(s, "<="):
		r = Range{0, number(s[2:])}
	case strings.HasPrefix(s, ">"):
		n := number(s[1:])
		ok = ok && n < math.MaxUint64
		r = Range{n + 1, math.MaxUint64}
	case strings.HasPrefix(s, "<"):
		n := number(s[1:])
		ok = ok && n > 0
		r = Range{0, n - 1}
	default:
		r = Exactly(number(s))
	}
	return r, ok && r.Min <= r.Max
}

// Count is an expected count that may be "all": as many as there can be, which only
// the run knows.
type Count struct {
	All   bool
	Range Range // if not All
}

// Match reports whether n is right where total is the most there can be.
func (c Count) Match(n, total uint64) bool {
	if c.All {
		return n == total
	}
	return c.Range.Match(n)
}

func (c Count) String() string {
	if c.All {
		return "all"
	}
	return c.Range.String()
}
