package runner

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
	"github.com/rvtsim/rvtsim/wire"
)

// everyFault has each thing that can go wrong, and what it must look like in virtual time
// and on sockets alike. The flow takes about 20 ms: 100 messages at 40 Mb/s.
var everyFault = []struct {
	name   string
	link   string // keys of network
	flow   string // keys of the flow, besides those of all
	faults string
	ends   bool // the flow is cut short: not everything completes
	check  func(t *testing.T, o *Outcome, f *FlowOutcome)
}{
	{"loss, uniform", "loss: 5%", "op: send", "", false, resent(fabric.LossRandom)},
	{"loss, in bursts", "burst: {enter: 5%, leave: 50%}", "op: write", "", false, resent(fabric.LossBurst)},
	{"loss, n-th packet", "rules: [{action: drop, nth: 5, count: 1}]", "op: send", "", false, lostByRule(2)}, // one each way
	{"loss, by opcode", "rules: [{action: drop, opcode: ACKNOWLEDGE, count: 2}]", "op: send", "", false, lostByRule(2)},
	{"loss, by PSN", "rules: [{action: drop, psn: 1003, opcode: SEND_ONLY, count: 1}]", "op: send, psn: 1000", "", false, lostByRule(1)},
	{"loss, by QP", "rules: [{action: drop, dest_qp: 18, opcode: SEND_ONLY, count: 3}]", "op: send, qps: 2", "", false, lostByRule(3)},
	{"duplication", "duplicate: 20%", "op: send", "", false, dropped(wire.DropDuplicate)},
	{"reordering", "reorder: 10%, reorder_delay: 1ms", "op: send", "", false, dropped(wire.DropOutOfSequence)},
	{"delay", "rules: [{action: delay, delay: 9ms, opcode: SEND_ONLY, nth: 10, count: 1}]", "op: send, depth: 1, timeout: 67ms", "", false, late(9 * time.Millisecond)},
	{"corruption, ICRC wrong", "corrupt: 5%", "op: send", "", false, dropped(wire.DropBadICRC)},
	{"corruption, ICRC right", "rules: [{action: tamper, opcode: SEND_ONLY, nth: 5, count: 1}]", "op: send, timeout: 1s, expect: {data_ok: false}", "", false,
		func(t *testing.T, _ *Outcome, f *FlowOutcome) { require.Len(t, f.Violations, 1) }},
	{"partition and heal", "", "rate: 10Mbps, timeout: 17ms, op: send", "{at: 10ms, action: partition, between: [a, b]}, {at: 50ms, action: heal, between: [a, b]}", false, resent(fabric.LossRandom, fabric.LossPartition)},
	{"impairment, for a while", "", "rate: 10Mbps, timeout: 17ms, op: send", "{at: 10ms, action: set_impairment, from: a, to: b, loss: 50%}, {at: 50ms, action: set_impairment}", false, resent(fabric.LossRandom)},
	{"port down and up", "", "rate: 10Mbps, timeout: 17ms, op: send", "{at: 10ms, action: port_down, node: b}, {at: 50ms, action: port_up, node: b}", false, resent()},
	{"node crash", "", "op: send", "{at: 5ms, action: kill_node, node: b}", true, status(ib.WCRetryExcErr, 1)},
	{"node crash and restart", "", "rate: 10Mbps, timeout: 67ms, op: send", "{at: 10ms, action: kill_node, node: b}, {at: 50ms, action: restart_node, node: b}", false,
		func(t *testing.T, o *Outcome, f *FlowOutcome) {
			require.Equal(t, 1, o.Restarts)
			require.EqualValues(t, 100, f.Completed)
		}},
	{"sender crash and restart", "", "rate: 10Mbps, timeout: 67ms, op: write", "{at: 10ms, action: kill_node, node: a}, {at: 50ms, action: restart_node, node: a}", false,
		func(t *testing.T, o *Outcome, f *FlowOutcome) {
			require.Equal(t, 1, o.Restarts)
			require.EqualValues(t, 100, f.Completed)
		}},
	{"receiver pause", "", "rate: 10Mbps, op: send, recv_depth: 4, min_rnr_timer: 1ms", "{at: 10ms, action: pause_receiver, flow: f}, {at: 50ms, action: resume_receiver, flow: f}", false,
		func(t *testing.T, o *Outcome, f *FlowOutcome) {
			require.NotZero(t, o.Nodes[1].Device.SentRNRNAK)
			require.EqualValues(t, 100, f.Completed)
		}},
	{"receiver pause, at a node", "", "rate: 10Mbps, op: send, recv_depth: 4, min_rnr_timer: 1ms", "{at: 10ms, action: pause_receiver, node: b}, {at: 50ms, action: resume_receiver, node: b}", false,
		func(t *testing.T, o *Outcome, _ *FlowOutcome) { require.NotZero(t, o.Nodes[1].Device.SentRNRNAK) }},
	{"CQ overflow", "", "op: write", "{at: 5ms, action: cq_overflow, flow: f}", true, event(ib.EventCQErr)},
	{"key revoked", "", "op: write", "{at: 5ms, action: revoke_key, flow: f}", true, status(ib.WCRemAccessErr, 1)},
	{"post refused", "", "op: write", "{at: 5ms, action: fail_post, flow: f, count: 3}", false,
		func(t *testing.T, _ *Outcome, f *FlowOutcome) {
			require.EqualValues(t, 3, f.Client.PostErrors)
			require.EqualValues(t, 100, f.Completed)
		}},
	{"post refused, on one queue pair of a node", "", "op: write, qps: 2, expect: {all_complete: false}", "{at: 5ms, action: fail_post, node: a, qpn: 18, count: 3}", false,
		func(t *testing.T, _ *Outcome, f *FlowOutcome) { require.EqualValues(t, 3, f.Client.PostErrors) }},
	{"work request fails", "latency: 500us", "op: write", "{at: 5ms, action: complete_with, flow: f, status: REM_OP_ERR}", true, status(ib.WCRemOpErr, 1)},
	{"completions late", "", "op: write", "{at: 5ms, action: delay_completions, flow: f, delay: 9ms}", false, late(8 * time.Millisecond)},
	{"spurious event", "", "op: write, notify: event", "{at: 5ms, action: spurious_event, flow: f, event: PATH_MIG}, {at: 6ms, action: spurious_event, flow: f}", false, event(ib.EventPathMig)},
	{"queue pair breaks", "", "op: write", "{at: 5ms, action: modify_qp_error, node: a}", true,
		func(t *testing.T, _ *Outcome, f *FlowOutcome) {
			require.Equal(t, []ib.QPState{ib.StateErr}, f.States)
		}},
	{"queue too short", "bandwidth: 10Mbps, queue: 4KiB", "op: send, rate: 1Gbps, count: 40", "", false, resent(fabric.LossQueue)},
	{"packets too long", "mtu: 512", "op: send, retry_cnt: 2", "", true, status(ib.WCRetryExcErr, 1)},
	{"marks", "bandwidth: 30Mbps, ecn: {min: 0, max: 1}", "op: send, count: 40, rate: 1Gbps", "", false,
		func(t *testing.T, o *Outcome, f *FlowOutcome) {
			require.EqualValues(t, 40, f.Completed)
			require.NotZero(t, o.Nodes[1].Device.SentCNP)
			require.NotZero(t, o.Nodes[0].Device.HandledCNP)
		}},
	{"link changes: bandwidth", "", "rate: 10Mbps, timeout: 268ms, op: send", "{at: 10ms, action: set_link, from: a, to: b, bandwidth: 5Mbps}", false,
		func(t *testing.T, o *Outcome, _ *FlowOutcome) { require.Greater(t, o.Elapsed, 110*time.Millisecond) }}, // of 82 it would take
	{"link changes: latency, and back", "", "rate: 10Mbps, timeout: 67ms, op: send", "{at: 10ms, action: set_link, between: [a, b], latency: 5ms}, {at: 50ms, action: set_link}", false, late(9 * time.Millisecond)},
	{"link changes: queue", "bandwidth: 5Mbps", "rate: 1Gbps, timeout: 67ms, op: send", "{at: 10ms, action: set_link, bandwidth: 5Mbps, queue: 4KiB}", false, resent(fabric.LossQueue)},
	{"link changes: MTU", "", "rate: 10Mbps, op: send, retry_cnt: 2", "{at: 10ms, action: set_link, mtu: 512}", true, status(ib.WCRetryExcErr, 1)},
	{"link changes: marks", "bandwidth: 5Mbps", "rate: 1Gbps, timeout: 67ms, op: send", "{at: 10ms, action: set_link, bandwidth: 5Mbps, ecn: {min: 0, max: 1}}", false,
		func(t *testing.T, o *Outcome, _ *FlowOutcome) { require.NotZero(t, o.Nodes[1].Device.SentCNP) }},
	{"by seed", "", "op: send, expect: {completions: {SUCCESS: any, RETRY_EXC_ERR: any, WR_FLUSH_ERR: any, RNR_RETRY_EXC_ERR: any}}", "] \nrandom_faults: {count: 4, until: 15ms, duration: 2ms}\n#[", false,
		func(t *testing.T, o *Outcome, _ *FlowOutcome) { require.Len(t, o.File.Schedule(), 8) }},
}

