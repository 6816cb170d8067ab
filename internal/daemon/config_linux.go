package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/wire"
)

// NodeConfig describes one node: a device, and the address or the network device that it
// is bound to.
type NodeConfig struct {
	Name    string
	Address netip.AddrPort // one address of this machine and the UDP port
	// Netdev is a network device, in place of an address: the node has all of the device's
	// addresses, its MTU and its state, and follows what becomes of them. Of Address only
	// the port counts then.
	Netdev string
	// Netns is the path of the network namespace that the device is in, such as
	// /run/netns/NAME or /proc/PID/ns/net; empty for the daemon's own.
	Netns   string
	Profile qp.Profile
	// Bandwidth of the node's link in bits per second, which active_speed is made of unless a
	// network device knows better; 0 is none that anybody has named.
	Bandwidth uint64
	MTU       ib.MTU // active MTU; lowered to what the interface carries
	Limits    rvt.Limits
	// DistinctKeys makes rkeys differ from lkeys.
	DistinctKeys bool
	// Congestion is the congestion control; nil is none.
	Congestion *dcqcn.Params
	// Strict are the checks of programs; none by default. Seed decides what they vary.
	Strict strict.Checks
	Seed   uint64
	// Sites makes programs say where they make their calls, for explanations of failures.
	// It costs each post an answer of the daemon. Strict nodes do it anyway.
	Sites bool
}

// DefaultNode returns a node at an address, on the RoCE v2 port.
func DefaultNode(name string, addr netip.Addr) NodeConfig {
	return NodeConfig{
		Name: name, Address: netip.AddrPortFrom(addr, wire.UDPPort), Profile: qp.ProfileIBTA,
		MTU: ib.MTU4096, Limits: rvt.DefaultLimits(),
	}
}

// where is what no other node can have too.
func (n *NodeConfig) where() string {
	switch {
	case n.Netdev == "":
		return "address " + n.Address.String()
	case n.Netns == "":
		return "network device " + n.Netdev
	}
	return "network device " + n.Netdev + " in " + n.Netns
}

// Config describes a daemon.
type Config struct {
	Name  string // DefaultName if empty
	Nodes []NodeConfig
	ABI   string // uverbs.ABIRXE or uverbs.ABIRVT
	// Wire is what carries packets between programs that have the engine inside: WireMemory
	// (also if empty), or WireUDP, where others can watch them.
	Wire string
	// Topology is the file that describes Nodes, in the same order, and the links between
	// them; nil if there is none.
	Topology *topology.File
	// Network is the network of namespaces that the nodes are in; without an ID if they are
	// not in one of the daemon's own. The daemon writes it down.
	Network Network
	// AllowUIDs lists users besides the daemon's own whose programs may attach;
	// AllowAny lets everybody's.
	AllowUIDs []int
	AllowAny  bool
	// Log takes a line for each attach and detach; nil means nowhere.
	Log *slog.Logger
}

// public reports whether programs of other users may attach.
func (c *Config) public() bool { return c.AllowAny || len(c.AllowUIDs) > 0 }

// allows reports whether programs of a user may attach.
func (c *Config) allows(uid, own int) bool {
	return uid == own || c.AllowAny || slices.Contains(c.AllowUIDs, uid)
}

// Validate returns everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("daemon: "+format, args...)) }
	if !nameRE.MatchString(c.Name) {
		bad("name %q: want a letter or digit, then up to 31 letters, digits, dots, underscores or hyphens", c.Name)
	}
	if len(c.Nodes) == 0 {
		bad("it has no nodes")
	}
	if c.ABI != uverbs.ABIRXE && c.ABI != uverbs.ABIRVT {
		bad("ABI %q: want %s or %s", c.ABI, uverbs.ABIRXE, uverbs.ABIRVT)
	}
	if c.Wire != "" && c.Wire != WireMemory && c.Wire != WireUDP {
		bad("wire %q: want %s or %s", c.Wire, WireMemory, WireUDP)
	}
	names, at := map[string]bool{}, map[string]string{}
	for _, n := range c.Nodes {
		if !nameRE.MatchString(n.Name) {
			bad("node name %q: want a letter or digit, then up to 31 letters, digits, dots, underscores or hyphens", n.Name)
		}
		if names[n.Name] {
			bad("two nodes are called %q", n.Name)
		}
		names[n.Name] = true
		where := n.where()
		if other, taken := at[where]; taken {
			bad("nodes %q and %q have the same %s", other, n.Name, where)
		}
		at[where] = n.Name
		if n.Netns != "" && n.Netdev == "" {
			bad("node %q: a network namespace needs a network device", n.Name)
		}
	}
	return errors.Join(errs...)
}
