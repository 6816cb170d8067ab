// Package gidtable builds the GID table of a RoCE port from the addresses of its network
// device, by the rules of the kernel (ib_core: roce_gid_mgmt.c, cache.c; rxe: RoCE v2
// only, so every address has one entry).
//
//   - Index 0 belongs to the default GID: fe80::/64 with the EUI-64 of the MAC address. It
//     is there with the link down and without IPv6, and no other entry ever takes it.
//   - Then come the IPv4 addresses and the IPv6 addresses, in the order of the kernel.
//   - Later, an address that goes leaves a hole, and one that comes fills the lowest hole.
//   - An entry that a QP or an address handle names reads as empty once its address is
//     gone, but its place stays taken until the last of them is gone too.
package gidtable
