package front

import (
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDevices(t *testing.T) {
	need(t, "ibv_devices", "ibv_devinfo")
	for _, abi := range fewer(1, []string{"rxe", "rvt"}) {
		t.Run(abi, func(t *testing.T) {
			s := up(t, 2, "--abi", abi)
			require.Regexp(t, `rvt0\s+02[0-9a-f]{14}`, s.run("n1", "ibv_devices"))
			info := s.run("n2", "ibv_devinfo", "-v")
			for _, want := range []string{`hca_id:\s+rvt0`, `state:\s+PORT_ACTIVE`, `active_mtu:\s+4096`, `link_layer:\s+Ethernet`, `atomic_cap:\s+ATOMIC_HCA`, `GID\[\s+0\]:\s+::ffff:` + regexp.QuoteMeta(s.addrs[1])} {
				require.Regexp(t, want, info)
			}
			require.NotEqual(t, guid(t, s, "n1"), guid(t, s, "n2"), "programs tell devices apart by GUID")
			s.empty()
		})
	}
}

func guid(t *testing.T, s *site, node string) string {
	m := regexp.MustCompile(`node_guid:\s+(\S+)`).FindStringSubmatch(s.run(node, "ibv_devinfo"))
	require.NotNil(t, m)
	return m[1]
}

// talk runs a program twice, as server on one node and as client on another, and
// returns what the client printed.
func (s *site) talk(server, client string, prog ...string) string {
	s.t.Helper()
	port := freePort(s.t)
	prog = append(prog, "-p", port)
	return s.meet(server, client, port, prog, append(prog, s.addrs[0]))
}

// meet runs a server and, as soon as it listens on a TCP port, its client, and returns
// what the client printed.
func (s *site) meet(server, client, port string, serve, connect []string) string {
	s.t.Helper()
	srv := s.start(server, serve...)
	srv.listening(port)
	out, err := s.try(client, connect...)
	require.NoError(s.t, err, "client %s:\n%s\nserver:\n%s", strings.Join(connect, " "), out, srv.output())
	require.NoError(s.t, srv.wait(), "server %s:\n%s", strings.Join(serve, " "), srv.output())
	return out
}

func TestPingpong(t *testing.T) {
	need(t, "ibv_rc_pingpong")
	for _, abi := range fewer(1, []string{"rxe", "rvt"}) {
		t.Run(abi, func(t *testing.T) {
			s := up(t, 2, "--abi", abi)
			type row struct{ client, line string }
			for _, c := range fewer(3, []row{
				{"n2", "ibv_rc_pingpong -n 100 -c"},
				{"n1", "ibv_rc_pingpong -n 100 -c -e"},
				{"n2", "ibv_rc_pingpong -n 20 -e -s 1"},
				{"n2", "ibv_rc_pingpong -n 5 -c -s 4194304 -m 4096"},
				{"n2", "ibv_rc_pingpong -n 20 -c -s 70000 -m 256"},
				{"n2", "ibv_rc_pingpong -n 20 -c -s 70000 -m 512 -r 3"},
				{"n2", "ibv_uc_pingpong -n 50 -s 8192 -m 2048"},
				{"n1", "ibv_uc_pingpong -n 50 -e"},
				{"n2", "ibv_ud_pingpong -n 50"},
				{"n1", "ibv_ud_pingpong -n 50 -e -s 1024"},
				{"n2", "ibv_srq_pingpong -n 50 -q 4"},
				{"n1", "ibv_srq_pingpong -n 50 -e"},
			}) {
				out := s.talk("n1", c.client, append(strings.Fields(c.line), "-d", "rvt0", "-g", "0")...)
				require.Contains(t, out, "usec/iter", c.line)
			}
			s.empty()
			for _, n := range s.report().Nodes {
				require.NotZero(t, n.SentPackets, "traffic between nodes crosses the network")
			}
		})
	}
}

func TestPerftest(t *testing.T) {
	need(t, "ib_send_bw")
	s := up(t, 2)
	lines := []string{
		"ib_send_bw -n 100", "ib_write_bw -n 100", "ib_read_bw -n 100", "ib_atomic_bw -n 100",
		"ib_send_lat -n 50", "ib_write_lat -n 50", "ib_read_lat -n 50", "ib_atomic_lat -n 50",
		"ib_send_bw -c UC -n 100", "ib_write_bw -c UC -n 100", "ib_send_lat -c UC -n 50", "ib_write_lat -c UC -n 50",
		"ib_send_bw -c UD -n 100", "ib_send_lat -c UD -n 50",
		"ib_send_bw -n 100 -e", "ib_send_lat -n 50 -e", "ib_read_lat -n 50 -e",
		"ib_send_bw -n 100 -b", "ib_write_bw -n 50 -b -q 2",
		"ib_write_bw -n 50 -q 8", "ib_send_bw -n 50 -q 8", "ib_send_bw -n 50 -q 4 --use-srq -r 100", "ib_send_lat -c UC -n 50 --use-srq -r 100",
		"ib_send_bw -a -n 5", "ib_write_bw -a -n 5",
	}
	for _, line := range fewer(4, lines) {
		out := s.talk("n1", "n2", append(strings.Fields(line), "-d", "rvt0", "-x", "0", "-F")...)
		require.Regexp(t, `(?m)^ \d+\s+\d+\s+(\d|inf)`, out, line) // inf: a busy machine, whose clock perftest cannot measure
	}
	for _, line := range fewer(1, []string{"ib_send_lat -n 50", "ib_write_bw -n 50", "ib_atomic_lat -n 50"}) {
		s.talk("n1", "n1", append(strings.Fields(line), "-d", "rvt0", "-x", "0", "-F")...)
	}
	s.empty()
	for _, n := range s.report().Nodes {
		require.Less(t, n.Retransmitted, n.SentPackets/20+100, "nothing is lost on a loopback network, so only impatience sends again")
	}
}

// TestGuest has programs do what an engine inside must bear: signals, stacks and threads of
// all kinds, libraries that come and go, and ends amid traffic.
func TestGuest(t *testing.T) {
	prog := program(t, "guest")
	s := up(t, 1)
	for part, code := range map[string]int{
		"once": 0, "signals": 0, "sigstack": 0, "faults": 0, "threads": 0, "coroutines": 0, "plugin": 0,
		"exit": 7, "_exit": 7, "quick_exit": 7, "return": 7, "exec": 0,
	} {
		out, err := s.try("n1", prog, part)
		require.Equal(t, code, exitCode(err), "%s: %s", part, out)
	}
	for part, signal := range map[string]syscall.Signal{"abort": syscall.SIGABRT, "segv": syscall.SIGSEGV, "term": syscall.SIGTERM} {
		r := s.start("n1", prog, part)
		var e *exec.ExitError
		require.ErrorAs(t, r.wait(), &e, part)
		require.Equal(t, signal, e.Sys().(syscall.WaitStatus).Signal(), part)
	}
	s.empty()
}

// TestMemoryGoes: memory that a program unmaps while its peer's messages or its own need it, at
// the beginning, in the middle and at the end of a message, fails the queue pairs that use it
// and nothing else, between two engines by whatever way packets go.
func TestMemoryGoes(t *testing.T) {
	prog := program(t, "gone")
	for _, wire := range []string{"memory", "udp"} {
		s := up(t, 1, "--wire", wire)
		s.run("n1", prog)
		s.empty()
	}
}

// TestExtendedPolling: a program that polls by ibv_start_poll drives its engine as well.
func TestExtendedPolling(t *testing.T) {
	prog := []string{program(t, "extended")}
	if engine == "program" {
		prog = append(prog, "hooked")
	}
	s := up(t, 1)
	s.run("n1", prog...)
	s.empty()
}

func TestOwnPrograms(t *testing.T) {
	for _, abi := range []string{"rxe", "rvt"} {
		s := up(t, 1, "--abi", abi)
		for _, name := range []string{"paths", "descriptors", "forks", "threads", "events", "posting", "streak"} {
			t.Run(abi+"/"+name, func(t *testing.T) {
				out, err := s.try("n1", program(t, name))
				require.NoError(t, err, "%s", out)
			})
		}
		s.empty()
	}
}
