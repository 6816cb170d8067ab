package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the snapshots in testdata")

// latencies records what is given in microseconds.
func latencies(us ...int64) *Latency {
	l := NewLatency()
	for _, v := range us {
		l.Record(v * 1000)
	}
	return l
}

// sampleRun has something of everything, in an order that printing must not keep.
func sampleRun() *Run {
	return &Run{
		Name: "two-nodes", Mode: ModeVirtual, Seed: 7, Elapsed: 1240 * time.Millisecond, Digest: "9f2c41d0a7b3e815",
		Nodes: []NodeStats{
			{
				Name: "n1", Address: "127.0.0.1:4791", Profile: "ibta",
				Completions: []CompletionStats{
					{Opcode: ib.WCRDMARead, Count: 60, Bytes: 20 << 20, Latency: latencies(900, 1000, 5000)},
					{Opcode: ib.WCSend, Status: ib.WCRNRRetryExcErr, Count: 1},
					{Opcode: ib.WCSend, Count: 1000, Bytes: 8000, Latency: latencies(8, 9, 10, 11)},
					{Opcode: ib.WCSend, Count: 1500, Bytes: 3 << 20, Latency: latencies(12, 1200)},
				},
				PacketsSent: 12345, PacketsReceived: 12001, BytesSent: 5 << 20, BytesReceived: 21 << 20,
				Retransmissions: Retransmissions{Packets: 12, Timeouts: 2, SequenceNAKs: 3, RNRNAKs: 1, RNRTime: 960 * time.Microsecond},
				Drops:           []DropStats{{"duplicate", 2}, {"no_qp", 0}, {"bad_icrc", 7}, {"bad_qkey", 2}},
				Events:          []EventStats{{ib.EventQPLastWQEReached, 1}, {ib.EventCommEst, 4}},
			},
			{
				Name: "n2", Address: "127.0.0.2:4791", Profile: "rxe",
				Completions: []CompletionStats{{Opcode: ib.WCRecv, Count: 2500, Bytes: 3<<20 + 8000}},
				Misuse:      []Misuse{{"STRICT-RECV-02", "qp 0x15", "a message met an empty receive queue", "a message from qp 0x11 found no receive posted in state RTS: its sender has to wait and try again"}},
			},
			{Name: "idle", Address: "[fd00::3]:4791", Profile: "ibta"},
		},
		Flows: []FlowStats{
			{Name: "send-small", From: "n1", To: "n2", Transport: ib.QPTypeRC, Ops: "send", Posted: 2501, Completed: 2501, Succeeded: 2500, Bytes: 3<<20 + 8000, Active: 100 * time.Millisecond, Latency: latencies(8, 9, 10), Retransmissions: 12, DataVerified: 2500},
			{Name: "a-flow-with-a-long-name", From: "node-number-1", To: "node-number-2", Transport: ib.QPTypeRC, Ops: "read+fetch_add", Posted: 60, Completed: 60, Succeeded: 60, Bytes: 20 << 20, Active: time.Second, Latency: latencies(900, 5000), DataVerified: 60, DataErrors: 1},
			{Name: "unverified", From: "n1", To: "n2", Transport: ib.QPTypeUD, Ops: "send"},
		},
		Expectations: []Check{
			{Flow: "send-small", What: "completions.SUCCESS", Want: "all (2501)", Got: "2500", OK: false},
			{Flow: "send-small", What: "data_ok", Want: "true", Got: "2500 messages right", OK: true},
			{Flow: "a-flow-with-a-long-name", What: "completions.RNR_RETRY_EXC_ERR", Want: "0", Got: "0", OK: true},
			{What: "retransmissions", Want: ">=1", Got: "12", OK: true},
		},
	}
}

// snapshot compares got with a file: go test ./internal/report -rewrite.
func snapshot(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *rewrite {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got))
}

func asText(t *testing.T, r *Run, o TextOptions) string {
	t.Helper()
	var b bytes.Buffer
	require.NoError(t, WriteText(&b, r, o))
	return b.String()
}

func TestTextSnapshot(t *testing.T) {
	snapshot(t, "run.txt", []byte(asText(t, sampleRun(), TextOptions{AllChecks: true})))
}

