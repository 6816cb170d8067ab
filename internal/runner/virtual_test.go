package runner

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/internal/report"
	"github.com/rvtsim/rvtsim/internal/topology"
)

func parse(t *testing.T, text string) *topology.File {
	t.Helper()
	f, err := topology.Parse("t.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

func runVirtual(t *testing.T, f *topology.File, o Options) *Outcome {
	t.Helper()
	out, err := RunVirtual(context.Background(), f, o)
	require.NoError(t, err)
	return out
}

// requireGood fails if an expectation of the file does not hold.
func requireGood(t *testing.T, o *Outcome) {
	t.Helper()
	require.Empty(t, o.Stuck)
	for _, c := range o.Report().Expectations {
		require.True(t, c.OK, "%+v", c)
	}
}

const mixed = `completions: {SUCCESS: any, RETRY_EXC_ERR: any, RNR_RETRY_EXC_ERR: any, WR_FLUSH_ERR: any, LOC_QP_OP_ERR: any, REM_ACCESS_ERR: any, REM_OP_ERR: any}`

// TestChaos: whatever goes wrong, data stay right, everything ends, and a seed repeats.
func TestChaos(t *testing.T) {
	f, err := topology.Load(filepath.Join("../../examples", "chaos.yaml"))
	require.NoError(t, err)
	digests := map[uint64]bool{}
	seeds := 6
	if invariants.Race {
		seeds = 2
	}
	for seed := uint64(1); seed <= uint64(seeds); seed++ {
		o := runVirtual(t, f, Options{Seed: &seed})
		requireGood(t, o)
		require.Equal(t, o.Digest, runVirtual(t, f, Options{Seed: &seed}).Digest)
		digests[o.Digest] = true
	}
	require.Len(t, digests, seeds)
}

// flow runs one flow between two nodes with one fault and returns what became of it.
func flow(t *testing.T, spec, fault string) *FlowOutcome {
	t.Helper()
	o := runVirtual(t, parse(t, fmt.Sprintf(`version: 1
nodes: [{name: a}, {name: b}]
network: {latency: 5us, bandwidth: 1Gbps}
traffic: [{name: f, from: a, to: b, count: 100, timeout: 4ms, %s, expect: {all_complete: false, %s}}]
faults: [%s]
expect: {all_complete: false}
`, spec, mixed, fault)), Options{})
	requireGood(t, o)
	require.Empty(t, o.Flows[0].Violations)
	require.True(t, o.Flows[0].Done)
	return &o.Flows[0]
}

func TestInjectedFaults(t *testing.T) {
	t.Run("fail_post", func(t *testing.T) {
		for _, op := range []string{"op: write", "op: fetch_add", "op: send_imm", "mix: {read: 1, cmp_swp: 1, write: 1}"} {
			f := flow(t, op, "{at: 50us, action: fail_post, flow: f, count: 7}")
			require.EqualValues(t, 7, f.Client.PostErrors)
			require.EqualValues(t, 100, f.Completed)
		}
	})
	t.Run("complete_with", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: write", "{at: 50us, action: complete_with, flow: f, status: REM_OP_ERR}")
		require.EqualValues(t, 1, f.Statuses[11], "%v", f.Statuses)
		require.NotZero(t, f.Statuses[5], "the others are flushed")
		require.Contains(t, f.Story, "injected")
	})
	t.Run("delay_completions", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: write", "{at: 50us, action: delay_completions, flow: f, delay: 30ms}")
		require.EqualValues(t, 100, f.Completed)
		require.Greater(t, f.Elapsed, 30*time.Millisecond)
	})
	t.Run("cq_overflow", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: write", "{at: 50us, action: cq_overflow, flow: f}")
		require.NotZero(t, f.Events[0], "CQ_ERR")
		require.Less(t, f.Completed, uint64(100))
	})
	t.Run("revoke_key", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: write", "{at: 50us, action: revoke_key, flow: f}")
		require.EqualValues(t, 1, f.Statuses[10], "REM_ACCESS_ERR")
	})
	t.Run("spurious_event", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: write, notify: event", "{at: 50us, action: spurious_event, flow: f, event: PATH_MIG}, {at: 60us, action: spurious_event, flow: f}")
		require.EqualValues(t, 1, f.Events[6])
		require.EqualValues(t, 100, f.Completed)
	})
	t.Run("port down and up", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: write", "{at: 50us, action: port_down, node: b}, {at: 2ms, action: port_up, node: b}")
		require.EqualValues(t, 100, f.Completed)
		require.NotZero(t, f.Retransmitted)
	})
	t.Run("kill and restart", func(t *testing.T) {
		f := flow(t, "size: 1KiB, op: send", "{at: 50us, action: kill_node, node: b}, {at: 1ms, action: restart_node, node: b}")
		require.EqualValues(t, 100, f.Completed, "it began anew")
	})
	t.Run("tamper", func(t *testing.T) {
		f := parse(t, `version: 1
nodes: [{name: a}, {name: b}]
links: [{from: a, to: b, rules: [{action: tamper, nth: 3}]}]
traffic: [{from: a, to: b, op: send, count: 10, size: 512}]
`)
		o := runVirtual(t, f, Options{})
		require.Len(t, o.Flows[0].Violations, 1, "the program sees what the ICRC did not")
		require.False(t, o.Report().OK())
	})
}

