package netlab

import (
	"fmt"
	"math/bits"
	"net/netip"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// DefaultNetdev is what the device of a node is called that names none.
const DefaultNetdev = "eth0"

// Node is a machine of a network: a namespace with one network device.
type Node struct {
	Name   string
	Netdev string // what the device is called in there
	MTU    int    // of the link: of the device and of the other end, bytes
	Addrs  []netip.Prefix
	// Routed says that the other end of the link is a router, which has the addresses
	// Gateway4 and Gateway6 there, and not a switch.
	Routed bool
}

// The router's addresses, the same on every link. They are of no use beyond the link, so
// that nodes may have any others.
var (
	Gateway4 = netip.AddrFrom4([4]byte{169, 254, 77, 1})
	Gateway6 = netip.MustParseAddr("fe80::77:1")
)

// Plan is the network of a topology file. A node has the address of the file, unless that
// is a loopback address, which makes no sense here; and one of the other family, so that
// every network carries both. The prefixes are such that all nodes are neighbours, or none
// in a routed network.
func Plan(f *topology.File) ([]Node, error) {
	nodes := make([]Node, len(f.Nodes))
	addrs := make([][2]netip.Addr, len(f.Nodes)) // IPv4, IPv6
	taken := map[netip.Addr]bool{}
	for i := range f.Nodes {
		if a := f.Nodes[i].Address.Addr(); !a.IsLoopback() && f.Nodes[i].Netdev == "" {
			addrs[i][family(a)] = a
			taken[a] = true
		}
	}
	next := [2]netip.Addr{netip.AddrFrom4([4]byte{10, 77, 0, 1}), netip.MustParseAddr("fd77::1")}
	for i := range addrs {
		for k := range addrs[i] {
			if addrs[i][k].IsValid() {
				continue
			}
			for taken[next[k]] || k == 0 && next[k].As4()[3] == 255 {
				next[k] = next[k].Next()
			}
			addrs[i][k], next[k] = next[k], next[k].Next()
		}
	}
	prefix := [2]int{commonBits(addrs, 0, 24), commonBits(addrs, 1, 64)}
	routed := f.Form == topology.FormRouted
	if routed {
		prefix = [2]int{32, 128}
	}
	for i := range nodes {
		n := &f.Nodes[i]
		nodes[i] = Node{Name: n.Name, Netdev: n.Netdev, MTU: deviceMTU(n.MTU), Routed: routed}
		if n.Netdev == "" {
			nodes[i].Netdev = DefaultNetdev
		}
		for k, a := range addrs[i] {
			nodes[i].Addrs = append(nodes[i].Addrs, netip.PrefixFrom(a, prefix[k]))
		}
		if a := addrs[i][0]; a.IsMulticast() || addrs[i][1].IsMulticast() || a.IsUnspecified() {
			return nil, fmt.Errorf("node %s: %v is not an address of a machine", n.Name, a)
		}
	}
	return nodes, nil
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

// deviceMTU is the MTU of a device whose port is to have an active MTU of m.
func deviceMTU(m ib.MTU) int {
	if m <= ib.MTU1024 {
		return 1500
	}
	return m.Bytes() + 104 // some more than the headers need
}

// commonBits is the longest prefix, up to most, that all addresses of a family share.
func commonBits(addrs [][2]netip.Addr, k, most int) int {
	for i := range addrs {
		a, b := addrs[0][k].AsSlice(), addrs[i][k].AsSlice()
		for j := range a {
			if x := a[j] ^ b[j]; x != 0 {
				most = min(most, 8*j+bits.LeadingZeros8(x))
				break
			}
		}
	}
	return most
}
