// Package neigh answers for user space what the kernel's RDMA address resolution asks
// (drivers/infiniband/core/addr.c): is there a route to an address, and does anybody there
// answer?
//
// The route and the neighbour are the kernel's own, read by netlink. User space cannot ask
// for an address by ARP without privileges, but it can send something that way: an empty
// datagram to the discard port (RFC 863), once for each question that has no answer yet.
//
// The loopback network has no ARP, and the kernel takes all of it for its own. There an
// address answers if a UDP socket takes what is sent to its RoCE port, which the kernel
// tells by sock_diag.
package neigh
