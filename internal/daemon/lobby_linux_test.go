package daemon

import (
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// waiting counts the connections whose goroutines wait without a thread.
func waiting() int {
	b := make([]byte, 4<<20)
	return strings.Count(string(b[:runtime.Stack(b, true)]), "(*lobby).await(")
}

// TestIdleConnectionsHaveNoThreads: they wait in the lobby, answer when they are asked, and
// notice their end and that of the daemon.
func TestIdleConnectionsHaveNoThreads(t *testing.T) {
	const many = 200
	d, _ := start(t, nil)
	require.Zero(t, waiting())
	var clients []*client
	for range many {
		c := connect(t, d)
		e, _, files := c.ask(&request{op: opOpen, kind: devCM, node: "n1"})
		require.Zero(t, e)
		closeAll(files)
		clients = append(clients, c)
	}
	eventually(t, "all are idle", func() bool { return waiting() == many })
	for _, c := range clients {
		e, _, _ := c.ask(&request{op: opWrite, data: make([]byte, 8)})
		require.NotZero(t, e, "a CREATE_ID that is too short")
	}
	eventually(t, "all are idle again", func() bool { return waiting() == many })
	for _, c := range clients[:many/2] {
		c.sock.shutdown()
	}
	eventually(t, "half of them have ended", func() bool { return contexts(d) == many/2 && waiting() == many/2 })
	d.Close()
	require.Zero(t, waiting())
	require.Empty(t, d.lobby.waiting, "nobody is forgotten there")
}
