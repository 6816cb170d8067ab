package invariants

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// recovered runs f and returns what it panicked with, or nil.
func recovered(f func()) (v any) {
	defer func() { v = recover() }()
	f()
	return nil
}

func TestCheckHolds(t *testing.T) {
	require.Nil(t, recovered(func() { Check(true, "one is one") }))
}

func TestCheckFails(t *testing.T) {
	got := recovered(func() { Check(false, "SLast is before SAcked") })
	if !Enabled {
		require.Nil(t, got, "compiled out, so nothing may happen")
		return
	}
	err, ok := got.(error)
	require.True(t, ok, "panicked with %T, want an error", got)
	var v Violation
	require.True(t, errors.As(err, &v))
	require.Equal(t, "invariant violated: SLast is before SAcked", v.Error())
}

func TestUnreachablePanicsInEveryBuild(t *testing.T) {
	require.Equal(t, Violation("unreachable: no such verdict"),
		recovered(func() { Unreachable("no such verdict") }))
}

func TestMangle(t *testing.T) {
	b := []byte("payload")
	Mangle(b[1:4])
	want := []byte("payload")
	if Enabled {
		want = []byte{'p', mangleByte, mangleByte, mangleByte, 'o', 'a', 'd'}
	}
	require.True(t, bytes.Equal(want, b), "got %x, want %x", b, want)
	Mangle(nil)
}

func TestReachedCounts(t *testing.T) {
	const id, other = "TEST-COUNT-01", "TEST-COUNT-02"
	Reached(id)
	Reached(id)
	Reached(other)
	if !Enabled {
		require.Zero(t, Count(id))
		require.Nil(t, Marks())
		return
	}
	require.EqualValues(t, 2, Count(id))
	require.EqualValues(t, 1, Count(other))
	require.Zero(t, Count("TEST-COUNT-NEVER"))
	all := Marks()
	require.Contains(t, all, Mark{ID: id, Count: 2})
	require.True(t, slices.IsSortedFunc(all, func(a, b Mark) int { return strings.Compare(a.ID, b.ID) }))
}

func TestReachedFromManyGoroutines(t *testing.T) {
	if !Enabled {
		t.Skip("marks are compiled out")
	}
	const workers, each = 8, 1000
	before := Count("TEST-PARALLEL-01")
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				Reached("TEST-PARALLEL-01")
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, workers*each, Count("TEST-PARALLEL-01")-before)
}

func TestReachedDoesNotAllocate(t *testing.T) {
	if Race {
		t.Skip("the race detector allocates")
	}
	Reached("TEST-ALLOC-01")
	require.Zero(t, testing.AllocsPerRun(100, func() { Reached("TEST-ALLOC-01") }))
}

// TestBuildMode compares the build with what the caller says it asked for, because
// the name of a step in a Makefile is not evidence of the flags it passed.
func TestBuildMode(t *testing.T) {
	switch mode := os.Getenv("RVTSIM_EXPECT_BUILD"); mode {
	case "race":
		require.True(t, Race, "the race step runs without -race")
		require.True(t, Enabled, "the race step runs without assertions")
	case "plain":
		require.False(t, Race, "the plain step runs under the race detector")
		require.False(t, Enabled, "the plain step runs with assertions, so it measures another program")
	case "":
		t.Skip("RVTSIM_EXPECT_BUILD is not set; make test sets it")
	default:
		t.Fatalf("RVTSIM_EXPECT_BUILD=%q, want race or plain", mode)
	}
}

// TestRaceDetectorBites starts this test binary again with a deliberate data race in
// it and expects the detector to stop it. The build tag alone would not show that.
func TestRaceDetectorBites(t *testing.T) {
	const child = "RVTSIM_RACE_CHILD"
	if os.Getenv(child) != "" {
		race()
		return
	}
	if !Race {
		t.Skip("not under the race detector")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestRaceDetectorBites$")
	cmd.Env = append(os.Environ(), child+"=1")
	out, err := cmd.CombinedOutput()
	require.Error(t, err, "a data race went unnoticed:\n%s", out)
	require.Contains(t, string(out), "WARNING: DATA RACE")
}

var raced int

func race() {
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { raced++ })
	}
	wg.Wait()
}
