package front

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEveryFaultOfLinks does to the packets of a program whatever a network can do to them,
// one thing after the other, and sees it go on each time.
func TestEveryFaultOfLinks(t *testing.T) {
	need(t, "ib_write_bw")
	s := up(t, 2)
	_, client := s.flow("ib_write_bw", "-u", "10")
	resent := func() uint64 { return s.ask().Nodes[0].Retransmitted }
	dropped := func() uint64 { return s.ask().Nodes[1].DroppedPackets }
	qpn := s.ask().Nodes[1].Contexts[0].QPs[0].QPN
	for _, c := range []struct {
		name  string
		keys  []string
		grows func() uint64
	}{
		{"loss in bursts", []string{"burst={enter: 2%, leave: 30%}"}, resent},
		{"loss by opcode", []string{"from=n1", "to=n2", "rules=[{action: drop, opcode: WRITE_ONLY, every: 50, count: 0}]"}, resent},
		{"loss by PSN", []string{"from=n1", "to=n2", fmt.Sprintf("rules=[%s]", psns())}, resent},
		{"loss by QP", []string{"from=n1", "to=n2", fmt.Sprintf("rules=[{action: drop, dest_qp: %d, every: 50, count: 0}]", qpn)}, resent},
		{"duplication", []string{"duplicate=10%"}, dropped},
		{"reordering", []string{"reorder=5%", "reorder_delay=2ms"}, resent},
		{"delay", []string{"rules=[{action: delay, delay: 2ms, every: 50, count: 0}]"}, resent},
		{"corruption", []string{"corrupt=2%"}, dropped},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := c.grows()
			s.fault(append([]string{"set_impairment"}, c.keys...)...)
			require.Eventually(t, func() bool { return c.grows() > before+5 || client.ended() }, longest, 2*time.Millisecond)
			s.fault("set_impairment")
			s.moves(client)
		})
	}
}

// psns are rules for each 40000th PSN: one of them comes soon, whatever the connection
// began with.
func psns() string {
	var rules []string
	for p := 0; p < 1<<24; p += 1 << 24 / 250 {
		rules = append(rules, fmt.Sprintf("{action: drop, psn: %d}", p))
	}
	return strings.Join(rules, ", ")
}

