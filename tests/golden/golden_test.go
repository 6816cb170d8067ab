package golden_test

import (
	"encoding/hex"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/tests/golden"
	"github.com/rvtsim/rvtsim/wire"
)

var update = flag.Bool("update", false, "rewrite the text dumps of the captures")

// What the corpus holds; a lost or unread file must not make the tests pass.
const (
	wantCaptures = 74
	wantFrames   = 437
	wantIPv6     = 9
	wantFlows    = 69
)

func captures(t testing.TB) []golden.Capture {
	t.Helper()
	caps, err := golden.Captures()
	require.NoError(t, err)
	return caps
}

func forEachFrame(t *testing.T, check func(t *testing.T, c *golden.Capture, f *golden.Frame)) (n int) {
	for _, c := range captures(t) {
		t.Run(c.Name, func(t *testing.T) {
			for i := range c.Frames {
				check(t, &c, &c.Frames[i])
				n++
			}
		})
	}
	return n
}

func TestCorpusIsComplete(t *testing.T) {
	caps := captures(t)
	frames, v6 := 0, 0
	ops := map[ib.Opcode]int{}
	for _, c := range caps {
		for _, f := range c.Frames {
			frames++
			ops[ib.Opcode(f.Body[0])]++
			if !f.Path.IsIPv4() {
				v6++
			}
		}
	}
	require.Len(t, caps, wantCaptures)
	require.Equal(t, wantFrames, frames)
	require.Equal(t, wantIPv6, v6)
	flows, err := golden.Flows()
	require.NoError(t, err)
	require.Len(t, flows, wantFlows)

	// Opcodes that Linux 6.1 does not have or that no scenario produced. All others
	// must occur, so that the byte comparisons below mean something.
	absent := map[ib.Opcode]bool{
		ib.OpFlush: true, ib.OpAtomicWrite: true, ib.OpcodeCNP: true,
		ib.TransportUC | ib.OpSendLastImm: true, ib.TransportUC | ib.OpWriteLastImm: true,
		ib.TransportUC | ib.OpWriteOnly: true,
	}
	for op := range 256 {
		op := ib.Opcode(op)
		if info := wire.Info(op); info != nil {
			require.Equal(t, !absent[op], ops[op] > 0, info.Name)
		} else {
			require.Zero(t, ops[op], "opcode %#x", op)
		}
	}
}

func TestDecodeEncode(t *testing.T) {
	n := forEachFrame(t, func(t *testing.T, _ *golden.Capture, f *golden.Frame) {
		var p wire.Packet
		require.Equal(t, wire.DropNone, wire.Decode(f.Body, &p))
		require.Equal(t, f.Body, wire.AppendPacket(nil, &p))
		require.Equal(t, f.Body[:p.HeaderBytes()], wire.AppendHeaders(nil, &p))
		require.Equal(t, wire.PadFor(len(p.Payload)), p.Pad)
	})
	require.Equal(t, wantFrames, n)
}

func TestICRC(t *testing.T) {
	n := forEachFrame(t, func(t *testing.T, _ *golden.Capture, f *golden.Frame) {
		require.Equal(t, f.ICRC, wire.ICRCRaw(f.L3, f.UDP, f.Body))
		require.Equal(t, f.ICRC, wire.ICRC(&f.Path, f.Body))

		path := f.Path
		path.IPID = 0 // must not matter
		id, ok := wire.SolveIPID(&path, f.Body, f.ICRC)
		require.True(t, ok)
		require.Equal(t, f.Path.IPID, id)

		// Damage in the last byte cannot be blamed on the identification here.
		_, ok = wire.SolveIPID(&path, f.Body, f.ICRC^0x01000000)
		require.False(t, ok)
	})
	require.Equal(t, wantFrames, n)
}

func TestTextDumps(t *testing.T) {
	for _, c := range captures(t) {
		t.Run(c.Name, func(t *testing.T) {
			var got []byte
			for i := range c.Frames {
				got = c.Frames[i].AppendText(got)
			}
			file := filepath.Join("soft-roce", c.Name+".txt")
			if *update {
				require.NoError(t, os.WriteFile(file, got, 0o644))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "go test ./tests/golden -update writes it")
			require.Equal(t, string(want), string(got))
		})
	}
	texts, err := filepath.Glob(filepath.Join("soft-roce", "*.txt"))
	require.NoError(t, err)
	require.Len(t, texts, wantCaptures, "a dump without capture")
}

// TestGRH compares with what the kernel stored before the payload of datagrams.
func TestGRH(t *testing.T) {
	flows, err := golden.Flows()
	require.NoError(t, err)
	checked := 0
	for _, c := range captures(t) {
		dump := flows[c.Name].Server.RecvBuffer
		if dump == "" {
			continue
		}
		want, err := hex.DecodeString(dump)
		require.NoError(t, err)
		f := &c.Frames[0]
		var p wire.Packet
		require.Equal(t, wire.DropNone, wire.Decode(f.Body, &p))
		got := wire.AppendGRH(nil, &f.Path, len(f.UDP)+len(f.Body)+wire.ICRCBytes)
		require.Len(t, got, ib.GRHBytes, c.Name)
		require.Equal(t, want[:ib.GRHBytes], got, c.Name)
		n := min(len(want)-ib.GRHBytes, len(p.Payload))
		require.Equal(t, want[ib.GRHBytes:][:n], p.Payload[:n], c.Name)
		checked++
	}
	require.Equal(t, 3, checked)
}

