package topology

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/strict"
)

func mustParse(t *testing.T, text string) *File {
	t.Helper()
	f, err := Parse("t.yaml", []byte(text))
	require.NoError(t, err)
	return f
}

// minimal is a file that all defaults fill in.
const minimal = `version: 1
nodes:
  - name: n1
  - name: n2
traffic:
  - {from: n1, to: n2, op: send}
`

func TestDefaults(t *testing.T) {
	f := mustParse(t, minimal)
	require.Equal(t, "t", f.Name)
	require.EqualValues(t, 1, f.Seed)
	require.Equal(t, 30*time.Second, f.Timeout)
	require.Zero(t, f.Duration)
	require.Equal(t, "127.0.0.1:4791", f.Nodes[0].Address.String())
	require.Equal(t, "127.0.0.2:4791", f.Nodes[1].Address.String())
	require.Equal(t, ProfileIBTA, f.Nodes[0].Profile)
	require.Equal(t, ib.MTU1024, f.Nodes[0].MTU)
	require.Equal(t, DefaultLimits(), f.Nodes[1].Limits)
	all := []StatusCount{{ib.WCSuccess, Count{All: true}}}
	require.Equal(t, Flow{
		Name: "rc-send-1", From: 0, To: 1, After: -1, Transport: ib.QPTypeRC, Ops: []WeightedOp{{OpSend, 1}},
		Sizes: Sizes{SizeFixed, []int64{64}}, Count: 1, Depth: 16, QPs: 1, Signal: Signal{Kind: SignalAll},
		RecvDepth: 32, RecvSize: 64, Notify: NotifyPoll, PathMTU: ib.MTU1024, Timeout: 16, RetryCnt: 7, RNRRetry: 7,
		MinRNRTimer: 12, MaxRdAtomic: 16, MaxDestRdAtomic: 16, RKey: RKeyGood, Verify: true,
		Expect: FlowExpect{Expect: Expect{Completions: all, Receives: all, AllComplete: true, DataOK: true}},
	}, f.Flows[0])
	require.Equal(t, RunExpect{Expect: Expect{AllComplete: true, DataOK: true}}, f.Expect)
	require.Equal(t, Link{Pair: Pair{From: One(1), To: One(0)}, Impairment: Impairment{ReorderDelay: 100 * time.Microsecond}}, f.LinkBetween(1, 0))
}

// everyKey has each key of the schema at least once.
const everyKey = `
version: 1
name: all-keys
seed: 0xffffffffffffffff
duration: 2s
timeout: 1m
defaults:
  node: {profile: rdmavt, strict: true, mtu: 2048, limits: {max_qp: 10, max_qp_wr: 100}}
  flow: {from: a, to: b, transport: rc, op: read, timeout: 4ms, srq: {limit: 3}, expect: {max_latency: 1s}}
nodes:
  - {name: a, address: "[fd00::1]:4791", strict: [poison, cq_size], distinct_keys: true}
  - {name: b, address: fd00::2, mtu: 4096, profile: rxe, limits: {max_cqe: 500, max_sge: 3, max_inline: 100, max_rd_atomic: 4, max_srq_wr: 70, max_res_rd_atomic: 24}}
  - {name: g, count: 4, address: fd00::10}
network: {form: routed, latency: 1us, jitter: 2us, bandwidth: 10Gbps, queue: 1MiB, loss: 1%, duplicate: 0.02, reorder: 3%, reorder_delay: 4us, corrupt: 5%}
links:
  - from: a
    to: b
    latency: 9us
    queue: unlimited
    rules:
      - {action: drop, opcode: UC_WRITE_LAST, psn: 0xffffff, nth: 3, every: 2, count: 0}
      - {action: delay, delay: 7us}
switches:
  - {name: tor, count: 2, nodes: [b]}
traffic:
  - {name: x, size: 8..1KiB, count: 0, rate: 1Gbps, start: 1ms, path_mtu: 256, psn: 5, retry_cnt: 1, rnr_retry: 2, min_rnr_timer: 31, max_rd_atomic: 2, max_dest_rd_atomic: 1, rkey: no_access, verify: false, notify: event, fence: true}
  - {name: y, mix: {send: 3, write_imm: 1}, size: [8, 16], count: 7, depth: 8, qps: 2, bidirectional: true, signal: every 8, inline: true, solicited: true, recv_depth: 5, recv_size: 1KiB, receiver_delay: 3ms}
faults:
  - {at: 5ms, action: kill_node, node: b}
  - {at: 1ms, action: partition, between: [a, b]}
  - {at: 2ms, action: set_impairment, from: a, to: b, loss: 50%}
  - {at: 2ms, action: modify_qp_error, flow: y, qp: 1, side: receiver}
  - {at: 3ms, action: heal}
  - {at: 4ms, action: pause_receiver, flow: y}
  - {at: 6ms, action: set_link, between: [a, g], latency: 3us, jitter: 1us, bandwidth: 5Gbps, queue: 64KiB, mtu: 512, ecn: {min: 1KiB, max: 2KiB}}
  - {at: 7ms, action: set_link, switch: tor}
expect:
  completions: {SUCCESS: 1.., WR_FLUSH_ERR: any}
  receives: {SUCCESS: ">=1"}
  all_complete: false
  data_ok: false
  retransmissions: ..9
  events: {QP_FATAL: 0}
  min_rate: 1Mbps
  drops: {total: 0, bad_icrc: any}
  misuse: 0
`