// resent expects packets sent again, and losses for each of the reasons.
func resent(reasons ...fabric.LossReason) func(*testing.T, *Outcome, *FlowOutcome) {
	return func(t *testing.T, o *Outcome, f *FlowOutcome) {
		require.NotZero(t, f.Retransmitted)
		if len(reasons) == 0 {
			return
		}
		lost := uint64(0)
		for i := range o.Nodes {
			for _, r := range reasons {
				lost += o.Nodes[i].Lost[r]
			}
		}
		require.NotZero(t, lost)
	}
}

func lostByRule(n uint64) func(*testing.T, *Outcome, *FlowOutcome) {
	return func(t *testing.T, o *Outcome, _ *FlowOutcome) {
		require.Equal(t, n, o.Nodes[0].Lost[fabric.LossRule]+o.Nodes[1].Lost[fabric.LossRule])
	}
}

func dropped(r wire.DropReason) func(*testing.T, *Outcome, *FlowOutcome) {
	return func(t *testing.T, o *Outcome, f *FlowOutcome) {
		require.NotZero(t, o.drops(0)[r]+o.drops(1)[r])
		require.EqualValues(t, 100, f.Completed)
	}
}

func late(by time.Duration) func(*testing.T, *Outcome, *FlowOutcome) {
	return func(t *testing.T, _ *Outcome, f *FlowOutcome) {
		require.GreaterOrEqual(t, time.Duration(f.Latency.Max()), by)
		require.EqualValues(t, 100, f.Completed)
	}
}

