package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
)

// TestFaultsOfOneBurst sends several WRITEs to memory that has gone away, in one burst.
// Each is a fault of its own; the requester must still be told once.
func TestFaultsOfOneBurst(t *testing.T) {
	for faults := 1; faults <= 3; faults++ {
		a, b, qa, _ := rcPair(t, nil)
		short := mr.NewSlice(0x900000, make([]byte, 16))
		gone, err := b.d.RegMR(b.pd, short, 0x900000, 4096, 0x900000, ib.AccessLocalWrite|ib.AccessRemoteWrite)
		require.NoError(t, err)
		for i := range faults {
			_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: a.sge(0, 100),
				RemoteAddr: 0x900000 + uint64(i*100), RKey: gone.RKey}})
			require.NoError(t, err)
		}
		settle(0, a, b)
		wcs := a.poll()
		require.Len(t, wcs, faults, "the requester was not told")
		require.Equal(t, ib.WCRemOpErr, wcs[0].Status)
	}
}
