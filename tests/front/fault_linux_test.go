package front

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// fault changes the network of the site.
func (s *site) fault(args ...string) string {
	s.t.Helper()
	out, err := s.command(s.t.Context(), append([]string{"fault"}, args...)...).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	return string(out)
}

// flow is a program on n1 that sends to one on n2 all the time.
func (s *site) flow(prog string, flags ...string) (server, client *running) {
	s.t.Helper()
	port := freePort(s.t)
	args := append([]string{prog, "-d", "rvt0", "-x", "0", "-F", "-p", port, "-D", "1000"}, flags...)
	if prog != "ib_atomic_bw" { // which has one size only
		args = append(args, "-s", "4096")
	}
	server = s.start("n2", args...)
	server.listening(port)
	client = s.start("n1", append(args, s.addrs[1])...)
	s.moves(client)
	return server, client
}

func (s *site) received() uint64 { return s.ask().Nodes[1].ReceivedPackets }

// moves waits for traffic.
func (s *site) moves(client *running) {
	s.t.Helper()
	before := s.received()
	require.Eventually(s.t, func() bool { return s.received() > before+200 || client.ended() }, longest, 5*time.Millisecond)
	require.False(s.t, client.ended(), "%s", client.output())
}

// rests waits until there is none.
func (s *site) rests() {
	s.t.Helper()
	before := s.received()
	still := func() bool {
		now := s.received()
		same := now == before
		before = now
		return same
	}
	require.Eventually(s.t, still, longest, 50*time.Millisecond)
}

func TestFaultsOfTheNetwork(t *testing.T) {
	need(t, "ib_write_bw")
	s := up(t, 2)
	_, client := s.flow("ib_write_bw", "-u", "19") // 17 s until it gives up: faults are commands, which take a while on a busy machine
	require.Equal(t, "set_impairment: 1 link\n", s.fault("set_impairment", "from=n1", "to=n2", "loss=5%", "duplicate=1%", "rules=[{action: drop, opcode: WRITE_FIRST, nth: 3}]"))
	require.Equal(t, []string{"n1 to n2: loss: 0.05, duplicate: 0.01, rules: [{action: drop, opcode: WRITE_FIRST, nth: 3}]"}, s.report().Faults)
	again := s.report().Nodes[0].Retransmitted
	require.Eventually(t, func() bool { return s.ask().Nodes[0].Retransmitted > again+20 }, longest, 5*time.Millisecond)
	require.Equal(t, "set_impairment: 2 links\n", s.fault("set_impairment"))
	require.Empty(t, s.report().Faults)
	s.moves(client)

	require.Equal(t, "partition: 2 links\n", s.fault("partition", "between=[n1, n2]"))
	s.rests()
	require.Contains(t, s.report().Faults, "n1 to n2: partition")
	s.fault("heal")
	s.moves(client)

	s.fault("port_down", "node=n2")
	s.rests()
	require.Equal(t, "down", s.report().Nodes[1].State)
	s.fault("port_up", "node=n2")
	s.moves(client)
	require.False(t, client.ended())
}

func TestNodeDiesAndComesBack(t *testing.T) {
	need(t, "ib_write_bw", "ibv_rc_pingpong")
	s := up(t, 2)
	server, client := s.flow("ib_write_bw", "-u", "10")
	require.Equal(t, "kill_node: 1 node\n", s.fault("kill_node", "node=n2"))
	require.Error(t, client.wait(), "its peer does not answer any more")
	require.Contains(t, client.output(), "status 12", "transport retry counter exceeded")
	require.NotEqual(t, "active", s.report().Nodes[1].State)
	out, err := s.command(t.Context(), "fault", "kill_node", "node=n2").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "rvtsim: node n2: it is dead already\n", string(out))

	s.fault("restart_node", "node=n2")
	require.Equal(t, "active", s.report().Nodes[1].State)
	port := freePort(t)
	pong := s.start("n2", "ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "20", "-p", port)
	pong.listening(port)
	s.run("n1", "ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "20", "-p", port, s.addrs[1])
	require.NoError(t, pong.wait())
	_ = server.cmd.Process.Kill()
}

// TestFaultsOfVerbs has programs meet what no network can do to them.
func TestFaultsOfVerbs(t *testing.T) {
	need(t, "ib_write_bw", "ib_send_bw")
	type row struct {
		name  string
		prog  []string
		fault []string
		says  string // by the client, before it ends with an error; empty: it goes on
		abi   string
	}
	for _, c := range fewer(2, []row{
		{"the peer has no receives", []string{"ib_send_bw", "-r", "64"}, []string{"pause_receiver", "node=n2"}, "", "rxe"},
		{"a post is refused", []string{"ib_write_bw"}, []string{"fail_post", "node=n1"}, "Couldn't post send", "rxe"},
		{"a post is refused by a driver", []string{"ib_write_bw"}, []string{"fail_post", "node=n1"}, "Couldn't post send", "rvt"},
		{"a request fails", []string{"ib_write_bw"}, []string{"complete_with", "node=n1", "status=REM_OP_ERR"}, "status 11", "rxe"},
		{"a key is revoked", []string{"ib_write_bw"}, []string{"revoke_key", "node=n2"}, "status 10", "rxe"},
		{"a queue pair breaks", []string{"ib_write_bw"}, []string{"modify_qp_error", "node=n1"}, "status 5", "rxe"},
	}) {
		t.Run(c.name, func(t *testing.T) {
			s := up(t, 2, "--abi", c.abi)
			_, client := s.flow(c.prog[0], append(c.prog[1:], "-u", "14")...)
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(client.output())
				}
			})
			what := s.fault(c.fault...)
			require.True(t, strings.HasPrefix(what, c.fault[0]+": 1 "), what)
			if c.says == "" { // RNR retries have no end here
				again := s.ask().Nodes[0].Retransmitted
				require.Eventually(t, func() bool { return s.ask().Nodes[0].Retransmitted > again+2 }, longest, 5*time.Millisecond)
				s.fault("resume_receiver", "node=n2")
				s.moves(client)
				return
			}
			require.Error(t, client.wait(), client.output())
			require.Contains(t, client.output(), c.says)
		})
	}
}

func TestCompletionsComeLate(t *testing.T) {
	need(t, "ib_write_bw")
	s := up(t, 2)
	_, client := s.flow("ib_write_bw")
	s.fault("delay_completions", "node=n1", "delay=300ms")
	s.rests()
	s.moves(client)
}

func TestSpuriousEvents(t *testing.T) {
	need(t, "ibv_asyncwatch")
	s := up(t, 1)
	watch := s.start("n1", "ibv_asyncwatch", "-d", "rvt0")
	watch.until("async event FD")
	require.Equal(t, "spurious_event: 1 node\n", s.fault("spurious_event", "node=n1", "event=PORT_ERR"))
	watch.until("PORT_ERR")
	s.fault("spurious_event", "node=n1", "event=GID_CHANGE")
	watch.until("GID_CHANGE")
	out, err := s.command(t.Context(), "fault", "spurious_event", "node=n1").CombinedOutput()
	require.Error(t, err)
	require.Equal(t, "rvtsim: no program on the node has such a queue pair; ls shows what there is\n", string(out))
	out, err = s.command(t.Context(), "fault", "set_impairment", "los=1").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `unknown key "los"; expected one of`)
	require.Contains(t, string(out), `did you mean "loss"?`)
}
