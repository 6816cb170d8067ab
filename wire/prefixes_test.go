package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// TestPrefixesTellPathsApart: a remembered prefix is that of its own path and length.
func TestPrefixesTellPathsApart(t *testing.T) {
	var known wire.ICRCPrefixes
	path := wire.Path{Src: ib.GIDFromIPv4(10, 0, 0, 1), Dst: ib.GIDFromIPv4(10, 0, 0, 2), SPort: 4791}
	b := make([]byte, 80)
	for i := range b {
		b[i] = byte(i)
	}
	check := func() {
		t.Helper()
		for range 2 {
			for _, n := range []int{16, 48, 80} { // one place
				path.IPID = uint16(n)
				require.Equal(t, wire.ICRC(&path, b[:n]), known.Of(&path, n).ICRC(path.IPID, b[:n]))
			}
		}
	}
	check()
	path.SPort++
	check()
	path.Src[15]++
	check()
	path.Dst[15]++
	check()
}
