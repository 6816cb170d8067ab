package topology

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func liveFile(t *testing.T) *File {
	t.Helper()
	f, err := Parse("t.yaml", []byte("version: 1\nnodes: [{name: n1}, {name: n2}, {name: g, count: 3}]\n"))
	require.NoError(t, err)
	return f
}

func TestLiveFaults(t *testing.T) {
	f := liveFile(t)
	fault := func(text string) *LiveFault {
		t.Helper()
		x, err := ParseFault(f, text)
		require.NoError(t, err)
		return x
	}
	x := fault("{action: partition, between: [n1, g]}")
	require.True(t, x.Pair.Covers(0, 3))
	require.False(t, x.Pair.Covers(0, 1))
	x = fault("{action: set_impairment, loss: 10%, rules: [{action: drop, opcode: ACKNOWLEDGE, nth: 3}]}")
	require.True(t, x.Pair.All)
	require.Equal(t, 0.1, x.Impairment.Loss)
	require.Equal(t, uint64(3), x.Impairment.Rules[0].Nth)
	x = fault("{action: set_link, from: n1, to: g, bandwidth: 1Gbps, queue: 64KiB, latency: 3us, mtu: 512, ecn: {min: 1KiB, max: 2KiB}}")
	require.Equal(t, Pair{From: One(0), To: Span{2, 3}}, x.Pair)
	require.Equal(t, Link{Latency: 3 * time.Microsecond, Bandwidth: 1e9, Queue: 64 << 10, MTU: ib.MTU512, ECN: ECN{1 << 10, 2 << 10, 1}}, x.Link)
	require.True(t, fault("{action: set_link}").Pair.All)
	x = fault("{action: fail_post, node: n2, qpn: 0x11, count: 2}")
	require.Equal(t, One(1), x.Nodes)
	require.Equal(t, ib.QPN(0x11), x.QPN)
	require.Equal(t, 2, x.Count)
	x = fault("{action: complete_with, node: g-2, status: RETRY_EXC_ERR}")
	require.Equal(t, One(3), x.Nodes)
	require.Equal(t, ib.WCRetryExcErr, x.Status)
	x = fault("{action: delay_completions, node: g, delay: 20ms}")
	require.Equal(t, 3, x.Nodes.N)
	require.Equal(t, 20*time.Millisecond, x.Delay)
	x = fault("{action: revoke_key, node: n1, key: 0x1234}")
	require.True(t, x.HasKey)
	require.Equal(t, uint32(0x1234), x.Key)
	x = fault("{action: spurious_event, node: n1, event: PORT_ERR}")
	require.Equal(t, ib.EventPortErr, x.Event)
	require.False(t, x.Notify)
}

func TestBadLiveFaults(t *testing.T) {
	for text, want := range map[string]string{
		"{}":                                         `: key "action" is missing; expected one of`,
		"{action: explode}":                          `action: unknown action "explode"; expected one of partition,`,
		"{action: kill_node}":                        `: key "node" is missing; action kill_node needs it`,
		"{action: kill_node, node: n9}":              `node: unknown node "n9"; expected one of n1, n2, g`,
		"{action: heal, loss: 1}":                    `loss: found a key that action heal does not take; expected only action, between, from, to`,
		"{action: set_link, loss: 1}":                `loss: found a key that action set_link does not take; expected only action, between, from, to, switch, latency, jitter, bandwidth, queue, mtu, ecn`,
		"{action: set_link, queue: 1MiB}":            `queue: found queue without a bandwidth; expected the key "bandwidth" too`,
		"{action: set_link, switch: s}":              `switch: found switch "s"; expected none: this network has no switches`,
		"{action: heal, from: n1}":                   `: found only one of "from" and "to"; expected both, or "between"`,
		"{action: fail_post, node: n1, flow: f}":     `: unknown key "flow"`,
		"{action: set_impairment, at: 1s}":           `: unknown key "at"`,
		"{action: set_impairment, loss: 2}":          `loss: found "2"; expected a probability`,
		"{action: delay_completions, node: n1}":      `: key "delay" is missing; action delay_completions needs it`,
		"{action: fail_post, node: n1, key: 5}":      `key: found a key that action fail_post does not take; expected only action, node, qpn, count`,
		"{action: partition, between: [n1, n1, n2]}": `between: found a list of 3`,
		"[1]":        `: found a list; expected a mapping`,
		"{action: [": `not valid YAML`,
		"":           `expected a topology`,
	} {
		_, err := ParseFault(liveFile(t), text)
		var p Problems
		require.True(t, errors.As(err, &p), "%s: %v", text, err)
		require.Contains(t, err.Error(), want, text)
	}
}

func TestLiveHelp(t *testing.T) {
	h := LiveHelp()
	require.Contains(t, h, "  fail_post node= [qpn=] [count=]\n      The next count sends that are posted are refused with ENOMEM, on each queue pair.\n")
	require.Contains(t, h, "  revoke_key node= [key=]\n")
	require.NotContains(t, h, "flow=")
}

func FuzzParseFault(f *testing.F) {
	f.Add("{action: set_impairment, from: n1, to: n2, loss: 10%}")
	f.Add("{action: complete_with, node: g, status: RETRY_EXC_ERR, qpn: 17}")
	file, err := Parse("t.yaml", []byte("version: 1\nnodes: [{name: n1}, {name: n2}, {name: g, count: 3}]\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		x, err := ParseFault(file, text)
		if (x == nil) == (err == nil) {
			t.Fatalf("%+v, %v", x, err)
		}
	})
}
