package mem

import (
	"cmp"
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

// switched is a network of nodes at three switches in a row, and two nodes with a link of
// their own.
func switched(t require.TestingT, cfg LinkConfig) *Network {
	n := world(Config{Seed: 5, Default: cfg}, 6)
	for range 3 {
		n.AddSwitch()
	}
	for i := range 6 {
		require.NoError(t, n.Plug(NodeIndex(i), SwitchIndex(i/2), cfg))
	}
	require.NoError(t, n.Trunk(0, 1, cfg))
	require.NoError(t, n.Trunk(1, 2, cfg))
	own := cfg
	own.Latency *= 3
	require.NoError(t, n.SetLink(0, 5, own))
	return n
}

// outside is a packet that the network does not carry.
type outside struct {
	at       vtime.Time
	from, to int
	psn      int
	stage    fabric.Stage
	path     wire.Path
}

// TestThroughIsWhatSendDoes: packets that travel elsewhere take as long as those of the
// network itself, and the same ones are lost.
func TestThroughIsWhatSendDoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := LinkConfig{
			Latency: time.Duration(rapid.IntRange(0, 5000).Draw(t, "latency")), Jitter: time.Duration(rapid.SampledFrom([]int{0, 700}).Draw(t, "jitter")),
			BandwidthBitsPerSecond: uint64(rapid.SampledFrom([]int{0, 1e9, 1e10}).Draw(t, "bandwidth")), MTU: rapid.SampledFrom([]ib.MTU{0, ib.MTU512}).Draw(t, "mtu"),
		}
		if cfg.BandwidthBitsPerSecond > 0 && rapid.Bool().Draw(t, "queue") {
			cfg.QueueBytes = 8000
		}
		sends := make([]outside, rapid.IntRange(1, 60).Draw(t, "packets"))
		now := vtime.Time(0)
		for i := range sends {
			now = now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "gap")))
			from := rapid.IntRange(0, 5).Draw(t, "from")
			to := rapid.IntRange(0, 5).Filter(func(to int) bool { return to != from }).Draw(t, "to")
			sends[i] = outside{at: now, from: from, to: to, psn: i, stage: fabric.Departing, path: *path(from, to)}
		}
		size := rapid.SampledFrom([]int{64, 512, 1024}).Draw(t, "size")
		carried := switched(t, cfg)
		for _, s := range sends {
			send(carried, s.at, s.from, s.to, s.psn, size)
		}
		var want []arrival
		for carried.InFlight() > 0 { // at the end of each burst some may be at a switch
			want = append(want, drain(carried)...)
		}
		p := wire.Packet{Opcode: ib.OpSendOnly, Pad: wire.PadFor(size)}
		got := walk(switched(t, cfg), sends, encodedBytes(&p, make([]byte, size)), size)
		require.Equal(t, when(want), when(got))
		require.Equal(t, which(want), which(got))
	})
}

// when is at what times something came, and to whom. Of two packets that come to a switch at
// the same time either may go first; all are of one size, so that nothing else changes.
func when(list []arrival) []arrival {
	list = slices.Clone(list)
	for i := range list {
		list[i].psn = 0
	}
	slices.SortFunc(list, func(a, b arrival) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.to, b.to)) })
	return list
}

// which is what came, and to whom.
func which(list []arrival) []arrival {
	list = slices.Clone(list)
	for i := range list {
		list[i].at = 0
	}
	slices.SortFunc(list, func(a, b arrival) int { return cmp.Compare(a.psn, b.psn) })
	return list
}

// walk takes packets through the network in the order of time.
func walk(n *Network, pending []outside, bytes, payload int) (got []arrival) {
	byTime := func(a, b outside) int { return int(a.at - b.at) }
	pending = slices.Clone(pending)
	for len(pending) > 0 {
		slices.SortStableFunc(pending, byTime)
		f := pending[0]
		pending = pending[1:]
		if f.stage == fabric.Arrived {
			got = append(got, arrival{f.at, NodeIndex(f.to), f.psn})
			continue
		}
		var ok bool
		if f.stage, f.at, _, ok = n.Through(f.at, f.stage, NodeIndex(f.from), NodeIndex(f.to), bytes, payload, &f.path); ok {
			pending = append(pending, f)
		}
	}
	return got
}

func TestThroughNowhere(t *testing.T) {
	n := world(Config{}, 2)
	n.AddSwitch()
	n.AddSwitch()
	require.NoError(t, n.Plug(0, 0, LinkConfig{}))
	require.NoError(t, n.Plug(1, 1, LinkConfig{}))
	for _, c := range []struct {
		stage fabric.Stage
		to    NodeIndex
	}{{0, 1}, {5, 1}, {fabric.Departing, 7}, {fabric.Arrived, 1}} {
		_, _, lost, ok := n.Through(0, c.stage, 0, c.to, 100, 64, path(0, 1))
		require.False(t, ok, c)
		require.Equal(t, fabric.LossUnreachable, lost)
	}
}

// TestCableChanges: a change counts from the next packet on, of the pair, of all links, or
// of a switch.
func TestCableChanges(t *testing.T) {
	n := switched(t, LinkConfig{Latency: 10, Impairment: fabric.ImpairmentConfig{Loss: 1}})
	at := func(from, to NodeIndex) vtime.Time {
		t.Helper()
		now := vtime.Time(0)
		for s := fabric.Departing; s != fabric.Arrived; {
			var lost fabric.LossReason
			var ok bool
			if s, now, lost, ok = n.Through(now, s, from, to, 100, 60, &wire.Path{Src: ib.GID{1, 15: byte(from)}, Dst: ib.GID{1, 15: byte(to)}}); !ok {
				require.Equal(t, fabric.LossMTU, lost)
				return -1
			}
		}
		return now
	}
	require.Equal(t, []vtime.Time{20, 30, 30}, []vtime.Time{at(0, 1), at(0, 2), at(0, 5)})
	require.False(t, n.Instant(0, 1))
	require.NoError(t, n.SetPorts(1, LinkConfig{Latency: 100}))
	require.Equal(t, []vtime.Time{20, 210, 30}, []vtime.Time{at(0, 1), at(0, 2), at(0, 5)}, "the trunk to the switch, and its cable to the node")
	require.NoError(t, n.SetCable(0, 5, LinkConfig{Latency: 7}))
	require.Equal(t, []vtime.Time{20, 7, 120}, []vtime.Time{at(0, 1), at(0, 5), at(2, 0)})
	require.NotNil(t, n.policy(n.egress(0, 5), 0, 5), "what goes wrong there stays")
	require.NoError(t, n.SetCables(LinkConfig{}))
	require.Equal(t, []vtime.Time{10, 0}, []vtime.Time{at(0, 1), at(0, 5)})
	require.True(t, n.Instant(0, 5))
	require.False(t, n.Instant(0, 1), "a switch may take time")
	require.NoError(t, n.SetCable(0, 5, LinkConfig{MTU: ib.MTU256}))
	require.Equal(t, vtime.Time(0), at(0, 5))
	require.False(t, n.Instant(0, 5))
	require.Error(t, n.SetCable(0, 5, LinkConfig{QueueBytes: 1}))
	require.Error(t, n.SetCable(0, 9, LinkConfig{}))
	require.Error(t, n.SetCables(LinkConfig{Latency: -1}))
	require.Error(t, n.SetPorts(0, LinkConfig{Latency: -1}))
	require.Error(t, n.SetPorts(3, LinkConfig{}))
	require.True(t, n.Instant(0, 9))
}
