package ib

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGIDText(t *testing.T) {
	v4 := GIDFromIPv4(192, 168, 0, 7)
	v6 := GID{0xfe, 0x80, 15: 1}
	require.Equal(t, "::ffff:192.168.0.7", v4.String())
	require.Equal(t, "0000:0000:0000:0000:0000:ffff:c0a8:0007", v4.Sysfs())
	require.Equal(t, "fe80:0000:0000:0000:0000:0000:0000:0001", v6.String())
	for _, g := range []GID{v4, v6, {}, {0xff, 0x0e, 9: 3}} {
		for _, s := range []string{g.String(), g.Sysfs()} {
			got, err := ParseGID(s)
			require.NoError(t, err, s)
			require.Equal(t, g, got)
		}
	}
	got, err := ParseGID("10.1.2.3")
	require.NoError(t, err)
	require.Equal(t, GIDFromIPv4(10, 1, 2, 3), got)
	for _, s := range []string{"", "1", "fe80::1", "::ffff:1.2.3", "1.2.3.256", "1.2.3.4.5", "::ffff:1.2.3.-4", "0:0:0:0:0:0:0:", "0:0:0:0:0:0:0:10000", "g:0:0:0:0:0:0:0"} {
		_, err := ParseGID(s)
		require.Error(t, err, s)
	}
}

func TestGIDKinds(t *testing.T) {
	for _, c := range []struct {
		g                 GID
		v4, multicast, no bool
	}{
		{GIDFromIPv4(10, 0, 0, 1), true, false, false},
		{GIDFromIPv4(224, 0, 0, 1), true, true, false},
		{GIDFromIPv4(239, 255, 255, 255), true, true, false},
		{GIDFromIPv4(240, 0, 0, 1), true, false, false},
		{GID{0xff, 0x0e, 15: 1}, false, true, false},
		{GID{0xfe, 0x80, 15: 1}, false, false, false},
		{GID{}, false, false, true},
	} {
		require.Equal(t, c.v4, c.g.IsIPv4(), c.g)
		require.Equal(t, c.multicast, c.g.IsMulticast(), c.g)
		require.Equal(t, c.no, c.g.IsZero(), c.g)
	}
}

func FuzzParseGID(f *testing.F) {
	f.Add("::ffff:1.2.3.4")
	f.Add("fe80:0000:0000:0000:0000:0000:0000:0001")
	f.Fuzz(func(t *testing.T, s string) {
		g, err := ParseGID(s)
		if err != nil {
			return
		}
		again, err := ParseGID(g.String())
		require.NoError(t, err)
		require.Equal(t, g, again)
	})
}
