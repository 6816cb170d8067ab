package mem

import (
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// TestQueueSorts compares with a list that is sorted after each push, mostly in order, as
// packets come, and with stragglers.
func TestQueueSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		var want []event
		now := vtime.Time(0)
		for seq := range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.IntRange(0, 2).Draw(t, "pop") == 0 && len(want) > 0 {
				require.Equal(t, want[0], q.pop())
				want = want[1:]
			} else {
				now += vtime.Time(rapid.IntRange(0, 3).Draw(t, "later"))
				e := event{at: now, seq: uint64(seq), slot: uint32(seq)}
				if rapid.IntRange(0, 9).Draw(t, "straggler") == 0 {
					e.at -= min(e.at, vtime.Time(rapid.IntRange(0, 20).Draw(t, "earlier")))
				}
				i, _ := slices.BinarySearchFunc(want, e, func(a, b event) int {
					if a.before(&b) {
						return -1
					}
					return 1
				})
				want = slices.Insert(want, i, e)
				require.Equal(t, i == 0, q.push(e))
			}
			if len(want) == 0 {
				require.Nil(t, q.front())
			} else {
				require.Equal(t, want[0], *q.front())
			}
		}
	})
}

// TestFrameLines holds the layout of a frame: its size is whole lines, a switch needs the
// first, and the second ends with the last header that most packets have.
func TestFrameLines(t *testing.T) {
	const line = 64
	frame := reflect.TypeFor[Frame]()
	end := func(s reflect.Type, name string) uintptr {
		f, ok := s.FieldByName(name)
		require.True(t, ok, name)
		return f.Offset + f.Type.Size()
	}
	require.Zero(t, frame.Size()%line)
	require.LessOrEqual(t, end(frame, "Path"), uintptr(line))
	pkt, _ := frame.FieldByName("Packet")
	require.LessOrEqual(t, pkt.Offset+end(reflect.TypeFor[wire.Packet](), "AETH"), uintptr(FrameBytes))
	require.Equal(t, 2*line, FrameBytes)
}

// TestReusedFrameForgets sends a packet with extended headers, and then, in the same frame,
// one without.
func TestReusedFrameForgets(t *testing.T) {
	n := world(Config{}, 2)
	for _, p := range []wire.Packet{
		{Opcode: ib.OpFetchAdd, AtomicETH: wire.AtomicETH{VA: 8, RKey: 9, SwapAdd: 10, Compare: 11}},
		{Opcode: ib.OpWriteOnlyImm, RETH: wire.RETH{VA: 1, RKey: 2, DMALen: 3}, Imm: 4},
		{Opcode: ib.OpAcknowledge, AETH: wire.AETH{Syndrome: 31, MSN: 7}},
		{Opcode: ib.OpSendOnly, AckReq: true},
	} {
		n.Send(0, 0, path(0, 1), &p, nil)
		f, ok := n.Pop(0)
		require.True(t, ok)
		require.Equal(t, p, f.Packet)
		n.Release(f)
	}
	require.Equal(t, 1, n.slab.used, "one frame serves all")
}
