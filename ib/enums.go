package ib

import (
	"strconv"
	"strings"
)

// QPType is the transport service of a queue pair (enum ibv_qp_type).
type QPType uint8

const (
	QPTypeSMI QPType = 0 // kernel only (IB_QPT_SMI)
	QPTypeGSI QPType = 1 // kernel only (IB_QPT_GSI)
	QPTypeRC  QPType = 2
	QPTypeUC  QPType = 3
	QPTypeUD  QPType = 4
)

var qpTypeNames = map[QPType]string{QPTypeSMI: "SMI", QPTypeGSI: "GSI", QPTypeRC: "RC", QPTypeUC: "UC", QPTypeUD: "UD"}

func (t QPType) String() string { return enumName(qpTypeNames, t, "QPType") }

// IsDatagram reports whether each WR names its own destination.
func (t QPType) IsDatagram() bool { return t == QPTypeUD || t == QPTypeGSI || t == QPTypeSMI }

// QPState is the state of a queue pair (enum ibv_qp_state).
type QPState uint8

const (
	StateReset QPState = iota
	StateInit
	StateRTR
	StateRTS
	StateSQD
	StateSQE
	StateErr
	NumQPStates = 7
)

var qpStateNames = map[QPState]string{StateReset: "RESET", StateInit: "INIT", StateRTR: "RTR", StateRTS: "RTS", StateSQD: "SQD", StateSQE: "SQE", StateErr: "ERR"}

func (s QPState) String() string { return enumName(qpStateNames, s, "QPState") }

// MigState is the path migration state (enum ib_mig_state).
type MigState uint8

const (
	MigMigrated MigState = iota
	MigRearm
	MigArmed
)

// FlushType is how far a FLUSH goes, a set of bits (enum ibv_placement_type).
type FlushType uint8

const (
	FlushGlobal     FlushType = 1 << iota // IBV_FLUSH_GLOBAL: everyone sees the data
	FlushPersistent                       // IBV_FLUSH_PERSISTENT: the data survive a loss of power
)

// Access is the right that a peer needs for it.
func (t FlushType) Access() (a Access) {
	if t&FlushGlobal != 0 {
		a |= AccessFlushGlobal
	}
	if t&FlushPersistent != 0 {
		a |= AccessFlushPersistent
	}
	return a
}

// FlushLevel is what a FLUSH is about (enum ibv_selectivity_level).
type FlushLevel uint8

const (
	FlushRange FlushLevel = iota // IBV_FLUSH_RANGE
	FlushMR                      // IBV_FLUSH_MR: the whole region that the key names
)

// Access is a set of access rights to memory or through a QP (enum ibv_access_flags).
type Access uint32

const (
	AccessLocalWrite Access = 1 << iota
	AccessRemoteWrite
	AccessRemoteRead
	AccessRemoteAtomic
	AccessMWBind
	AccessZeroBased
	AccessOnDemand
	AccessHugeTLB
	AccessFlushGlobal
	AccessFlushPersistent
	// AccessLocalRead is always granted and has no bit.
	AccessLocalRead Access = 0
	// AccessRemoteMask covers what a peer may do.
	AccessRemoteMask = AccessRemoteWrite | AccessRemoteRead | AccessRemoteAtomic
	// AccessRelaxedOrdering may always be asked for and changes nothing.
	AccessRelaxedOrdering Access = 1 << 20
	// AccessOptionalMask (IB_ACCESS_OPTIONAL) covers flags a device may ignore.
	AccessOptionalMask Access = 0x3ff00000
)

var accessNames = []flagName[Access]{{AccessLocalWrite, "LOCAL_WRITE"}, {AccessRemoteWrite, "REMOTE_WRITE"}, {AccessRemoteRead, "REMOTE_READ"}, {AccessRemoteAtomic, "REMOTE_ATOMIC"}, {AccessMWBind, "MW_BIND"}, {AccessZeroBased, "ZERO_BASED"}, {AccessOnDemand, "ON_DEMAND"}, {AccessHugeTLB, "HUGETLB"}, {AccessFlushGlobal, "FLUSH_GLOBAL"}, {AccessFlushPersistent, "FLUSH_PERSISTENT"}, {AccessRelaxedOrdering, "RELAXED_ORDERING"}}

func (a Access) String() string { return flagString(accessNames, a) }

// WROpcode is the operation of a send work request (enum ibv_wr_opcode).
type WROpcode uint8

const (
	WRRDMAWrite         WROpcode = 0
	WRRDMAWriteWithImm  WROpcode = 1
	WRSend              WROpcode = 2
	WRSendWithImm       WROpcode = 3
	WRRDMARead          WROpcode = 4
	WRAtomicCmpAndSwp   WROpcode = 5
	WRAtomicFetchAndAdd WROpcode = 6
	WRLocalInv          WROpcode = 7
	WRBindMW            WROpcode = 8
	WRSendWithInv       WROpcode = 9
	WRTSO               WROpcode = 10
	WRFlush             WROpcode = 14
	WRAtomicWrite       WROpcode = 15
	NumWROpcodes                 = 16
)

