package uverbs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRateOfLink has the kernel's steps, each at its end and just above.
func TestRateOfLink(t *testing.T) {
	for _, c := range []struct {
		mbps uint32
		want string
	}{
		{1, "2.5 Gb/sec (1X SDR)"}, {1_000, "2.5 Gb/sec (1X SDR)"}, {1_001, "10 Gb/sec (1X FDR10)"}, {10_000, "10 Gb/sec (1X FDR10)"},
		{10_001, "20 Gb/sec (4X DDR)"}, {20_000, "20 Gb/sec (4X DDR)"}, {20_001, "25 Gb/sec (1X EDR)"}, {25_000, "25 Gb/sec (1X EDR)"},
		{25_001, "40 Gb/sec (4X FDR10)"}, {40_000, "40 Gb/sec (4X FDR10)"}, {40_001, "100 Gb/sec (4X EDR)"}, {100_000, "100 Gb/sec (4X EDR)"},
		{100_001, "200 Gb/sec (4X HDR)"}, {200_000, "200 Gb/sec (4X HDR)"}, {200_001, "400 Gb/sec (4X NDR)"}, {4_000_000_000, "400 Gb/sec (4X NDR)"},
	} {
		require.Equal(t, c.want, rateOf(c.mbps).text(), "%d Mb/s", c.mbps)
	}
	require.Equal(t, rateOf(DefaultMbps), (&DeviceConfig{}).rate())
}
