package front

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// full runs every program of the connection manager in every combination. It takes
// minutes: make test does without.
var full = flag.Bool("front.full", false, "run the long form of the tests")

// nobodyThere is what perftest says when nobody listens, for connections and datagrams.
var nobodyThere = regexp.MustCompile(`RDMA_CM_EVENT_(REJECTED; error: 8|UNREACHABLE; error: 1)\.`)

// listeners counts the ids of a node that listen.
func (s *site) listeners(node string) (n int) {
	s.t.Helper()
	for _, h := range s.report().Nodes {
		for _, c := range h.Contexts {
			for _, id := range c.IDs {
				if h.Name == node && strings.Contains(id, "(LISTEN)") {
					n++
				}
			}
		}
	}
	return n
}

// listens waits until so many ids of a node listen.
func (s *site) listens(r *running, node string, ids int) {
	s.t.Helper()
	ok := func() bool { return r.ended() || s.listeners(node) >= ids }
	require.Eventually(s.t, ok, longest, 20*time.Millisecond, "nobody listens: %s", r.output())
	require.GreaterOrEqual(s.t, s.listeners(node), ids, "it has ended: %s", r.output())
}

// explains expects that the programs of a node ran into something.
func (s *site) explains(node string, want ...string) {
	s.t.Helper()
	out, err := s.command(s.t.Context(), "explain", "--node", node).CombinedOutput()
	require.NoError(s.t, err, "%s", out)
	for _, text := range want {
		require.Contains(s.t, string(out), text)
	}
}

// talker is a pair of programs that find each other by librdmacm. ADDR stands for the
// address of the server's node.
type talker struct {
	server, client string
	stays          bool // the server goes on when the client has gone
	relistens      bool // the server listens twice, and the client may be too quick for the second time
	says           string
}

// connect runs a pair and returns what the client printed.
func (s *site) connect(server, client string, c talker) string {
	s.t.Helper()
	words := func(line string) []string {
		return strings.Fields(strings.ReplaceAll(line, "ADDR", s.addrs[0]))
	}
	// The daemon may not have seen the end of the server before.
	require.Eventually(s.t, func() bool { return s.listeners(server) == 0 }, longest, 10*time.Millisecond)
	srv := s.start(server, words(c.server)...)
	s.listens(srv, server, 1)
	out, err := s.try(client, words(c.client)...)
	if err != nil && c.relistens && nobodyThere.MatchString(out) {
		require.NoError(s.t, srv.cmd.Process.Kill())
		_ = srv.wait()
		s.t.Logf("%s came between two listeners of its server; once more", c.client)
		return s.connect(server, client, c)
	}
	require.NoError(s.t, err, "client %s:\n%s\nserver:\n%s", c.client, out, srv.output())
	if c.stays {
		require.NoError(s.t, srv.cmd.Process.Signal(syscall.SIGTERM))
		_ = srv.wait()
	} else {
		require.NoError(s.t, srv.wait(), "server %s:\n%s", c.server, srv.output())
	}
	require.Contains(s.t, out+srv.output(), c.says, c.client)
	return out
}

