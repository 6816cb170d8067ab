package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Net is a network that exists. Its methods are for one caller.
type Net struct {
	spaces []netns.NsHandle // of the nodes, in their order; the switch's last
}

// Up makes the network. Everything that it makes goes with Close, and with this process.
func Up(nodes []Node) (*Net, error) {
	n := &Net{}
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends in another namespace
		failed <- n.build(nodes)
	}()
	if err := <-failed; err != nil {
		n.Close()
		return nil, err
	}
	return n, nil
}

// Path is the namespace of node i, valid as long as this process and the network live.
func (n *Net) Path(i int) string {
	return "/proc/" + strconv.Itoa(os.Getpid()) + "/fd/" + strconv.Itoa(int(n.spaces[i]))
}

// Inodes identify the namespaces of the nodes and of the switch. The numbers are used
// again when a namespace is gone.
func (n *Net) Inodes() ([]uint64, error) {
	var out []uint64
	for _, s := range n.spaces {
		var st unix.Stat_t
		if err := unix.Fstat(int(s), &st); err != nil {
			return nil, os.NewSyscallError("fstat", err)
		}
		out = append(out, st.Ino)
	}
	return out, nil
}

// Close gives the namespaces up. Those in which no program runs are gone then.
func (n *Net) Close() {
	for i := range n.spaces {
		_ = n.spaces[i].Close()
	}
	n.spaces = nil
}

// bridge is what the switch's device is called.
const bridge = "switch"

// build runs on a thread of its own, which it leaves in some namespace.
func (n *Net) build(nodes []Node) error {
	for i := range nodes {
		if err := n.newSpace(); err != nil {
			return fmt.Errorf("node %s: %w", nodes[i].Name, err)
		}
	}
	if err := n.newSpace(); err != nil { // the thread stays in the middle's
		return fmt.Errorf("what joins the nodes: %w", err)
	}
	plug, err := n.middle(nodes)
	if err != nil {
		return err
	}
	for i := range nodes {
		if err := n.plug(i, &nodes[i], plug); err != nil {
			return fmt.Errorf("node %s: %w", nodes[i].Name, err)
		}
	}
	for i := range nodes {
		if err := netns.Set(n.spaces[i]); err != nil {
			return fmt.Errorf("node %s: setns: %w", nodes[i].Name, err)
		}
		if err := configure(&nodes[i]); err != nil {
			return fmt.Errorf("node %s: %w", nodes[i].Name, err)
		}
	}
	return nil
}

// middle makes what joins the nodes, and returns what is to be done with a port of it.
func (n *Net) middle(nodes []Node) (plug func(port netlink.Link, node *Node) error, err error) {
	if len(nodes) > 0 && nodes[0].Routed {
		if err := forward(); err != nil {
			return nil, fmt.Errorf("router: %w", err)
		}
		return route, nil
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridge
	sw := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(sw); err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	if err := netlink.LinkSetUp(sw); err != nil {
		return nil, fmt.Errorf("switch: %w", err)
	}
	return func(port netlink.Link, _ *Node) error {
		if err := netlink.LinkSetMaster(port, sw); err != nil {
			return fmt.Errorf("port of the switch: %w", err)
		}
		return netlink.LinkSetUp(port)
	}, nil
}

// newSpace makes a namespace and moves the thread there.
func (n *Net) newSpace() error {
	s, err := netns.New()
	if errors.Is(err, unix.EPERM) {
		return ErrNotPermitted
	}
	if err != nil {
		return fmt.Errorf("network namespace: %w", err)
	}
	n.spaces = append(n.spaces, s)
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("loopback device: %w", err)
	}
	return netlink.LinkSetUp(lo)
}

// plug joins a node to the middle with a pair of devices.
func (n *Net) plug(i int, node *Node, attach func(port netlink.Link, node *Node) error) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "port"+strconv.Itoa(i+1), node.MTU
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: node.Netdev, PeerMTU: uint32(node.MTU), PeerNamespace: netlink.NsFd(int(n.spaces[i])),
		PeerHardwareAddr: net.HardwareAddr{2, 'R', 'V', 'T', byte((i + 1) >> 8), byte(i + 1)}} // the same each time, and so is GID 0
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("device %s: %w", node.Netdev, err)
	}
	return attach(link, node)
}

// configure gives the device of a node its addresses. The thread is in its namespace.
func configure(node *Node) error {
	link, err := netlink.LinkByName(node.Netdev)
	if err != nil {
		return fmt.Errorf("device %s: %w", node.Netdev, err)
	}
	noObjections(node.Netdev)
	for _, p := range node.Addrs {
		if err := addAddr(link, p); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(link); err != nil || !node.Routed {
		return err
	}
	return throughRouter(link)
}

// noObjections has a device's IPv6 addresses work at once: nobody else is there to have
// them. Where /proc is not writable the link-local address comes a second later.
func noObjections(dev string) {
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+dev+"/accept_dad", []byte("0"), 0)
}

// addAddr gives a device an address.
func addAddr(link netlink.Link, p netip.Prefix) error {
	a := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
	if p.Addr().Is4() {
		a.Flags = 0
	}
	if err := netlink.AddrAdd(link, a); err != nil {
		return fmt.Errorf("address %v: %w", p, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