// TestRingAllReduceTakesTurns: with shares that take long on the wire, the whole takes
// as long as one share times the steps, since everybody waits for the one before.
func TestRingAllReduceTakesTurns(t *testing.T) {
	f := parse(t, `version: 1
nodes: [{name: n, count: 5, mtu: 4096}]
network: {latency: 10us, bandwidth: 10Gbps}
traffic: [{pattern: ring_all_reduce, from: n, op: send, size: 500KiB, count: 3}]
`)
	o := runVirtual(t, f, Options{})
	requireGood(t, o)
	const share, steps = 102400, 3 * 2 * 4
	wire := float64(share+25*(16+66)) * 8 / 10e9 // 25 packets
	want := time.Duration((wire*float64(time.Second) + 10e3) * steps)
	require.InEpsilon(t, float64(want), float64(o.Elapsed), 0.02, "%v, want %v", o.Elapsed, want)
}

// TestNoWayThroughTheSwitches: a file whose packets could only vanish is refused.
func TestNoWayThroughTheSwitches(t *testing.T) {
	const text = `version: 1
nodes: [{name: a}, {name: b}, {name: c}]
switches: [{name: s, nodes: [a]}, {name: t, nodes: [b]}%s]
traffic: [{from: a, to: b, op: send}, {from: c, to: a, op: send}]
`
	_, err := topology.Parse("t.yaml", []byte(fmt.Sprintf(text, "")))
	require.EqualError(t, err, `t.yaml:4:11: traffic[0]: found traffic from node "a" at switch "s" to node "b" at switch "t", and no trunks lead from the one to the other; expected a way through the switches, or a link of their own`)
	requireGood(t, runVirtual(t, parse(t, fmt.Sprintf(text, ", {name: top, switches: [s, t]}")), Options{}))
}

// TestUnreliableFlowArrives: on UC and UD a send is done when it has left. The run is not: what
// is on its way arrives and is in the report.
func TestUnreliableFlowArrives(t *testing.T) {
	for _, transport := range []string{"uc", "ud"} {
		o := runVirtual(t, parse(t, `version: 1
nodes: [{name: a}, {name: b}]
network: {latency: 10us, bandwidth: 1Gbps}
traffic: [{from: a, to: b, transport: `+transport+`, op: send, size: 1000, count: 200, depth: 64, recv_depth: 256}]
`), Options{})
		requireGood(t, o)
		require.EqualValues(t, 200, o.Nodes[1].Device.RcvdPackets, transport)
		require.Equal(t, o.Nodes[0].Device.SentPackets, o.Nodes[1].Device.RcvdPackets)
		require.GreaterOrEqual(t, o.Elapsed, 10*time.Microsecond+200*8*time.Microsecond)
	}
}

// field report nbs-rnr-timer: a receiver that is short of receives answers "not ready", and
// how long the sender then waits is min_rnr_timer. Code 0 is the longest time, not the
// shortest: 13 makes it hundreds of times faster.
func TestReceiverNotReadyTimer(t *testing.T) {
	run := func(code string) (rate float64, r report.Retransmissions) {
		o := runVirtual(t, parse(t, `version: 1
nodes: [{name: a}, {name: b}]
network: {latency: 5us, bandwidth: 10Gbps}
traffic: [{name: f, from: a, to: b, op: send, size: 512, rate: 1Gbps, count: 400, depth: 64, recv_depth: 8, rnr_retry: 7, min_rnr_timer: `+code+`}]
faults: [{at: 200us, action: pause_receiver, flow: f}, {at: 1200us, action: resume_receiver, flow: f}]
`), Options{})
		requireGood(t, o)
		s := o.Report()
		return float64(s.Flows[0].Succeeded) / s.Elapsed.Seconds(), s.Nodes[0].Retransmissions
	}
	slow, waits := run("0")
	fast, few := run("13")
	t.Logf("%.0f messages/s with code 0 (%d NAKs, %v lost), %.0f with code 13 (%d, %v)", slow, waits.RNRNAKs, waits.RNRTime, fast, few.RNRNAKs, few.RNRTime)
	require.Greater(t, fast, 100*slow)
	require.Equal(t, 655360*time.Microsecond, waits.RNRTime)
	require.Equal(t, time.Duration(few.RNRNAKs)*960*time.Microsecond, few.RNRTime)
}
