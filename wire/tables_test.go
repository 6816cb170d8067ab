package wire

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/crcfold"
)

// TestICRCByTables computes ICRCs of all lengths in both ways.
func TestICRCByTables(t *testing.T) {
	defer crcfold.PreferTables(false)
	b := make([]byte, 4200)
	for i := range b {
		b[i] = byte(i * 31)
	}
	path := Path{TClass: 3}
	for n := bthBytes; n <= len(b); n += 1 + n/40 {
		crcfold.PreferTables(false)
		want := ICRC(&path, b[:n])
		crcfold.PreferTables(true)
		require.Equal(t, want, ICRC(&path, b[:n]), n)
	}
}
