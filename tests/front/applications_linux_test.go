package front

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestTools runs programs that look at the device without sending anything.
func TestTools(t *testing.T) {
	need(t, "ibstat", "ibstatus", "fi_info", "ucx_info")
	s := up(t, 1)
	require.Regexp(t, `(?s)CA 'rvt0'.*State: Active.*Physical state: LinkUp.*Link layer: Ethernet`, s.run("n1", "ibstat"))
	require.Regexp(t, `(?s)device 'rvt0' port 1 status.*state:\s+4: ACTIVE`, s.run("n1", "ibstatus"))
	require.Regexp(t, `(?s)domain: rvt0-dgram.*FI_PROTO_IB_UD.*FI_PROTO_RXD`, s.run("n1", "fi_info", "-p", "verbs"))
	transports := s.run("n1", "ucx_info", "-d")
	for _, want := range []string{"rc_verbs", "ud_verbs"} {
		require.Regexp(t, `Transport: `+want+`\n#\s+Device: rvt0:1`, transports)
	}
	s.empty()
}

// TestAsyncWatch shows what the tool prints when the daemon ends.
func TestAsyncWatch(t *testing.T) {
	need(t, "ibv_asyncwatch")
	s := up(t, 1)
	v := s.start("n1", "ibv_asyncwatch", "-d", "rvt0")
	v.until("rvt0: async event FD")
	out, err := s.command(t.Context(), "down").CombinedOutput()
	require.NoError(t, err, "%s", out)
	v.until("event_type")
	_ = v.wait()
	require.Regexp(t, `(?i)fatal|event_type .*\b8\b`, v.output())
}

// TestUCX runs the benchmark of UCX over its two transports for any verbs device, and
// over both with the protocols on top that choose between them.
func TestUCX(t *testing.T) {
	need(t, "ucx_perftest")
	s := up(t, 2)
	env := append(s.env, "UCX_NET_DEVICES=rvt0:1")
	for _, c := range []struct{ transports, line string }{
		{"", "-d rvt0:1 -x rc_verbs -t am_lat"}, {"", "-d rvt0:1 -x rc_verbs -t put_bw -D zcopy -s 4096"},
		{"", "-d rvt0:1 -x rc_verbs -t cswap"}, {"", "-d rvt0:1 -x ud_verbs -t am_lat"},
		{"ud_verbs", "-t tag_bw -s 100000"}, {"ud_verbs", "-t ucp_get -s 5000"},
		{"rc,ud", "-t tag_bw -s 1000000"}, {"rc,ud", "-t ucp_fadd"}, {"rc,ud", "-t stream_bw"},
	} {
		s.env = append(env, "UCX_TLS="+c.transports)
		if c.transports == "" {
			s.env = env
		}
		out := s.talk("n1", "n2", append([]string{"ucx_perftest", "-n", "60", "-w", "5"}, strings.Fields(c.line)...)...)
		require.Contains(t, out, "Final:", c.line)
	}
	s.empty()
}

// TestLibfabricDatagrams sends datagrams, and reliable messages that libfabric makes of them.
func TestLibfabricDatagrams(t *testing.T) {
	need(t, "fi_pingpong")
	s := up(t, 2)
	for _, line := range []string{"-p verbs -e dgram", "-p verbs;ofi_rxd -e rdm -S 65536"} {
		port := freePort(t)
		prog := append([]string{"fi_pingpong", "-I", "20"}, strings.Fields(line)...)
		out := s.meet("n1", "n2", port, append(prog, "-B", port), append(prog, "-P", port, s.addrs[0]))
		require.Regexp(t, `(?m)^\d+k?\s+20\s+=20\s`, out, line)
	}
	s.empty()
}

// mpi exchanges messages of several sizes around a ring and adds up the ranks.
const mpi = `
from mpi4py import MPI
c = MPI.COMM_WORLD
r, n = c.rank, c.size
for size in (8, 4096, 100000, 1000000):
    pattern = lambda rank: (bytes((i * 7 + rank) & 255 for i in range(256)) * (size // 256 + 1))[:size]
    got = bytearray(size)
    c.Sendrecv(pattern(r), (r + 1) % n, 0, got, (r - 1) % n, 0)
    assert got == pattern((r - 1) % n), size
if r == 0:
    print("sum", c.reduce(r, root=0))
else:
    c.reduce(r, root=0)
`

// TestMPI runs a program of four ranks on two nodes.
func TestMPI(t *testing.T) {
	need(t, "mpirun")
	if exec.Command("/usr/bin/python3", "-c", "import mpi4py").Run() != nil {
		missing(t, "python3-mpi4py is missing")
	}
	s := up(t, 2)
	prog := filepath.Join(s.dir, "mpi.py")
	require.NoError(t, os.WriteFile(prog, []byte(mpi), 0o644))
	ctx, cancel := context.WithTimeout(t.Context(), 2*longest)
	defer cancel()
	args := []string{"--oversubscribe", "--mca", "pml", "ucx", "-x", "UCX_TLS=rc,ud,self", "-x", "UCX_NET_DEVICES=rvt0:1"}
	for i, node := range []string{"n1", "n2"} {
		if i > 0 {
			args = append(args, ":")
		}
		args = append(args, "-np", "2", built.rvtsim)
		args = append(args, s.exec(node, []string{"/usr/bin/python3", prog})...)
	}
	cmd := exec.CommandContext(ctx, "mpirun", args...)
	cmd.Env = append(s.env, "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	cmd.WaitDelay = 10 * time.Second
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "sum 6")
	for _, n := range s.report().Nodes {
		require.NotZero(t, n.SentPackets)
	}
	s.empty()
}
