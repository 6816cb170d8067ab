package mem

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// packet is a delivered packet by value.
type packet struct {
	to, from NodeIndex
	at       vtime.Time
	path     wire.Path
	pkt      wire.Packet
	payload  string
	corrupt  bool
	bytes    int
}

func valueOf(n *Network, f *Frame) packet {
	v := packet{f.To, f.From, n.Arrived(), f.Path, f.Packet, string(f.Packet.Payload), f.CorruptICRC, int(f.Bytes)}
	v.pkt.Payload = nil
	return v
}

// op is a step of a random run.
type op struct {
	advance time.Duration
	pop     int
	from    NodeIndex
	path    wire.Path
	pkt     wire.Packet
	payload []byte
	cut     bool
}

var opcodes = func() (list []ib.Opcode) {
	for o := range 256 {
		if wire.Info(ib.Opcode(o)) != nil {
			list = append(list, ib.Opcode(o))
		}
	}
	return append(list, 0x1f, 0xff) // and some that do not exist
}()

// drawPacket draws any packet, also with fields wider than the wire and headers that
// its opcode does not have; most have an encoding.
func drawPacket(t *rapid.T) (wire.Packet, []byte) {
	u32 := rapid.Uint32()
	p := wire.Packet{
		Opcode: rapid.SampledFrom(opcodes).Draw(t, "opcode"),
		SE:     rapid.Bool().Draw(t, "se"), M: rapid.Bool().Draw(t, "m"), PKey: rapid.Uint16().Draw(t, "pkey"),
		FECN: rapid.Bool().Draw(t, "fecn"), BECN: rapid.Bool().Draw(t, "becn"), AckReq: rapid.Bool().Draw(t, "ack"),
		DestQP: ib.QPN(u32.Draw(t, "qp")), PSN: ib.PSN(u32.Draw(t, "psn")),
		RETH:      wire.RETH{VA: rapid.Uint64().Draw(t, "va"), RKey: 3, DMALen: u32.Draw(t, "len")},
		AETH:      wire.AETH{Syndrome: ib.Syndrome(rapid.Byte().Draw(t, "syn")), MSN: ib.MSN(u32.Draw(t, "msn"))},
		AtomicETH: wire.AtomicETH{VA: 1, RKey: 2, SwapAdd: 3, Compare: rapid.Uint64().Draw(t, "cmp")},
		AtomicAck: rapid.Uint64().Draw(t, "orig"),
		DETH:      wire.DETH{QKey: 7, SrcQP: ib.QPN(u32.Draw(t, "srcqp"))},
		FETH:      wire.FETH{SEL: rapid.Byte().Draw(t, "sel"), PLT: rapid.Byte().Draw(t, "plt")},
		Imm:       u32.Draw(t, "imm"), InvRKey: 9,
	}
	var payload []byte
	if i := wire.Info(p.Opcode); i == nil || i.Mask&wire.Payload != 0 || rapid.IntRange(0, 9).Draw(t, "stray payload") == 0 {
		payload = rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "payload")
		if i != nil && i.Mask&wire.AtomicWrite != 0 {
			payload = make([]byte, 8)
		}
	}
	p.Pad = wire.PadFor(len(payload))
	switch rapid.IntRange(0, 19).Draw(t, "oddity") {
	case 0:
		p.Pad = rapid.Byte().Draw(t, "pad")
	case 1:
		p.TVer = rapid.Byte().Draw(t, "tver")
	}
	return p, payload
}

const propNodes = 4

func drawOps(t *rapid.T) []op {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		o := op{
			advance: time.Duration(rapid.IntRange(0, 3000).Draw(t, "advance")),
			pop:     rapid.IntRange(0, 3).Draw(t, "pop"),
			from:    NodeIndex(rapid.IntRange(0, propNodes-1).Draw(t, "from")),
			cut:     rapid.IntRange(0, 30).Draw(t, "cut") == 0,
		}
		o.pkt, o.payload = drawPacket(t)
		o.path = *path(int(o.from), rapid.IntRange(0, propNodes).Draw(t, "to")) // the last does not exist
		if rapid.IntRange(0, 5).Draw(t, "multicast") == 0 {
			o.path.Dst = group
		}
		o.path.IPID = rapid.Uint16().Draw(t, "ipid")
		return o
	}), 1, 60).Draw(t, "ops")
}

