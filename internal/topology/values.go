package topology

import (
	"fmt"
	"math"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// The parsers here turn one value of the file into a Go value. Each reports what it
// found and what it expected, and returns false, if the value will not do.

// scalar makes a parser of a function on the text of a scalar.
func scalar[V any](expected string, parse func(string) (V, bool)) func(*decoder, value) (V, bool) {
	return func(d *decoder, v value) (V, bool) {
		var x V
		s, ok := d.text(v)
		if ok {
			x, ok = parse(s)
		}
		if !ok {
			d.mismatch(v, expected)
		}
		return x, ok
	}
}

// integer accepts a whole number from lo to hi, decimal or 0x hexadecimal.
func integer[V ~int | ~int64 | ~uint8 | ~uint32 | ~uint64](lo, hi V) func(*decoder, value) (V, bool) {
	return scalar(fmt.Sprintf("a whole number from %d to %d", lo, hi), func(s string) (V, bool) {
		n, ok := parseUint(s)
		if !ok || n < uint64(lo) || n > uint64(hi) {
			return 0, false
		}
		return V(n), true
	})
}

func parseUint(s string) (uint64, bool) {
	base, digits := 10, s
	if h, ok := strings.CutPrefix(s, "0x"); ok {
		base, digits = 16, h
	}
	n, err := strconv.ParseUint(digits, base, 64)
	return n, err == nil
}

// oneOf accepts one of the names; what is the noun for messages.
func oneOf[V ~string](what string, names ...V) func(*decoder, value) (V, bool) {
	list := make([]string, len(names))
	for i, n := range names {
		list[i] = string(n)
	}
	return func(d *decoder, v value) (V, bool) {
		s, ok := d.text(v)
		if !ok {
			d.mismatch(v, "one of "+listed(list))
			return "", false
		}
		for _, n := range names {
			if s == string(n) {
				return n, true
			}
		}
		d.unknown(v.path, what, s, list)
		return "", false
	}
}

// unknown reports a word that is not in a closed list.
func (d *decoder) unknown(path, what, got string, names []string) {
	d.problem(path, "unknown %s %s; expected one of %s%s", what, quote(got), listed(names), didYouMean(got, names))
}

var boolean = scalar("true or false", func(s string) (bool, bool) { return s == "true", s == "true" || s == "false" })

// name accepts what may name a run, node or flow: it appears in messages, tables
// and file names.
var name = scalar("a name of up to 64 letters, digits, '.', '_' and '-'", func(s string) (string, bool) {
	return s, isName(s)
})

func isName(s string) bool {
	const more = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	return s != "" && len(s) <= 64 && strings.Trim(s, more) == ""
}

const durationWanted = "a duration such as 10us, 1.5ms or 2s"

var duration = scalar(durationWanted, parseDuration)

func parseDuration(s string) (time.Duration, bool) {
	t, err := time.ParseDuration(s)
	return t, err == nil && t >= 0
}

// positiveDuration refuses 0.
var positiveDuration = scalar("a duration above 0 such as 10us, 1.5ms or 2s", func(s string) (time.Duration, bool) {
	t, ok := parseDuration(s)
	return t, ok && t > 0
})

var probability = scalar("a probability: 0 to 1, or 0% to 100%", func(s string) (float64, bool) {
	number, percent := strings.CutSuffix(s, "%")
	p, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		p /= 100
	}
	return p, err == nil && p >= 0 && p <= 1 // a NaN fails both
})

// unit is a suffix and its factor.
type unit struct {
	suffix string
	factor float64
}

// Longer suffixes come first where one ends in another.
var sizeUnits = []unit{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"B", 1}}

var rateUnits = []unit{{"kbps", 1e3}, {"Kbps", 1e3}, {"Mbps", 1e6}, {"Gbps", 1e9}, {"Tbps", 1e12}, {"bps", 1}}

// parseUnits reads "1.5MiB" as a whole number of the base unit; a number without a
// suffix is allowed if bare is.
func parseUnits(s string, units []unit, bare bool) (int64, bool) {
	for _, u := range units {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		number = strings.TrimSpace(number)
		if n, whole := parseUint(number); whole {
			// Exact where float64 would round.
			hi, lo := bits.Mul64(n, uint64(u.factor))
			return int64(lo), hi == 0 && lo <= math.MaxInt64
		}
		f, err := strconv.ParseFloat(number, 64)
		f *= u.factor
		return int64(f), err == nil && f >= 0 && f < math.MaxInt64 && f == math.Trunc(f)
	}
	n, ok := parseUint(s)
	return int64(n), ok && bare && n <= math.MaxInt64
}

const sizeWanted = "a size such as 64, 4KiB or 1MiB"

var size = scalar(sizeWanted, func(s string) (int64, bool) { return parseUnits(s, sizeUnits, true) })

// sizeOrUnlimited gives 0 for "unlimited".
var sizeOrUnlimited = scalar(`a size such as 64KiB, or "unlimited"`, func(s string) (int64, bool) {
	if s == "unlimited" {
		return 0, true
	}
	n, ok := parseUnits(s, sizeUnits, true)
	return n, ok && n > 0
})

// rate gives 0 for "unlimited".
var rate = scalar(`a rate such as 100Gbps, or "unlimited"`, func(s string) (Rate, bool) {
	if s == "unlimited" {
		return 0, true
	}
	n, ok := parseUnits(s, rateUnits, false)
	return Rate(n), ok && n > 0
})

