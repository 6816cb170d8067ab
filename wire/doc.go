// Package wire is the RoCE v2 packet format: the base transport header (BTH), the
// extended headers, the opcode table, the invariant CRC (ICRC) and the text form.
//
// It owns no state. It never sees Ethernet; IP and UDP appear only as a [Path],
// because the ICRC covers parts of both headers and because a datagram receive
// shows the network header to the user.
//
// A packet on the wire, with the part each function handles:
//
//	IP | UDP | BTH | extended headers | payload | pad | ICRC
//	---------  ----------------------   -------   ---   ----
//	 Path       AppendHeaders                           PutICRC
//	            AppendPacket ------------------------
//	            Decode ------------------------------
//	ICRC(path) -----------------------------------------^
//
// All functions are safe for concurrent use. None of them panics or keeps a
// reference to a buffer on any input, except that [Packet].Payload aliases the
// buffer given to [Decode]. Encoding, decoding and the ICRC do not allocate.
//
// Sources: IBTA volume 1 (chapter 9, annex A17 for RoCE v2) as far as kernel
// sources quote it, Linux include/rdma/ib_pack.h and drivers/infiniband/sw/rxe,
// and the captures in tests/golden.
package wire
