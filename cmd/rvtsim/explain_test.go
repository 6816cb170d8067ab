package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplain(t *testing.T) {
	r := rvtsim(t, "explain", "post_send", "ENOMEM")
	require.Equal(t, exitOK, r.code, r.errout)
	require.Contains(t, r.out, "The send queue is full.")
	r = rvtsim(t, "explain")
	require.Equal(t, exitOK, r.code)
	require.Contains(t, r.out, "STRICT-SQ-01")
	r = rvtsim(t, "explain", "NO_SUCH_ERR")
	require.Equal(t, exitUsage, r.code)
	require.Contains(t, r.errout, `nothing is known of "NO_SUCH_ERR"`)
}
