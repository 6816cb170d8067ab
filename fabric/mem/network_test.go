package mem

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

func addr(i int) ib.GID { return ib.GIDFromIPv4(10, 0, byte(i>>8), byte(i)) }

// group is a multicast address.
var group = ib.GIDFromIPv4(239, 1, 1, 1)

// world is a network with n nodes at addr(0), addr(1) ...
func world(cfg Config, n int) *Network {
	net := New(cfg)
	for i := range n {
		net.Attach(addr(i))
	}
	return net
}

func path(from, to int) *wire.Path {
	return &wire.Path{Src: addr(from), Dst: addr(to), HopLimit: 64, SPort: 0xc000}
}

func send(n *Network, now vtime.Time, from, to, psn, bytes int) {
	p := wire.Packet{Opcode: ib.OpSendOnly, PSN: ib.PSN(psn), Pad: wire.PadFor(bytes)}
	n.Send(now, NodeIndex(from), path(from, to), &p, make([]byte, bytes))
}

type arrival struct {
	at  vtime.Time
	to  NodeIndex
	psn int
}

// drain pops everything.
func drain(n *Network) (got []arrival) {
	for {
		f, ok := n.Pop(n.NextAt())
		if !ok {
			return got
		}
		got = append(got, arrival{n.Arrived(), f.To, int(f.Packet.PSN)})
		n.Release(f)
	}
}

func checkConserved(t require.TestingT, n *Network) {
	c := n.Totals()
	require.Equal(t, c.Sent+c.Duplicated, c.Delivered+c.DroppedTotal()+uint64(n.InFlight()))
}

func TestLatencyAndPop(t *testing.T) {
	n := world(Config{Default: LinkConfig{Latency: time.Microsecond}}, 2)
	require.Equal(t, vtime.Never, n.NextAt())
	send(n, 5, 0, 1, 7, 8)
	require.Equal(t, vtime.Time(1005), n.NextAt())
	_, ok := n.Pop(1004)
	require.False(t, ok, "nothing before its time")
	f, ok := n.Pop(1005)
	require.True(t, ok)
	require.Equal(t, NodeIndex(1), f.To)
	require.Equal(t, NodeIndex(0), f.From)
	require.Equal(t, vtime.Time(1005), n.Arrived())
	require.Equal(t, *path(0, 1), f.Path)
	require.Equal(t, ib.PSN(7), f.Packet.PSN)
	require.Len(t, f.Packet.Payload, 8)
	require.Equal(t, 12+8+4, int(f.Bytes))
	n.Release(f)
	if invariants.Enabled {
		require.Panics(t, func() { n.Release(f) })
	} else {
		n.Release(f)
		require.Len(t, n.slab.free[f.class], 1, "a second release does nothing")
	}
	require.Equal(t, Counters{Sent: 1, SentBytes: 24}, n.Counters(0))
	require.Equal(t, Counters{Delivered: 1, DeliveredBytes: 24}, n.Counters(1))
}

func TestFIFOForEqualTimes(t *testing.T) {
	n := world(Config{}, 3)
	for i := range 1000 {
		send(n, 0, i%3, (i+1)%3, i, 0)
	}
	for i, a := range drain(n) {
		require.Equal(t, i, a.psn)
	}
}

func TestFrameSurvivesUntilRelease(t *testing.T) {
	n := world(Config{}, 2)
	p := wire.Packet{Opcode: ib.OpSendOnly}
	payload := []byte("first message")
	p.Pad = wire.PadFor(len(payload))
	n.Send(0, 0, path(0, 1), &p, payload)
	f, _ := n.Pop(0)
	copy(payload, "SECOND MESSAGE")
	for range 600 {
		n.Send(0, 0, path(0, 1), &p, payload)
		if g, ok := n.Pop(0); ok {
			n.Release(g)
		}
	}
	require.Equal(t, "first message", string(f.Packet.Payload))
	n.Release(f)
}

