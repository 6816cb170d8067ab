package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const log = `{"Action":"start","Package":"m/p"}
{"Action":"run","Package":"m/p","Test":"TestA"}
{"Action":"output","Package":"m/p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"pass","Package":"m/p","Test":"TestA","Elapsed":0}
{"Action":"output","Package":"m/p","Test":"TestB","Output":"    b_test.go:7: missing tool: tshark decodes captures\n"}
{"Action":"output","Package":"m/p","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Action":"skip","Package":"m/p","Test":"TestB","Elapsed":0}
{"Action":"pass","Package":"m/p","Elapsed":1.5}
`

const failure = `{"Action":"output","Package":"m/q","Test":"TestC","Output":"    c_test.go:9: want 1\n"}
{"Action":"fail","Package":"m/q","Test":"TestC","Elapsed":0}
{"Action":"fail","Package":"m/q","Elapsed":0.1}
`

func run(t *testing.T, input string, ci bool) (out string, ok bool) {
	t.Helper()
	var b strings.Builder
	s := newSummary(&b)
	s.read(strings.NewReader(input))
	ok = s.finish(ci)
	return b.String(), ok
}

func TestSummary(t *testing.T) {
	out, ok := run(t, log, false)
	require.True(t, ok)
	require.Equal(t, "ok       1.50s  m/p\n"+
		"SKIP  m/p TestB: missing tool: tshark decodes captures\n"+
		"1 passed, 0 failed, 1 skipped\n", out)
}

func TestMissingToolFailsInCI(t *testing.T) {
	_, ok := run(t, log, true)
	require.False(t, ok)
	_, ok = run(t, strings.ReplaceAll(log, "missing tool:", "not today:"), true)
	require.True(t, ok, "other skips are allowed")
}

func TestFailureIsPrinted(t *testing.T) {
	out, ok := run(t, log+failure, false)
	require.False(t, ok)
	require.Contains(t, out, "c_test.go:9: want 1")
	require.Contains(t, out, "FAIL     0.10s  m/q")
}

func TestUnfinishedTestFails(t *testing.T) {
	out, ok := run(t, `{"Action":"output","Package":"m/p","Test":"TestD","Output":"working\n"}`, false)
	require.False(t, ok)
	require.Contains(t, out, "UNFINISHED m/p TestD\n      working")
}

func TestForeignLineFails(t *testing.T) {
	out, ok := run(t, "go: no such package\n", false)
	require.False(t, ok)
	require.Contains(t, out, "no such package")
}

func TestSkipReason(t *testing.T) {
	require.Equal(t, "no reason given", skipReason([]string{"=== RUN   TestX\n", "--- SKIP: TestX (0.00s)\n"}))
	require.Equal(t, "plain words", skipReason([]string{"plain words\n"}))
}