// TestTamperedData: a program that looks at its data finds what no ICRC has found.
func TestTamperedData(t *testing.T) {
	need(t, "ibv_rc_pingpong")
	s := up(t, 2)
	s.because = imperfect
	s.fault("set_impairment", "from=n1", "to=n2", "tamper=20%")
	port := freePort(t)
	args := []string{"ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "100", "-s", "1", "-c", "-p", port} // it looks at one byte of each page
	server := s.start("n2", args...)
	server.listening(port)
	client := s.start("n1", append(args, s.addrs[1])...)
	_ = client.wait()
	_ = server.wait()
	require.Contains(t, server.output(), "invalid data in page")
	require.NotContains(t, client.output(), "invalid data in page", "nothing happened on the way back")
}

// TestCompletionQueueOverflows: the next completion of a program finds its queue full.
func TestCompletionQueueOverflows(t *testing.T) {
	need(t, "ib_write_bw")
	s := up(t, 2)
	_, client := s.flow("ib_write_bw", "-u", "10")
	require.Equal(t, "cq_overflow: 1 queue pair\n", s.fault("cq_overflow", "node=n1"))
	require.Eventually(t, func() bool { return s.ask().Nodes[0].Contexts[0].QPs[0].State == "ERR" }, longest, 2*time.Millisecond)
	s.rests()
	_ = client.cmd.Process.Kill() // perftest looks for no asynchronous events
}

// file writes a topology file with the site's nodes.
func (s *site) file(name, text string) string {
	s.t.Helper()
	for i, a := range s.addrs {
		text = strings.ReplaceAll(text, fmt.Sprintf("ADDRESS%d", i+1), a)
	}
	path := filepath.Join(s.dir, name)
	require.NoError(s.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

// upWith starts a daemon with a topology file of two nodes, in which ADDRESS1 and ADDRESS2
// are theirs.
func upWith(t *testing.T, text string) *site {
	t.Helper()
	s := newSite(t, nil)
	s.addrs = []string{newAddress(), newAddress()}
	s.begin("up", s.file("net.yaml", text))
	return s
}

const twoNodes = "version: 1\nnodes: [{name: n1, address: ADDRESS1}, {name: n2, address: ADDRESS2}]\n"

// TestLinksTakeTime: packets of programs wait as long as the file of the network says.
func TestLinksTakeTime(t *testing.T) {
	need(t, "ibv_rc_pingpong")
	s := upWith(t, twoNodes+`network: {latency: 1ms}
switches: [{name: sw, nodes: [n1, n2], latency: 3ms, bandwidth: 100Mbps}]
`)
	s.because = imperfect
	port := freePort(t)
	args := []string{"ibv_rc_pingpong", "-d", "rvt0", "-g", "0", "-n", "20", "-p", port}
	server := s.start("n2", args...)
	server.listening(port)
	out := s.run("n1", append(args, s.addrs[1])...)
	require.NoError(t, server.wait())
	var iters int
	var seconds, usec float64
	_, line, ok := strings.Cut(out, "Mbit/sec\n")
	require.True(t, ok, out)
	_, err := fmt.Sscanf(line, "%d iters in %f seconds = %f usec/iter", &iters, &seconds, &usec)
	require.NoError(t, err, out)
	// 4 KiB each way: 4 packets on a link of 100 Mb/s take 0.36 ms, and 4 ms on the way.
	require.Greater(t, usec, 2*(4000+350.0))
	require.Less(t, usec, 2*(4000+350.0)*10, "the machine may be slow")
}

// TestScheduleOfAFile: what a topology file says shall go wrong does, while programs run.
func TestScheduleOfAFile(t *testing.T) {
	need(t, "ib_write_bw")
	s := upWith(t, twoNodes+"faults:\n  - {at: 1ms, action: set_impairment, loss: 1%}\n  - {at: 1h, action: kill_node, node: n1}\n")
	s.because = imperfect
	require.Eventually(t, func() bool { return len(s.ask().Faults) == 2 }, longest, 2*time.Millisecond)
	_, client := s.flow("ib_write_bw", "-u", "15")
	require.Eventually(t, func() bool { return s.ask().Nodes[0].Retransmitted > 3 }, longest, 2*time.Millisecond)
	out, err := s.command(t.Context(), "ls").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "n1 to n2: loss: 0.01\n")
	require.Contains(t, string(out), "net.yaml: 1 of 2 faults done, the next in 59m")

	// Another schedule takes its place.
	next := s.file("next.yaml", `version: 1
faults:
  - {at: 0s, action: set_impairment}
  - {at: 10ms, action: port_down, node: n2}
  - {at: 200ms, action: port_up, node: n2}
  - {at: 210ms, action: delay_completions, node: n1, delay: 50ms}
`)
	require.Equal(t, next+": 4 of 4 faults done\n", s.fault("--file", next, "--wait"))
	require.Empty(t, s.ask().Faults)
	s.moves(client)

	const example = "../../examples/schedules/bad-second.yaml"
	require.Equal(t, example+": 4 of 4 faults done\n", s.fault("--file", example, "--wait"))
	s.moves(client)

	vain := s.file("vain.yaml", "version: 1\nfaults:\n  - {at: 0s, action: restart_node, node: n1}\n  - {at: 1ms, action: complete_with, node: n1, status: REM_OP_ERR}\n")
	out, err = s.command(t.Context(), "fault", "--file", vain, "--wait").CombinedOutput()
	require.Equal(t, 2, exitCode(err))
	require.Equal(t, "rvtsim: "+vain+": 1 of 2 faults were in vain:\n  restart_node at 0s: node n1: it is alive; kill_node comes first\n", string(out))
	require.Error(t, client.wait())
	require.Contains(t, client.output(), "status 11")

	long := s.file("long.yaml", "version: 1\nfaults: [{at: 1h, action: heal}]\n")
	require.Equal(t, long+": 1 fault until 1h0m0s from now\n", s.fault("--file", long))
	require.Equal(t, "stop: 1 fault will not come\n", s.fault("--stop"))

	wrong := s.file("wrong.yaml", "version: 1\nfaults:\n  - {at: 1s, action: port_down, node: n7}\n  - {at: x, action: prt_up}\n")
	out, err = s.command(t.Context(), "fault", "--file", wrong).CombinedOutput()
	require.Equal(t, 2, exitCode(err))
	require.Contains(t, string(out), wrong+`:3:39: faults[0].node: unknown node "n7"; expected one of n1, n2`)
	require.Contains(t, string(out), wrong+`:4:10: faults[1].at: found "x"; expected a duration`)
	require.Contains(t, string(out), wrong+`:4:21: faults[1].action: unknown action "prt_up"`)
}
