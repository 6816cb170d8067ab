package netdev

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

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
	MTU   int    // bytes
	Mbps  uint32 // speed of the link, 0 if the driver does not know
	MAC   gidtable.MAC
	Link  gidtable.Link
	// Links are the states of the link since the last look, oldest first; the last one is
	// not necessarily Link, which is newer.
	Links []gidtable.Link
	// Default is the device that the default GID belongs to, and its MAC address: the bond
	// if the device is a member of one, else the device itself.
	Default struct {
		Index int
		MAC   gidtable.MAC
	}
	// Addrs are what the GID table is made of besides the default GID: in the kernel's
	// order, those of devices above it, such as VLANs and bridges, last.
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
	s.Mbps = speedOf(at.Name)
	if err := s.add(h, link); err != nil {
		return State{}, err
	}
	all, err := h.LinkList()
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return State{}, fmt.Errorf("netdev: devices: %w", err)
	}
	devices := make([]device, len(all))
	for i, l := range all {
		devices[i] = deviceOf(l)
	}
	f := familyOf(index, devices)
	s.Default.Index, s.Default.MAC = index, s.MAC
	for _, l := range all {
		if l.Attrs().Index == f.owner && f.owner != index {
			s.Default.Index, s.Names[f.owner] = f.owner, l.Attrs().Name
			copy(s.Default.MAC[:], l.Attrs().HardwareAddr)
		}
		if slices.Contains(f.uppers, l.Attrs().Index) {
			if err := s.add(h, l); err != nil {
				return State{}, err
			}
		}
	}
	return s, nil
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
