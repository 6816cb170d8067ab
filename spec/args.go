package spec

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Bounds of what a script may ask for. They keep a wrong (or fuzzed) script from
// taking all memory or time; a script that meets one gets an error.
const (
	maxBytes    = 1 << 24         // of one region, work request or packet
	maxWRs      = 1 << 12         // posted by one directive
	maxObjects  = 1 << 12         // of one kind
	maxDuration = 1 << 42         // nanoseconds, a bit over an hour
	maxSteps    = 20000           // deliveries and timeouts in one directive
	maxTrace    = 1 << 20         // bytes printed by one directive
	maxLatency  = 1 * time.Minute // of the wire
)

// args hands out the arguments of a directive. The first thing that is wrong sticks;
// done reports it, or an argument that nobody asked for.
type args struct {
	list []Arg
	used []bool
	err  error
}

func newArgs(list []Arg) *args { return &args{list: list, used: make([]bool, len(list))} }

func (a *args) fail(text string) {
	if a.err == nil {
		a.err = errors.New(text)
	}
}

// done returns the first error.
func (a *args) done() error {
	for i, u := range a.used {
		if !u && a.err == nil {
			a.fail("unknown argument " + strconv.Quote(a.list[i].Key))
		}
	}
	return a.err
}

// optWord returns the next bare word, empty if there is none.
func (a *args) optWord() string {
	for i := range a.list {
		if !a.used[i] && len(a.list[i].Vals) == 0 {
			a.used[i] = true
			return a.list[i].Key
		}
	}
	return ""
}

// word returns the next bare word; what names it in the message if it is missing.
func (a *args) word(what string) string {
	w := a.optWord()
	if w == "" {
		a.fail("missing argument: " + what)
	}
	return w
}

// flag reports whether the bare word key is there.
func (a *args) flag(key string) bool {
	for i := range a.list {
		if !a.used[i] && a.list[i].Key == key && len(a.list[i].Vals) == 0 {
			a.used[i] = true
			return true
		}
	}
	return false
}

// vals returns the values of key, nil if it is absent.
func (a *args) vals(key string) []string {
	for i := range a.list {
		if a.list[i].Key == key && len(a.list[i].Vals) > 0 && !a.used[i] {
			a.used[i] = true
			return a.list[i].Vals
		}
	}
	return nil
}

func (a *args) has(key string) bool {
	for i := range a.list {
		if a.list[i].Key == key && len(a.list[i].Vals) > 0 {
			return true
		}
	}
	return false
}

// str returns the one value of key, def if it is absent.
func (a *args) str(key, def string) string {
	v := a.vals(key)
	switch {
	case v == nil:
		return def
	case len(v) != 1:
		a.fail(key + " takes one value")
		return def
	}
	return v[0]
}

// num returns the number behind key, decimal or 0x hexadecimal, at most limit.
func (a *args) num(key string, def, limit uint64) uint64 {
	s := a.str(key, "")
	if s == "" {
		return def
	}
	n, err := parseNum(s)
	if err != nil || n > limit {
		a.fail(key + "=" + s + " is not a number up to " + strconv.FormatUint(limit, 10))
		return def
	}
	return n
}

// count is num for small counts.
func (a *args) count(key string, def, limit int) int {
	return int(a.num(key, uint64(max(def, 0)), uint64(limit)))
}

// dur returns the duration behind key, as "500us".
func (a *args) dur(key string, def time.Duration) time.Duration {
	s := a.str(key, "")
	if s == "" {
		return def
	}
	return a.parseDur(s, def)
}

func (a *args) parseDur(s string, def time.Duration) time.Duration {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > maxDuration {
		a.fail(s + " is not a duration like 500us, at most an hour")
		return def
	}
	return d
}

func parseNum(s string) (uint64, error) {
	if h, ok := strings.CutPrefix(s, "0x"); ok {
		return strconv.ParseUint(h, 16, 64)
	}
	return strconv.ParseUint(s, 10, 64)
}