func TestSerialisation(t *testing.T) {
	// 1 Gbit/s is one byte per 8 ns.
	n := world(Config{Default: LinkConfig{Latency: 100, BandwidthBitsPerSecond: 1e9}}, 3)
	frame := vtime.Time((24 + wire.FrameOverheadBytes(true)) * 8)
	send(n, 0, 0, 1, 0, 8)
	send(n, 0, 0, 2, 1, 8) // same egress: waits
	send(n, 0, 1, 2, 2, 8) // another sender: does not
	send(n, 5*frame, 0, 1, 3, 8)
	require.Equal(t, []arrival{
		{frame + 100, 1, 0}, {frame + 100, 2, 2}, {2*frame + 100, 2, 1}, {6*frame + 100, 1, 3},
	}, drain(n))
}

func TestSerialisationKeepsFractions(t *testing.T) {
	// 90 bytes at 400 Gbit/s take 1.8 ns: 1000 of them 1800 ns, not 1000 or 2000.
	n := world(Config{Default: LinkConfig{BandwidthBitsPerSecond: 400e9}}, 2)
	for i := range 1000 {
		send(n, 0, 0, 1, i, 8)
	}
	got := drain(n)
	require.Equal(t, vtime.Time(1000*(24+wire.FrameOverheadBytes(true))*8/400), got[999].at)
}

func TestQueueTailDrop(t *testing.T) {
	frame := 24 + wire.FrameOverheadBytes(true)
	n := world(Config{Default: LinkConfig{BandwidthBitsPerSecond: 1e9, QueueBytes: 3 * frame}}, 2)
	for i := range 5 {
		send(n, 0, 0, 1, i, 8)
	}
	c := n.Counters(0)
	require.EqualValues(t, 2, c.Dropped[fabric.LossQueue])
	// When the first is out there is room for one.
	send(n, vtime.Time(frame*8), 0, 1, 5, 8)
	send(n, vtime.Time(frame*8), 0, 1, 6, 8)
	var psns []int
	for _, a := range drain(n) {
		psns = append(psns, a.psn)
	}
	require.Equal(t, []int{0, 1, 2, 5}, psns)
	checkConserved(t, n)
}

func TestSetLink(t *testing.T) {
	n := world(Config{Default: LinkConfig{Latency: 10}}, 3)
	require.NoError(t, n.SetLink(0, 1, LinkConfig{Latency: 500, MTU: ib.MTU256}))
	send(n, 0, 0, 1, 0, 4)
	send(n, 0, 1, 0, 1, 4) // the other direction is not affected
	send(n, 0, 0, 2, 2, 4)
	send(n, 0, 0, 1, 3, 257)
	require.Equal(t, []arrival{{10, 0, 1}, {10, 2, 2}, {500, 1, 0}}, drain(n))
	c := n.Counters(0)
	require.EqualValues(t, 1, c.Dropped[fabric.LossMTU])
	require.NoError(t, n.SetLink(0, 1, LinkConfig{Latency: 20}))
	send(n, 0, 0, 1, 4, 257)
	require.Equal(t, []arrival{{20, 1, 4}}, drain(n))
	require.Error(t, n.SetLink(0, 3, LinkConfig{}))
	require.Error(t, n.SetLink(-1, 0, LinkConfig{}))
	require.ErrorContains(t, n.SetLink(0, 1, LinkConfig{Latency: -1}), "link 0 to 1")
}

func TestMulticast(t *testing.T) {
	n := world(Config{Default: LinkConfig{BandwidthBitsPerSecond: 1e9}}, 4)
	mc := func() {
		p := wire.Packet{Opcode: ib.UDSendOnly}
		n.Send(0, 0, &wire.Path{Src: addr(0), Dst: group}, &p, nil)
	}
	mc()
	c := n.Counters(0)
	require.EqualValues(t, 1, c.Dropped[fabric.LossUnreachable], "a group without members")
	for _, m := range []NodeIndex{3, 0, 2, 2} {
		require.NoError(t, n.JoinMulticast(group, m))
	}
	mc()
	got := drain(n)
	require.Len(t, got, 3)
	for i, to := range []NodeIndex{0, 2, 3} {
		require.Equal(t, to, got[i].to)
		require.Equal(t, got[0].at, got[i].at, "serialised once")
	}
	n.LeaveMulticast(group, 0)
	n.LeaveMulticast(group, 1)
	n.LeaveMulticast(group, 2)
	mc()
	require.Len(t, drain(n), 1)
	n.LeaveMulticast(group, 3)
	mc()
	require.Empty(t, drain(n))
	require.Error(t, n.JoinMulticast(addr(1), 1))
	require.Error(t, n.JoinMulticast(group, 9))
	checkConserved(t, n)
}

