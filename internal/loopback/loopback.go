// Package loopback gives tests addresses that nobody else uses, so that several copies of
// them can run at the same time. All nodes of a network use one UDP port, so it is the
// address that must differ, not the port.
package loopback

import (
	"net/netip"
	"os"
)

// Addresses is how many a process has.
const Addresses = 4

// Address returns the n-th address of this process, counted from 0, in 127.0.0.0/8: the
// process's number, which has 22 bits on Linux, and n. It is for tests, which use ports
// that programs do not.
func Address(n int) netip.Addr {
	v := uint32(os.Getpid())*Addresses + uint32(n%Addresses)
	return netip.AddrFrom4([4]byte{127, byte(v >> 16), byte(v >> 8), byte(v)})
}

// Node returns the n-th address with a UDP port, as nodes are described.
func Node(n int, port uint16) string { return netip.AddrPortFrom(Address(n), port).String() }