func drawLink(t *rapid.T) LinkConfig {
	prob := rapid.SampledFrom([]float64{0, 0.1, 0.5})
	c := LinkConfig{
		Latency: time.Duration(rapid.IntRange(0, 2000).Draw(t, "latency")),
		Jitter:  time.Duration(rapid.IntRange(0, 500).Draw(t, "jitter")),
		MTU:     rapid.SampledFrom([]ib.MTU{0, ib.MTU256}).Draw(t, "mtu"),
		Impairment: fabric.ImpairmentConfig{
			Loss: prob.Draw(t, "loss"), Duplicate: prob.Draw(t, "dup"), Corrupt: prob.Draw(t, "corrupt"),
			Reorder: prob.Draw(t, "reorder"), ReorderDelay: 700, Jitter: 100,
		},
	}
	if rapid.Bool().Draw(t, "slow") {
		c.BandwidthBitsPerSecond = 1e9
		c.QueueBytes = rapid.SampledFrom([]int{0, 300}).Draw(t, "queue")
	}
	return c
}

// run plays ops and drains; everything that was delivered comes back in order.
func run(t require.TestingT, cfg Config, link *LinkConfig, ops []op) (got []packet, n *Network) {
	n = world(cfg, propNodes)
	require.NoError(t, n.JoinMulticast(group, 1))
	require.NoError(t, n.JoinMulticast(group, 3))
	if link != nil {
		require.NoError(t, n.SetLink(0, 1, *link))
	}
	now := vtime.Time(0)
	pop := func() bool {
		f, ok := n.Pop(now)
		if ok {
			got = append(got, valueOf(n, f))
			n.Release(f)
		}
		return ok
	}
	for i := range ops {
		o := &ops[i]
		now = now.Add(o.advance)
		if o.cut {
			n.Partition(o.from, 1)
		}
		n.Send(now, o.from, &o.path, &o.pkt, o.payload)
		for range o.pop {
			pop()
		}
		checkConserved(t, n)
	}
	for now = n.NextAt(); now != vtime.Never; now = n.NextAt() {
		require.True(t, pop())
	}
	require.Zero(t, n.InFlight())
	checkConserved(t, n)
	return got, n
}

func TestSameSeedSameOutput(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link, ops := drawLink(t), drawOps(t)
		cfg := Config{Seed: rapid.Uint64().Draw(t, "seed"), Default: drawLink(t)}
		a, na := run(t, cfg, &link, ops)
		b, nb := run(t, cfg, &link, ops)
		require.Equal(t, a, b)
		require.Equal(t, na.Totals(), nb.Totals())
	})
}

func TestEncodeMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link, ops := drawLink(t), drawOps(t)
		cfg := Config{Seed: 1, Default: drawLink(t)}
		plain, np := run(t, cfg, &link, ops)
		cfg.Encode = true
		coded, nc := run(t, cfg, &link, ops)
		require.Equal(t, plain, coded)
		for i := range NodeIndex(propNodes) {
			require.Equal(t, np.Counters(i), nc.Counters(i))
		}
	})
}

// TestCheckAgreesWithDecode compares the short cut of struct mode with the codec.
func TestCheckAgreesWithDecode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, payload := drawPacket(t)
		b := appendEncoded(nil, path(0, 1), &p, payload, false)
		require.Equal(t, len(b), encodedBytes(&p, payload))
		var q wire.Packet
		require.Equal(t, wire.Decode(b[:len(b)-4], &q), check(&p, payload))
	})
}