// talkers are the examples of librdmacm.
var talkers = []talker{
	{server: "rping -s -a ADDR -v -V -C 5", client: "rping -c -a ADDR -v -V -C 5", says: "ping data: rdma-ping-4:"},
	{server: "ucmatose -b ADDR", client: "ucmatose -s ADDR", says: "test complete\nreturn status 0"},
	{server: "udaddy -b ADDR", client: "udaddy -s ADDR", says: "test complete\nreturn status 0"},
	{server: "rdma_server -s ADDR", client: "rdma_client -s ADDR", says: "rdma_client: end 0"},
	{server: "rstream -b ADDR -S 5000 -C 50 -T v", client: "rstream -s ADDR -S 5000 -C 50 -T v", says: "usec/xfer"},
	{server: "rping -s -a ADDR -v -V -C 3 -S 60000", client: "rping -c -a ADDR -v -V -C 3 -S 60000", says: "ping data: rdma-ping-2:"},
	{server: "ucmatose -b ADDR -c 10 -C 3", client: "ucmatose -s ADDR -c 10 -C 3", says: "test complete\nreturn status 0"},
	{server: "ucmatose -b ADDR -m", client: "ucmatose -s ADDR -m", says: "test complete\nreturn status 0"},
	{server: "udaddy -b ADDR -c 5", client: "udaddy -s ADDR -c 5", says: "test complete\nreturn status 0"},
	{server: "rdma_xserver -c r", client: "rdma_xclient -s ADDR -c r", says: "rdma_xclient: end 0"},
	{server: "rstream -b ADDR -S 300000 -C 5 -T b", client: "rstream -s ADDR -S 300000 -C 5 -T b", says: "usec/xfer"},
	{server: "rstream -b ADDR -S 64 -I 10 -T n", client: "rstream -s ADDR -S 64 -I 10 -T n", says: "usec/xfer"},
	{server: "riostream -b ADDR -S 5000 -C 50", client: "riostream -s ADDR -S 5000 -C 50", says: "usec/xfer"},
	{server: "cmtime -b ADDR -c 100", client: "cmtime -s ADDR -c 100", says: "disconnect", stays: true},
}

// req: CM-PROG-01
func TestRDMACM(t *testing.T) {
	need(t, "rping", "ucmatose", "udaddy", "rdma_server", "rstream", "riostream", "cmtime")
	list := fewer(2, talkers)
	s := up(t, 2)
	for _, c := range list {
		s.connect("n1", "n2", c)
	}
	if !*full {
		list = list[:2]
	}
	for _, c := range list {
		s.connect("n1", "n1", c)
	}
	s.empty()
	for _, n := range s.report().Nodes {
		require.NotZero(t, n.SentPackets, "connections between nodes are made over the network")
	}
	if *full {
		rvt := up(t, 2, "--abi", "rvt")
		for _, c := range talkers {
			if strings.HasPrefix(c.client, "rdma_xclient") {
				rvt.insistsOnInline(c)
				continue
			}
			rvt.connect("n1", "n2", c)
		}
		rvt.empty()
	}
}

// insistsOnInline expects that a client fails which posts inline data without asking whether
// there is room for them, and without a region: rdmavt has no inline data (max_inline_data is
// 0), and no key is no region's.
func (s *site) insistsOnInline(c talker) {
	s.t.Helper()
	srv := s.start("n1", strings.Fields(c.server)...)
	s.listens(srv, "n1", 1)
	out, err := s.try("n2", strings.Fields(strings.ReplaceAll(c.client, "ADDR", s.addrs[0]))...)
	require.NotZero(s.t, exitCode(err), out)
	require.Contains(s.t, out, "rdma_post_send: Invalid argument")
	s.explains("n2", "more inline data than max_inline_data (EINVAL)")
	require.NoError(s.t, srv.cmd.Process.Kill())
	_ = srv.wait()
}

// TestRDMACMRefused: nobody listens, and what is not there to be resolved.
//
// req: CM-REJ-01 CM-ADDR-04
func TestRDMACMRefused(t *testing.T) {
	need(t, "rping")
	s := up(t, 2)
	out, err := s.try("n2", "rping", "-c", "-a", s.addrs[0], "-C", "1")
	require.NotZero(t, exitCode(err), out)
	require.Contains(t, out, "RDMA_CM_EVENT_REJECTED, error 8", "the service id is unknown there")
	s.explains("n2", "REJECTED, reason 8 (INVALID_SERVICE_ID): nobody listens there", "The peer, node n1, runs here as well: nobody listens there", "Start the server first")
	began := time.Now()
	out, err = s.try("n2", "rping", "-c", "-a", newAddress(), "-C", "1") // which asks for 2 s
	require.NotZero(t, exitCode(err), out)
	require.Contains(t, out, "RDMA_CM_EVENT_ADDR_ERROR, error -110", "nobody has the address")
	require.Greater(t, time.Since(began), 2*time.Second)
	out, err = s.try("n2", "rping", "-c", "-a", "203.0.113.1", "-C", "1")
	require.NotZero(t, exitCode(err), out)
	require.Contains(t, out, "rdma_resolve_addr: Network is unreachable")
	// As on soft-RoCE an id for XRC can listen, and its provider has no XRC QPs.
	xsrv := s.start("n1", "rdma_xserver", "-c", "x")
	s.listens(xsrv, "n1", 1)
	out, err = s.try("n2", "rdma_xclient", "-s", s.addrs[0], "-c", "x")
	require.NotZero(t, exitCode(err), out)
	require.Contains(t, out, "rdma_create_ep: Operation not supported")
	require.NoError(t, xsrv.cmd.Process.Kill())
	_ = xsrv.wait()
	s.explains("n2", "ADDR_ERROR, status -110 (ETIMEDOUT): nobody has the address", "resolve_addr: id", "there is no route to 203.0.113.1", "ENETUNREACH")
	out, err = s.try("n1", cmProgram(t, "manage"), s.addrs[0], "1")
	require.NoError(t, err, out)
	s.explains("n1", "57 bytes of private data, the message has room for 56 (EINVAL)", "36 bytes of its own", "reason 28 (CONSUMER_DEFINED)", "With it came private data: 148 bytes")
	s.empty()
}