// TestGRHOfEveryFrame compares with the header on the wire, checksum included.
func TestGRHOfEveryFrame(t *testing.T) {
	forEachFrame(t, func(t *testing.T, _ *golden.Capture, f *golden.Frame) {
		got := wire.AppendGRH([]byte{1, 2}, &f.Path, len(f.UDP)+len(f.Body)+wire.ICRCBytes)
		want := append(make([]byte, ib.GRHBytes-len(f.L3), ib.GRHBytes), f.L3...)
		require.Equal(t, append([]byte{1, 2}, want...), got)
	})
}

// cmFlowLabel returns the primary flow label of a CM REQ, if the packet is one. The
// datagram of QP1 holds a MAD: class version, attribute ID at 16, CM message from 24
// with the label 88 bytes in.
func cmFlowLabel(p *wire.Packet) (label uint32, ok bool) {
	const attrREQ, attrAt, labelAt = 0x0010, 16, 24 + 88
	m := p.Payload
	if p.DestQP != ib.QPNGSI || len(m) < labelAt+3 || int(m[attrAt])<<8|int(m[attrAt+1]) != attrREQ {
		return 0, false
	}
	return uint32(m[labelAt])<<12 | uint32(m[labelAt+1])<<4 | uint32(m[labelAt+2])>>4, true
}

// TestSourcePorts derives the UDP source port of every packet: datagrams from the
// sending QPN, connected QPs from both QPNs, or from a flow label where the scenario
// set one or the connection manager agreed on one.
func TestSourcePorts(t *testing.T) {
	flows, err := golden.Flows()
	require.NoError(t, err)
	client := ib.GIDFromIPv4(10, 77, 0, 1)
	client6 := ib.GID{0: 0xfd, 1: 0x77, 15: 1}
	labels := map[string]uint32{"rc_ah_attrs": 0x12345, "rc_ah_attrs_v6": 0x12345}
	connected, datagrams := 0, 0
	n := forEachFrame(t, func(t *testing.T, c *golden.Capture, f *golden.Frame) {
		var p wire.Packet
		require.Equal(t, wire.DropNone, wire.Decode(f.Body, &p))
		if p.Opcode.Transport() == ib.TransportUD {
			if l, ok := cmFlowLabel(&p); ok {
				labels[c.Name] = l
			}
			require.Equal(t, wire.SourcePortUD(p.DETH.SrcQP), f.Path.SPort)
			datagrams++
			return
		}
		flow, ok := flows[c.Name]
		if !ok {
			require.NotZero(t, labels[c.Name], "neither in flows.json nor set up by the CM")
		}
		local := flow.Server.QPN
		if f.Path.Src == client || f.Path.Src == client6 {
			local = flow.Client.QPN
		}
		require.Equal(t, wire.SourcePort(labels[c.Name], local, p.DestQP), f.Path.SPort)
		connected++
	})
	require.Equal(t, wantFrames, n)
	require.Equal(t, wantFrames, connected+datagrams)
	require.Equal(t, 23, datagrams)
}

// TestFlows checks that flows.json is read, by facts that the packets repeat.
func TestFlows(t *testing.T) {
	flows, err := golden.Flows()
	require.NoError(t, err)
	sends, writes := 0, 0
	for _, c := range captures(t) {
		flow, ok := flows[c.Name]
		if !ok {
			require.True(t, strings.HasPrefix(c.Name, "cm_") || c.Name == "ud_multicast_mckey", c.Name)
			continue
		}
		require.Equal(t, flow.Client.QPN, flow.Server.DestQPN, c.Name)
		require.NotZero(t, flow.Client.PathMTU, c.Name)
		for _, f := range c.Frames {
			var p wire.Packet
			require.Equal(t, wire.DropNone, wire.Decode(f.Body, &p))
			switch m := wire.Info(p.Opcode).Mask; {
			case m&wire.Send != 0 && m&wire.HasImm != 0:
				require.EqualValues(t, 0xcafebabe, p.Imm, c.Name)
				sends++
			case c.Name == "rc_write_small" && m&wire.HasRETH != 0:
				require.Equal(t, flow.Server.RKey, p.RETH.RKey)
				require.EqualValues(t, flow.Server.VA+0x8000, p.RETH.VA)
				require.EqualValues(t, flow.Client.WC[0].ByteLen, p.RETH.DMALen)
				writes++
			}
		}
	}
	require.Equal(t, 4, sends)
	require.Equal(t, 1, writes)
	require.Equal(t, golden.Hex(0x1122334455667788), flows["rc_cmp_swap"].Client.AtomicOld[0])
	require.Equal(t, golden.Hex(0xaabbccddeeff0011), *flows["rc_cmp_swap"].Server.AtomicNow)
}