func TestEveryKey(t *testing.T) {
	f := mustParse(t, everyKey)
	require.EqualValues(t, uint64(1<<64-1), f.Seed)
	require.Equal(t, Limits{10, 100, 1 << 20, 32, 512, 16, 131071, 0}, f.Nodes[0].Limits)
	require.Equal(t, Limits{10, 100, 500, 3, 100, 4, 70, 24}, f.Nodes[1].Limits)
	require.Equal(t, strict.All(), f.Nodes[1].Strict)
	require.Equal(t, strict.Checks{Poison: true, CQSize: true}, f.Nodes[0].Strict)
	require.Equal(t, &Range{}, f.Expect.Misuse)
	require.Equal(t, ProfileRXE, f.Nodes[1].Profile)
	require.Equal(t, "[fd00::2]:4791", f.Nodes[1].Address.String())

	link := f.LinkBetween(0, 1)
	require.Equal(t, 9*time.Microsecond, link.Latency)
	require.Equal(t, 2*time.Microsecond, link.Jitter) // from network
	require.Zero(t, link.Queue)
	require.Equal(t, 0.02, link.Duplicate)
	require.Equal(t, []Rule{
		{Action: RuleDrop, HasOpcode: true, Opcode: ib.TransportUC | ib.OpWriteLast, HasPSN: true, PSN: 0xffffff, Nth: 3, Every: 2},
		{Action: RuleDelay, Nth: 1, Every: 1, Count: 1, Delay: 7 * time.Microsecond},
	}, link.Rules)
	require.Equal(t, time.Microsecond, f.LinkBetween(1, 0).Latency)

	x, y := &f.Flows[0], &f.Flows[1]
	psn := ib.PSN(5)
	require.Equal(t, Flow{
		Name: "x", From: 0, To: 1, After: -1, Transport: ib.QPTypeRC, Ops: []WeightedOp{{OpRead, 1}}, Sizes: Sizes{SizeRange, []int64{8, 1024}},
		Depth: 16, QPs: 1, Signal: Signal{Kind: SignalAll}, Fence: true, Notify: NotifyEvent, PathMTU: ib.MTU256, PSN: &psn, Timeout: 10,
		RetryCnt: 1, RNRRetry: 2, MinRNRTimer: 31, MaxRdAtomic: 2, MaxDestRdAtomic: 1, RKey: RKeyNoAccess, Start: time.Millisecond, Rate: 1e9,
		Expect: FlowExpect{Expect: Expect{Completions: []StatusCount{{ib.WCSuccess, Count{All: true}}}, AllComplete: true, DataOK: true, MaxLatency: time.Second}},
	}, *x)
	require.Equal(t, []WeightedOp{{OpSend, 3}, {OpWriteImm, 1}}, y.Ops)
	require.Equal(t, &SRQ{Size: 10, Limit: 3}, y.SRQ)
	require.Equal(t, 4, y.MaxRdAtomic) // the smaller node's
	require.Equal(t, ib.MTU2048, y.PathMTU)
	require.Equal(t, 1024, y.RecvSize)
	require.True(t, y.Bidirectional && y.Inline && y.Solicited && y.Verify)

	require.Equal(t, []Fault{
		{At: 1 * time.Millisecond, Action: Partition, Pair: Pair{From: One(0), To: One(1), Both: true}, Impairment: Impairment{ReorderDelay: defaultReorderDelay}, QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true},
		{At: 2 * time.Millisecond, Action: SetImpairment, Pair: Pair{From: One(0), To: One(1)}, Impairment: Impairment{Loss: 0.5, ReorderDelay: defaultReorderDelay}, QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true},
		{At: 2 * time.Millisecond, Action: ModifyQPError, Impairment: Impairment{ReorderDelay: defaultReorderDelay}, Flows: One(1), QP: 1, Receiver: true, Count: 1, Status: ib.WCGeneralErr, Notify: true},
		{At: 3 * time.Millisecond, Action: Heal, Pair: Pair{All: true}, Impairment: Impairment{ReorderDelay: defaultReorderDelay}, QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true},
		{At: 4 * time.Millisecond, Action: PauseReceiver, Impairment: Impairment{ReorderDelay: defaultReorderDelay}, Flows: One(1), QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true},
		{At: 5 * time.Millisecond, Action: KillNode, Impairment: Impairment{ReorderDelay: defaultReorderDelay}, Nodes: One(1), QP: -1, Count: 1, Status: ib.WCGeneralErr, Notify: true},
	}, f.Faults[:6])
	require.Equal(t, Pair{From: One(0), To: Span{2, 4}, Both: true}, f.Faults[6].Pair)
	require.Equal(t, Link{Latency: 3 * time.Microsecond, Jitter: time.Microsecond, Bandwidth: 5e9, Queue: 64 << 10, MTU: ib.MTU512, ECN: ECN{1 << 10, 2 << 10, 1}}, f.Faults[6].Link)
	require.Equal(t, Span{0, 2}, f.Faults[7].Switches)
	require.Len(t, f.Faults, 8)

	most := Range{0, 9}
	require.Equal(t, RunExpect{
		Expect: Expect{
			Completions:     []StatusCount{{ib.WCSuccess, Count{Range: Range{1, 1<<64 - 1}}}, {ib.WCWRFlushErr, Count{Range: Any}}},
			Receives:        []StatusCount{{ib.WCSuccess, Count{Range: Range{1, 1<<64 - 1}}}},
			Retransmissions: &most, Events: []EventCount{{ib.EventQPFatal, Range{}}}, MinRate: 1e6,
		},
		Drops:  []DropCount{{"total", Range{}}, {"bad_icrc", Any}},
		Misuse: &Range{},
	}, f.Expect)
}

