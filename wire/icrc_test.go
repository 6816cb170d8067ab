package wire_test

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/crcfold"
	"github.com/rvtsim/rvtsim/wire"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

// vectors are two published packets that are not from soft-RoCE.
func vectors(t testing.TB) []struct {
	name     string
	l3, udp  []byte
	body     []byte
	path     wire.Path
	icrc     []byte
	wantText string
} {
	return []struct {
		name     string
		l3, udp  []byte
		body     []byte
		path     wire.Path
		icrc     []byte
		wantText string
	}{
		{
			name: "CNP of a ConnectX-4 Lx",
			l3:   unhex(t, "45c2003c718c4000401191610a0011010a001201"),
			udp:  unhex(t, "000012b700280000"),
			body: append(unhex(t, "8100ffff4000011800000000"), make([]byte, 16)...),
			path: wire.Path{
				Src: ib.GIDFromIPv4(10, 0, 17, 1), Dst: ib.GIDFromIPv4(10, 0, 18, 1),
				TClass: 0xc2, HopLimit: 64, SPort: 0, IPID: 0x718c,
			},
			icrc:     []byte{0x82, 0xfd, 0x00, 0x2a},
			wantText: "CNP qp=0x118 psn=0 BECN",
		},
		{
			name: "UC SEND_ONLY",
			l3:   unhex(t, "4501004004784000401100"+"00"+"c0a80007c0a80007"),
			udp:  unhex(t, "c00012b7002c0000"),
			body: unhex(t, "2460ffff000000d300cf1710"+"4630818be28935d90e9a95505401be885e50"+"0000"),
			path: wire.Path{
				Src: ib.GIDFromIPv4(192, 168, 0, 7), Dst: ib.GIDFromIPv4(192, 168, 0, 7),
				TClass: 1, HopLimit: 64, SPort: 49152, IPID: 1144,
			},
			icrc:     []byte{0x78, 0xf3, 0x53, 0xf3},
			wantText: "UC_SEND_ONLY qp=0xd3 psn=13571856 M pad=2 len=18",
		},
	}
}

func TestICRCVectors(t *testing.T) {
	for _, v := range vectors(t) {
		t.Run(v.name, func(t *testing.T) {
			var got [wire.ICRCBytes]byte
			wire.PutICRC(got[:], wire.ICRCRaw(v.l3, v.udp, v.body))
			require.Equal(t, v.icrc, got[:])
			wire.PutICRC(got[:], wire.ICRC(&v.path, v.body))
			require.Equal(t, v.icrc, got[:])

			var p wire.Packet
			require.Equal(t, wire.DropNone, wire.Decode(v.body, &p))
			require.Equal(t, v.wantText, p.String())
			require.Equal(t, v.body, wire.AppendPacket(nil, &p))
		})
	}
}

// slowICRC is the definition, written plainly.
func slowICRC(path *wire.Path, b []byte) uint32 {
	n := 8 + len(b) + 4
	m := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	be := binary.BigEndian
	if path.IsIPv4() {
		m = append(m, 0x45, 0xff)
		m = be.AppendUint16(m, uint16(20+n))
		m = be.AppendUint16(m, path.IPID)
		m = append(m, 0x40, 0, 0xff, 17, 0xff, 0xff)
		m = append(append(m, path.Src[12:]...), path.Dst[12:]...)
	} else {
		m = append(m, 0x6f, 0xff, 0xff, 0xff)
		m = be.AppendUint16(m, uint16(n))
		m = append(m, 17, 0xff)
		m = append(append(m, path.Src[:]...), path.Dst[:]...)
	}
	m = be.AppendUint16(m, path.SPort)
	m = be.AppendUint16(m, 4791)
	m = be.AppendUint16(m, uint16(n))
	m = append(m, 0xff, 0xff)
	bth := len(m)
	m = append(m, b...)
	if len(b) > 4 {
		m[bth+4] = 0xff
	}
	return crc32.ChecksumIEEE(m)
}

func randomPath(r *rand.Rand, v4 bool) wire.Path {
	p := wire.Path{TClass: uint8(r.Uint32()), HopLimit: uint8(r.Uint32()), SPort: uint16(r.Uint32()), IPID: uint16(r.Uint32())}
	if v4 {
		s, d := r.Uint32(), r.Uint32()
		p.Src = ib.GIDFromIPv4(byte(s), byte(s>>8), byte(s>>16), byte(s>>24))
		p.Dst = ib.GIDFromIPv4(byte(d), byte(d>>8), byte(d>>16), byte(d>>24))
		return p
	}
	for i := range p.Src {
		p.Src[i], p.Dst[i] = byte(r.Uint32()), byte(r.Uint32())
	}
	p.Src[0], p.FlowLabel = 0xfd, r.Uint32()&0xfffff
	return p
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func TestICRCAgainstDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	lengths := []int{267, 268, 269, 523, 524, 1000, 1025, 4096, 4136, 60000}
	for n := range 150 { // 0 to 11 are shorter than a BTH
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		for _, v4 := range []bool{true, false} {
			path, b := randomPath(r, v4), randomBytes(r, n)
			before := bytes.Clone(b)
			require.Equal(t, slowICRC(&path, b), wire.ICRC(&path, b), "%d bytes", n)
			require.Equal(t, before, b)
			dst := make([]byte, n+1)
			prefix := wire.NewICRCPrefix(&path, n)
			require.Equal(t, slowICRC(&path, b), prefix.CopyICRC(path.IPID, dst, b), "%d bytes", n)
			require.Equal(t, append(before, 0), dst)
			id, ok := wire.SolveIPID(&path, b, wire.ICRC(&path, b))
			require.True(t, ok)
			if v4 {
				require.Equal(t, path.IPID, id, "%d bytes", n)
			} else {
				require.Zero(t, id)
			}
		}
	}
}

