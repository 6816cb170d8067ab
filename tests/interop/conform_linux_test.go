package interop

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/conform"
)

// slow is a connection whose reads fail when nothing comes for long.
type slow struct{ net.Conn }

func (s slow) Read(b []byte) (int, error) {
	_ = s.SetReadDeadline(time.Now().Add(time.Minute))
	return s.Conn.Read(b)
}

// TestConformanceOfTheKernel carries the conformance suite out on soft-RoCE itself. The
// reference records are that device's answers, so there is nothing to explain but what
// expect/soft-roce.txt in tests/conform says of the differences between kernels.
func TestConformanceOfTheKernel(t *testing.T) {
	g := guest(t)
	if !oldKernel(t) {
		t.Skipf("the records are those of rxe in Linux 6.1; this is %s", g.Kernel)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := g.DialClient(ctx)
	require.NoError(t, err)
	defer conn.Close()
	c, err := conform.NewClient(slow{conn})
	require.NoError(t, err)
	s, err := conform.Load("rxe")
	require.NoError(t, err)
	text, err := os.ReadFile(filepath.Join("..", "conform", "expect", "soft-roce.txt"))
	require.NoError(t, err)
	require.NoError(t, s.Expect("soft-roce.txt", string(text)))
	s.Repeat, s.Foreign = 3, true
	var keep func(string) bool
	if !*full {
		keep = regexp.MustCompile("^(uc_srq|ud_srq_small|stray|reserved|port_ev|loc_acc|mw_|uc_send_error|recv_cq|loc_prot|send_basic|all_ops|sqd|srq_limit)").MatchString
	}
	rep, err := s.Run(c.Fresh, keep)
	require.NoError(t, err)
	for _, r := range rep.Results {
		if r.Verdict == conform.Fail {
			for _, l := range r.Explain(false) {
				t.Errorf("%s: %s", r.Case, l)
			}
		}
	}
	require.Zero(t, rep.Count(conform.Skip), "the client has a hand on the wire")
	t.Logf("%d cases as recorded, %d explained", rep.Count(conform.Pass), rep.Count(conform.Explained))
}