func TestAddresses(t *testing.T) {
	n := New(Config{})
	a := n.Attach(addr(0))
	require.Equal(t, a, n.Attach(addr(0)), "attaching again finds the node")
	b := n.Attach(addr(1))
	require.NotEqual(t, a, b)
	require.Equal(t, NoNode, n.Attach(ib.GID{}))
	require.Equal(t, NoNode, n.Attach(group))
	v6 := ib.GID{0: 0xfd, 15: 1}
	require.NoError(t, n.AddAddress(b, v6))
	require.Error(t, n.AddAddress(a, v6))
	require.Error(t, n.AddAddress(a, group))
	require.Error(t, n.AddAddress(7, v6))
	require.Equal(t, b, n.NodeOf(v6))
	require.Equal(t, 2, n.Nodes())
	n.RemoveAddress(v6)
	require.Equal(t, NoNode, n.NodeOf(v6))
}

func TestBadInputIsCounted(t *testing.T) {
	n := world(Config{}, 2)
	ok := wire.Packet{Opcode: ib.OpSendOnly}
	n.Send(0, 0, &wire.Path{Src: addr(0), Dst: addr(9)}, &ok, nil)
	n.Send(0, 0, path(0, 1), &wire.Packet{Opcode: 0xff}, nil)
	n.Send(0, 0, path(0, 1), &wire.Packet{Opcode: ib.OpSendOnly, Pad: 1}, make([]byte, 4))
	n.Send(0, 0, path(0, 1), &wire.Packet{Opcode: ib.OpAcknowledge}, make([]byte, 4))
	n.Send(0, 0, path(0, 1), &wire.Packet{Opcode: ib.OpSendOnly}, make([]byte, 8192))
	n.Send(0, 5, path(0, 1), &ok, nil)
	n.Send(0, NoNode, path(0, 1), &ok, nil)
	require.Empty(t, drain(n))
	c := n.Totals()
	require.EqualValues(t, 3, c.Dropped[fabric.LossMalformed])
	require.EqualValues(t, 3, c.Dropped[fabric.LossUnreachable])
	require.EqualValues(t, 1, c.Dropped[fabric.LossMTU])
	require.Zero(t, n.Counters(5))
	require.Nil(t, n.Faults(0, 9))
	checkConserved(t, n)
}

func TestMaxInFlight(t *testing.T) {
	n := world(Config{MaxInFlight: 3}, 2)
	for i := range 5 {
		send(n, 0, 0, 1, i, 0)
	}
	require.Equal(t, 3, n.InFlight())
	checkConserved(t, n)
	require.Len(t, drain(n), 3)
}

