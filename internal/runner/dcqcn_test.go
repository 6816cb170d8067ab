package runner

import (
	"encoding/hex"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// incastFile is an incast without end for d, on switches that mark from 100 to 400 kB.
func incastFile(senders int, d time.Duration, dcqcn, traffic string) string {
	return fmt.Sprintf(`version: 1
duration: %s
timeout: 1s
defaults: {node: {mtu: 4096, dcqcn: %s}}
nodes: [{name: h, count: %d, address: 10.0.0.1}, {name: sink, address: 10.0.9.1}]
network: {latency: 1us, bandwidth: 100Gbps}
switches: [{name: s, nodes: [h, sink], ecn: {min: 100KiB, max: 400KiB, probability: 20%%}}]
traffic: [{name: t, pattern: incast, from: h, to: sink, count: 0, verify: false, %s}]
`, d, dcqcn, senders, traffic)
}

const incastWrites = "op: write, size: 64KiB, depth: 16, timeout: 17"

// fast makes recovery fit a test of milliseconds.
const fast = "{additive_increase: 400Mbps, min_rate: 100Mbps}"

// TestDCQCNKeepsQueuesShort: without congestion control the queue before the sink of an
// incast is what all senders may have outstanding, from beginning to end. With it, it is
// below the point where every packet is marked, once the senders know of each other, and
// the sink is still busy.
//
// req: CC-MARK-01 CC-PACE-01
func TestDCQCNKeepsQueuesShort(t *testing.T) {
	skipUnderRace(t)
	const senders = 16
	run := func(dcqcn string) (queue []uint64, o *Outcome) {
		o = runVirtual(t, parse(t, incastFile(senders, 10*time.Millisecond, dcqcn, incastWrites)), Options{Measure: true})
		requireGood(t, o)
		s := &o.Measures.Series
		first, last := int(4*time.Millisecond/s.Step), int(10*time.Millisecond/s.Step)
		return slices.Sorted(slices.Values(s.Queue[first:last])), o
	}
	off, _ := run("false")
	on, o := run(fast)
	window := senders * 128 * 4096 // WindowPackets, the limit of the adapters themselves
	require.Greater(t, off[0], uint64(window)*9/10, "the queue is always full")
	require.Less(t, on[len(on)-1], uint64(1<<20), "it never is, with congestion control")
	require.Less(t, on[len(on)*9/10], uint64(400<<10), "and nearly always below Kmax")
	busy := o.Measures.Ports[slices.IndexFunc(o.Measures.Ports, func(p PortMeasures) bool { return p.Name == "s>sink" })]
	require.NotZero(t, busy.Marked)
	require.Greater(t, float64(busy.Bytes)*8/100e9/o.Elapsed.Seconds(), 0.8, "the cable to the sink is used")
	var sent, handled uint64
	for i := range o.Nodes {
		sent, handled = sent+o.Nodes[i].Device.SentCNP, handled+o.Nodes[i].Device.HandledCNP
	}
	require.NotZero(t, sent)
	require.Equal(t, sent, handled, "nothing is lost here")
	require.LessOrEqual(t, sent, uint64(senders*(1+int(o.Elapsed/(50*time.Microsecond)))), "one for each queue pair and interval")
}

// TestDCQCNIsFair: senders that begin at different times converge to the same share: in
// the last half each moves what the others move, within a fifth. The transports that
// have no acknowledgement slow down as well, and READs slow down their responder.
func TestDCQCNIsFair(t *testing.T) {
	skipUnderRace(t)
	const senders, from, to = 4, 20 * time.Millisecond, 40 * time.Millisecond
	for name, traffic := range map[string]string{
		"write": incastWrites,
		"uc":    "transport: uc, op: write_imm, size: 4KiB, depth: 64, recv_depth: 512, rate: 90Gbps, expect: {receives: {SUCCESS: any}}",
	} {
		t.Run(name, func(t *testing.T) {
			var shares []float64
			moved := func(d time.Duration) []uint64 {
				o := runVirtual(t, parse(t, incastFile(senders, d, fast, traffic)), Options{})
				var list []uint64
				for i := range o.Flows {
					list = append(list, o.Flows[i].Bytes)
				}
				return list
			}
			// The same run, looked at twice.
			early, late := moved(from), moved(to)
			sum := 0.0
			for i := range late {
				shares = append(shares, float64(late[i]-early[i]))
				sum += shares[i]
			}
			for _, s := range shares {
				require.InEpsilon(t, 1.0/senders, s/sum, 0.2, "%v", shares)
			}
			require.Greater(t, sum*8/(to-from).Seconds(), 80e9)
		})
	}
}

// skipUnderRace is for tests that compute for long in one goroutine, where there are no
// races to find.
func skipUnderRace(t *testing.T) {
	t.Helper()
	if invariants.Race {
		t.Skip("the plain pass runs it")
	}
}

// TestReadsSlowTheirResponder: the data of a READ come from the responder, so it is its
// queue pair that the requester's notifications slow down.
//
// req: CC-PACE-02
func TestReadsSlowTheirResponder(t *testing.T) {
	text := `version: 1
duration: 4ms
timeout: 1s
defaults: {node: {mtu: 4096, dcqcn: ` + fast + `}}
nodes: [{name: reader, address: 10.0.9.1}, {name: h, count: 4, address: 10.0.0.1}]
network: {latency: 1us, bandwidth: 100Gbps}
switches: [{name: s, nodes: [h, reader], ecn: {min: 100KiB, max: 400KiB, probability: 20%}}]
traffic: [{pattern: all_to_all, from: reader, to: h, op: read, size: 64KiB, count: 0, depth: 16, verify: false, timeout: 17}]
`
	o := runVirtual(t, parse(t, text), Options{})
	requireGood(t, o)
	require.NotZero(t, o.Nodes[0].Device.SentCNP, "the reader sees the marks")
	require.Zero(t, o.Nodes[0].Device.HandledCNP)
	for _, n := range o.Nodes[1:] {
		require.NotZero(t, n.Device.HandledCNP)
		require.Zero(t, n.Device.SentCNP)
	}
}

// cnpSink keeps the first CNP, the first data packet and the first acknowledgement.
type cnpSink struct{ cnp, data, ack *fabric.Datagram }

func (s *cnpSink) Capture(_ vtime.Time, d *fabric.Datagram) {
	keep := func(p **fabric.Datagram) {
		if *p == nil {
			c := *d
			c.Buf = slices.Clone(d.Buf)
			*p = &c
		}
	}
	switch ib.Opcode(d.Buf[0]) {
	case ib.OpcodeCNP:
		keep(&s.cnp)
	case ib.OpAcknowledge:
		keep(&s.ack)
	default:
		keep(&s.data)
	}
}

// TestCNPLayout: a CNP is what IBTA annex A17 and captures of hardware show: opcode 0x81,
// BECN, PSN 0, the sender's queue pair, 16 zero bytes, with DSCP 48.
//
// req: CC-NP-02
func TestCNPLayout(t *testing.T) {
	sink := &cnpSink{}
	runVirtual(t, parse(t, incastFile(4, time.Millisecond, "true", incastWrites+", psn: 7")), Options{Sink: sink})
	require.NotNil(t, sink.cnp)
	var p wire.Packet
	require.Equal(t, wire.DropNone, wire.Decode(sink.cnp.Buf[:len(sink.cnp.Buf)-wire.ICRCBytes], &p))
	require.Equal(t, wire.Packet{Opcode: ib.OpcodeCNP, PKey: ib.PKeyDefault, BECN: true, DestQP: p.DestQP}, p)
	want := fmt.Sprintf("8100ffff40%06x0000000000000000000000000000000000000000", uint32(p.DestQP))
	require.Equal(t, want, hex.EncodeToString(sink.cnp.Buf[:28]))
	require.Len(t, sink.cnp.Buf, 32)
	require.EqualValues(t, 0xc2, sink.cnp.Path.TClass)
	require.EqualValues(t, wire.ECT0, sink.data.Path.TClass, "data may be marked")
	require.Zero(t, sink.ack.Path.TClass, "acknowledgements are not slowed down for, and may not")
	require.Equal(t, ib.GIDFromIPv4(10, 0, 9, 1), sink.cnp.Path.Src)
}

// TestDCQCNIsOffByDefault: no profile has it, data packets forbid marks, and a CNP is an
// unknown opcode, as in soft-RoCE.
//
// req: CC-OFF-01
func TestDCQCNIsOffByDefault(t *testing.T) {
	for _, profile := range []string{"ibta", "rdmavt", "rxe"} {
		sink := &cnpSink{}
		o := runVirtual(t, parse(t, incastFile(4, time.Millisecond, "false, profile: "+profile, incastWrites)), Options{Sink: sink})
		require.Nil(t, sink.cnp)
		require.Zero(t, sink.data.Path.TClass)
		for i := range o.Nodes {
			require.Zero(t, o.Nodes[i].Device.ECNMarked)
		}
		_, ok := qp.ProfileByName(profile)
		require.True(t, ok)
	}
}