// TestOwnCMPrograms: our programs of librdmacm and librpma, which say themselves what is
// wrong: the pages of rpma_cq_get_wc and rdma_get_recv_comp, and what connections go
// through.
//
// req: CM-COMP-01 CM-RPMA-01 CM-RPMA-02 CM-RPMA-03 CM-FILE-02 CM-FILE-04 CM-CONN-04 CM-CONN-08 CM-DATA-01
func TestOwnCMPrograms(t *testing.T) {
	abis, connections := []string{"rxe"}, "200"
	if *full {
		abis, connections = []string{"rxe", "rvt"}, "1000"
	}
	for _, abi := range abis {
		s := up(t, 1, "--abi", abi)
		for _, prog := range [][]string{{"getcomp", s.addrs[0]}, {"rpma", s.addrs[0]}, {"manage", s.addrs[0], connections}} {
			t.Run(abi+"/"+prog[0], func(t *testing.T) {
				out, err := s.try("n1", append([]string{cmProgram(t, prog[0])}, prog[1:]...)...)
				require.NoError(t, err, "%s", out)
				require.Contains(t, out, "ok")
			})
		}
		s.empty()
	}
}

// TestSeccompCM has nothing preloaded: the supervisor waits for events in the place of
// programs.
func TestSeccompCM(t *testing.T) {
	need(t, "rping")
	s := notified(t, nil, 2)
	for _, c := range talkers[:3] { // rping, ucmatose, udaddy
		s.connect("n1", "n2", c)
	}
	for _, prog := range [][]string{{"getcomp", s.addrs[0]}, {"rpma", s.addrs[0]}, {"manage", s.addrs[0], "20"}} {
		out, err := s.try("n1", append([]string{cmProgram(t, prog[0])}, prog[1:]...)...)
		require.NoError(t, err, "%s: %s", prog[0], out)
	}
	s.empty()
	// Of a program that is killed while it waits nothing is left.
	srv := s.start("n1", "rping", "-s", "-a", s.addrs[0])
	s.listens(srv, "n1", 1)
	require.NoError(t, srv.cmd.Process.Kill())
	_ = srv.wait()
	s.empty()
}

// TestGoAndC: the example in Go and the programs of librdmacm talk to each other.
func TestGoAndC(t *testing.T) {
	need(t, "rdma_server")
	s := up(t, 1)
	prog := filepath.Join(s.dir, "rdmacm")
	out, err := exec.Command("go", "build", "-o", prog, "../../examples/rdmacm").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ours := newAddress() // an adapter of the Go program's own
	srv := s.start("n1", "rdma_server", "-s", s.addrs[0])
	s.listens(srv, "n1", 1)
	out, err = exec.Command(prog, "-a", ours, "-s", s.addrs[0]).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "received 16 bytes")
	require.NoError(t, srv.wait(), srv.output())

	serve := exec.Command(prog, "-a", ours)
	pipe, err := serve.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, serve.Start())
	says := bufio.NewReader(pipe)
	line, err := says.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "listening at "+ours)
	require.Contains(t, s.run("n1", "rdma_client", "-s", ours), "rdma_client: end 0")
	rest, err := io.ReadAll(says)
	require.NoError(t, err)
	require.Contains(t, string(rest), "received 16 bytes")
	require.NoError(t, serve.Wait())
	s.empty()
}