var wrOpcodeNames = map[WROpcode]string{WRRDMAWrite: "RDMA_WRITE", WRRDMAWriteWithImm: "RDMA_WRITE_WITH_IMM", WRSend: "SEND", WRSendWithImm: "SEND_WITH_IMM", WRRDMARead: "RDMA_READ", WRAtomicCmpAndSwp: "ATOMIC_CMP_AND_SWP", WRAtomicFetchAndAdd: "ATOMIC_FETCH_AND_ADD", WRLocalInv: "LOCAL_INV", WRBindMW: "BIND_MW", WRSendWithInv: "SEND_WITH_INV", WRTSO: "TSO", WRFlush: "FLUSH", WRAtomicWrite: "ATOMIC_WRITE"}

func (o WROpcode) String() string { return enumName(wrOpcodeNames, o, "WROpcode") }

// SendFlags modify a send work request (enum ibv_send_flags).
type SendFlags uint32

const (
	SendFence SendFlags = 1 << iota
	SendSignaled
	SendSolicited
	SendInline
	SendIPCsum
)

var sendFlagNames = []flagName[SendFlags]{{SendFence, "FENCE"}, {SendSignaled, "SIGNALED"}, {SendSolicited, "SOLICITED"}, {SendInline, "INLINE"}, {SendIPCsum, "IP_CSUM"}}

func (f SendFlags) String() string { return flagString(sendFlagNames, f) }

// WCStatus is the status of a completion (enum ibv_wc_status).
type WCStatus uint8

const (
	WCSuccess WCStatus = iota
	WCLocLenErr
	WCLocQPOpErr
	WCLocEECOpErr
	WCLocProtErr
	WCWRFlushErr
	WCMWBindErr
	WCBadRespErr
	WCLocAccessErr
	WCRemInvReqErr
	WCRemAccessErr
	WCRemOpErr
	WCRetryExcErr
	WCRNRRetryExcErr
	WCLocRDDViolErr
	WCRemInvRDReqErr
	WCRemAbortErr
	WCInvEECNErr
	WCInvEECStateErr
	WCFatalErr
	WCRespTimeoutErr
	WCGeneralErr
	WCTMErr
	WCTMRndvIncomplete
	NumWCStatuses = 24
)

var wcStatusNames = [NumWCStatuses]string{"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR", "BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR", "RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR", "INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE"}

func (s WCStatus) String() string {
	if int(s) < len(wcStatusNames) {
		return wcStatusNames[s]
	}
	return "WCStatus(" + strconv.Itoa(int(s)) + ")"
}

// ParseWCStatus finds a status by its name without the IBV_WC_ prefix.
func ParseWCStatus(name string) (WCStatus, bool) {
	for i, n := range wcStatusNames {
		if n == name {
			return WCStatus(i), true
		}
	}
	return 0, false
}

// WCOpcode is the operation that completed (enum ibv_wc_opcode). WCRecv is a bit:
// opcode&WCRecv tells a receive.
type WCOpcode uint8

const (
	WCSend            WCOpcode = 0
	WCRDMAWrite       WCOpcode = 1
	WCRDMARead        WCOpcode = 2
	WCCompSwap        WCOpcode = 3
	WCFetchAdd        WCOpcode = 4
	WCBindMW          WCOpcode = 5
	WCLocalInv        WCOpcode = 6
	WCTSO             WCOpcode = 7
	WCFlush           WCOpcode = 8
	WCAtomicWrite     WCOpcode = 9
	WCRecv            WCOpcode = 128
	WCRecvRDMAWithImm WCOpcode = 129
)

var wcOpcodeNames = map[WCOpcode]string{WCSend: "SEND", WCRDMAWrite: "RDMA_WRITE", WCRDMARead: "RDMA_READ", WCCompSwap: "COMP_SWAP", WCFetchAdd: "FETCH_ADD", WCBindMW: "BIND_MW", WCLocalInv: "LOCAL_INV", WCTSO: "TSO", WCFlush: "FLUSH", WCAtomicWrite: "ATOMIC_WRITE", WCRecv: "RECV", WCRecvRDMAWithImm: "RECV_RDMA_WITH_IMM"}

func (o WCOpcode) String() string { return enumName(wcOpcodeNames, o, "WCOpcode") }

// WCFlags describe a completion (enum ibv_wc_flags, the user values: the kernel's
// own bits differ).
type WCFlags uint32

const (
	WCFlagGRH WCFlags = 1 << iota
	WCFlagWithImm
	WCFlagIPCsumOK
	WCFlagWithInv
)

var wcFlagNames = []flagName[WCFlags]{{WCFlagGRH, "GRH"}, {WCFlagWithImm, "WITH_IMM"}, {WCFlagIPCsumOK, "IP_CSUM_OK"}, {WCFlagWithInv, "WITH_INV"}}