func TestSoundNetworkDeliversAll(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		link := drawLink(t)
		link.Impairment, link.QueueBytes, link.MTU = fabric.ImpairmentConfig{}, 0, 0
		count := rapid.IntRange(1, 200).Draw(t, "count")
		n := world(Config{Seed: rapid.Uint64().Draw(t, "seed"), Default: link}, propNodes)
		now := vtime.Time(0)
		next := [propNodes * propNodes]int{}
		for range count {
			now = now.Add(time.Duration(rapid.IntRange(0, 300).Draw(t, "gap")))
			from, to := rapid.IntRange(0, 3).Draw(t, "from"), rapid.IntRange(0, 3).Draw(t, "to")
			send(n, now, from, to, next[from*propNodes+to], 4)
			next[from*propNodes+to]++
		}
		// All arrive, unharmed, and per pair in order in spite of jitter.
		seen := [propNodes * propNodes]int{}
		last := vtime.Time(0)
		for {
			f, ok := n.Pop(vtime.Never)
			if !ok {
				break
			}
			require.GreaterOrEqual(t, n.Arrived(), last)
			last = n.Arrived()
			require.False(t, f.CorruptICRC)
			pair := int(f.From)*propNodes + int(f.To)
			require.Equal(t, seen[pair], int(f.Packet.PSN))
			seen[pair]++
			n.Release(f)
		}
		require.Equal(t, next, seen)
		require.Zero(t, n.Totals().DroppedTotal())
	})
}

func TestReorderIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const gap, hold = 100, 450 // so one may be overtaken by at most four
		n := world(Config{Seed: rapid.Uint64().Draw(t, "seed"), Default: LinkConfig{
			Latency: 50, Impairment: fabric.ImpairmentConfig{Reorder: 0.3, ReorderDelay: hold},
		}}, 2)
		const count = 100
		for i := range count {
			send(n, vtime.Time(i*gap), 0, 1, i, 0)
		}
		got := drain(n)
		require.Len(t, got, count)
		moved := 0
		for place, a := range got {
			overtakenBy := 0
			for _, b := range got[:place] {
				if b.psn > a.psn {
					overtakenBy++
				}
			}
			require.LessOrEqual(t, overtakenBy, hold/gap)
			delay := a.at.Sub(vtime.Time(a.psn * gap))
			require.Contains(t, []time.Duration{50, 50 + hold}, delay)
			if overtakenBy > 0 {
				moved++
			}
		}
		require.Positive(t, moved)
	})
}

func TestNodesHaveStreamsOfTheirOwn(t *testing.T) {
	lost := func(others bool) (psns []int) {
		n := world(Config{Seed: 3, Default: LinkConfig{Impairment: fabric.ImpairmentConfig{Loss: 0.5}}}, 3)
		for i := range 50 {
			send(n, 0, 0, 1, i, 0)
			if others {
				send(n, 0, 2, 0, i, 0)
			}
		}
		for _, a := range drain(n) {
			if a.to == 1 {
				psns = append(psns, a.psn)
			}
		}
		return psns
	}
	require.Equal(t, lost(false), lost(true), "traffic of other nodes must not move the losses")
}

type sink struct {
	at  []vtime.Time
	buf [][]byte
}

func (s *sink) Capture(at vtime.Time, d *fabric.Datagram) {
	body := d.Buf[:len(d.Buf)-wire.ICRCBytes]
	if wire.ICRC(&d.Path, body) != binary.LittleEndian.Uint32(d.Buf[len(body):]) {
		panic("sink was shown a wrong ICRC")
	}
	s.at = append(s.at, at)
	s.buf = append(s.buf, slices.Clone(d.Buf))
}

func TestSinkSeesWhatIsSent(t *testing.T) {
	var s sink
	n := world(Config{Sink: &s, Default: LinkConfig{Latency: 5, Impairment: fabric.ImpairmentConfig{Loss: 1}}}, 2)
	require.NoError(t, n.JoinMulticast(group, 0))
	require.NoError(t, n.JoinMulticast(group, 1))
	send(n, 10, 0, 1, 1, 5)
	p := wire.Packet{Opcode: ib.UDSendOnly, PSN: 2}
	n.Send(20, 0, &wire.Path{Src: addr(0), Dst: group}, &p, nil)
	n.Send(30, 0, path(0, 1), &wire.Packet{Opcode: 0xff}, nil) // has no encoding
	require.Equal(t, []vtime.Time{10, 20}, s.at)
	var q wire.Packet
	require.Equal(t, wire.DropNone, wire.Decode(s.buf[0][:len(s.buf[0])-4], &q))
	require.Equal(t, ib.PSN(1), q.PSN)
	require.Len(t, q.Payload, 5)
	n.SetSink(nil)
	send(n, 40, 0, 1, 3, 0)
	require.Len(t, s.at, 2)
}