// TestDaemonGoesCM: the daemon is killed while programs wait for connections and for events of
// one. They learn of it and end.
func TestDaemonGoesCM(t *testing.T) {
	need(t, "rping")
	for name, site := range map[string]func() *site{
		"preload": func() *site { return up(t, 2) }, "seccomp": func() *site { return notified(t, nil, 2) },
	} {
		t.Run(name, func(t *testing.T) {
			s := site()
			s.t = t
			waits := s.start("n2", "rping", "-s", "-a", s.addrs[1])
			s.listens(waits, "n2", 1)
			srv := s.start("n1", "rping", "-s", "-a", s.addrs[0])
			s.listens(srv, "n1", 1)
			cli := s.start("n2", "rping", "-c", "-v", "-a", s.addrs[0]) // without end
			talking := func() bool { return s.report().Nodes[0].ReceivedPackets > 100 }
			require.Eventually(t, talking, longest, 20*time.Millisecond, cli.output())
			require.NoError(t, syscall.Kill(s.report().PID, syscall.SIGKILL))
			began := time.Now()
			for _, p := range []*running{waits, srv, cli} {
				require.Error(t, p.wait(), p.output())
			}
			require.Contains(t, waits.output(), "rdma_get_cm_event: Input/output error")
			require.Less(t, time.Since(began), longest)
		})
	}
}

// TestPersistentServer: one server, clients one after the other.
func TestPersistentServer(t *testing.T) {
	need(t, "rping")
	s := up(t, 2)
	srv := s.start("n1", "rping", "-s", "-P", "-a", s.addrs[0], "-v", "-V")
	s.listens(srv, "n1", 1)
	clients := 10
	if *full {
		clients = 100
	}
	for range clients {
		s.run("n2", "rping", "-c", "-a", s.addrs[0], "-v", "-V", "-C", "2")
	}
	s.listens(srv, "n1", 1)
	require.NoError(t, srv.cmd.Process.Kill())
	_ = srv.wait()
	s.empty()
}

// TestKilledPeer kills one side of a connection, then the other: who is left learns of it
// from the connection manager and ends.
//
// req: CM-DISC-04
func TestKilledPeer(t *testing.T) {
	need(t, "rping")
	s := up(t, 2)
	for _, victim := range []string{"client", "server"} {
		srv := s.start("n1", "rping", "-s", "-a", s.addrs[0])
		s.listens(srv, "n1", 1)
		cli := s.start("n2", "rping", "-c", "-a", s.addrs[0]) // without end
		talking := func() bool {
			for _, n := range s.report().Nodes {
				for _, c := range n.Contexts {
					for _, q := range c.QPs {
						if n.Name == "n2" && q.State == "RTS" {
							return true
						}
					}
				}
			}
			return false
		}
		require.Eventually(t, talking, longest, 20*time.Millisecond, cli.output())
		dies, lives := cli, srv
		if victim == "server" {
			dies, lives = srv, cli
		}
		began := time.Now()
		require.NoError(t, dies.cmd.Process.Kill())
		_ = dies.wait()
		_ = lives.wait()
		require.Less(t, time.Since(began), longest, "it has to wait for retries")
		s.empty()
	}
}

// TestMulticastJoin: members on both nodes get what a third sends.
//
// req: CM-MCAST-01
func TestMulticastJoin(t *testing.T) {
	need(t, "mckey")
	s := up(t, 2)
	group := fmt.Sprintf("239.%d.%d.%d", rand.N(255), rand.N(255), 1+rand.N(254))
	var members []*running
	for i, n := range []string{"n1", "n2"} {
		members = append(members, s.start(n, "stdbuf", "-oL", "mckey", "-m", group, "-b", s.addrs[i], "-C", "5"))
	}
	for _, m := range members {
		m.until("receiving data transfers")
	}
	out := s.run("n2", "mckey", "-m", group, "-s", "-b", s.addrs[1], "-C", "5")
	require.Contains(t, out, "joined dgid: ::ffff:"+group)
	for _, m := range members {
		require.NoError(t, m.wait(), m.output())
		require.Contains(t, m.output(), "return status 0")
	}
	s.empty()
}

