package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/gidtable"
)

// ErrGone reports that the device does not exist any more.
var ErrGone = errors.New("the network device is gone")

// State is a device as it is now.
type State struct {
	Index int
	Name  string
	MTU   int // bytes
	MAC   gidtable.MAC
	Link  gidtable.Link
	// Links are the states of the link since the last look, oldest first; the last one is
	// not necessarily Link, which is newer.
	Links []gidtable.Link
	// Addrs are what the GID table is made of besides the default GID: in the kernel's
	// order, those of VLANs on the device and of the bridge that it belongs to last.
	Addrs []gidtable.Entry
	// Names are the names of the devices that Addrs refers to.
	Names map[int]string
	// Local has the addresses of Addrs that are the machine's own. That of a
	// point-to-point link is not: the kernel makes a GID of the peer's address.
	Local map[gidtable.Entry]bool
}

// look lists everything about the device with this index.
func look(h *netlink.Handle, index int) (State, error) {
	link, err := h.LinkByIndex(index)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
		return State{}, ErrGone
	case err != nil:
		return State{}, fmt.Errorf("netdev: device %d: %w", index, err)
	}
	at := link.Attrs()
	s := State{Index: index, Name: at.Name, MTU: at.MTU, Link: linkOf(at), Names: map[int]string{}, Local: map[gidtable.Entry]bool{}}
	copy(s.MAC[:], at.HardwareAddr)
	if err := s.add(h, link); err != nil {
		return State{}, err
	}
	all, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return State{}, fmt.Errorf("netdev: devices: %w", err)
	}
	for _, l := range all {
		if belongs(l, at) {
			if err := s.add(h, l); err != nil {
				return State{}, err
			}
		}
	}
	return s, nil
}

// belongs reports whether the addresses of a device are in the GID table of the device
// described by own: it is a VLAN or the like on top of it, or the bridge above it
// (roce_gid_mgmt.c: is_eth_port_of_netdev_filter, upper devices).
func belongs(l netlink.Link, own *netlink.LinkAttrs) bool {
	switch l.Type() {
	case "vlan", "macvlan":
		return l.Attrs().ParentIndex == own.Index
	case "bridge":
		return own.MasterIndex != 0 && l.Attrs().Index == own.MasterIndex
	}
	return false
}

func linkOf(at *netlink.LinkAttrs) gidtable.Link {
	return gidtable.Link{Up: at.RawFlags&uint32(net.FlagUp) != 0, Carrier: at.RawFlags&lowerUp != 0}
}

// lowerUp is IFF_LOWER_UP (linux/if.h).
const lowerUp = 1 << 16

// add appends the addresses of one device.
func (s *State) add(h *netlink.Handle, link netlink.Link) error {
	index := link.Attrs().Index
	s.Names[index] = link.Attrs().Name
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		list, err := h.AddrList(link, family)
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			return fmt.Errorf("netdev: addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, a := range list {
			ip, own := a.IP, true
			if family == netlink.FAMILY_V4 && a.Peer != nil && !a.Peer.IP.Equal(a.IP) {
				ip, own = a.Peer.IP, false // ifa_address
			}
			addr, ok := netip.AddrFromSlice(ip)
			if !ok {
				continue
			}
			e := gidtable.Entry{GID: ib.GID(addr.As16()), Ifindex: index}
			s.Addrs = append(s.Addrs, e)
			s.Local[e] = own
		}
	}
	return nil
}
