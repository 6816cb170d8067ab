package netlab

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
)

// forward makes the namespace of this thread a router.
func forward() error {
	for _, knob := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		if err := os.WriteFile("/proc/sys/net/"+knob, []byte("1"), 0); err != nil {
			return err
		}
	}
	return nil
}

// route is the router's part of a link: its own addresses there, and the way to the node's.
func route(port netlink.Link, node *Node) error {
	noObjections(port.Attrs().Name)
	for _, a := range []netip.Addr{Gateway4, Gateway6} {
		bits := a.BitLen()
		if a.Is6() {
			bits = 64 // of a link-local address
		}
		if err := addAddr(port, netip.PrefixFrom(a, bits)); err != nil {
			return fmt.Errorf("router: %w", err)
		}
	}
	if err := netlink.LinkSetUp(port); err != nil {
		return fmt.Errorf("router: %w", err)
	}
	for _, p := range node.Addrs {
		r := &netlink.Route{LinkIndex: port.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: ipNet(p)}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("router: route to %v: %w", p, err)
		}
	}
	return nil
}

// throughRouter leads everything that a node sends over its link to the router.
func throughRouter(link netlink.Link) error {
	for _, a := range []netip.Addr{Gateway4, Gateway6} {
		everywhere := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if a.Is4() {
			everywhere = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(everywhere), Gw: a.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("route over %v: %w", a, err)
		}
	}
	return nil
}
