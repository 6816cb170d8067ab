package workload

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// TestLedger runs completions past a ledger of 8 posted work requests of which each
// second one is signaled (1, 3, 5, 7).
func TestLedger(t *testing.T) {
	const ok, bad = ib.WCSuccess, ib.WCWRFlushErr
	type wc struct {
		i      uint64
		status ib.WCStatus
		fault  string
	}
	for _, c := range []struct {
		name string
		wcs  []wc
		left uint64
	}{
		{"all well", []wc{{1, ok, ""}, {3, ok, ""}, {5, ok, ""}, {7, ok, ""}}, 0},
		{"part", []wc{{1, ok, ""}, {3, ok, ""}}, 4},
		{"twice", []wc{{1, ok, ""}, {1, ok, faultTwice}}, 6},
		{"out of order", []wc{{3, ok, faultSkipped}, {1, ok, faultTwice}}, 4},
		{"never posted", []wc{{8, ok, faultNotPosted}}, 8},
		{"not signaled", []wc{{0, ok, faultUnsignaled}, {1, ok, ""}}, 6},
		{"failure of one that is not signaled", []wc{{1, ok, ""}, {2, bad, ""}, {3, bad, ""}, {4, bad, ""}}, 3},
		{"failure after silent successes", []wc{{4, bad, faultSkipped}}, 3},
		{"flush leaves one out", []wc{{1, bad, ""}, {3, bad, faultSkipped}}, 4},
		{"success after failure", []wc{{1, bad, ""}, {2, bad, ""}, {3, ok, faultAfterError}}, 4},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := ledger{posted: 8}
			for _, w := range c.wcs {
				_, fault := l.complete(w.i, w.status, func(i uint64) bool { return i%2 == 1 })
				require.Equal(t, w.fault, fault, "wr %d", w.i)
			}
			require.Equal(t, c.left, l.outstanding())
		})
	}
}

func TestLedgerNamesTheSilentOnes(t *testing.T) {
	l := ledger{posted: 8}
	from, fault := l.complete(5, ib.WCSuccess, func(i uint64) bool { return i == 5 })
	require.Empty(t, fault)
	require.EqualValues(t, 0, from)
}
