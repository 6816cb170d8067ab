package conform

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// TestEveryStatusAndEvent: the suite shows each status and each event in some profile, or
// README.md says why none can.
func TestEveryStatusAndEvent(t *testing.T) {
	var seen strings.Builder
	for _, name := range Profiles {
		rep, err := RunProfile(profile(t, name), nil)
		require.NoError(t, err)
		for _, c := range rep.Results {
			seen.WriteString(c.Record.Completions + "\n" + c.Record.Async + "\n")
		}
	}
	b, err := os.ReadFile("README.md")
	require.NoError(t, err)
	_, unseen, ok := strings.Cut(string(b), "## What no case shows")
	require.True(t, ok)
	for s := range ib.WCStatus(ib.NumWCStatuses) {
		shown := strings.Contains(seen.String(), " "+s.String()+" ")
		listed := strings.Contains(unseen, "`"+s.String()+"`")
		require.True(t, shown != listed, "%v: shown %v, listed as not shown %v", s, shown, listed)
	}
	for e := ib.EventCQErr; e <= ib.EventWQFatal; e++ {
		shown := strings.Contains(seen.String(), eventNames[e]+"(")
		listed := strings.Contains(unseen, "`"+e.String()+"`")
		require.True(t, shown != listed, "%v: shown %v, listed as not shown %v", e, shown, listed)
	}
}