// TestCopy copies a file through rsockets.
func TestCopy(t *testing.T) {
	need(t, "rcopy")
	s := up(t, 2)
	from, to := filepath.Join(s.dir, "from"), filepath.Join(s.dir, "to")
	blob := make([]byte, 3<<20+17)
	var seed [32]byte
	_, _ = rand.NewChaCha8(sha256.Sum256(seed[:])).Read(blob)
	require.NoError(t, os.WriteFile(from, blob, 0o600))
	srv := s.start("n1", "rcopy")
	s.listens(srv, "n1", 1)
	s.run("n2", "rcopy", from, s.addrs[0]+":"+to)
	got, err := os.ReadFile(to)
	require.NoError(t, err)
	require.True(t, bytes.Equal(blob, got), "the copy differs")
	require.NoError(t, srv.cmd.Process.Kill())
	_ = srv.wait()
	s.empty()
}

// TestPerftestCM: perftest finds its peer by librdmacm, at a port of it: all of its programs
// that need no hardware of their own. UC it refuses by itself.
//
// req: CM-PROG-01
func TestPerftestCM(t *testing.T) {
	need(t, "ib_send_bw")
	s := up(t, 2)
	lines := []string{
		"ib_send_bw -n 100", "ib_write_lat -n 50", "ib_send_bw -c UD -n 100",
		"ib_write_bw -n 100", "ib_read_bw -n 100", "ib_atomic_bw -n 100",
		"ib_send_lat -n 50", "ib_read_lat -n 50", "ib_atomic_lat -n 50", "ib_send_lat -c UD -n 50",
		"ib_send_bw -n 100 -e", "ib_read_lat -n 50 -e", "ib_write_bw -n 50 -q 4", "ib_send_bw -n 100 -b",
	}
	if !*full {
		lines = lines[:10]
	}
	for _, line := range fewer(1, lines) {
		args := line + " -R -d rvt0 -F -p 18515"
		// perftest exchanges parameters over one connection, destroys its listener, and makes
		// another for the next one, at the same port.
		out := s.connect("n1", "n2", talker{server: args, client: args + " ADDR", relistens: true})
		require.Regexp(t, `(?m)^ \d+\s+\d+\s+\d`, out, line)
	}
	s.empty()
}

// TestOtherPrograms: qperf and fio, which connect by librdmacm.
//
// req: CM-PROG-01
func TestOtherPrograms(t *testing.T) {
	s := up(t, 2)
	t.Run("fio", func(t *testing.T) {
		need(t, "fio")
		for _, verb := range []string{"write", "read", "send"} {
			job := " --ioengine=rdma --port=8888 --bs=16k --size=1m --thread"
			srv := s.start("n1", strings.Fields("fio --name=receiver --rw=read --iodepth=16"+job)...)
			s.listens(srv, "n1", 1)
			out := s.run("n2", strings.Fields("fio --name=sender --rw=write --iodepth=1 --iodepth_batch_complete=1"+job+" --verb="+verb+" --hostname="+s.addrs[0])...)
			require.NoError(t, srv.wait(), srv.output())
			require.Contains(t, out, "io=1024KiB")
			if !*full {
				break
			}
		}
	})
	t.Run("qperf", func(t *testing.T) {
		need(t, "qperf")
		port := freePort(t)
		srv := s.start("n1", "qperf", "-lp", port)
		srv.listening(port)
		tests := []string{"rc_lat", "rc_bw", "rc_rdma_write_lat", "rc_rdma_read_bw", "rc_compare_swap_mr"}
		if !*full {
			tests = tests[:1]
		}
		for _, name := range tests {
			out := s.run("n2", "qperf", "-lp", port, "-cm1", "-t", "1", s.addrs[0], name)
			require.Contains(t, out, name+":")
		}
		require.NoError(t, srv.cmd.Process.Kill())
		_ = srv.wait()
	})
	s.empty()
}