// TestICRCInvariance checks which fields the ICRC covers.
func TestICRCInvariance(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, v4 := range []bool{true, false} {
		path := randomPath(r, v4)
		p := fill(ib.OpWriteOnly, 61)
		p.FECN = false
		b := wire.AppendPacket(nil, &p)
		want := wire.ICRC(&path, b)

		routed := path
		routed.TClass++
		routed.HopLimit--
		routed.FlowLabel ^= 0x12345
		p.FECN = true
		require.Equal(t, want, wire.ICRC(&routed, wire.AppendPacket(nil, &p)))

		for name, edit := range map[string]func(*wire.Path){
			"source":      func(q *wire.Path) { q.Src[15]++ },
			"destination": func(q *wire.Path) { q.Dst[15]++ },
			"port":        func(q *wire.Path) { q.SPort++ },
		} {
			other := path
			edit(&other)
			require.NotEqual(t, want, wire.ICRC(&other, b), name)
		}
		other := path
		other.IPID++
		require.Equal(t, !v4, want == wire.ICRC(&other, b), "identification counts on IPv4 alone")
		for i := range b {
			if i == 4 {
				continue
			}
			b[i] ^= 0x10
			require.NotEqual(t, want, wire.ICRC(&path, b), "byte %d", i)
			b[i] ^= 0x10
		}
	}
}

func TestICRCRawOfOddHeaders(t *testing.T) {
	// Options are covered as they are; truncated headers do not panic.
	l3 := unhex(t, "46000040047840004011ffff"+"c0a80007c0a80007"+"94040000")
	udp := unhex(t, "c00012b7002cffff")
	body := randomBytes(rand.New(rand.NewPCG(5, 6)), 32)
	masked := append([]byte{255, 255, 255, 255, 255, 255, 255, 255}, l3...)
	masked[8+1], masked[8+8] = 0xff, 0xff
	masked = append(append(masked, udp...), body...)
	masked[8+len(l3)+len(udp)+4] = 0xff
	require.Equal(t, crc32.ChecksumIEEE(masked), wire.ICRCRaw(l3, udp, body))
	for n := range l3 {
		wire.ICRCRaw(l3[:n], udp[:n%8], body[:n])
	}
	wire.ICRCRaw(make([]byte, 100), make([]byte, 100), nil)
}

func TestSolveIPIDAcceptsOneInTwoToThe16(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	path, b := randomPath(r, true), randomBytes(r, 1036)
	base := wire.ICRC(&path, b)
	// Every single and double bit error in the ICRC itself must be told.
	for i := range 32 {
		for j := range i + 1 {
			want := base ^ 1<<i ^ 1<<j
			_, ok := wire.SolveIPID(&path, b, want)
			require.Equal(t, i == j, ok, "bits %d and %d", i, j)
		}
	}
	// Each identification has its own ICRC and is found from it.
	for v := range 1 << 16 {
		path.IPID = uint16(v)
		id, ok := wire.SolveIPID(&path, b, wire.ICRC(&path, b))
		if !ok || id != uint16(v) {
			t.Fatalf("identification %#x: got %#x, %v", v, id, ok)
		}
	}
	_, ok := wire.SolveIPID(&path, make([]byte, 70000), 0)
	require.False(t, ok, "longer than a datagram")
}

// TestLoadICRC: payload that is fetched on the way gives the same packet.
func TestLoadICRC(t *testing.T) {
	if !crcfold.Loads() {
		t.Log("this processor cannot, and nothing calls it")
		return
	}
	r := rand.New(rand.NewPCG(3, 4))
	for _, head := range []int{12, 16, 28} {
		for range 20 {
			path := randomPath(r, r.IntN(2) == 0)
			b := randomBytes(r, head+256*(1+r.IntN(16)))
			p := wire.NewICRCPrefix(&path, len(b))
			dst := make([]byte, len(b))
			crc, ok := p.LoadICRC(path.IPID, dst, b[:head], uint64(uintptr(unsafe.Pointer(&b[head]))))
			require.True(t, ok)
			require.Equal(t, b, dst)
			require.Equal(t, slowICRC(&path, b), crc)
		}
	}
}