func TestFlowDefaultsByTransport(t *testing.T) {
	for _, c := range []struct {
		flow  string
		check func(t *testing.T, f *Flow)
	}{
		{"op: write", func(t *testing.T, f *Flow) {
			require.Zero(t, f.RecvDepth)
			require.Nil(t, f.Expect.Receives)
		}},
		{"op: send, transport: ud, count: 500", func(t *testing.T, f *Flow) {
			require.Equal(t, 500, f.RecvDepth)
			require.Nil(t, f.Expect.Receives) // what an unreliable transport loses is no failure
			require.Zero(t, f.MaxRdAtomic)
		}},
		{"op: send, transport: uc, count: 100000", func(t *testing.T, f *Flow) { require.Equal(t, 16383, f.RecvDepth) }},
		{"op: send, recv_depth: 0", func(t *testing.T, f *Flow) { require.Zero(t, f.RecvDepth) }},
		{"op: send, qps: 4, srq: true", func(t *testing.T, f *Flow) { require.Equal(t, &SRQ{Size: 128}, f.SRQ) }},
		{"op: send, recv_depth: 0, srq: true", func(t *testing.T, f *Flow) { require.Equal(t, &SRQ{Size: 1}, f.SRQ) }},
		{"op: fetch_add", func(t *testing.T, f *Flow) { require.Equal(t, Sizes{SizeFixed, []int64{8}}, f.Sizes) }},
		{"op: send, expect: {completions: {}}", func(t *testing.T, f *Flow) {
			require.Empty(t, f.Expect.Completions)
			require.NotNil(t, f.Expect.Completions)
			require.Nil(t, f.Expect.Receives)
		}},
		{"op: send, expect: {qp_state: ERR}", func(t *testing.T, f *Flow) { require.Equal(t, ib.StateErr, *f.Expect.QPState) }},
	} {
		f := mustParse(t, strings.Replace(minimal, "op: send", c.flow, 1))
		t.Run(c.flow, func(t *testing.T) { c.check(t, &f.Flows[0]) })
	}
}

