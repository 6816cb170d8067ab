package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
)

// sockaddr has room for an IPv4 or an IPv6 socket address; the family comes first in
// both.
type sockaddr struct{ raw unix.RawSockaddrInet6 }

const (
	sockaddr4Bytes = unix.SizeofSockaddrInet4
	sockaddr6Bytes = unix.SizeofSockaddrInet6
)

func (s *sockaddr) v4() *unix.RawSockaddrInet4 {
	return (*unix.RawSockaddrInet4)(unsafe.Pointer(&s.raw))
}

// set stores an address and returns its length. scope is the interface index for
// link-local addresses.
func (s *sockaddr) set(g ib.GID, port uint16, scope uint32) uint32 {
	if g.IsIPv4() {
		a := s.v4()
		a.Family, a.Port, a.Addr = unix.AF_INET, swap16(port), g.IPv4()
		return sockaddr4Bytes
	}
	s.raw = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: swap16(port), Addr: g}
	if isLinkLocal(g) {
		s.raw.Scope_id = scope
	}
	return sockaddr6Bytes
}

// get returns the address that the kernel stored; ok is false if it is neither IPv4
// nor IPv6, or cut short.
func (s *sockaddr) get(n uint32) (g ib.GID, port uint16, ok bool) {
	switch {
	case n >= sockaddr4Bytes && s.raw.Family == unix.AF_INET:
		a := s.v4()
		return ib.GIDFromIPv4(a.Addr[0], a.Addr[1], a.Addr[2], a.Addr[3]), swap16(a.Port), true
	case n >= sockaddr6Bytes && s.raw.Family == unix.AF_INET6:
		return s.raw.Addr, swap16(s.raw.Port), true
	}
	return ib.GID{}, 0, false
}

// isLinkLocal reports whether an address needs a scope: fe80::/10, and interface- and
// link-local multicast.
func isLinkLocal(g ib.GID) bool {
	return g[0] == 0xfe && g[1]&0xc0 == 0x80 || g[0] == 0xff && g[1]&0x0f <= 2
}

// swap16 turns a host number into what struct sockaddr holds, and back.
func swap16(v uint16) uint16 {
	b := (*[2]byte)(unsafe.Pointer(&v))
	return uint16(b[0])<<8 | uint16(b[1])
}
