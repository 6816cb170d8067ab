package explain

import "github.com/rvtsim/rvtsim/ib"

// statusInfo says what a status means.
type statusInfo struct {
	meaning string
	causes  []ib.Cause // that this device gives with it, in profile ibta
	advice  []string   // if the cause says nothing
}

const (
	onlyRD = "It belongs to the reliable datagram transport, which no adapter has. This device never gives it."
	onlyTM = "It belongs to tag matching in hardware. This device never gives it."
)

var statuses = [ib.NumWCStatuses]statusInfo{
	ib.WCSuccess: {meaning: "The operation was carried out. A send on RC: the peer's adapter has acknowledged it. On UC and UD: it has left."},
	ib.WCLocLenErr: {meaning: "A receive was too small for the message (receiver's side), or a READ response had a wrong length.",
		causes: []ib.Cause{ib.CauseRecvTooSmall, ib.CauseReadRespLength}},
	ib.WCLocQPOpErr: {meaning: "The queue pair could not carry out the request, or the peer's request made no sense.",
		causes: []ib.Cause{ib.CauseLocalInvKey, ib.CauseOpSequence, ib.CausePacketLength, ib.CauseWriteLength}},
	ib.WCLocEECOpErr: {meaning: onlyRD},
	ib.WCLocProtErr: {meaning: "A local buffer failed its check: lkey, range, protection domain or access right.",
		causes: []ib.Cause{ib.CauseLKeyUnknown, ib.CauseLKeyPD, ib.CauseLKeyRange, ib.CauseLKeyAccess, ib.CauseLKeyInvalidated, ib.CauseRecvLKey, ib.CauseMemoryFault}},
	ib.WCWRFlushErr: {meaning: "The request was given back without being carried out, or without it being known whether it was: the queue pair is in ERR.",
		causes: []ib.Cause{ib.CauseFlushAfter, ib.CauseFlushModify, ib.CauseFlushPosted, ib.CauseFlushMRGone, ib.CauseFlushCQError}},
	ib.WCMWBindErr:  {meaning: "A memory window could not be bound.", causes: []ib.Cause{ib.CauseBindMW, ib.CauseBindKey, ib.CauseBindPD, ib.CauseBindBound, ib.CauseBindEmpty, ib.CauseBindRegion, ib.CauseBindRange, ib.CauseBindAccess}},
	ib.WCBadRespErr: {meaning: "The peer's answer does not fit the request.", causes: []ib.Cause{ib.CauseReadRespOpcode}},
	ib.WCLocAccessErr: {meaning: "An RDMA WRITE with immediate data from the peer failed its memory check after it had taken a receive.",
		causes: []ib.Cause{ib.CauseRKey, ib.CauseRKeyPD, ib.CauseRKeyRange, ib.CauseRKeyAccess, ib.CauseRKeyGone, ib.CauseRKeyQP, ib.CauseQPAccess}},
	ib.WCRemInvReqErr: {meaning: "The peer's adapter refused the request as invalid.",
		causes: []ib.Cause{ib.CauseNAKInvalidReq, ib.CauseInvalidateKey}},
	ib.WCRemAccessErr: {meaning: "The peer's adapter refused access to the remote memory. Nothing was written or read.",
		causes: []ib.Cause{ib.CauseNAKAccess}},
	ib.WCRemOpErr: {meaning: "The peer's adapter could not complete the request, for a reason on its side.",
		causes: []ib.Cause{ib.CauseNAKOp, ib.CauseNAKReserved}},
	ib.WCRetryExcErr: {meaning: "The peer did not answer although the request was sent 1 + retry_cnt times.",
		causes: []ib.Cause{ib.CauseRetryTimeout, ib.CauseRetrySequence}},
	ib.WCRNRRetryExcErr: {meaning: "The peer had no receive posted, each time that the message was tried.",
		causes: []ib.Cause{ib.CauseRNRRetry}},
	ib.WCLocRDDViolErr:  {meaning: onlyRD},
	ib.WCRemInvRDReqErr: {meaning: onlyRD},
	ib.WCRemAbortErr: {meaning: "A message had taken a receive of a shared queue and was then given up: on UC, because a packet of it is missing or does not fit; on UC and UD, because it is longer than the receive. The queue pair is as good as before.",
		causes: []ib.Cause{ib.CauseMessageCut, ib.CauseRecvTooSmall, ib.CauseOpSequence, ib.CausePacketLength}},
	ib.WCInvEECNErr:       {meaning: onlyRD},
	ib.WCInvEECStateErr:   {meaning: onlyRD},
	ib.WCFatalErr:         {meaning: "The adapter failed. This device then raises DEVICE_FATAL and refuses calls with ENODEV: nobody is left to write completions. A device of profile rxe gives it, as the kernel's does, to a request that is no READ and gets a READ response: the peer, or somebody in its place, answers what was not asked."},
	ib.WCRespTimeoutErr:   {meaning: onlyRD},
	ib.WCGeneralErr:       {meaning: "An error of no other kind. This device always knows which kind, so it never gives this status."},
	ib.WCTMErr:            {meaning: onlyTM},
	ib.WCTMRndvIncomplete: {meaning: onlyTM},
}