// Flows that take a shared receive queue from the defaults do not share its size.
func TestDefaultsAreCopied(t *testing.T) {
	f := mustParse(t, `
version: 1
defaults: {flow: {from: a, to: a, op: send, srq: true}}
nodes: [{name: a}]
traffic: [{qps: 1}, {qps: 2}, {op: write}, {srq: false}]
`)
	require.Equal(t, 32, f.Flows[0].SRQ.Size)
	require.Equal(t, 64, f.Flows[1].SRQ.Size)
	require.Nil(t, f.Flows[2].SRQ)
	require.Nil(t, f.Flows[3].SRQ)
	require.Equal(t, "rc-write-3", f.Flows[2].Name)
}

func TestAnchors(t *testing.T) {
	f := mustParse(t, `
version: 1
nodes: [{name: a, limits: &l {max_qp: 5}}, {name: b, limits: *l}]
`)
	require.Equal(t, 5, f.Nodes[1].Limits.MaxQP)
}

func TestExamples(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(paths), 3)
	for _, path := range paths {
		f, err := Load(path)
		require.NoError(t, err)
		require.Equal(t, strings.TrimSuffix(filepath.Base(path), ".yaml"), f.Name)
		require.GreaterOrEqual(t, len(f.Nodes), 2)
		require.NotEmpty(t, f.Flows)
	}
}

// The demo covers what it promises.
func TestTwoNodesCoversTheVerbs(t *testing.T) {
	f, err := Load("../../examples/two-nodes.yaml")
	require.NoError(t, err)
	seen := map[string]bool{}
	srq := false
	for i := range f.Flows {
		for _, o := range f.Flows[i].Ops {
			seen[lower(f.Flows[i].Transport)+" "+string(o.Op)] = true
		}
		srq = srq || f.Flows[i].SRQ != nil
	}
	for _, want := range []string{"rc send", "rc send_imm", "rc write", "rc write_imm", "rc read", "rc fetch_add", "rc cmp_swp", "uc send", "uc write", "ud send"} {
		require.True(t, seen[want], want)
	}
	require.True(t, srq)
}

func TestLoad(t *testing.T) {
	_, err := Load("no/such/file.yaml")
	require.ErrorIs(t, err, os.ErrNotExist)

	big := filepath.Join(t.TempDir(), "big.yaml")
	require.NoError(t, os.WriteFile(big, make([]byte, MaxFileBytes+1), 0o600))
	_, err = Load(big)
	var p Problem
	require.True(t, errors.As(err, &p))
	require.Contains(t, p.Message, "expected at most 2097152")
}

func BenchmarkParseTenThousandNodes(b *testing.B) {
	var sb strings.Builder
	sb.WriteString("version: 1\nnodes:\n")
	for i := range 10000 {
		sb.WriteString("  - name: n" + itoa(i) + "\n    mtu: 1024\n")
	}
	sb.WriteString("traffic:\n")
	for i := range 10000 {
		sb.WriteString("  - {from: n" + itoa(i) + ", to: n" + itoa((i+1)%10000) + ", op: send}\n")
	}
	text := []byte(sb.String())
	for b.Loop() {
		if _, err := Parse("b", text); err != nil {
			b.Fatal(err)
		}
	}
}
