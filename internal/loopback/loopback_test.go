package loopback

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAddresses(t *testing.T) {
	seen := map[string]bool{}
	for n := range Addresses {
		a := Node(n, 0)
		require.False(t, seen[a])
		seen[a] = true
		require.True(t, Address(n).IsLoopback())
		c, err := net.ListenPacket("udp", a)
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
}
