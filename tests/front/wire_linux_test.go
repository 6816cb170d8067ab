package front

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWires: programs with the engine inside send each other the same packets through memory
// and by UDP. Through memory that takes no system call, and nothing is sent twice. A peer
// that is killed does not answer any more, by either.
func TestWires(t *testing.T) {
	need(t, "ibv_rc_pingpong", "ib_write_bw")
	program(t, "guest") // or say what is missing
	for _, wire := range []string{"memory", "udp"} {
		t.Run(wire, func(t *testing.T) {
			s := newSite(t, nil)
			s.engine = "program"
			s.up(2, "--wire", wire)
			for _, line := range []string{
				"ibv_rc_pingpong -n 50 -c -s 1000000", "ibv_rc_pingpong -n 200 -c -e", "ibv_uc_pingpong -n 50 -s 8192", "ibv_srq_pingpong -n 50 -q 4",
			} {
				for _, client := range []string{"n2", "n1"} {
					s.talk("n1", client, append(strings.Fields(line), "-d", "rvt0", "-g", "0")...)
				}
			}
			s.empty()
			for _, n := range s.report().Nodes {
				require.Greater(t, n.SentPackets, uint64(500), "packets are counted, whatever carries them")
				if wire == "memory" {
					require.Zero(t, n.SendCalls)
				} else {
					require.NotZero(t, n.SendCalls)
				}
			}

			// The first datagrams look for the way.
			s.talk("n1", "n2", "ibv_ud_pingpong", "-n", "2000", "-d", "rvt0", "-g", "0")
			if n := s.report().Nodes[0]; wire == "memory" {
				require.Less(t, n.SendCalls, uint64(1000))
			}

			port := freePort(t)
			prog := []string{"ib_write_bw", "-d", "rvt0", "-x", "0", "-F", "-D", "30", "-p", port}
			server := s.start("n1", prog...)
			server.listening(port)
			client := s.start("n2", append(prog, s.addrs[0])...)
			before := s.report().Nodes[1].SentPackets
			require.Eventually(t, func() bool { return s.report().Nodes[1].SentPackets > before+2000 }, longest, 10*time.Millisecond, "no traffic")
			require.NoError(t, server.cmd.Process.Signal(syscall.SIGKILL))
			require.Error(t, client.wait(), "%s", client.output())
			require.Contains(t, client.output(), "Failed status 12", "IBV_WC_RETRY_EXC_ERR")
			s.empty()

			// Somebody else in the seat of the one that was killed.
			s.talk("n1", "n2", "ibv_rc_pingpong", "-n", "50", "-c", "-d", "rvt0", "-g", "0")
		})
	}
}

// TestStrangersShareNoMemory: programs of two users reach each other by UDP.
func TestStrangersShareNoMemory(t *testing.T) {
	if syscall.Getuid() != 0 {
		t.Skip("SKIP only root can start programs of two users")
	}
	need(t, "ibv_rc_pingpong")
	program(t, "guest")
	s := newSite(t, nil)
	s.engine = "program"
	s.up(2, "--wire", "memory", "--allow-uid", "65534")
	port := freePort(t)
	prog := []string{"ibv_rc_pingpong", "-n", "50", "-c", "-d", "rvt0", "-g", "0", "-p", port}
	server := s.start("n1", prog...)
	server.listening(port)
	stranger := newSite(t, nobody)
	args := []string{"exec", "--engine", "program", "--node", "n2", "--socket", filepath.Join(s.dir, "rvtsim", "default.sock"), "--"}
	out, err := stranger.command(t.Context(), append(append(args, prog...), s.addrs[0])...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.NoError(t, server.wait(), "%s", server.output())
	s.empty()
	for _, n := range s.report().Nodes {
		require.NotZero(t, n.SendCalls)
	}
}
