package ib

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRNRTable(t *testing.T) {
	// Milliseconds of IBTA table 45 (Encoding for RNR NAK Timer Field).
	for code, ms := range []float64{655.36, .01, .02, .03, .04, .06, .08, .12, .16, .24, .32, .48, .64, .96, 1.28, 1.92, 2.56, 3.84,
		5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52} {
		require.InDelta(t, ms, float64(RNRTimeout(uint8(code)))/1e6, 1e-9, "code %d", code)
		require.Equal(t, RNRTimeout(uint8(code)), RNRTimeout(uint8(code)|0x20), "only five bits count")
	}
	for c := uint8(2); c < 32; c++ {
		require.Greater(t, RNRTimeout(c), RNRTimeout(c-1))
	}
}

func TestAckTimeout(t *testing.T) {
	_, ok := AckTimeout(0)
	require.False(t, ok, "0 is no timeout")
	last := time.Duration(4096)
	for c := uint8(1); c < 32; c++ {
		d, ok := AckTimeout(c)
		require.True(t, ok)
		require.Equal(t, 2*last, d)
		last = d
	}
	require.Equal(t, 67108864*time.Nanosecond, func() time.Duration { d, _ := AckTimeout(14); return d }())
}

func TestCreditCodes(t *testing.T) {
	want := []uint32{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144,
		8192, 12288, 16384, 24576, 32768}
	for code, n := range want {
		got, ok := Credits(uint8(code))
		require.True(t, ok)
		require.Equal(t, n, got)
		require.EqualValues(t, code, CreditCode(n))
	}
	_, ok := Credits(CreditInvalid)
	require.False(t, ok)
	for free := range uint32(40000) { // the largest code that does not promise too much
		c := CreditCode(free)
		require.LessOrEqual(t, want[c], free)
		if int(c)+1 < len(want) {
			require.Greater(t, want[c+1], free)
		}
	}
	require.EqualValues(t, 30, CreditCode(^uint32(0)))
}

func TestPSNWindow(t *testing.T) {
	for _, c := range []struct {
		p, q PSN
		want int
	}{{0, 0, 0}, {1, 0, 1}, {0, 1, -1}, {0, 0xffffff, 1}, {0xffffff, 0, -1}, {0x7fffff, 0, 0x7fffff}, {0x800000, 0, -0x800000}, {5, 0xfffffb, 10}} {
		require.Equal(t, c.want, c.p.Sub(c.q))
		require.Equal(t, c.want, c.p.Cmp(c.q))
		require.Equal(t, c.want, MSN(c.p).Cmp(MSN(c.q)))
		require.Equal(t, c.p, c.q.Add(c.want))
	}
	require.EqualValues(t, 0, PSN(0xffffff).Add(1))
	require.EqualValues(t, 0xffffff, PSN(0).Add(-1))
	require.EqualValues(t, 0, PSN(0).Add(1<<24))
}

func TestPKeyMatch(t *testing.T) {
	require.True(t, PKeyMatch(0xffff, 0xffff))
	require.True(t, PKeyMatch(0x7fff, 0xffff), "a limited member may talk to a full one")
	require.False(t, PKeyMatch(0x7fff, 0x7fff), "not to another limited one")
	require.False(t, PKeyMatch(0xfffe, 0xffff))
}

func TestMTUForNetdev(t *testing.T) {
	for n, want := range map[int]MTU{0: MTU256, 335: MTU256, 591: MTU256, 592: MTU512, 1103: MTU512, 1104: MTU1024, 1500: MTU1024, 4175: MTU2048, 4176: MTU4096, 9000: MTU4096, 65536: MTU4096} {
		require.Equal(t, want, MTUForNetdev(n), "netdev %d", n)
	}
	for m := MTU256; m <= MTU4096; m++ {
		require.Equal(t, m.Bytes(), 1<<m.Log2())
		got, ok := MTUFromBytes(m.Bytes())
		require.True(t, ok)
		require.Equal(t, m, got)
	}
	require.False(t, MTU(0).Valid())
	require.False(t, MTU(6).Valid())
}

func TestSyndromes(t *testing.T) {
	for s, want := range map[Syndrome]string{0: "ACK", 0x1f: "ACK", 0x20: "RNR_NAK", 0x3f: "RNR_NAK", 0x60: "NAK_PSN_SEQUENCE", 0x61: "NAK_INVALID_REQUEST",
		0x62: "NAK_REMOTE_ACCESS", 0x63: "NAK_REMOTE_OPERATIONAL", 0x64: "NAK_INVALID_RD_REQUEST", 0x65: "SYNDROME_RESERVED", 0x40: "SYNDROME_RESERVED", 0x80: "SYNDROME_RESERVED", 0xff: "SYNDROME_RESERVED"} {
		require.Equal(t, want, s.String(), "%#x", uint8(s))
	}
}
