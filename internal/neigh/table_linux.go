package neigh

import (
	"errors"
	"net/netip"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Table asks the kernel about the network of the namespace that it was opened in. It is
// safe for concurrent use.
type Table struct {
	mu    sync.Mutex
	route *netlink.Handle
	diag  int // NETLINK_SOCK_DIAG
	probe map[int]int
}

// Open opens a table for the network namespace of the calling thread.
func Open() (*Table, error) {
	t := &Table{diag: -1, probe: map[int]int{}}
	var err error
	if t.route, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if t.diag, err = unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG); err != nil {
		t.Close()
		return nil, err
	}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		// A machine may do without IPv6.
		if fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err == nil {
			t.probe[family] = fd
		}
	}
	return t, nil
}

// Close closes the table. Ask must not be called any more.
func (t *Table) Close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.route.Close()
	for _, fd := range t.probe {
		_ = unix.Close(fd)
	}
	if t.diag >= 0 {
		_ = unix.Close(t.diag)
	}
}

// Question is about the way from Src to Dst.
type Question struct {
	Src, Dst netip.Addr
	// Ifindex is the device of a link-local Dst.
	Ifindex int
	// Port is the UDP port at which a loopback address has to take packets.
	Port uint16
}

// valid (NUD_VALID) are the states of a neighbour whose link-layer address is known.
const valid = unix.NUD_PERMANENT | unix.NUD_NOARP | unix.NUD_REACHABLE | unix.NUD_PROBE | unix.NUD_STALE | unix.NUD_DELAY

// Ask returns 0 if Dst answers, EAGAIN if it has not answered yet, and the kernel's error,
// such as ENETUNREACH, if there is no way to it. It does not block.
func (t *Table) Ask(q Question) unix.Errno {
	t.mu.Lock()
	defer t.mu.Unlock()
	opt := &netlink.RouteGetOptions{SrcAddr: q.Src.AsSlice()}
	if q.Dst.IsLinkLocalUnicast() {
		opt.OifIndex = q.Ifindex
	}
	routes, err := t.route.RouteGetWithOptions(q.Dst.AsSlice(), opt)
	switch {
	case err != nil && q.Src.IsLoopback():
		return unix.ENETUNREACH // the kernel's EINVAL: what has such a source never leaves the machine
	case err != nil:
		return errnoOf(err)
	case len(routes) == 0:
		return unix.ENETUNREACH
	}
	switch r := &routes[0]; {
	case r.Type == unix.RTN_LOCAL && q.Dst.IsLoopback():
		return t.taken(q, r.LinkIndex)
	case r.Type == unix.RTN_LOCAL:
		return 0
	case r.Type != unix.RTN_UNICAST:
		return unix.ENETUNREACH
	default:
		return t.neighbour(q, r)
	}
}

// neighbour looks for the next hop of a route, and has the kernel ask for it if need be.
func (t *Table) neighbour(q Question, r *netlink.Route) unix.Errno {
	hop := q.Dst
	if gw, ok := netip.AddrFromSlice(r.Gw); ok {
		hop = gw.Unmap()
	}
	family := unix.AF_INET
	if hop.Is6() {
		family = unix.AF_INET6
	}
	list, err := t.route.NeighList(r.LinkIndex, family)
	if err != nil {
		return errnoOf(err)
	}
	state := unix.NUD_NONE
	for i := range list {
		if a, ok := netip.AddrFromSlice(list[i].IP); ok && a.Unmap() == hop {
			state = list[i].State
		}
	}
	switch {
	case state&valid != 0:
		return 0
	case state == unix.NUD_INCOMPLETE:
		return unix.EAGAIN
	case t.withoutARP(r.LinkIndex):
		return 0
	}
	t.poke(q)
	return unix.EAGAIN
}

// withoutARP reports whether a device has no neighbours to ask for.
func (t *Table) withoutARP(ifindex int) bool {
	l, err := t.route.LinkByIndex(ifindex)
	return err == nil && l.Attrs().RawFlags&(unix.IFF_NOARP|unix.IFF_POINTOPOINT|unix.IFF_LOOPBACK) != 0
}

// discard is the port of the discard service.
const discard = 9

// poke sends an empty datagram, for which the kernel has to find the neighbour. That it
// cannot be sent is nothing that the next question does not tell.
func (t *Table) poke(q Question) {
	if q.Dst.Is4() {
		_ = unix.Sendto(t.probe[unix.AF_INET], nil, unix.MSG_DONTWAIT, &unix.SockaddrInet4{Port: discard, Addr: q.Dst.As4()})
		return
	}
	a := &unix.SockaddrInet6{Port: discard, Addr: q.Dst.As16()}
	if q.Dst.IsLinkLocalUnicast() {
		a.ZoneId = uint32(q.Ifindex)
	}
	_ = unix.Sendto(t.probe[unix.AF_INET6], nil, unix.MSG_DONTWAIT, a)
}

func errnoOf(err error) unix.Errno {
	var e syscall.Errno
	if errors.As(err, &e) && e != 0 {
		return e
	}
	return unix.EIO
}
