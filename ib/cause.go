package ib

import "strconv"

// Cause is the vendor_err of a completion: the exact reason, where the status alone
// names a class. The numbers are stable; 0 means success or "nothing to add".
type Cause uint32

const (
	CauseNone Cause = 0

	// Local, found before anything was sent.
	CauseLKeyUnknown     Cause = 0x101 // no region has this lkey
	CauseLKeyPD          Cause = 0x102 // the lkey belongs to another protection domain
	CauseLKeyRange       Cause = 0x103 // the SGE leaves its region
	CauseLKeyAccess      Cause = 0x104 // the region lacks LOCAL_WRITE
	CauseLKeyInvalidated Cause = 0x105 // the key was invalidated or its region deregistered
	CauseOpcodeForQP     Cause = 0x106 // this transport has no such operation
	CauseMsgTooLong      Cause = 0x107 // longer than the device's largest message
	CauseLocalInvKey     Cause = 0x108 // LOCAL_INV of a key that cannot be invalidated
	CauseBindMW          Cause = 0x109 // BIND_MW names a window or region that is not there, or rights that no window has
	CauseMemoryFault     Cause = 0x10a // the registered memory went away under the adapter
	CauseInlineOp        Cause = 0x10b // INLINE on an operation that reads or is too long
	CauseUDTooLong       Cause = 0x10c // datagram longer than the path or port MTU
	CauseCQOverflow      Cause = 0x10d // the completion queue was full
	CauseBindKey         Cause = 0x10e // BIND_MW: the new rkey differs in more than its low byte
	CauseBindPD          Cause = 0x10f // BIND_MW: window or region of another protection domain
	CauseBindBound       Cause = 0x110 // BIND_MW of a type 2 window that is bound already
	CauseBindEmpty       Cause = 0x111 // BIND_MW of a type 2 window to no bytes
	CauseBindRegion      Cause = 0x112 // BIND_MW to a region without MW_BIND, or zero-based
	CauseBindRange       Cause = 0x113 // BIND_MW to memory outside of the region
	CauseBindAccess      Cause = 0x114 // BIND_MW: remote writes or atomics, but the region lacks LOCAL_WRITE

	// Responder side, in the responder's own completion.
	CauseRecvTooSmall  Cause = 0x201 // the message is longer than the receive
	CauseRecvLKey      Cause = 0x202 // a receive SGE failed its check
	CauseOpSequence    Cause = 0x203 // FIRST, MIDDLE, LAST came in a wrong order
	CausePacketLength  Cause = 0x204 // payload does not fit the opcode and path MTU
	CauseQPAccess      Cause = 0x205 // the QP does not allow this remote operation
	CauseRKey          Cause = 0x206 // no region or window has this rkey
	CauseAtomicAlign   Cause = 0x207 // atomic address is not a multiple of 8
	CauseTooManyReads  Cause = 0x208 // more READs and atomics than max_dest_rd_atomic
	CauseInvalidateKey Cause = 0x209 // SEND_WITH_INV named a key that cannot be invalidated
	CauseWriteLength   Cause = 0x20a // WRITE carried more or fewer bytes than its RETH said
	CauseOpcodeUnknown Cause = 0x20b // the opcode does not exist on this transport
	CauseRKeyPD        Cause = 0x20c // the rkey belongs to another protection domain
	CauseRKeyRange     Cause = 0x20d // the access leaves the memory of the rkey
	CauseRKeyAccess    Cause = 0x20e // the rkey does not give this right
	CauseRKeyGone      Cause = 0x20f // the rkey was invalidated, or its window is not bound
	CauseRKeyQP        Cause = 0x210 // the window of the rkey is bound by another QP
	CauseMessageCut    Cause = 0x211 // UC: a packet of the message was lost, or overtaken

	// Requester side, learned from the responder or from its silence.
	CauseNAKInvalidReq  Cause = 0x301
	CauseNAKAccess      Cause = 0x302
	CauseNAKOp          Cause = 0x303
	CauseRetryTimeout   Cause = 0x304 // no answer, retry_cnt used up
	CauseRetrySequence  Cause = 0x305 // sequence NAKs or lost responses used up retry_cnt
	CauseRNRRetry       Cause = 0x306 // RNR NAKs used up rnr_retry
	CauseReadRespLength Cause = 0x307 // READ response of a wrong length
	CauseReadRespOpcode Cause = 0x308 // response of a wrong kind for the oldest WR
	CauseNAKReserved    Cause = 0x309 // NAK code that does not exist

	// Flushed.
	CauseFlushModify  Cause = 0x401 // modify_qp to ERR
	CauseFlushAfter   Cause = 0x402 // an earlier error took the QP to ERR
	CauseFlushPosted  Cause = 0x403 // posted when the QP was in ERR already
	CauseFlushMRGone  Cause = 0x404 // a region in use was deregistered
	CauseFlushCQError Cause = 0x405 // the QP's completion queue overflowed

	// What somebody asked for.
	CauseInjected Cause = 0x501 // a fault that was injected
)