func TestFaultsAndHeal(t *testing.T) {
	n := world(Config{Default: LinkConfig{Latency: 1}}, 3)
	require.NoError(t, n.Faults(0, 1).AddRule(fabric.DropFirst(1, fabric.Match{})))
	send(n, 0, 0, 1, 0, 0)
	send(n, 0, 0, 1, 1, 0)
	send(n, 0, 1, 0, 2, 0)
	require.Equal(t, []arrival{{1, 1, 1}, {1, 0, 2}}, drain(n))

	n.Partition(0, 1)
	send(n, 0, 0, 1, 3, 0)
	send(n, 0, 1, 0, 4, 0)
	send(n, 0, 0, 2, 5, 0)
	require.Equal(t, []arrival{{1, 0, 4}, {1, 2, 5}}, drain(n))
	n.HealPartition(0, 1)
	send(n, 0, 0, 1, 6, 0)
	require.Len(t, drain(n), 1)

	lossy := LinkConfig{Latency: 1, Impairment: fabric.ImpairmentConfig{Loss: 1}}
	require.NoError(t, n.SetDefault(lossy))
	require.NoError(t, n.SetLink(0, 1, lossy))
	n.Partition(1, 2)
	for i := range 3 {
		send(n, 0, i, (i+1)%3, i, 0)
	}
	require.Empty(t, drain(n))
	n.Heal()
	for i := range 3 {
		send(n, 0, i, (i+1)%3, i, 0)
	}
	require.Len(t, drain(n), 3)
	require.Error(t, n.SetDefault(LinkConfig{MTU: 9}))
	checkConserved(t, n)
}

func TestConfigValidate(t *testing.T) {
	c := Config{MaxInFlight: -1, Default: LinkConfig{
		Latency: -1, Jitter: 2 * time.Hour, BandwidthBitsPerSecond: 2e15, QueueBytes: -1, MTU: 6,
		Impairment: fabric.ImpairmentConfig{Loss: 2},
	}}
	err := c.Validate()
	for _, want := range []string{"in flight is -1", "latency is -1ns", "jitter is 2h", "bandwidth is", "queue is -1", "MTU 6", "loss is 2"} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, (&LinkConfig{QueueBytes: 1}).Validate(), "needs a bandwidth")
	require.NoError(t, (&Config{}).Validate())
	require.Panics(t, func() { New(c) })
}

func TestNeverIsNotReached(t *testing.T) {
	n := world(Config{Default: LinkConfig{Latency: time.Hour}}, 2)
	send(n, vtime.Never-5, 0, 1, 0, 0)
	require.Equal(t, vtime.Never, n.NextAt(), "saturates")
	require.Len(t, drain(n), 1)
}

func TestDuplicateOfDamagedPacketIsSound(t *testing.T) {
	n := world(Config{Default: LinkConfig{Impairment: fabric.ImpairmentConfig{Duplicate: 1, Corrupt: 1}}}, 2)
	send(n, 0, 0, 1, 0, 4)
	for _, corrupt := range []bool{true, false} {
		f, ok := n.Pop(0)
		require.True(t, ok)
		require.Equal(t, corrupt, f.CorruptICRC)
		n.Release(f)
	}
	c := n.Counters(0)
	require.EqualValues(t, 1, c.Corrupted)
	require.EqualValues(t, 1, c.Duplicated)
}

// TestConstantPayloadsAreReferredTo: such a packet arrives as any other does, damage
// included, and its payload is the sender's own unless it was damaged.
func TestConstantPayloadsAreReferredTo(t *testing.T) {
	payload := make([]byte, 512)
	p := wire.Packet{Opcode: ib.OpWriteOnly}
	for _, tamper := range []float64{0, 1} {
		cfg := Config{Default: LinkConfig{Impairment: fabric.ImpairmentConfig{Tamper: tamper, Duplicate: 1}}}
		copied, referred := world(cfg, 2), world(cfg, 2)
		copied.Send(0, 0, path(0, 1), &p, payload)
		referred.SendConstant(0, 0, path(0, 1), &p, payload)
		for range 2 {
			a, ok := copied.Pop(vtime.Never - 1)
			require.True(t, ok)
			b, ok := referred.Pop(vtime.Never - 1)
			require.True(t, ok)
			require.Equal(t, a.Packet, b.Packet)
			damaged := b.Packet.Payload[0] != 0 || !bytes.Equal(b.Packet.Payload, payload)
			require.Equal(t, !damaged, &b.Packet.Payload[0] == &payload[0])
			require.NotSame(t, &a.Packet.Payload[0], &payload[0])
			referred.Release(b)
		}
		require.Equal(t, make([]byte, 512), payload, "a frame that is released leaves it alone")
	}
}