// TestUCXConnections: UCX finds its peer by librdmacm, and its program checks all data.
//
// req: CM-PROG-01
func TestUCXConnections(t *testing.T) {
	need(t, "io_demo")
	s := up(t, 2)
	env := append(s.env, "UCX_NET_DEVICES=rvt0:1", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm")
	for _, transports := range []string{"rc,ud,self", "ud,self"} {
		s.env = append(env, "UCX_TLS="+transports)
		demo := "io_demo -p 1337 -q -d 64:40000 "
		out := s.connect("n1", "n2", talker{server: demo, client: demo + "-i 200 -o read,write -c 1 ADDR", stays: true, says: "Client exit with status 'OK'"})
		require.Regexp(t, `read \d.* write \d`, out)
		if !*full {
			break
		}
	}
	s.empty()
}

// netPair is two network namespaces with a cable between them, and a daemon in each.
func netPair(t *testing.T) (a, b *site) {
	t.Helper()
	need(t, "ip")
	var sites []*site
	name := func(i int) string { return fmt.Sprintf("rvtf%d-%d", os.Getpid(), i) }
	ip := func(line string) {
		t.Helper()
		out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", line, out)
	}
	for i := range 2 {
		if out, err := exec.Command("ip", "netns", "add", name(i)).CombinedOutput(); err != nil {
			missing(t, "missing tool: the right to make network namespaces: "+string(out))
		}
		t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name(i)).Run() })
	}
	ip("link add v0 netns " + name(0) + " type veth peer name v1 netns " + name(1))
	for i := range 2 {
		s := newSite(t, nil)
		s.netns = name(i)
		addr := fmt.Sprintf("10.99.0.%d", i+1)
		ip(fmt.Sprintf("-n %s addr add %s/24 dev v%d", name(i), addr, i))
		ip("-n " + name(i) + " link set lo up")
		ip(fmt.Sprintf("-n %s link set v%d up", name(i), i))
		s.upAt(addr)
		sites = append(sites, s)
	}
	return sites[0], sites[1]
}

// TestLibfabricConnections: the verbs provider looks for addresses of network devices other than
// the loopback one.
func TestLibfabricConnections(t *testing.T) {
	need(t, "fi_pingpong")
	a, b := netPair(t)
	lines := []string{"fi_pingpong -p verbs -e msg -I 20 -S 1024"}
	if *full {
		lines = append(lines, "fi_pingpong -p verbs -e msg -I 100 -S all", "fi_pingpong -p verbs;ofi_rxm -e rdm -I 100 -S all")
	}
	for _, line := range lines {
		prog := strings.Fields(line)
		srv := a.start("n1", prog...)
		srv.listeningIn(a.netns, "47592") // its own control connection
		out, err := b.try("n1", append(prog, a.addrs[0])...)
		require.NoError(t, err, "client:\n%s\nserver:\n%s", out, srv.output())
		require.NoError(t, srv.wait(), srv.output())
		require.Contains(t, out, "usec/xfer", line)
	}
	a.empty()
	b.empty()
}

// TestPreloadOfRsockets: librspreload, which leads a program that knows only TCP to
// librdmacm, does so beside our library, which stands before it.
func TestPreloadOfRsockets(t *testing.T) {
	need(t, "rping")
	prog := program(t, "tcp")
	lib, err := filepath.Glob("/usr/lib/*/rsocket/librspreload.so")
	require.NoError(t, err)
	require.NotEmpty(t, lib, "it is part of librdmacm1, as rping's libraries are")
	s := up(t, 2)
	s.env = append(s.env, "LD_PRELOAD="+lib[0])
	server := s.start("n1", prog, "server", s.addrs[0], "7001")
	server.until("listening")
	require.Contains(t, s.run("n2", prog, "client", s.addrs[0], "7001"), "2097152 bytes")
	require.NoError(t, server.wait(), "%s", server.output())
	require.Greater(t, s.report().Nodes[0].ReceivedPackets, uint64(2<<20/4096), "not over TCP")
	s.empty()
}
