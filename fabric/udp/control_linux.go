package udp

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Control messages ride beside a datagram: on send they choose segment size, TOS and
// TTL, on receive they tell them. All sizes are per message.
const (
	txControlBytes = 3 * 24 // UDP_SEGMENT, TOS or class, TTL or hop limit
	rxControlBytes = 6 * 24 // UDP_GRO, TOS or class, TTL or hop limit, flow, RXQ_OVFL; one spare
)

// rxControl is what the control messages of one received message say.
type rxControl struct {
	segBytes  int   // UDP_GRO: size of all datagrams but the last; 0 if there is one
	tclass    uint8 // IP_TOS, IPV6_TCLASS
	hopLimit  uint8 // IP_TTL, IPV6_HOPLIMIT
	flowLabel uint32
	drops     uint32 // SO_RXQ_OVFL: datagrams the socket dropped so far
	hasDrops  bool
}

// parseControl reads the control messages in b. It ignores what it does not know and
// stops at anything malformed, so any bytes are safe.
func parseControl(b []byte) rxControl {
	c := rxControl{hopLimit: defaultHopLimit}
	for len(b) >= unix.SizeofCmsghdr {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		n := uint64(h.Len)
		if n < uint64(unix.CmsgLen(0)) || n > uint64(len(b)) {
			break
		}
		c.take(h.Level, h.Type, b[unix.CmsgLen(0):n])
		b = b[min(uint64(unix.CmsgSpace(int(n)-unix.CmsgLen(0))), uint64(len(b))):]
	}
	return c
}

// take interprets one control message. The kernel sends IP_TOS as one byte and all
// others as 32 bits.
func (c *rxControl) take(level, typ int32, data []byte) {
	if level == unix.IPPROTO_IP && typ == unix.IP_TOS && len(data) >= 1 {
		c.tclass = data[0]
		return
	}
	if len(data) < 4 {
		return
	}
	v := *(*uint32)(unsafe.Pointer(&data[0]))
	switch {
	case level == unix.SOL_UDP && typ == unix.UDP_GRO:
		c.segBytes = int(int32(v))
	case level == unix.SOL_SOCKET && typ == unix.SO_RXQ_OVFL:
		c.drops, c.hasDrops = v, true
	case level == unix.IPPROTO_IP && typ == unix.IP_TTL, level == unix.IPPROTO_IPV6 && typ == unix.IPV6_HOPLIMIT:
		c.hopLimit = uint8(v)
	case level == unix.IPPROTO_IPV6 && typ == unix.IPV6_TCLASS:
		c.tclass = uint8(v)
	case level == unix.IPPROTO_IPV6 && typ == ipv6FlowInfo:
		c.flowLabel = uint32(data[1]&0x0f)<<16 | uint32(data[2])<<8 | uint32(data[3])
	}
}

// appendControl writes the control messages of a train into dst, which has
// txControlBytes, and returns how many bytes it used. segBytes 0 asks for no
// segmentation. What equals the socket's default is left out.
func appendControl(dst []byte, v4 bool, segBytes int, tclass, hopLimit uint8) int {
	n := 0
	if segBytes != 0 {
		n += putControl(dst[n:], unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		*(*uint16)(unsafe.Pointer(&dst[n-unix.CmsgSpace(2)+unix.CmsgLen(0)])) = uint16(segBytes)
	}
	level, tos, ttl := int32(unix.IPPROTO_IPV6), int32(unix.IPV6_TCLASS), int32(unix.IPV6_HOPLIMIT)
	if v4 {
		level, tos, ttl = unix.IPPROTO_IP, unix.IP_TOS, unix.IP_TTL
	}
	if tclass != 0 {
		n += putControl(dst[n:], level, tos, 4)
		*(*uint32)(unsafe.Pointer(&dst[n-unix.CmsgSpace(4)+unix.CmsgLen(0)])) = uint32(tclass)
	}
	if hopLimit != 0 && hopLimit != defaultHopLimit {
		n += putControl(dst[n:], level, ttl, 4)
		*(*uint32)(unsafe.Pointer(&dst[n-unix.CmsgSpace(4)+unix.CmsgLen(0)])) = uint32(hopLimit)
	}
	return n
}

// putControl writes one control message header for size bytes of data and returns the
// space that both take.
func putControl(dst []byte, level, typ int32, size int) int {
	h := (*unix.Cmsghdr)(unsafe.Pointer(&dst[0]))
	h.Level, h.Type = level, typ
	h.SetLen(unix.CmsgLen(size))
	return unix.CmsgSpace(size)
}