func TestJSONSnapshot(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, sampleRun()))
	snapshot(t, "run.json", b.Bytes())
	require.True(t, json.Valid(b.Bytes()))
}

func TestEmptyRun(t *testing.T) {
	r := &Run{Name: "empty", Mode: ModeUDP}
	require.True(t, r.OK())
	require.Equal(t, "run empty  udp  seed 0  0ns\n", asText(t, r, TextOptions{AllChecks: true}))
	var b bytes.Buffer
	require.NoError(t, WriteJSON(&b, r))
	require.NotContains(t, b.String(), "null")
}

// The order in which counts were collected does not show, and printing leaves the
// run as it was.
func TestOrderDoesNotShow(t *testing.T) {
	a, b := sampleRun(), sampleRun()
	for i := range b.Nodes {
		slices.Reverse(b.Nodes[i].Completions)
		slices.Reverse(b.Nodes[i].Drops)
		slices.Reverse(b.Nodes[i].Events)
	}
	require.Equal(t, asText(t, a, TextOptions{AllChecks: true}), asText(t, b, TextOptions{AllChecks: true}))
	require.Equal(t, asText(t, a, TextOptions{AllChecks: true}), asText(t, a, TextOptions{AllChecks: true}))
	require.EqualValues(t, 4, a.Nodes[0].Completions[2].Latency.Count())
	require.Equal(t, ib.WCRDMARead, a.Nodes[0].Completions[0].Opcode)
}

func TestColor(t *testing.T) {
	without := asText(t, sampleRun(), TextOptions{AllChecks: true})
	with := asText(t, sampleRun(), TextOptions{Color: true, AllChecks: true})
	require.NotContains(t, without, "\x1b")
	require.Contains(t, with, "\x1b[31mFAIL\x1b[0m")
	// Colour changes no column.
	require.Equal(t, without, regexp.MustCompile(`\x1b\[\d+m`).ReplaceAllString(with, ""))
	require.False(t, IsTerminal(&bytes.Buffer{}))
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	require.NoError(t, err)
	defer file.Close()
	require.False(t, IsTerminal(file))
}

// widestRun fills every column as wide as it gets.
func widestRun() *Run {
	l := latencies(999, 999_999, 99_999_999)
	n := NodeStats{Name: "n1", Address: "[fd00:1111:2222:3333:4444:5555:6666:7777]:4791", Profile: "rdmavt", PacketsSent: math.MaxUint32, PacketsReceived: math.MaxUint32, BytesSent: 1 << 59, BytesReceived: 1 << 59}
	for s := range ib.WCStatus(ib.NumWCStatuses - 2) {
		n.Completions = append(n.Completions, CompletionStats{ib.WCRecvRDMAWithImm, s, 9_999_999, 1023 << 40, l})
	}
	for i := range 40 {
		n.Drops = append(n.Drops, DropStats{"unexpected_response" + strings.Repeat("x", i%3), uint64(i + 1e9)})
		n.Events = append(n.Events, EventStats{ib.EventQPLastWQEReached, uint64(i + 1)})
	}
	long := strings.Repeat("long-name-", 6)
	f := FlowStats{Name: long, From: long, To: long, Transport: ib.QPTypeRC, Ops: "send_imm+write_imm", Posted: 9_999_999, Succeeded: 9_999_999, Bytes: 1 << 50, Active: 100 * time.Second, Latency: l, Retransmissions: 9_999_999, DataErrors: 1}
	return &Run{Name: "wide", Mode: ModeVirtual, Seed: math.MaxUint64, Elapsed: 999 * time.Second, Nodes: []NodeStats{n}, Flows: []FlowStats{f},
		Expectations: []Check{{Flow: long, What: "completions.RNR_RETRY_EXC_ERR", Want: "1..18446744073709551615", Got: "18446744073709551615 of 18446744073709551615"}}}
}