func status(s ib.WCStatus, n uint64) func(*testing.T, *Outcome, *FlowOutcome) {
	return func(t *testing.T, _ *Outcome, f *FlowOutcome) {
		require.Equal(t, n, f.Statuses[s], "%v", f.Statuses)
		require.Less(t, f.Completed, uint64(100))
	}
}

func event(e ib.EventType) func(*testing.T, *Outcome, *FlowOutcome) {
	return func(t *testing.T, _ *Outcome, f *FlowOutcome) { require.NotZero(t, f.Events[e]) }
}

func TestEveryFault(t *testing.T) {
	for _, c := range everyFault {
		text := fmt.Sprintf(`version: 1
defaults: {node: {dcqcn: {line_rate: 10Gbps}}, flow: {size: 1KiB, count: 100, rate: 40Mbps, timeout: 4ms}}
nodes: [{name: a, address: %q}, {name: b, address: %q}]
network: {%s}
traffic: [{name: f, from: a, to: b, %s}]
faults: [%s]
expect: {all_complete: false}
`, loopback.Address(0), loopback.Address(1), c.link, c.flow, c.faults)
		for _, way := range []struct {
			name string
			run  func(context.Context, string) (*Outcome, error)
		}{
			{"virtual", func(ctx context.Context, text string) (*Outcome, error) {
				return RunVirtual(ctx, parse(t, text), Options{})
			}},
			{"sockets", func(ctx context.Context, text string) (*Outcome, error) {
				return RunUDP(ctx, parse(t, text), Options{})
			}},
		} {
			t.Run(c.name+"/"+way.name, func(t *testing.T) {
				o, err := way.run(t.Context(), text)
				require.NoError(t, err)
				f := &o.Flows[0]
				require.True(t, f.Done, "%v", o.Stuck)
				c.check(t, o, f)
				if !c.ends {
					return
				}
				require.NotEmpty(t, f.Story+fmt.Sprint(f.Events), "somebody can say why")
			})
		}
	}
}
