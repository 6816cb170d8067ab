//go:build linux

package main

import (
	"context"
	"net"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

const (
	portKey = "RVTSIM_TEST_PORT"
	endKey  = "RVTSIM_TEST_END"
)

// TestMain is the server, too: it listens until it is killed.
func TestMain(m *testing.M) {
	port := os.Getenv(portKey)
	if port == "" {
		os.Exit(m.Run())
	}
	if os.Getenv(endKey) != "" {
		_, _ = os.Stdout.WriteString("no device\n")
		os.Exit(1)
	}
	if _, err := net.Listen("tcp", ":"+port); err != nil {
		_, _ = os.Stdout.WriteString(err.Error())
		os.Exit(1)
	}
	select {}
}

func helper(ctx context.Context, env ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, os.Args[0])
	c.Env = append(os.Environ(), env...)
	return c
}

// TestServerWhosePortIsTaken: before, whoever listened there was taken for the server, and the
// client "couldn't connect" when that one was gone.
func TestServerWhosePortIsTaken(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var tried []string
	s, err := serve(ctx, func(ctx context.Context, port string) *exec.Cmd {
		if tried = append(tried, port); len(tried) == 1 { // somebody else is faster
			l, err := net.Listen("tcp", ":"+port)
			require.NoError(t, err)
			t.Cleanup(func() { _ = l.Close() })
		}
		return helper(ctx, portKey+"="+port)
	})
	require.NoError(t, err)
	require.Len(t, tried, 2)
	require.Equal(t, tried[1], s.port)
	cancel()
	<-s.ended
}

func TestServerThatEnds(t *testing.T) {
	_, err := serve(t.Context(), func(ctx context.Context, port string) *exec.Cmd {
		return helper(ctx, portKey+"="+port, endKey+"=1")
	})
	require.ErrorContains(t, err, "the server ended before it listened\nno device")
}
