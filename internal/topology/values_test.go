package topology

import (
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// read runs one parser on the text of a value; problem is empty if it accepted it.
func read[V any](t *testing.T, parse func(*decoder, value) (V, bool), text string) (got V, problem string) {
	t.Helper()
	tree, err := parser.ParseBytes([]byte("k: "+text), 0)
	require.NoError(t, err)
	d := &decoder{file: "f", at: map[string]position{"": {1, 1}}, anchors: map[string]ast.Node{}}
	v := value{tree.Docs[0].Body.(*ast.MappingNode).Values[0].Value, "k"}
	d.note(v)
	got, ok := parse(d, v)
	if ok {
		require.Empty(t, d.problems)
		return got, ""
	}
	require.NotEmpty(t, d.problems, "refused without a word: %s", text)
	return got, d.problems[0].Error()
}

type valueCase[V any] struct {
	text string
	want V
}

// checkValues runs accepted and refused texts.
func checkValues[V any](t *testing.T, name string, parse func(*decoder, value) (V, bool), good []valueCase[V], bad []string) {
	t.Run(name, func(t *testing.T) {
		for _, c := range good {
			got, problem := read(t, parse, c.text)
			require.Empty(t, problem, c.text)
			require.Equal(t, c.want, got, c.text)
		}
		for _, text := range bad {
			got, problem := read(t, parse, text)
			require.NotEmpty(t, problem, "%s was accepted as %v", text, got)
			require.Regexp(t, `^f:1:4: k(\[\d+\])?: `, problem)
			require.Contains(t, problem, "expected", text)
		}
	})
}

func TestScalarValues(t *testing.T) {
	checkValues(t, "duration", duration, []valueCase[time.Duration]{
		{"10us", 10 * time.Microsecond}, {"1.5ms", 1500 * time.Microsecond}, {"0s", 0}, {"1m30s", 90 * time.Second}, {`"2s"`, 2 * time.Second},
	}, []string{"10", "-1s", "1 s", "ten", "[1s]", "", "1e9h", "{a: b}", "true"})

	checkValues(t, "positive duration", positiveDuration, []valueCase[time.Duration]{{"1ns", 1}}, []string{"0s", "-1ns"})

	checkValues(t, "size", size, []valueCase[int64]{
		{"64", 64}, {"4KiB", 4096}, {"1MiB", 1 << 20}, {"1.5KiB", 1536}, {"9kB", 9000}, {"0", 0}, {"0x10", 16}, {"12 B", 12}, {"1GiB", 1 << 30}, {"8191MiB", 8191 << 20},
	}, []string{"-1", "4k", "4kib", "1.5", "KiB", "99999999999999999999", "9999999999GiB", "1.0001KiB", "~", ".nan"})

	checkValues(t, "rate", rate, []valueCase[Rate]{
		{"100Gbps", 100e9}, {"2.5Mbps", 2.5e6}, {"1bps", 1}, {"unlimited", 0}, {"1Tbps", 1e12},
	}, []string{"100", "100G", "0bps", "-1Gbps", "fast", "99999999Tbps"})

	checkValues(t, "probability", probability, []valueCase[float64]{
		{"10%", 0.1}, {"0.1", 0.1}, {"0", 0}, {"1", 1}, {"100%", 1}, {"0.5 %", 0.005}, {"1e-3", 0.001},
	}, []string{"101%", "1.1", "-0.1", "x%", ".nan", "NaN", "10%%", "[0.1]", "Inf"})

	checkValues(t, "mtu", mtu, []valueCase[ib.MTU]{{"256", ib.MTU256}, {"4096", ib.MTU4096}}, []string{"128", "1500", "8192", "4KiB", "-256", "18446744073709551615"})

	checkValues(t, "boolean", boolean, []valueCase[bool]{{"true", true}, {"false", false}}, []string{"yes", "1", "TRUE", "[]"})

	checkValues(t, "name", name, []valueCase[string]{{"n1", "n1"}, {"1", "1"}, {"a.b_c-d", "a.b_c-d"}}, []string{`""`, "a b", "n/1", "é", "\"a\\nb\""})

	checkValues(t, "signal", signal, []valueCase[Signal]{
		{"all", Signal{Kind: SignalAll}}, {"last", Signal{Kind: SignalLast}}, {"every 4", Signal{SignalEvery, 4}},
	}, []string{"every", "every 0", "every -1", "4", "none", "every x", "[every, 4]"})

	checkValues(t, "count", integer(1, 10), []valueCase[int]{{"1", 1}, {"10", 10}, {"0x0a", 10}, {"010", 10}}, []string{"0", "11", "1.0", "-1", "1e0", "ten"})
}

func TestAddresses(t *testing.T) {
	at := func(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
	checkValues(t, "address", address, []valueCase[netip.AddrPort]{
		{"127.0.0.1", at("127.0.0.1:4791")}, {"10.0.0.1:5000", at("10.0.0.1:5000")}, {"fd00::1", at("[fd00::1]:4791")},
		{`"[fd00::1]:5000"`, at("[fd00::1]:5000")}, {`"::1"`, at("[::1]:4791")}, {`"::ffff:10.0.0.1"`, at("10.0.0.1:4791")},
	}, []string{"localhost", "0.0.0.0", `"::"`, "224.0.0.1", "ff02::1", "10.0.0.256", "fe80::1%eth0", "10.0.0.1:0", "10.0.0.1:70000", "255.255.255.255", "1"})
}

func TestCodes(t *testing.T) {
	checkValues(t, "timeout", timeoutCode, []valueCase[uint8]{
		{"0", 0}, {"31", 31}, {"14", 14},
		{"4096ns", 1}, {"8192ns", 1}, {"8193ns", 2}, {"4ms", 10}, {"67108864ns", 14}, {"67108865ns", 15}, {"8796s", 31},
	}, []string{"32", "-1", "0s", "8797s", "1h2"})

	checkValues(t, "rnr", rnrCode, []valueCase[uint8]{
		{"0", 0}, {"31", 31}, {"0s", 1}, {"10us", 1}, {"11us", 2}, {"640us", 12}, {"641us", 13}, {"491520us", 31}, {"491521us", 0}, {"655360us", 0},
	}, []string{"32", "656ms", "-1us", "long"})
}

// A duration never becomes a shorter timeout, and the next smaller code would be.
func TestDurationsRoundUp(t *testing.T) {
	for d := time.Microsecond; d < 8000*time.Second; d += d/3 + 1 {
		code, problem := read(t, timeoutCode, d.String())
		require.Empty(t, problem)
		got, _ := ib.AckTimeout(code)
		require.GreaterOrEqual(t, got, d)
		if shorter, ok := ib.AckTimeout(code - 1); ok {
			require.Less(t, shorter, d)
		}
	}
}

func TestSizes(t *testing.T) {
	checkValues(t, "sizes", sizes, []valueCase[Sizes]{
		{"64", Sizes{SizeFixed, []int64{64}}}, {"0", Sizes{SizeFixed, []int64{0}}},
		{"64..4KiB", Sizes{SizeRange, []int64{64, 4096}}}, {"8 .. 16", Sizes{SizeRange, []int64{8, 16}}},
		{"[8, 4KiB, 1MiB]", Sizes{SizeList, []int64{8, 4096, 1 << 20}}}, {"2GiB", Sizes{SizeFixed, []int64{1 << 31}}},
	}, []string{"4KiB..64", "3GiB", "..64", "64..", "a..b", "{min: 1}", "1..2..3"})
	for text, want := range map[string]string{
		"[]":        "f:1:4: k: found an empty list; expected at least one size",
		"[8, x]":    `f:1:8: k[1]: found "x"; expected a size such as 64, 4KiB or 1MiB`,
		"[8, 3GiB]": `f:1:8: k[1]: found "3GiB"; expected at most 2GiB, the longest message there is`,
	} {
		_, problem := read(t, sizes, text)
		require.Equal(t, want, problem)
	}
}

func TestRange(t *testing.T) {
	for _, c := range []struct {
		text    string
		in, out []uint64
		print   string
	}{
		{"5", []uint64{5}, []uint64{4, 6, 0}, "5"},
		{"0", []uint64{0}, []uint64{1}, "0"},
		{"1..5", []uint64{1, 3, 5}, []uint64{0, 6}, "1..5"},
		{"1..", []uint64{1, math.MaxUint64}, []uint64{0}, ">=1"},
		{"..5", []uint64{0, 5}, []uint64{6}, "<=5"},
		{">=1", []uint64{1, 7}, []uint64{0}, ">=1"},
		{">= 1", []uint64{1}, []uint64{0}, ">=1"},
		{">1", []uint64{2}, []uint64{1}, ">=2"},
		{"<=3", []uint64{0, 3}, []uint64{4}, "<=3"},
		{"<3", []uint64{0, 2}, []uint64{3}, "<=2"},
		{"any", []uint64{0, math.MaxUint64}, nil, "any"},
		{"0..", []uint64{0, math.MaxUint64}, nil, "any"},
	} {
		r, ok := ParseRange(c.text)
		require.True(t, ok, c.text)
		for _, n := range c.in {
			require.True(t, r.Match(n), "%s should hold %d", c.text, n)
		}
		for _, n := range c.out {
			require.False(t, r.Match(n), "%s should not hold %d", c.text, n)
		}
		require.Equal(t, c.print, r.String())
		again, ok := ParseRange(r.String())
		require.True(t, ok)
		require.Equal(t, r, again)
	}
	for _, text := range []string{"", "..", "5..1", "<0", ">18446744073709551615", "x", "1..x", "-1", "=5", "1...3", "all"} {
		r, ok := ParseRange(text)
		require.False(t, ok, "%q gave %v", text, r)
	}
}

func TestCount(t *testing.T) {
	all := Count{All: true}
	require.True(t, all.Match(4, 4))
	require.False(t, all.Match(3, 4))
	require.Equal(t, "all", all.String())
	require.True(t, Count{Range: Exactly(3)}.Match(3, 4))
	require.False(t, Count{Range: Exactly(3)}.Match(4, 4))
}

func TestRateString(t *testing.T) {
	for r, want := range map[Rate]string{0: "unlimited", 1: "1bps", 1500: "1500bps", 100e9: "100Gbps", 2e15: "2000Tbps"} {
		require.Equal(t, want, r.String())
	}
}

func TestNearest(t *testing.T) {
	names := []string{"send", "send_imm", "write", "cmp_swp"}
	for got, want := range map[string]string{"sendd": "send", "SEND": "send", "wirte": "write", "cmpswp": "cmp_swp", "snd": "send", "xyzzy": "", "": ""} {
		s, ok := nearest(got, names)
		require.Equal(t, want != "", ok, got)
		if ok {
			require.Equal(t, want, s)
		}
	}
}