// events says what an asynchronous event means and what to do.
var events = map[ib.EventType]string{
	ib.EventCQErr:            "A completion queue was full when a completion came. That completion is lost and the queue is unusable; its queue pairs go to ERR. Make it larger, or poll more often.",
	ib.EventQPFatal:          "A queue pair failed so badly that no completion can tell. This device always has a completion or a more precise event, so it never raises this one.",
	ib.EventQPReqErr:         "The peer sent a request that this queue pair refuses: an operation that its access flags or max_dest_rd_atomic do not allow, or one that makes no sense. The queue pair is in ERR. The peer sees REM_INV_REQ_ERR.",
	ib.EventQPAccessErr:      "The peer used a remote key, address or right that failed the check. The queue pair is in ERR; nothing was read or written. The peer sees REM_ACCESS_ERR.",
	ib.EventCommEst:          "The first message arrived while the queue pair was in RTR: the peer is ready, even if the connection manager has not said so yet. Move to RTS.",
	ib.EventSQDrained:        "A queue pair in SQD has finished everything that it had started. Its attributes may be changed now.",
	ib.EventPathMig:          "The connection moved to its alternate path. This device has no path migration, so it never raises this event.",
	ib.EventPathMigErr:       "Moving to the alternate path failed. This device has no path migration, so it never raises this event.",
	ib.EventDeviceFatal:      "The device failed for good. Every later call fails with ENODEV, and what was posted does not complete any more. Close the device.",
	ib.EventPortActive:       "The port is up.",
	ib.EventPortErr:          "The port is down: nothing is sent or received. Connections survive if it comes back before their retries are used up.",
	ib.EventLIDChange:        "The port's LID changed. Ethernet ports have none, so this device never raises this event.",
	ib.EventPKeyChange:       "The port's P_Key table changed. This device's never does.",
	ib.EventSMChange:         "Another subnet manager took over. Ethernet has none, so this device never raises this event.",
	ib.EventSRQErr:           "A shared receive queue failed. This device's cannot, so it never raises this event.",
	ib.EventSRQLimitReached:  "A shared receive queue has fewer receives than its limit. Post more and arm the limit again with ibv_modify_srq: the event comes once.",
	ib.EventQPLastWQEReached: "A queue pair in ERR takes no more receives from its shared queue. When its completions are polled it can be destroyed or reset.",
	ib.EventClientReregister: "The subnet manager asks clients to register again. Ethernet has none, so this device never raises this event.",
	ib.EventGIDChange:        "The port's GID table changed: an address came to or went from the network device that the node is bound to. A node with an address of its own keeps its table.",
	ib.EventWQFatal:          "A work queue of the raw Ethernet kind failed. This device has none.",
}
