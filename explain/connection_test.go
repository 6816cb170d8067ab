package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/ib"
)

// TestConnectionStories compares what is told of attempts to connect with texts that a
// person has read.
func TestConnectionStories(t *testing.T) {
	from, to := cm.IPv4(10, 0, 0, 1, 40000), cm.IPv4(10, 0, 0, 2, 7471)
	silent := func(a cm.Attr) cm.Unanswered {
		return cm.Unanswered{Attr: a, Sent: 16, Every: 4608 * time.Millisecond}
	}
	server := &explain.Station{Name: "node n2", Listeners: []string{"10.0.0.2:7472, port space TCP"}}
	var out []string
	for _, c := range []struct {
		a    explain.Attempt
		peer *explain.Station
	}{
		{explain.Attempt{Event: cm.EventRejected, Status: 8}, server},
		{explain.Attempt{Event: cm.EventRejected, Status: 8}, &explain.Station{Name: "node n2"}},
		{explain.Attempt{Event: cm.EventRejected, Status: 28, Private: []byte("go away")}, server},
		{explain.Attempt{Event: cm.EventRejected, Status: 10, Private: []byte{1, 2}}, nil},
		{explain.Attempt{Event: cm.EventRejected, Status: 25}, nil},
		{explain.Attempt{Event: cm.EventUnreachable, Status: -110, Unanswered: silent(cm.AttrREQ)}, nil},
		{explain.Attempt{Event: cm.EventUnreachable, Status: -110, Unanswered: silent(cm.AttrREP)}, nil},
		{explain.Attempt{Event: cm.EventDisconnected, Status: -110, Unanswered: silent(cm.AttrDREQ)}, server},
		{explain.Attempt{Event: cm.EventUnreachable, Status: 2, Space: cm.PSUDP}, nil},
		{explain.Attempt{Event: cm.EventAddrError, Status: -110}, nil},
		{explain.Attempt{Event: cm.EventAddrError, Status: -int(ib.ENODEV)}, nil},
	} {
		c.a.Local, c.a.Remote = from, to
		if c.a.Space == 0 {
			c.a.Space = cm.PSTCP
		}
		out = append(out, explain.Connection(&c.a, c.peer))
	}
	golden(t, "connections", strings.Join(out, "\n\n")+"\n")
}

// TestRefusedConnectionCalls: the advice follows the command and the reason.
func TestRefusedConnectionCalls(t *testing.T) {
	text := explain.Call(ib.NewVerbError(ib.EINVAL, "connect", "id 10.0.0.1:4 to 10.0.0.2:5 (ROUTE_RESOLVED)", "57 bytes of private data, the message has room for 56"))
	require.Contains(t, text, "connect: id 10.0.0.1:4 to 10.0.0.2:5 (ROUTE_RESOLVED): 57 bytes of private data")
	require.Contains(t, text, "36 bytes of its own")
	require.Contains(t, explain.Call(ib.NewVerbError(ib.EINVAL, "connect", "id", "want state ROUTE_RESOLVED")), "The order is rdma_resolve_addr")
	require.Contains(t, explain.Call(ib.NewVerbError(ib.ENETUNREACH, "resolve_ip", "id", "there is no route")), "ip route get")
}