var causeText = map[Cause]string{
	CauseNone:            "nothing to add",
	CauseLKeyUnknown:     "no memory region has this lkey",
	CauseLKeyPD:          "the lkey belongs to another protection domain",
	CauseLKeyRange:       "the scatter/gather entry leaves its memory region",
	CauseLKeyAccess:      "the memory region lacks the LOCAL_WRITE right",
	CauseLKeyInvalidated: "the key was invalidated or its region deregistered",
	CauseOpcodeForQP:     "the QP's transport has no such operation",
	CauseMsgTooLong:      "the message is longer than the device allows",
	CauseLocalInvKey:     "LOCAL_INV names a key that cannot be invalidated",
	CauseBindMW:          "BIND_MW names no memory window or region, or asks for rights that a window cannot give",
	CauseBindKey:         "the window's new rkey differs from the present one in more than the low byte",
	CauseBindPD:          "the memory window or the region to bind belongs to another protection domain",
	CauseBindBound:       "the type 2 memory window is bound already",
	CauseBindEmpty:       "a type 2 memory window cannot be bound to 0 bytes",
	CauseBindRegion:      "the memory region lacks the MW_BIND right, or is zero-based",
	CauseBindRange:       "the memory window would leave its region",
	CauseBindAccess:      "the window would allow remote writes or atomics, but its region lacks LOCAL_WRITE",
	CauseMemoryFault:     "registered memory could not be accessed",
	CauseInlineOp:        "INLINE on an operation that does not allow it",
	CauseUDTooLong:       "the datagram is longer than the MTU",
	CauseCQOverflow:      "the completion queue was full",
	CauseRecvTooSmall:    "the message is longer than the posted receive",
	CauseRecvLKey:        "a scatter entry of the posted receive failed its lkey check",
	CauseOpSequence:      "packets of a message came in an impossible order",
	CausePacketLength:    "a packet's payload does not fit its opcode and the path MTU",
	CauseQPAccess:        "the QP's access flags do not allow this remote operation",
	CauseRKey:            "no memory region or window has this rkey",
	CauseRKeyPD:          "the rkey belongs to another protection domain",
	CauseRKeyRange:       "the access leaves the memory that the rkey stands for",
	CauseRKeyAccess:      "the rkey does not give the right to this operation",
	CauseRKeyGone:        "the rkey was invalidated, or its memory window is not bound",
	CauseRKeyQP:          "the rkey is of a memory window that another QP has bound",
	CauseMessageCut:      "a packet of the message is missing",
	CauseAtomicAlign:     "the atomic's remote address is not a multiple of 8",
	CauseTooManyReads:    "more READs and atomics outstanding than max_dest_rd_atomic",
	CauseInvalidateKey:   "SEND_WITH_INV names a key that cannot be invalidated",
	CauseWriteLength:     "the WRITE carried another length than it announced",
	CauseOpcodeUnknown:   "the opcode does not exist on this transport",
	CauseNAKInvalidReq:   "the peer answered NAK invalid request",
	CauseNAKAccess:       "the peer answered NAK remote access error",
	CauseNAKOp:           "the peer answered NAK remote operational error",
	CauseRetryTimeout:    "the peer did not answer; retry_cnt is used up",
	CauseRetrySequence:   "lost packets used up retry_cnt",
	CauseRNRRetry:        "the peer had no receive posted; rnr_retry is used up",
	CauseReadRespLength:  "a READ response has a wrong length",
	CauseReadRespOpcode:  "a response does not fit the oldest work request",
	CauseNAKReserved:     "the peer answered with a NAK code that does not exist",
	CauseFlushModify:     "flushed: modify_qp moved the QP to ERR",
	CauseFlushAfter:      "flushed: an earlier error moved the QP to ERR",
	CauseFlushPosted:     "flushed: posted while the QP was in ERR",
	CauseFlushMRGone:     "flushed: a memory region in use was deregistered",
	CauseFlushCQError:    "flushed: the completion queue overflowed",
	CauseInjected:        "a fault of this kind was injected",
}

// String is the cause as a phrase.
func (c Cause) String() string {
	if s, ok := causeText[c]; ok {
		return s
	}
	return "cause 0x" + strconv.FormatUint(uint64(c), 16)
}
