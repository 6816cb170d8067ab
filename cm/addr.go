package cm

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// PortSpace (enum rdma_ucm_port_space) is a set of port numbers of its own. It has
// nothing to do with the ports of TCP and UDP proper.
type PortSpace uint16

const (
	PSIPoIB PortSpace = 0x0002 // not on RoCE
	PSTCP   PortSpace = 0x0106 // connections over RC
	PSUDP   PortSpace = 0x0111 // datagrams over UD
	PSIB    PortSpace = 0x013f // any QP type
)

func (s PortSpace) String() string {
	switch s {
	case PSIPoIB:
		return "IPOIB"
	case PSTCP:
		return "TCP"
	case PSUDP:
		return "UDP"
	case PSIB:
		return "IB"
	}
	return "PortSpace(0x" + strconv.FormatUint(uint64(s), 16) + ")"
}

// ServiceID is what a request is for: port space and port.
type ServiceID uint64

// NewServiceID (kernel: rdma_get_service_id) returns the service ID of a port.
func NewServiceID(s PortSpace, port uint16) ServiceID {
	return ServiceID(s)<<16 | ServiceID(port)
}

// Split undoes NewServiceID; ok is false for a service ID of another form.
func (s ServiceID) Split() (space PortSpace, port uint16, ok bool) {
	return PortSpace(s >> 16), uint16(s), s>>32 == 0
}

// Family is the kind of an address.
type Family uint8

const (
	FamilyNone Family = 0 // no address
	FamilyIPv4 Family = 4
	FamilyIPv6 Family = 6
)

// Addr is an IP address and port (struct sockaddr_in, sockaddr_in6). The zero value is
// no address.
type Addr struct {
	Family Family
	// IP is the address as a GID: IPv4 is ::ffff:a.b.c.d, its wildcard ::ffff:0.0.0.0.
	IP   ib.GID
	Port uint16
	// FlowInfo (sin6_flowinfo) of an IPv6 source becomes the flow label if not zero.
	FlowInfo uint32
}

// IPv4 returns an IPv4 address.
func IPv4(a, b, c, d byte, port uint16) Addr {
	return Addr{Family: FamilyIPv4, IP: ib.GIDFromIPv4(a, b, c, d), Port: port}
}

// AddrOf returns the address of a GID.
func AddrOf(g ib.GID, port uint16) Addr {
	if g.IsIPv4() {
		return Addr{Family: FamilyIPv4, IP: g, Port: port}
	}
	return Addr{Family: FamilyIPv6, IP: g, Port: port}
}

// Wildcard returns the address that stands for all of a family.
func Wildcard(f Family, port uint16) Addr {
	a := Addr{Family: f, Port: port}
	if f == FamilyIPv4 {
		a.IP = ib.GIDFromIPv4(0, 0, 0, 0)
	}
	return a
}

// IsAny reports whether the address is its family's wildcard.
func (a Addr) IsAny() bool { return a.IP == Wildcard(a.Family, 0).IP }

// IsLoopback reports whether the address is 127.0.0.0/8 or ::1.
func (a Addr) IsLoopback() bool {
	if a.Family == FamilyIPv4 {
		return a.IP[12] == 127
	}
	return a.IP == ib.GID{15: 1}
}

// isBroadcast reports 255.255.255.255.
func (a Addr) isBroadcast() bool { return a.IP == ib.GIDFromIPv4(255, 255, 255, 255) }

func (a Addr) valid() bool {
	return a.Family == FamilyIPv4 && a.IP.IsIPv4() || a.Family == FamilyIPv6
}

func (a Addr) String() string {
	if a.Family == FamilyNone {
		return "none"
	}
	p := ":" + strconv.Itoa(int(a.Port))
	if a.Family == FamilyIPv4 {
		o := a.IP.IPv4()
		s := ""
		for i, b := range o {
			if i > 0 {
				s += "."
			}
			s += strconv.Itoa(int(b))
		}
		return s + p
	}
	return "[" + a.IP.Sysfs() + "]" + p
}

// PrivateHeaderBytes is how much of the private data of REQ and SIDR_REQ belongs to
// rdma_cm.
const PrivateHeaderBytes = 36

// User private data that fit behind the header, in bytes.
const (
	UserREQBytes  = REQPrivateBytes - PrivateHeaderBytes     // 56
	UserSIDRBytes = SIDRReqPrivateBytes - PrivateHeaderBytes // 180
)

// PrivateHeader (struct cma_hdr) is what rdma_cm puts before the program's private data
// of a REQ or SIDR_REQ: who calls whom.
type PrivateHeader struct {
	Version   uint8 // 0
	IPVersion uint8 // 4 or 6
	// SrcPort is the caller's. The port called is in the service ID.
	SrcPort  uint16
	Src, Dst ib.GID
}

func (h *PrivateHeader) walk(c *codec) {
	whole(c, 0, 1, &h.Version)
	field(c, 1, 0, 4, &h.IPVersion)
	whole(c, 2, 2, &h.SrcPort)
	src, dst := onWire(h.Src), onWire(h.Dst)
	c.raw(4, src[:])
	c.raw(20, dst[:])
	h.Src, h.Dst = src, dst
	if h.IPVersion == 4 {
		h.Src, h.Dst = ib.GIDFromIPv4(src[12], src[13], src[14], src[15]), ib.GIDFromIPv4(dst[12], dst[13], dst[14], dst[15])
	}
}

// onWire is the form of an address in the header: IPv4 without the ffff of a GID.
func onWire(g ib.GID) ib.GID {
	if g.IsIPv4() {
		o := g.IPv4()
		return ib.GID{12: o[0], 13: o[1], 14: o[2], 15: o[3]}
	}
	return g
}

// DecodePrivateHeader reads the header. b has at least PrivateHeaderBytes.
func DecodePrivateHeader(b []byte) (h PrivateHeader) {
	h.walk(&codec{b, true})
	return h
}

// Put writes the header into b, which has at least PrivateHeaderBytes.
func (h PrivateHeader) Put(b []byte) { h.walk(&codec{b, false}) }
