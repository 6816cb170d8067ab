// Package udp is the RoCE v2 port on real sockets: a [fabric.Port] that sends and
// receives RDMA packets as UDP datagrams.
//
// It owns the socket, the layout of packets into segmentation-offload trains, and
// the ICRC, because the ICRC covers what only the layout decides: the IPv4
// identification. It knows nothing of queue pairs, and it never retransmits; a
// packet that the system refuses is counted and gone, as on a wire.
//
// # Linux
//
// [Open] binds one unconnected socket with IP_MTU_DISCOVER=DO. Only that combination
// makes the IPv4 identification predictable: don't-fragment is set, a single send
// carries identification 0, and the segments of one UDP_SEGMENT send carry 0, 1, 2
// and so on. A connected socket counts, and a socket without DO counts as well.
// IPv6 has no such field. Batches move with sendmmsg and recvmmsg, never through
// Go's netpoller; [Port.Wait] is the only call that blocks.
//
// A socket does not show the identification of what it received. [VerifySolve] uses
// that a CRC is linear: the 16-bit identification that makes the ICRC fit is found
// by arithmetic, and 16 of the 32 bits still check. See [VerifyMode].
//
// RoCE spreads flows over UDP source ports; one socket has one. The ICRC is computed
// over the socket's own port, so receivers that check it agree, and receivers that
// ignore source ports, as soft-RoCE does, do not mind. Network address translation
// on the path rewrites ports and breaks the ICRC.
//
// # Elsewhere
//
// [OpenPortable] does the same with net.UDPConn, one datagram per system call and
// one goroutine that reads. Open is OpenPortable on other systems than Linux.
package udp
