package loopback

import (
	"net"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPortsDiffer: two pairs of programs that start at the same time must not get the same
// port, though neither has begun to listen. The client of one would reach the server of the
// other, and the other client nobody.
func TestPortsDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for range 1000 {
		p, err := Port()
		require.NoError(t, err)
		require.False(t, seen[p], "port %s twice", p)
		seen[p] = true
	}
}

func TestPortThatIsTakenIsPassedOver(t *testing.T) {
	taken := firstPort + int((next.Load()+1)%ports)
	l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: taken})
	if err == nil { // or somebody else has it, which is as good
		defer l.Close()
	}
	p, err := Port()
	require.NoError(t, err)
	require.NotEqual(t, strconv.Itoa(taken), p)
}
