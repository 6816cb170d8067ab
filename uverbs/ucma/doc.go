// Package ucma is /dev/infiniband/rdma_cm: the commands that librdmacm writes to it and
// what the kernel answers (version 4 of the ABI). A program that was linked with
// librdmacm connects through it without knowing.
//
// # What it is made of
//
// A [Device] belongs to a node, next to the node's connection manager. A [Channel] is one
// open device file: a queue of events, and the ids that were made through it. A
// command is one write(); its answer goes to an address that the command names. The
// package sees bytes and gives bytes: no descriptor, no socket and no process. Who
// carries them is the host's business.
//
// # Blocking
//
// GET_EVENT is the only command that may wait, and here none does: without an event it
// fails with EAGAIN. The host gives the program a descriptor that is readable while
// events wait ([Signal]), so whether to block is decided where the descriptor's
// O_NONBLOCK and the thread's signals are.
//
// # Counting
//
// The answers of DESTROY_ID, LEAVE_MCAST and MIGRATE_ID say how many events of the id were
// handed out. librdmacm waits until the program has acknowledged exactly so many, so the
// number must be right: a CONNECT_REQUEST counts for the listener, a multicast event for
// the membership and its id, and an event that nobody fetched does not count.
//
// # Differences from Linux
//
//   - AF_IB addresses are refused with EADDRNOTAVAIL. librdmacm finds out at its first
//     use, and uses BIND_IP, RESOLVE_IP, JOIN_IP_MCAST and QUERY_ROUTE from then on. The
//     newer commands work for IP addresses.
//   - A command that is shorter than its structure fails with EINVAL. Linux reads on
//     behind the buffer.
//   - Ports below 1024 are everybody's.
//
// Sources: Linux include/uapi/rdma/rdma_user_cm.h, drivers/infiniband/core/ucma.c;
// behaviour of Linux 6.1 and 6.12 under raw commands.
package ucma
