package udp

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// AddrFromGID returns the IP address that a RoCE v2 GID stands for. An IPv4-mapped
// GID gives an IPv4 address.
func AddrFromGID(g ib.GID) netip.Addr { return netip.AddrFrom16(g).Unmap() }

// GIDFromAddr returns the RoCE v2 GID of an IP address: IPv4 becomes ::ffff:a.b.c.d.
// A zone is dropped, since a GID has no place for one. The zero Addr gives the zero
// GID.
func GIDFromAddr(a netip.Addr) ib.GID {
	if !a.IsValid() {
		return ib.GID{}
	}
	return a.As16()
}

// ParseAddr reads a node address: "127.0.0.1", "127.0.0.1:4791", "fd77::1" or
// "[fd77::1]:4791". The port is [wire.UDPPort] if s names none. Host names and zones
// are refused, as is port 0, because every node of a network must use the same one.
func ParseAddr(s string) (ib.GID, uint16, error) {
	addr, port, err := parseAddrPort(strings.TrimSpace(s))
	if err != nil {
		return ib.GID{}, 0, fmt.Errorf("udp: address %q: %w", s, err)
	}
	switch {
	case addr.Zone() != "":
		return ib.GID{}, 0, fmt.Errorf("udp: address %q: leave out the zone %q, the port takes it from the interface that owns the address", s, addr.Zone())
	case port == 0:
		return ib.GID{}, 0, fmt.Errorf("udp: address %q: port 0 is not possible, all nodes of a network share one port", s)
	}
	return GIDFromAddr(addr), port, nil
}

func parseAddrPort(s string) (netip.Addr, uint16, error) {
	bracketed := strings.HasPrefix(s, "[")
	if bracketed && strings.HasSuffix(s, "]") {
		a, err := netip.ParseAddr(s[1 : len(s)-1])
		if err == nil && !a.Is6() {
			err = fmt.Errorf("brackets are for IPv6")
		}
		return a, wire.UDPPort, err
	}
	if bracketed || strings.Count(s, ":") == 1 {
		ap, err := netip.ParseAddrPort(s)
		return ap.Addr(), ap.Port(), err
	}
	a, err := netip.ParseAddr(s)
	return a, wire.UDPPort, err
}
