package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/tests/golden"
	"github.com/rvtsim/rvtsim/wire"
)

// reservedBits returns a copy of a packet with all reserved bits and pad bytes set
// or cleared. It knows the layout by itself.
func reservedBits(b []byte, set bool) []byte {
	b = append([]byte(nil), b...)
	apply := func(at int, mask byte) {
		b[at] &^= mask
		if set {
			b[at] |= mask
		}
	}
	apply(4, 0x3f)
	apply(8, 0x7f)
	switch ib.Opcode(b[0]) {
	case ib.UDSendOnly, ib.UDSendOnlyImm:
		apply(16, 0xff)
	case ib.OpFlush:
		apply(12, 0xff)
		apply(13, 0xff)
		apply(14, 0xff)
		apply(15, 0xc0)
	case ib.OpcodeCNP:
		for i := 12; i < 28; i++ {
			apply(i, 0xff)
		}
	}
	for i := range int(b[1] >> 4 & 3) {
		apply(len(b)-1-i, 0xff)
	}
	return b
}

func addGoldenSeeds(f *testing.F, add func(*golden.Frame)) {
	caps, err := golden.Captures()
	require.NoError(f, err)
	for _, c := range caps {
		for i := range c.Frames {
			add(&c.Frames[i])
		}
	}
}

// FuzzDecode: whatever decodes, encodes to the same bytes but for reserved ones, and
// prints.
func FuzzDecode(f *testing.F) {
	addGoldenSeeds(f, func(fr *golden.Frame) { f.Add(fr.Body) })
	for _, r := range headerTable {
		p := fill(r.op, payloadLengths(r.op)[0])
		f.Add(wire.AppendPacket(nil, &p))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := fill(ib.OpCmpSwap, 3)
		reason := wire.Decode(b, &p)
		if p.String() == "" {
			t.Fatal("no text")
		}
		if reason != wire.DropNone {
			if reason > wire.DropBadLength {
				t.Fatalf("not a parse reason: %v", reason)
			}
			if p.Payload != nil || p.AtomicETH != (wire.AtomicETH{}) {
				t.Fatalf("dropped packet keeps content: %v", &p)
			}
			return
		}
		enc := wire.AppendPacket(nil, &p)
		if want := reservedBits(b, false); string(enc) != string(want) {
			t.Fatalf("%v\n in %x\nout %x", &p, want, enc)
		}
		var q wire.Packet
		if r := wire.Decode(enc, &q); r != wire.DropNone || p.String() != q.String() {
			t.Fatalf("decodes to another packet: %v, %v, %v", r, &p, &q)
		}
	})
}

// FuzzSolveIPID: the identification is found from its ICRC, and whatever is found
// gives the wanted ICRC.
func FuzzSolveIPID(f *testing.F) {
	addGoldenSeeds(f, func(fr *golden.Frame) {
		f.Add(fr.Path.Src[:], fr.Path.Dst[:], fr.Path.SPort, fr.Path.IPID, fr.ICRC, fr.Body)
	})
	f.Fuzz(func(t *testing.T, src, dst []byte, sport, id uint16, want uint32, b []byte) {
		path := wire.Path{SPort: sport, IPID: id}
		copy(path.Src[:], src)
		copy(path.Dst[:], dst)
		if len(b) > 65000 {
			return
		}
		icrc := wire.ICRC(&path, b)
		got, ok := wire.SolveIPID(&path, b, icrc)
		if !ok || path.IsIPv4() && got != id {
			t.Fatalf("id %#x: got %#x, %v", id, got, ok)
		}
		got, ok = wire.SolveIPID(&path, b, want)
		path.IPID = got
		if fits := wire.ICRC(&path, b) == want; ok && !fits {
			t.Fatalf("solution %#x does not give %#x", got, want)
		}
		if !ok && icrc == want {
			t.Fatalf("solution %#x overlooked", id)
		}
	})
}
