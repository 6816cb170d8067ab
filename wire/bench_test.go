package wire_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// Results go to variables that the compiler cannot see through.
var (
	sinkPacket wire.Packet
	sinkCRC    uint32
	sinkReason wire.DropReason
	sinkID     uint16
	sinkInfo   *wire.OpInfo
)

func TestHotPathsDoNotAllocate(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	buf := make([]byte, 0, 8192)
	for _, v4 := range []bool{true, false} {
		path := randomPath(r, v4)
		for _, row := range headerTable {
			p := fill(row.op, payloadLengths(row.op)[0])
			b := wire.AppendPacket(nil, &p)
			l3, udp := make([]byte, 20), make([]byte, 8)
			l3[0] = 0x45
			allocs := testing.AllocsPerRun(20, func() {
				buf = wire.AppendHeaders(buf[:0], &p)
				buf = wire.AppendPacket(buf[:0], &p)
				buf = p.AppendText(buf[:0])
				buf = wire.AppendGRH(buf[:0], &path, 60)
				sinkInfo = wire.Info(row.op)
				sinkReason = wire.Decode(b, &sinkPacket)
				sinkCRC = wire.ICRC(&path, b)
				sinkCRC ^= wire.ICRCRaw(l3, udp, b)
				sinkID, _ = wire.SolveIPID(&path, b, sinkCRC)
				wire.PutICRC(buf[:4], sinkCRC)
			})
			require.Zero(t, allocs, row.name)
		}
	}
}

var benchSizes = []int{64, 1024, 4096}

func benchInput(n int) (wire.Path, wire.Packet, []byte) {
	p := fill(ib.OpWriteOnly, n)
	return randomPath(rand.New(rand.NewPCG(1, 1)), true), p, wire.AppendPacket(nil, &p)
}

func BenchmarkICRC(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			path, _, pkt := benchInput(n)
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				sinkCRC = wire.ICRC(&path, pkt)
			}
		})
	}
}

func BenchmarkSolveIPID(b *testing.B) {
	for _, n := range benchSizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			path, _, pkt := benchInput(n)
			want := wire.ICRC(&path, pkt)
			b.SetBytes(int64(len(pkt)))
			b.ReportAllocs()
			for b.Loop() {
				sinkID, _ = wire.SolveIPID(&path, pkt, want)
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, op := range []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpAcknowledge} {
		b.Run(wire.Info(op).Name, func(b *testing.B) {
			p := fill(op, 0)
			pkt := wire.AppendPacket(nil, &p)
			b.ReportAllocs()
			for b.Loop() {
				sinkReason = wire.Decode(pkt, &sinkPacket)
			}
		})
	}
}

func BenchmarkAppendHeaders(b *testing.B) {
	for _, op := range []ib.Opcode{ib.OpSendOnly, ib.OpWriteOnly, ib.OpAcknowledge} {
		b.Run(wire.Info(op).Name, func(b *testing.B) {
			p := fill(op, 0)
			buf := make([]byte, 0, wire.MaxHeaderBytes)
			b.ReportAllocs()
			for b.Loop() {
				buf = wire.AppendHeaders(buf[:0], &p)
			}
		})
	}
}
