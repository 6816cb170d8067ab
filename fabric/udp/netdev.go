package udp

import (
	"net"
	"net/netip"
)

// netdev is the interface that owns an address.
type netdev struct {
	index int // 0 if none was found
	mtu   int // bytes
}

// unknownMTU is assumed for an address that no interface lists, as happens with
// local routes to a whole prefix.
const unknownMTU = 1500

// netdevOf finds the interface that owns addr: the one that lists it, else the
// loopback interface for loopback addresses, all of which are local.
func netdevOf(addr netip.Addr) netdev {
	found := netdev{mtu: unknownMTU}
	ifaces, err := net.Interfaces()
	if err != nil {
		return found
	}
	for _, i := range ifaces {
		if addr.IsLoopback() && i.Flags&net.FlagLoopback != 0 {
			found = netdev{index: i.Index, mtu: i.MTU}
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface went away meanwhile
		}
		for _, a := range addrs {
			p, ok := a.(*net.IPNet)
			if !ok {
				continue
			}
			if own, ok := netip.AddrFromSlice(p.IP); ok && own.Unmap() == addr {
				return netdev{index: i.Index, mtu: i.MTU}
			}
		}
	}
	return found
}
