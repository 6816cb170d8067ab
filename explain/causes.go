package explain

import "github.com/rvtsim/rvtsim/ib"

// causes says for each vendor_err what to look at, the most likely first.
var causes = map[ib.Cause][]string{
	ib.CauseLKeyUnknown: {
		"Is the lkey that of the region that holds the buffer (mr.lkey), and of this device? An rkey, a key of another device or an uninitialised field gives this.",
		"Was the region deregistered before the work request completed?",
	},
	ib.CauseLKeyPD: {
		"Region and queue pair must be made with the same protection domain.",
	},
	ib.CauseLKeyRange: {
		"Compare addr and length of each scatter/gather entry with the region: addr >= start and addr+length <= start+size.",
		"A region that was registered with its own iova counts from that, not from the buffer's address.",
	},
	ib.CauseLKeyAccess: {
		"Memory that the adapter writes (receives, targets of READs and atomics) needs IBV_ACCESS_LOCAL_WRITE at registration.",
	},
	ib.CauseLKeyInvalidated: {
		"Something deregistered or invalidated the region while work that names it was posted: poll that work's completion first.",
	},
	ib.CauseOpcodeForQP: {
		"UD carries SEND only; UC has no READ, atomics or SEND_WITH_INV. Compare the opcode with the queue pair's type.",
	},
	ib.CauseMsgTooLong: {
		"ibv_query_port's max_msg_sz is the limit. Split the message.",
	},
	ib.CauseLocalInvKey: {
		"LOCAL_INV takes the rkey of a bound type 2 window (or a fast registered region) of the same protection domain. Ordinary regions are ended by ibv_dereg_mr.",
		"Was the window invalidated already, by the peer's SEND_WITH_INV for example?",
	},
	ib.CauseBindMW: {
		"Do window and region still exist? A window cannot give LOCAL rights; IBV_ACCESS_ZERO_BASED is for windows of type 2 only.",
	},
	ib.CauseBindKey: {
		"The new rkey may differ from the window's present one (mw.rkey) in its low byte only: use ibv_inc_rkey.",
	},
	ib.CauseBindPD: {
		"Region, window and queue pair must be made with one protection domain.",
	},
	ib.CauseBindBound: {
		"A bound type 2 window must be invalidated before it is bound again: IBV_WR_LOCAL_INV here, or IBV_WR_SEND_WITH_INV by the peer.",
	},
	ib.CauseBindEmpty: {
		"To end a window of type 2, post IBV_WR_LOCAL_INV. Binding to 0 bytes is for type 1.",
	},
	ib.CauseBindRegion: {
		"Register the region with IBV_ACCESS_MW_BIND among its rights, and without IBV_ACCESS_ZERO_BASED.",
	},
	ib.CauseBindRange: {
		"addr and length of bind_info must lie in the region: addr >= start and addr+length <= start+size.",
	},
	ib.CauseBindAccess: {
		"Register the region with IBV_ACCESS_LOCAL_WRITE, or leave REMOTE_WRITE and REMOTE_ATOMIC out of the window's rights.",
	},
	ib.CauseMemoryFault: {
		"The keys were right, but the memory behind the region could not be read or written: it was unmapped, or its process is gone.",
	},
	ib.CauseInlineOp: {
		"IBV_SEND_INLINE is for SEND and RDMA WRITE, up to max_inline_data of the queue pair.",
	},
	ib.CauseUDTooLong: {
		"A datagram must fit into one packet: at most the port's active MTU.",
	},
	ib.CauseCQOverflow: {
		"Make the completion queue as large as everything that can complete into it: the sum of max_send_wr and max_recv_wr of its queue pairs, or what the program really keeps posted.",
		"Is it polled as fast as work is posted? Unpolled completions of failed queue pairs count too: a flush completes every work request.",
		"The queue is unusable from here on; destroy its queue pairs, then the queue.",
	},
	ib.CauseRecvTooSmall: {
		"Compare the length of the SEND with the sum of the receive's scatter entries.",
		"Receives are used in the order of their posts: a large message may have met a buffer that was meant for a small one.",
		"On a UD queue pair each receive needs 40 bytes more than the message, for the network header.",
	},
	ib.CauseRecvLKey: {
		"The scatter list of that receive is checked when a message takes it: lkey, range, LOCAL_WRITE, protection domain.",
		"Was the region deregistered after ibv_post_recv? Receives stay posted until they complete.",
	},
	ib.CauseOpSequence: {
		"The peer's packets of one message did not follow each other. Adapters do not do that; is another sender using the same connection (a stale peer, a forged packet)?",
		"On UC a sender that failed in the middle of a message begins the next one where it stopped: look at its own completions.",
	},
	ib.CausePacketLength: {
		"Both ends must use the same path_mtu: it decides how a message is cut.",
	},
	ib.CauseQPAccess: {
		"Remote operations need the right twice: in the region's access flags and in qp_access_flags of the responder's queue pair (modify_qp to INIT).",
	},
	ib.CauseRKey: {
		"Is it the rkey of the target region (mr.rkey, not mr.lkey), sent by the peer for this connection? Keys change with each registration and each window bind, and differ from device to device.",
		"Was the region deregistered, or the window bound again, after its key was sent? Was the key sent in full 32 bits and in the right byte order?",
	},
	ib.CauseRKeyPD: {
		"The region (or window) and the responder's queue pair must be made with the same protection domain.",
	},
	ib.CauseRKeyRange: {
		"Compare remote_addr and length with the memory that was registered: remote_addr >= start and remote_addr+length <= start+size.",
		"Was the address sent in full 64 bits and in the right byte order? A region with its own iova, or a zero-based window, counts from there.",
	},
	ib.CauseRKeyAccess: {
		"Register the region (or bind the window) with the right to the operation: REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC or FLUSH_GLOBAL. qp_access_flags alone are not enough.",
	},
	ib.CauseRKeyGone: {
		"A window's key is good from its bind to its invalidation (LOCAL_INV, SEND_WITH_INV, or the end of the queue pair that bound it).",
	},
	ib.CauseRKeyQP: {
		"A window of type 2 works for the queue pair that bound it only. Bind one for each connection, or use type 1.",
	},
	ib.CauseMessageCut: {
		"Packets get lost on UC, and nobody sends them again. If it happens often: is the receiver's socket buffer or a switch too small for the rate? Is the path_mtu one that the network really carries?",
		"A program that cannot do without the message needs RC, or numbers its messages and asks for those that are missing.",
		"Packets of one connection must arrive in order: several paths to the peer (ECMP, bonding) may mix them.",
	},
	ib.CauseAtomicAlign: {
		"Atomics work on 8 bytes at an address that is a multiple of 8.",
	},
	ib.CauseTooManyReads: {
		"The requester's max_rd_atomic must not exceed the responder's max_dest_rd_atomic. With 0 there, no READ or atomic is accepted at all.",
		"Exchange both values when connecting, and use the smaller one (librdmacm: initiator_depth and responder_resources).",
	},
	ib.CauseInvalidateKey: {
		"SEND_WITH_INV must name a type 2 window that is bound through this queue pair, or a fast registered region. Ordinary regions cannot be invalidated.",
	},
	ib.CauseWriteLength: {
		"The peer's adapter announced another length than it sent: a bug of the peer, or two senders on one connection.",
	},
	ib.CauseOpcodeUnknown: {
		"The peer uses an operation that this device does not have (FLUSH, ATOMIC WRITE).",
	},
	ib.CauseNAKInvalidReq: {
		"The message may be longer than the receive that it met.",
		"The responder's queue pair may lack the right (qp_access_flags), or accept fewer READs than max_rd_atomic allows here (max_dest_rd_atomic).",
		"The remote address of an atomic must be a multiple of 8.",
		"Look at the peer: its own completion or a QP_REQ_ERR event names the check that failed.",
	},
	ib.CauseNAKAccess: {
		"Is the rkey that of the target region (mr.rkey, not mr.lkey), and current?",
		"Does remote_addr plus length stay inside the region? Did the address travel in full 64 bits and in the right byte order?",
		"The region needs REMOTE_WRITE, REMOTE_READ or REMOTE_ATOMIC, and the protection domain of the responder's queue pair.",
	},
	ib.CauseNAKOp: {
		"The fault is on the peer's side: most often a posted receive whose buffer is not registered (any more), or lacks LOCAL_WRITE.",
		"Look at the peer's own completion of that receive.",
	},
	ib.CauseRetryTimeout: {
		"Is the peer there: process alive, queue pair not destroyed, and in RTR before the first message was sent?",
		"Do the numbers agree: dest_qp_num, the destination GID, and rq_psn here with sq_psn there and vice versa?",
		"Can packets pass: UDP port 4791, routes, a path_mtu that the network carries?",
		"Is the timeout longer than the peer may be away (a paused process, a debugger)? timeout 14 and retry_cnt 7 give half a second.",
	},
	ib.CauseRetrySequence: {
		"The network loses packets: each loss uses up one of retry_cnt, and only progress restores them.",
		"Receive buffers of the socket may be too small for a burst: look at the port's overflow counter.",
	},
	ib.CauseRNRRetry: {
		"The peer must post receives before messages arrive: before it goes to RTR, and again after each one is used.",
		"rnr_retry 7 waits for ever. min_rnr_timer of the peer is how long each wait is (code 0 is the longest: 655 ms).",
		"A flow control of the program's own keeps the sender from outrunning the receives.",
	},
	ib.CauseReadRespLength: {
		"Both ends must use the same path_mtu. Otherwise the peer's adapter answers a READ wrongly.",
	},
	ib.CauseReadRespOpcode: {
		"The peer answered another question than was asked: PSNs out of step, a reused queue pair number, or a faulty peer. Start new connections at random PSNs.",
	},
	ib.CauseNAKReserved: {
		"The peer's NAK code is not defined: a faulty peer.",
	},
	ib.CauseFlushModify: {
		"This is what modify_qp to ERR is for: every work request comes back exactly once. Poll until all have, then destroy the queue pair.",
		"librdmacm does it inside rdma_disconnect, and inside rdma_get_cm_event when a connection is refused or cannot be made.",
	},
	ib.CauseFlushAfter: {
		"Find the first completion of this queue pair with another status: that one tells the reason.",
	},
	ib.CauseFlushPosted: {
		"Stop posting when the first failed completion was seen, or count these as given back.",
	},
	ib.CauseFlushMRGone: {
		"Deregister memory only when all work that names it has completed.",
	},
	ib.CauseFlushCQError: {
		"The completion queue was too small or not polled: see CQ_ERR.",
	},
	ib.CauseInjected: {
		"A fault schedule asked for this error: look at the faults of the topology file.",
	},
}