// String prints the rate in the unit that gives the fewest digits.
func (r Rate) String() string {
	if r == 0 {
		return "unlimited"
	}
	names := []string{"bps", "kbps", "Mbps", "Gbps", "Tbps"}
	i := 0
	for r%1000 == 0 && i < len(names)-1 {
		r /= 1000
		i++
	}
	return strconv.FormatInt(int64(r), 10) + names[i]
}

var mtu = scalar("an MTU of 256, 512, 1024, 2048 or 4096 bytes", func(s string) (ib.MTU, bool) {
	n, ok := parseUint(s)
	if !ok || n > 4096 {
		return 0, false
	}
	return ib.MTUFromBytes(int(n))
})

// address accepts an IPv4 or IPv6 address with or without a port. The address is
// the GID, so it must be one that a packet can come from.
var address = scalar("an IP address such as 127.0.0.1, fd00::1, 10.0.0.1:4791 or [fd00::1]:4791", func(s string) (netip.AddrPort, bool) {
	ap, err := netip.ParseAddrPort(s)
	if err != nil {
		a, err := netip.ParseAddr(s)
		if err != nil {
			return ap, false
		}
		ap = netip.AddrPortFrom(a, DefaultPort)
	}
	a := ap.Addr().Unmap()
	ok := a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
	return netip.AddrPortFrom(a, ap.Port()), ok && ap.Port() != 0
})

// timeoutCode accepts a local ACK timeout code, or a duration that it rounds up to
// the next code.
var timeoutCode = scalar("a code from 0 to 31, or a duration of at most 8796s such as 4ms", func(s string) (uint8, bool) {
	if n, ok := parseUint(s); ok {
		return uint8(n & 31), n <= 31
	}
	t, ok := parseDuration(s)
	if !ok || t == 0 {
		return 0, false // code 0 waits for ever: surely not what "0s" means
	}
	for code := uint8(1); code <= 31; code++ {
		if d, _ := ib.AckTimeout(code); d >= t {
			return code, true
		}
	}
	return 0, false
})

// rnrCode accepts an RNR timer code, or a duration that it rounds up to the code
// with the next longer wait.
var rnrCode = scalar("a code from 0 to 31, or a duration of at most 655.36ms such as 640us", func(s string) (uint8, bool) {
	if n, ok := parseUint(s); ok {
		return uint8(n & 31), n <= 31
	}
	t, ok := parseDuration(s)
	if !ok {
		return 0, false
	}
	best, found := uint8(0), false
	for code := uint8(0); code <= 31; code++ {
		d := ib.RNRTimeout(code)
		if d >= t && (!found || d < ib.RNRTimeout(best)) {
			best, found = code, true
		}
	}
	return best, found
})

var countRange = scalar(`a count such as 5, 1..5, 1.. or any (">=1" needs quotes)`, ParseRange)

// countOrAll also accepts "all".
var countOrAll = scalar(`"all", or a count such as 5, 1..5, 1.. or any (">=1" needs quotes)`, func(s string) (Count, bool) {
	if s == "all" {
		return Count{All: true}, true
	}
	r, ok := ParseRange(s)
	return Count{Range: r}, ok
})

// sizes accepts one size, "min..max", or a list.
func sizes(d *decoder, v value) (Sizes, bool) {
	if d.isSequence(v) {
		return sizeList(d, v)
	}
	s, ok := d.text(v)
	if !ok {
		d.mismatch(v, sizeWanted+", a range such as 64..4KiB, or a list of sizes")
		return Sizes{}, false
	}
	lo, hi, isRange := strings.Cut(s, "..")
	if !isRange {
		lo, hi = s, s
	}
	from, ok1 := parseUnits(strings.TrimSpace(lo), sizeUnits, true)
	to, ok2 := parseUnits(strings.TrimSpace(hi), sizeUnits, true)
	switch {
	case !ok1 || !ok2 || from > to:
		d.mismatch(v, sizeWanted+", a range such as 64..4KiB, or a list of sizes")
		return Sizes{}, false
	case max(from, to) > ib.MaxMsgBytes:
		d.mismatch(v, "at most 2GiB, the longest message there is")
		return Sizes{}, false
	case isRange:
		return Sizes{SizeRange, []int64{from, to}}, true
	}
	return Sizes{SizeFixed, []int64{from}}, true
}

func sizeList(d *decoder, v value) (Sizes, bool) {
	entries, _ := d.sequence(v, "a list of sizes")
	all := len(entries) > 0
	if !all {
		d.problem(v.path, "found an empty list; expected at least one size")
	}
	s := Sizes{Kind: SizeList}
	for _, e := range entries {
		n, ok := size(d, e)
		if ok && n > ib.MaxMsgBytes {
			d.mismatch(e, "at most 2GiB, the longest message there is")
			ok = false
		}
		all = all && ok
		s.Values = append(s.Values, n)
	}
	return s, all
}

// signal accepts "all", "last" or "every N".
var signal = scalar(`all, last, or "every N" such as every 4`, func(s string) (Signal, bool) {
	switch s {
	case "all":
		return Signal{Kind: SignalAll}, true
	case "last":
		return Signal{Kind: SignalLast}, true
	}
	number, ok := strings.CutPrefix(s, "every ")
	if !ok {
		return Signal{}, false
	}
	n, ok := parseUint(strings.TrimSpace(number))
	return Signal{SignalEvery, n}, ok && n > 0
})
