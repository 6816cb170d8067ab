package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/wire"
)

// NodeConfig describes one node: a device and the address that it is bound to.
type NodeConfig struct {
	Name    string
	Address netip.AddrPort // one address of this machine and the UDP port
	Profile qp.Profile
	MTU     ib.MTU // active MTU; lowered to what the interface carries
	Limits  rvt.Limits
	// Strict are the checks of programs; none by default. Seed decides what they vary.
	Strict strict.Checks
	Seed   uint64
	// Wrap puts something between the device and its port, an imperfect network say.
	// Nil means nothing.
	Wrap func(fabric.Port) (fabric.Port, error)
}

// DefaultNode returns a node at an address, on the RoCE v2 port.
func DefaultNode(name string, addr netip.Addr) NodeConfig {
	return NodeConfig{
		Name: name, Address: netip.AddrPortFrom(addr, wire.UDPPort), Profile: qp.ProfileIBTA,
		MTU: ib.MTU4096, Limits: rvt.DefaultLimits(),
	}
}

// Config describes a daemon.
type Config struct {
	Name  string // DefaultName if empty
	Nodes []NodeConfig
	ABI   string // uverbs.ABIRXE or uverbs.ABIRVT
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
	names, addrs := map[string]bool{}, map[netip.AddrPort]string{}
	for _, n := range c.Nodes {
		if !nameRE.MatchString(n.Name) {
			bad("node name %q: want a letter or digit, then up to 31 letters, digits, dots, underscores or hyphens", n.Name)
		}
		if names[n.Name] {
			bad("two nodes are called %q", n.Name)
		}
		if other, taken := addrs[n.Address]; taken {
			bad("nodes %q and %q have the same address %v", other, n.Name, n.Address)
		}
		names[n.Name], addrs[n.Address] = true, n.Name
	}
	return errors.Join(errs...)
}