func (f WCFlags) String() string { return flagString(wcFlagNames, f) }

// Values of a completion's sl that say which network header came before a datagram: bit
// 3 is UDP, so RoCE v2, and the lower bits are the kind of header, as ConnectX writes them.
const (
	WCSLIPv6 = 8 | 1
	WCSLIPv4 = 8 | 2
)

// EventType is an asynchronous event (enum ibv_event_type).
type EventType uint8

const (
	EventCQErr EventType = iota
	EventQPFatal
	EventQPReqErr
	EventQPAccessErr
	EventCommEst
	EventSQDrained
	EventPathMig
	EventPathMigErr
	EventDeviceFatal
	EventPortActive
	EventPortErr
	EventLIDChange
	EventPKeyChange
	EventSMChange
	EventSRQErr
	EventSRQLimitReached
	EventQPLastWQEReached
	EventClientReregister
	EventGIDChange
	EventWQFatal
)

var eventNames = [...]string{"CQ_ERR", "QP_FATAL", "QP_REQ_ERR", "QP_ACCESS_ERR", "COMM_EST", "SQ_DRAINED", "PATH_MIG", "PATH_MIG_ERR", "DEVICE_FATAL", "PORT_ACTIVE", "PORT_ERR", "LID_CHANGE", "PKEY_CHANGE", "SM_CHANGE", "SRQ_ERR", "SRQ_LIMIT_REACHED", "QP_LAST_WQE_REACHED", "CLIENT_REREGISTER", "GID_CHANGE", "WQ_FATAL"}

func (e EventType) String() string {
	if int(e) < len(eventNames) {
		return eventNames[e]
	}
	return "EventType(" + strconv.Itoa(int(e)) + ")"
}

// AttrMask selects attributes of modify_qp (enum ibv_qp_attr_mask).
type AttrMask uint32

const (
	AttrState AttrMask = 1 << iota
	AttrCurState
	AttrEnSQDAsyncNotify
	AttrAccessFlags
	AttrPKeyIndex
	AttrPort
	AttrQKey
	AttrAV
	AttrPathMTU
	AttrTimeout
	AttrRetryCnt
	AttrRNRRetry
	AttrRQPSN
	AttrMaxQPRdAtomic
	AttrAltPath
	AttrMinRNRTimer
	AttrSQPSN
	AttrMaxDestRdAtomic
	AttrPathMigState
	AttrCap
	AttrDestQPN
	// AttrStandardMask (IB_QP_ATTR_STANDARD_BITS) covers every bit above.
	AttrStandardMask AttrMask = 1<<21 - 1
)

var attrMaskNames = []flagName[AttrMask]{{AttrState, "STATE"}, {AttrCurState, "CUR_STATE"}, {AttrEnSQDAsyncNotify, "EN_SQD_ASYNC_NOTIFY"}, {AttrAccessFlags, "ACCESS_FLAGS"}, {AttrPKeyIndex, "PKEY_INDEX"}, {AttrPort, "PORT"}, {AttrQKey, "QKEY"}, {AttrAV, "AV"}, {AttrPathMTU, "PATH_MTU"}, {AttrTimeout, "TIMEOUT"}, {AttrRetryCnt, "RETRY_CNT"}, {AttrRNRRetry, "RNR_RETRY"}, {AttrRQPSN, "RQ_PSN"}, {AttrMaxQPRdAtomic, "MAX_QP_RD_ATOMIC"}, {AttrAltPath, "ALT_PATH"}, {AttrMinRNRTimer, "MIN_RNR_TIMER"}, {AttrSQPSN, "SQ_PSN"}, {AttrMaxDestRdAtomic, "MAX_DEST_RD_ATOMIC"}, {AttrPathMigState, "PATH_MIG_STATE"}, {AttrCap, "CAP"}, {AttrDestQPN, "DEST_QPN"}}

func (m AttrMask) String() string { return flagString(attrMaskNames, m) }

// MWType is the type of a memory window (enum ibv_mw_type).
type MWType uint8

const (
	MWType1 MWType = 1
	MWType2 MWType = 2
)

type flagName[T ~uint32] struct {
	bit  T
	name string
}

func flagString[T ~uint32](names []flagName[T], v T) string {
	if v == 0 {
		return "0"
	}
	var parts []string
	for _, n := range names {
		if v&n.bit != 0 {
			parts = append(parts, n.name)
			v &^= n.bit
		}
	}
	if v != 0 {
		parts = append(parts, "0x"+strconv.FormatUint(uint64(v), 16))
	}
	return strings.Join(parts, "|")
}

func enumName[T ~uint8](names map[T]string, v T, kind string) string {
	if n, ok := names[v]; ok {
		return n
	}
	return kind + "(" + strconv.Itoa(int(v)) + ")"
}
