package ib

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
)

// GID is a port's 128-bit address. On RoCE v2 it is the IPv6 address, or an IPv4
// address mapped as ::ffff:a.b.c.d.
type GID [16]byte

// GIDFromIPv4 maps a.b.c.d to ::ffff:a.b.c.d.
func GIDFromIPv4(a, b, c, d byte) GID {
	return GID{10: 0xff, 11: 0xff, 12: a, 13: b, 14: c, 15: d}
}

// IsIPv4 reports whether the GID is an IPv4-mapped address.
func (g GID) IsIPv4() bool {
	return binary.LittleEndian.Uint64(g[:]) == 0 && binary.LittleEndian.Uint32(g[8:]) == 0xffff0000
}

// IPv4 returns the last four bytes, the address if IsIPv4.
func (g GID) IPv4() [4]byte { return [4]byte(g[12:16]) }

// IsZero reports whether the GID is all zero, an empty table entry.
func (g GID) IsZero() bool { return g == GID{} }

// IsMulticast reports whether the GID names a multicast group: ff00::/8, or an
// IPv4-mapped address in 224.0.0.0/4.
func (g GID) IsMulticast() bool {
	if g.IsIPv4() {
		return g[12]&0xf0 == 0xe0
	}
	return g[0] == 0xff
}

// String prints an IPv4-mapped GID as ::ffff:a.b.c.d and any other as eight full
// groups, the way sysfs prints GIDs.
func (g GID) String() string {
	if g.IsIPv4() {
		b := append(make([]byte, 0, 24), "::ffff:"...)
		for i, o := range g.IPv4() {
			if i > 0 {
				b = append(b, '.')
			}
			b = strconv.AppendUint(b, uint64(o), 10)
		}
		return string(b)
	}
	return g.Sysfs()
}

// Sysfs prints the GID as eight groups of four hexadecimal digits.
func (g GID) Sysfs() string {
	var b strings.Builder
	for i := 0; i < 16; i += 2 {
		if i > 0 {
			b.WriteByte(':')
		}
		b.WriteString(hex.EncodeToString(g[i : i+2]))
	}
	return b.String()
}

var errGID = errors.New("ib: not a GID: want eight groups of four hex digits, or a.b.c.d")

// ParseGID reads the sysfs form (eight full groups), "::ffff:a.b.c.d" or "a.b.c.d".
func ParseGID(s string) (GID, error) {
	if v4, ok := strings.CutPrefix(s, "::ffff:"); ok || strings.Count(s, ".") == 3 {
		parts := strings.Split(v4, ".")
		if len(parts) != 4 {
			return GID{}, errGID
		}
		var o [4]byte
		for i, p := range parts {
			n, err := strconv.ParseUint(p, 10, 8)
			if err != nil {
				return GID{}, errGID
			}
			o[i] = byte(n)
		}
		return GIDFromIPv4(o[0], o[1], o[2], o[3]), nil
	}
	groups := strings.Split(s, ":")
	if len(groups) != 8 {
		return GID{}, errGID
	}
	var g GID
	for i, p := range groups {
		n, err := strconv.ParseUint(p, 16, 16)
		if err != nil || p == "" {
			return GID{}, errGID
		}
		g[2*i], g[2*i+1] = byte(n>>8), byte(n)
	}
	return g, nil
}

// AV is an address vector (ibv_ah_attr): where packets of a QP or an AH go.
type AV struct {
	// DGID is the destination; RoCE always needs one (is_global).
	DGID GID
	// IsGlobal says that a GRH is wanted. RoCE requires it.
	IsGlobal bool
	// SGIDIndex selects the source address in the port's GID table.
	SGIDIndex uint8
	// TrafficClass becomes the IPv4 TOS or the IPv6 traffic class.
	TrafficClass uint8
	// HopLimit becomes the TTL or hop limit; 0 means the default of 64.
	HopLimit uint8
	// FlowLabel (20 bits) chooses the UDP source port.
	FlowLabel uint32
	// SL is the service level (4 bits). It has no effect on RoCE.
	SL uint8
	// DLID and SrcPathBits exist for InfiniBand; RoCE ignores them.
	DLID        uint16
	SrcPathBits uint8
	// StaticRate is stored and returned, never applied.
	StaticRate uint8
	// PortNum is the local port, from 1.
	PortNum uint8
}
