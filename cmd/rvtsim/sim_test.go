package main

import (
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/simreport"
)

var digestOf = regexp.MustCompile(`digest ([0-9a-f]{16})`)

// TestSimDigests: the digests of these runs are the same on every machine. They change
// with the protocol, the workload or the network; then the new ones belong here.
func TestSimDigests(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"examples/incast.yaml", "4d29692ac4c0b8bd"},
		{"examples/incast.yaml --nodes 65 --for 200us", "d0531d2cfa8c2ce8"},
		{"examples/all-reduce.yaml --check all", "3441be69f920a303"},
		{"examples/chaos.yaml --seed 7 --check all", "2e6755caa230c89e"},
	} {
		r := rvtsim(t, append([]string{"sim"}, strings.Fields(c.args)...)...)
		require.Equal(t, exitOK, r.code, r.out+r.errout)
		require.Equal(t, c.want, digestOf.FindStringSubmatch(r.out)[1], c.args)
	}
}

// TestSimSeedsInParallel: as many at a time as one likes, the results are the same.
func TestSimSeedsInParallel(t *testing.T) {
	var want []string
	for _, jobs := range []string{"1", "3"} {
		r := rvtsim(t, "sim", "examples/chaos.yaml", "--seed", "1..5", "--jobs", jobs)
		require.Equal(t, exitOK, r.code, r.out+r.errout)
		got := digestOf.FindAllString(r.out, -1)
		require.Len(t, got, 5)
		if want == nil {
			want = got
		}
		require.Equal(t, want, got)
	}
}

func TestSimFiles(t *testing.T) {
	dir := t.TempDir()
	page, data := filepath.Join(dir, "x.html"), filepath.Join(dir, "x.json")
	r := rvtsim(t, "sim", "examples/incast.yaml", "--seed", "1..2", "--html", page, "--json", data, "--csv", filepath.Join(dir, "csv"))
	require.Equal(t, exitOK, r.code, r.out+r.errout)

	b, err := os.ReadFile(data)
	require.NoError(t, err)
	var results []simreport.Result
	require.NoError(t, json.Unmarshal(b, &results))
	require.Len(t, results, 2)
	require.True(t, results[0].OK)
	require.EqualValues(t, 256, results[0].Traffic[0].Succeeded)
	require.Equal(t, "tor>sink", results[0].Ports[0].Name)
	sum := uint64(0)
	for _, v := range results[0].Series.RateBPS["incast"] {
		sum += v
	}
	bytes := float64(sum) / 8 * float64(results[0].Series.StepNS) / 1e9
	require.InEpsilon(t, 16<<20, bytes, 0.06, "the curve of throughput encloses the bytes that were sent")

	html, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Equal(t, 8, strings.Count(string(html), "<svg"), "four plots for each seed")
	require.NotContains(t, string(html), "<script")
	require.NotRegexp(t, `(src|href)="?https?:`, string(html))

	for _, kind := range simreport.CSVKinds {
		f, err := os.Open(filepath.Join(dir, "csv", kind+".csv"))
		require.NoError(t, err)
		rows, err := csv.NewReader(f).ReadAll()
		require.NoError(t, f.Close())
		require.NoError(t, err)
		require.Greater(t, len(rows), 2, kind)
	}
}

// failing is a file in which the network changes data behind the adapter's back.
const failing = `version: 1
nodes: [{name: n, count: 4, address: 10.0.0.1}]
network: {latency: 5us}
traffic: [{name: f, pattern: all_to_all, from: n, op: send, size: 200, count: 50}]
faults: [{at: 1us, action: set_impairment, between: [n-1, n-2], tamper: 50%}]
`

// TestSimFailure: a failure names its seed and the command that repeats it; that command
// fails too; and the file that shrinking makes fails.
func TestSimFailure(t *testing.T) {
	dir := t.TempDir()
	path, small := filepath.Join(dir, "bad.yaml"), filepath.Join(dir, "small.yaml")
	require.NoError(t, os.WriteFile(path, []byte(failing), 0o600))
	r := rvtsim(t, "sim", path, "--seed", "4..5", "--shrink", small)
	require.Equal(t, exitFail, r.code, r.out+r.errout)
	require.Contains(t, r.out, "FAILED seed 4\n")
	require.Contains(t, r.out, "data_ok")
	_, rest, ok := strings.Cut(r.out, "repeat it:   rvtsim ")
	require.True(t, ok)
	line, _, _ := strings.Cut(rest, "\n")
	again := rvtsim(t, strings.Fields(line)...)
	require.Equal(t, exitFail, again.code)
	require.Contains(t, again.out, "FAILED seed 4\n")
	require.Contains(t, r.out, "shrunk to 2 nodes, 1 flows, 1 faults")
	require.Equal(t, exitFail, rvtsim(t, "sim", small).code)
}

func TestSimUntil(t *testing.T) {
	r := rvtsim(t, "sim", "examples/chaos.yaml", "--until", "timeout", "--trace", "--packets", "3")
	require.Equal(t, exitOK, r.code, r.out+r.errout)
	require.Contains(t, r.out, "the last 3 packets that were taken or dropped:\n")
	require.Regexp(t, `in [12] ACK timeouts`, r.out)
	r = rvtsim(t, "sim", "examples/chaos.yaml", "--until", "nak", "--trace")
	_, trace, _ := strings.Cut(r.out, "the last")
	require.Regexp(t, `NAK_PSN_SEQUENCE.*\n$`, trace, "the NAK is the last packet")
	require.Equal(t, 1, strings.Count(trace, "NAK_PSN"))
}

func TestSimUsage(t *testing.T) {
	for args, want := range map[string]string{
		"no/such.yaml":                                      "no such file",
		"examples/incast.yaml --seed 5..3":                  `--seed "5..3": want a number, or S..T`,
		"examples/incast.yaml --check some":                 `--check "some": want none, data or all`,
		"examples/incast.yaml --until lunch":                `--until "lunch": want a time such as 1.5ms, the number of an event, or one of drop`,
		"examples/incast.yaml --seed 1..2 --trace":          "--until and --trace look into one run",
		"examples/two-nodes.yaml --nodes 5":                 "two-nodes.yaml:19:3: nodes: found no entry with a count",
		"examples/incast.yaml --nodes 1":                    "nodes: found 1 single nodes",
		"examples/incast.yaml --nodes 0":                    "--nodes 0: want 1 or more",
		"examples/incast.yaml --for 0s":                     "--for 0s: want 1 or more",
		"examples/incast.yaml --nats nats://127.0.0.1:4222": "--nats and --patience are for --sweep and --worker",
		"examples/incast.yaml --html /none/x.html":          "/none/x.html cannot be written",
		"--sweep examples/sweeps/incast.yaml --jobs 0":      "--jobs 0: want 1 or more",
		"examples/incast.yaml --jobs 0":                     "--jobs 0: want 1 or more",
		"examples/incast.yaml --html /no/such/dir/out.html": "no such file or directory",
	} {
		r := rvtsim(t, append([]string{"sim"}, strings.Fields(args)...)...)
		require.NotEqual(t, exitOK, r.code, args)
		require.Contains(t, r.errout, want, args)
	}
}
