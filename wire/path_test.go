package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

func TestAppendGRH(t *testing.T) {
	v4 := wire.Path{Src: ib.GIDFromIPv4(10, 0, 17, 1), Dst: ib.GIDFromIPv4(10, 0, 18, 1), TClass: 0xc2, HopLimit: 64, IPID: 0x718c}
	want := append(make([]byte, 20), unhex(t, "45c2003c718c4000401191610a0011010a001201")...)
	require.Equal(t, want, wire.AppendGRH(nil, &v4, 40))

	v6 := wire.Path{Src: ib.GID{0: 0xfd, 15: 1}, Dst: ib.GID{0: 0xfd, 15: 2}, TClass: 0xb8, HopLimit: 17, FlowLabel: 0xfff12345, SPort: 9, IPID: 9}
	got := wire.AppendGRH([]byte("x"), &v6, 0x60)
	require.Equal(t, unhex(t, "78"+"6b812345"+"00601111"+"fd000000000000000000000000000001"+"fd000000000000000000000000000002"), got)
}

func TestIPv4ChecksumCarries(t *testing.T) {
	// The sum of a header, checksum included, is all ones.
	for id := range 1 << 16 {
		p := wire.Path{Src: ib.GIDFromIPv4(255, 255, 255, 255), Dst: ib.GIDFromIPv4(255, 255, 255, 254), TClass: 255, HopLimit: 255, IPID: uint16(id)}
		var buf [ib.GRHBytes]byte
		h := wire.AppendGRH(buf[:0], &p, 4124)[20:]
		var s uint32
		for i := 0; i < 20; i += 2 {
			s += uint32(h[i])<<8 | uint32(h[i+1])
		}
		for s > 0xffff {
			s = s&0xffff + s>>16
		}
		if s != 0xffff {
			t.Fatalf("id %#x: sum %#x", id, s)
		}
	}
}

func TestSourcePort(t *testing.T) {
	for _, c := range []struct {
		label uint32
		l, r  ib.QPN
		want  uint16
	}{
		{0x12345, 1, 2, 0xe341},             // label folded
		{0xfff12345, 1, 2, 0xe341},          // 20 bits count
		{0, 0x11, 0x11, 0xc121},             // product of the QPNs
		{0, 0xffffff, 0xffffff, 0xff21},     // both folds of the product
		{0, 0, 5, 0xc000},                   // nothing to hash
		{0x4000, 0, 0, 0xc001},              // high bits alone
		{0, 0xff000011, 0xff000011, 0xc121}, // 24 bits count
	} {
		require.Equal(t, c.want, wire.SourcePort(c.label, c.l, c.r), "%+v", c)
		require.Equal(t, c.want, wire.SourcePort(c.label, c.r, c.l), "both directions share the port")
	}
	require.EqualValues(t, 0xd872, wire.SourcePortUD(1))
	for q := ib.QPN(0); q < 1<<24; q += 997 {
		require.GreaterOrEqual(t, wire.SourcePortUD(q), uint16(0xc000))
		require.GreaterOrEqual(t, wire.SourcePort(0, q, q*7&ib.QPNMask), uint16(0xc000))
	}
}
