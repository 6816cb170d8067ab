package netlab

import (
	"errors"
	"fmt"
	"net"
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
	if err := n.newSpace(); err != nil { // the thread stays in the switch's
		return fmt.Errorf("switch: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = bridge
	sw := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(sw); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	if err := netlink.LinkSetUp(sw); err != nil {
		return fmt.Errorf("switch: %w", err)
	}
	for i := range nodes {
		if err := n.plug(i, &nodes[i], sw); err != nil {
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

// plug joins a node to the switch with a pair of devices.
func (n *Net) plug(i int, node *Node, sw *netlink.Bridge) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = "port"+strconv.Itoa(i+1), node.MTU
	link := &netlink.Veth{LinkAttrs: attrs, PeerName: node.Netdev, PeerMTU: uint32(node.MTU), PeerNamespace: netlink.NsFd(int(n.spaces[i])),
		PeerHardwareAddr: net.HardwareAddr{2, 'R', 'V', 'T', byte((i + 1) >> 8), byte(i + 1)}} // the same each time, and so is GID 0
	if err := netlink.LinkAdd(link); err != nil {
		return fmt.Errorf("device %s: %w", node.Netdev, err)
	}
	if err := netlink.LinkSetMaster(link, sw); err != nil {
		return fmt.Errorf("port of the switch: %w", err)
	}
	return netlink.LinkSetUp(link)
}

// configure gives the device of a node its addresses. The thread is in its namespace.
func configure(node *Node) error {
	link, err := netlink.LinkByName(node.Netdev)
	if err != nil {
		return fmt.Errorf("device %s: %w", node.Netdev, err)
	}
	// Nobody else is there to have the address: no need to wait for an objection. Where
	// /proc is not writable the link-local address comes a second later.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/"+node.Netdev+"/accept_dad", []byte("0"), 0)
	for _, p := range node.Addrs {
		a := &netlink.Addr{IPNet: &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}, Flags: unix.IFA_F_NODAD}
		if p.Addr().Is4() {
			a.Flags = 0
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return fmt.Errorf("address %v: %w", p, err)
		}
	}
	return netlink.LinkSetUp(link)
}