func TestFitsTheScreen(t *testing.T) {
	for _, r := range []*Run{sampleRun(), widestRun()} {
		for _, line := range strings.Split(asText(t, r, TextOptions{AllChecks: true}), "\n") {
			require.LessOrEqual(t, utf8.RuneCountInString(line), Width, line)
			require.Equal(t, strings.TrimRight(line, " "), line)
		}
	}
}

func TestFormats(t *testing.T) {
	for n, want := range map[uint64]string{0: "0 B", 1023: "1023 B", 1024: "1.00 KiB", 1536: "1.50 KiB", 1<<20 - 1: "1.00 MiB", 10 << 30: "10.0 GiB", math.MaxUint64: "16384 PiB"} {
		require.Equal(t, want, formatBytes(n))
	}
	for n, want := range map[int64]string{0: "0 b/s", 999: "999 b/s", 1000: "1.00 kb/s", 12345: "12.3 kb/s", 99.96e9: "100 Gb/s", 1e12: "1.00 Tb/s"} {
		require.Equal(t, want, formatRate(n))
	}
	for n, want := range map[int64]string{0: "0ns", 999: "999ns", 1000: "1.00us", 9994: "9.99us", 9996: "10.0us", 123456: "123us", 999_999: "1.00ms", 61e9: "61.0s", 3600e9: "3600s"} {
		require.Equal(t, want, formatNanos(n))
	}
	for n, want := range map[uint64]string{0: "0", 9_999_999: "9999999", 10_000_000: "10.0M", 123_456_789_012: "123G"} {
		require.Equal(t, want, formatCount(n))
	}
}

func TestLatency(t *testing.T) {
	l := NewLatency()
	require.Zero(t, l.Mean())
	for i := int64(1); i <= 1000; i++ {
		l.Record(i * 1000)
	}
	require.EqualValues(t, 1000, l.Count())
	require.EqualValues(t, 1000, l.Min())
	require.EqualValues(t, 1_000_000, l.Max())
	require.EqualValues(t, 500_500, l.Mean())
	for p, want := range map[float64]float64{50: 500_000, 90: 900_000, 99: 990_000, 100: 1_000_000} {
		require.InEpsilon(t, want, float64(l.Percentile(p)), 0.011, "p%v", p)
	}
	require.GreaterOrEqual(t, l.Percentile(0), l.Min())

	var none *Latency
	require.Zero(t, none.Count())
	other := NewLatency()
	other.Merge(none)
	other.Merge(l)
	other.Record(-5)
	other.Record(math.MaxInt64)
	require.EqualValues(t, 1002, other.Count())
	require.Zero(t, other.Min())
	require.EqualValues(t, math.MaxInt64, other.Max())
	require.InEpsilon(t, float64(time.Hour), float64(other.Percentile(100)), 0.011)
}

func TestRate(t *testing.T) {
	for _, c := range []struct {
		bytes uint64
		over  time.Duration
		want  int64
	}{
		{0, time.Second, 0}, {1, 0, 0}, {1, -1, 0}, {125, time.Second, 1000}, {1, 3 * time.Second, 3}, {1, 16 * time.Second, 1},
		{1, 17 * time.Second, 0}, {1 << 50, time.Second, 1 << 53}, {math.MaxUint64, 1, math.MaxInt64},
		{math.MaxUint64, 3600 * time.Second, 40992764608243448}, // 8*(2^64-1)/3600, rounded
	} {
		require.Equal(t, c.want, rate(c.bytes, c.over), "%d over %s", c.bytes, c.over)
	}
}

// A single value is every percentile of itself: nothing is rounded away.
func TestLatencyOfOne(t *testing.T) {
	for _, ns := range []int64{0, 1, 999, 123_457, 59_999_999_999} {
		l := NewLatency()
		l.Record(ns)
		for _, p := range []float64{0, 50, 99, 100} {
			require.Equal(t, ns, l.Percentile(p))
		}
		require.Equal(t, ns, l.Mean())
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	l := NewLatency()
	ns := int64(1)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		l.Record(ns)
		ns = ns*3 + 1
		if ns < 0 {
			ns = 1
		}
	}))
}

func BenchmarkLatencyRecord(b *testing.B) {
	l := NewLatency()
	for i := range b.N {
		l.Record(int64(i) * 37)
	}
}
