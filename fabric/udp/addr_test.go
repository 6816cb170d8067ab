package udp

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

func TestParseAddr(t *testing.T) {
	v6 := ib.GID{0: 0xfd, 1: 0x77, 15: 1}
	for _, c := range []struct {
		in   string
		gid  ib.GID
		port uint16
		err  string
	}{
		{in: "127.0.0.1", gid: ib.GIDFromIPv4(127, 0, 0, 1), port: 4791},
		{in: " 127.0.0.1 ", gid: ib.GIDFromIPv4(127, 0, 0, 1), port: 4791},
		{in: "127.0.0.1:4791", gid: ib.GIDFromIPv4(127, 0, 0, 1), port: 4791},
		{in: "10.1.2.3:65535", gid: ib.GIDFromIPv4(10, 1, 2, 3), port: 65535},
		{in: "fd77::1", gid: v6, port: 4791},
		{in: "[fd77::1]", gid: v6, port: 4791},
		{in: "[fd77::1]:18", gid: v6, port: 18},
		{in: "::ffff:10.1.2.3", gid: ib.GIDFromIPv4(10, 1, 2, 3), port: 4791},
		{in: "", err: "unable to parse"},
		{in: "localhost", err: "unable to parse"},
		{in: "127.0.0.1:0", err: "port 0"},
		{in: "127.0.0.1:65536", err: "invalid port"},
		{in: "127.0.0.1:", err: "no port"},
		{in: "[127.0.0.1]", err: "brackets are for IPv6"},
		{in: "[127.0.0.1]:4791", err: "127.0.0.1"},
		{in: "[fd77::1", err: "fd77::1"},
		{in: "127.0.0.300", err: "300"},
		{in: "fe80::1%eth0", err: "leave out the zone"},
		{in: "[fe80::1%eth0]:4791", err: "leave out the zone"},
		{in: "a:b", err: "a:b"},
	} {
		g, port, err := ParseAddr(c.in)
		if c.err != "" {
			require.ErrorContains(t, err, c.err, "%q", c.in)
			require.Zero(t, g)
			continue
		}
		require.NoError(t, err, "%q", c.in)
		require.Equal(t, c.gid, g, "%q", c.in)
		require.Equal(t, c.port, port, "%q", c.in)
	}
}

func TestGIDAddrRoundTrip(t *testing.T) {
	for _, s := range []string{"127.0.0.1", "0.0.0.0", "255.255.255.255", "::1", "fd77::1", "ff0e::1", "::"} {
		a := netip.MustParseAddr(s)
		require.Equal(t, a, AddrFromGID(GIDFromAddr(a)))
		require.Equal(t, a.Is4(), GIDFromAddr(a).IsIPv4())
	}
	require.Zero(t, GIDFromAddr(netip.Addr{}))
	require.Equal(t, GIDFromAddr(netip.MustParseAddr("fe80::1")), GIDFromAddr(netip.MustParseAddr("fe80::1%eth0")))
}

func TestConfigValidate(t *testing.T) {
	good := DefaultConfig(ib.GIDFromIPv4(127, 0, 0, 1))
	require.NoError(t, good.Validate())
	for _, c := range []struct {
		want   string
		change func(*Config)
	}{
		{"one address of its own", func(c *Config) { c.Local = ib.GID{} }},
		{"one address of its own", func(c *Config) { c.Local = ib.GIDFromIPv4(0, 0, 0, 0) }},
		{"multicast group", func(c *Config) { c.Local = ib.GIDFromIPv4(239, 0, 0, 1) }},
		{"Port is 0", func(c *Config) { c.Port = 0 }},
		{"Verify is", func(c *Config) { c.Verify = VerifyOff + 1 }},
		{"GSOSegments is 1", func(c *Config) { c.GSOSegments = 1 }},
		{"GSOSegments is 129", func(c *Config) { c.GSOSegments = 129 }},
		{"socket buffers", func(c *Config) { c.RecvBufferBytes = -1 }},
	} {
		bad := good
		c.change(&bad)
		require.ErrorContains(t, bad.Validate(), c.want)
	}
	bad := good
	bad.Port, bad.GSOSegments = 0, 0
	err := bad.Validate()
	require.ErrorContains(t, err, "Port is 0")
	require.ErrorContains(t, err, "GSOSegments is 0")
}

func TestVerifyModeText(t *testing.T) {
	for m := VerifySolve; m <= VerifyOff; m++ {
		got, err := ParseVerifyMode(m.String())
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
	_, err := ParseVerifyMode("full")
	require.ErrorContains(t, err, "want solve, zero-id or off")
}
