package front

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// takes is how long so many packets take to arrive.
func (s *site) takes(client *running, packets uint64) time.Duration {
	s.t.Helper()
	s.ask() // what was sent before counts before
	first, start := s.received(), time.Now()
	require.Eventually(s.t, func() bool { return s.received() >= first+packets || client.ended() }, longest, time.Millisecond)
	require.False(s.t, client.ended(), "%s", client.output())
	return time.Since(start)
}

// TestLinkChanges changes what links are like under a program that goes on sending: a
// limit is kept, whoever does the adapter's work.
func TestLinkChanges(t *testing.T) {
	need(t, "ib_write_bw")
	s := up(t, 2)
	_, client := s.flow("ib_write_bw", "-u", "17", "-t", "4", "-Q", "1", "-m", "1024")

	require.Equal(t, "set_link: 1 link\n", s.fault("set_link", "from=n1", "to=n2", "bandwidth=50Mbps"))
	require.Equal(t, []string{"n1 to n2: bandwidth: 50Mbps"}, s.report().Faults)
	const packet = 1024 * 8 // bits, at least
	require.GreaterOrEqual(t, s.takes(client, 1000), 900*packet*time.Second/50e6)

	s.fault("set_link", "between=[n1, n2]", "latency=20ms", "jitter=1ms")
	s.moves(client)
	// Four messages of four packets at a time, and the answer 40 ms after the request.
	require.GreaterOrEqual(t, s.takes(client, 100), 5*40*time.Millisecond)

	again := s.ask().Nodes[0].Retransmitted
	s.fault("set_link", "from=n1", "to=n2", "bandwidth=50Mbps", "queue=3KiB")
	require.Eventually(t, func() bool { return s.ask().Nodes[0].Retransmitted > again+20 }, longest, 5*time.Millisecond)

	s.fault("set_link", "mtu=512")
	require.Equal(t, []string{"all links: mtu: 512"}, s.report().Faults)
	s.rests()
	require.False(t, client.ended(), "%s", client.output())

	require.Equal(t, "set_link: 2 links\n", s.fault("set_link"))
	require.Empty(t, s.report().Faults)
	s.moves(client)

	out, err := s.command(t.Context(), "fault", "set_link", "queue=1MiB").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "rvtsim: queue: found queue without a bandwidth; expected the key \"bandwidth\" too: on a link without limit nothing waits\n", string(out))
	out, err = s.command(t.Context(), "fault", "set_link", "switch=s1").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "rvtsim: switch: found switch \"s1\"; expected none: this network has no switches\n", string(out))
}
