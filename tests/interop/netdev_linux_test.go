package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/loopback"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// netdevLines are programs that know no connection manager, with the GID and the device to
// come. What is long is left out of the short version. An emulated machine may stand still for
// longer than retries with the usual timeout take.
var netdevLines = []struct {
	line string
	long bool
}{
	{"ibv_rc_pingpong -n 100 -s 5000 -c", false},
	{"ibv_uc_pingpong -n 50 -s 900 -c", true},
	{"ibv_ud_pingpong -n 50 -s 900 -c", true},
	{"ib_write_bw -n 50 -s 8192 -F -u 18", false},
	{"ib_read_bw -n 50 -s 8192 -F -u 18", true},
	{"ib_send_bw -n 50 -s 8192 -F -u 18", true},
	{"ib_send_bw -c UC -n 50 -s 1000 -F", true},
	{"ib_send_bw -c UD -n 50 -s 1000 -F", true},
	{"ib_atomic_bw -n 50 -F -u 18", true},
	{"ib_send_lat -n 50 -s 64 -F -u 18", true},
}

// TestNetdevNode has unmodified programs on a node that is bound to the wire's network
// device meet those of the kernel: over IPv4, IPv6 and the link-local GIDs that both have at
// index 0.
func TestNetdevNode(t *testing.T) {
	k := kernelSide{guest(t)}
	us := upOnWire(t)
	networks := []struct {
		name string
		f    *family
	}{{"IPv4", &families[0]}, {"IPv6", &families[1]}, {"link-local", nil}}
	for _, n := range networks {
		ours, theirs := 0, 0
		if n.f != nil {
			ours, theirs = us.gidIndex(t, n.f.host), openTheirs(t, *n.f).index
		}
		for _, l := range netdevLines {
			if l.long && !*full {
				continue
			}
			own, kernel := fmt.Sprintf("%s -d rvt0 %s %d", l.line, gidFlag(l.line), ours), fmt.Sprintf("%s -d rxe0 %s %d", l.line, gidFlag(l.line), theirs)
			for _, d := range directions {
				t.Run(l.line+"/"+d.name+"/"+n.name, func(t *testing.T) {
					record(t, l.line+", node on a device", d.name, n.name)
					if d.weListen {
						meetOnWire(t, k, us, own, k, kernel, lab.HostIP4)
					} else {
						meetOnWire(t, k, k, kernel, us, own, lab.GuestIP4)
					}
				})
			}
		}
	}
}

func gidFlag(line string) string {
	if strings.HasPrefix(line, "ibv_") {
		return "-g"
	}
	return "-x"
}

// gidIndex is where our node has an address in its GID table.
func (n *ourNode) gidIndex(t *testing.T, addr string) int {
	t.Helper()
	r, err := n.report(t.Context())
	require.NoError(t, err)
	i := slices.IndexFunc(r.Nodes[0].GIDs, func(g string) bool {
		a, err := netip.ParseAddr(g)
		return err == nil && a.Unmap() == netip.MustParseAddr(addr)
	})
	require.GreaterOrEqual(t, i, 0, "%s in %v", addr, r.Nodes[0].GIDs)
	return i
}

// meetOnWire runs a program that listens on a TCP port of addr, and its peer.
func meetOnWire(t *testing.T, k kernelSide, server cmSide, serverLine string, client cmSide, clientLine, addr string) {
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	srv := server.start(ctx, t, serverLine)
	listens := func() bool {
		select {
		case <-srv.Ended():
			return true
		default:
		}
		return listensOn(ctx, t, k, server, pingpongPort)
	}
	require.Eventually(t, listens, waitFor, 20*time.Millisecond, "nobody listens")
	out, err := client.start(ctx, t, clientLine+" "+addr).Wait()
	if err != nil {
		cancel() // ends the server
	}
	served, srvErr := srv.Wait()
	require.NoError(t, err, "client on %s: %s\nserver on %s: %v %s", client.side(), out, server.side(), srvErr, served)
	require.NoError(t, srvErr, "server on %s: %s\nclient: %s", server.side(), served, out)
	require.NotContains(t, out+served, "invalid data")
}

// listensOn reports whether a side has a TCP socket that listens on a port. Connecting to
// see would take the place of the client.
func listensOn(ctx context.Context, t *testing.T, k kernelSide, s cmSide, port string) bool {
	var text string
	if s.side() == k.side() {
		var err error
		text, err = k.g.Shell(ctx, "cat /proc/net/tcp /proc/net/tcp6")
		require.NoError(t, err)
	} else {
		for _, f := range []string{"tcp", "tcp6"} {
			b, _ := os.ReadFile("/proc/thread-self/net/" + f)
			text += string(b)
		}
	}
	return loopback.Listeners(text, port) != nil
}
