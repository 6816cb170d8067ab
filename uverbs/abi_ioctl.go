package uverbs

// The structures and numbers of rdma_user_ioctl_cmds.h, ib_user_ioctl_cmds.h and
// ib_user_ioctl_verbs.h, compared with the installed headers by a test.

// IoctlRequest is RDMA_VERBS_IOCTL, the only request of the device file.
const IoctlRequest = 0xc0181b01

const (
	ioctlHdrBytes  = 24   // struct ib_uverbs_ioctl_hdr
	ioctlAttrBytes = 16   // struct ib_uverbs_attr
	ioctlMaxBytes  = 4096 // of header and attributes together
	attrDataOff    = 8    // of struct ib_uverbs_attr: data
	attrFlagsOff   = 4

	attrMandatory   = 1 // UVERBS_ATTR_F_MANDATORY
	attrValidOutput = 2 // UVERBS_ATTR_F_VALID_OUTPUT
)

type ioctlHdr struct {
	Length    uint16
	ObjectID  uint16
	MethodID  uint16
	NumAttrs  uint16
	Reserved1 uint64
	DriverID  uint32
	Reserved2 uint32
}

type ioctlAttr struct {
	AttrID   uint16
	Len      uint16
	Flags    uint16
	Reserved uint16 // attr_data
	Data     uint64 // the value itself if it fits and goes in, else its address
}

type queryPortRespEx struct {
	Legacy        queryPortResp
	PortCapFlags2 uint16
	Reserved      [6]byte
}

type gidEntry struct {
	GID           [16]byte
	GIDIndex      uint32
	PortNum       uint32
	GIDType       uint32
	NetdevIfindex uint32
}

// uverbsSGE is ib_uverbs_sge.
type uverbsSGE struct {
	Addr   uint64
	Length uint32
	LKey   uint32
}

// Objects (enum uverbs_default_objects).
const (
	objDevice      = 0
	objPD          = 1
	objCompChannel = 2
	objCQ          = 3
	objQP          = 4
	objSRQ         = 5
	objAH          = 6
	objMR          = 7
	objMW          = 8
	objXRCD        = 10
	objDM          = 14
	objAsyncEvent  = 16
)

// Methods, each numbered within its object.
const (
	methodInvokeWrite  = 0
	methodInfoHandles  = 1
	methodQueryPort    = 2
	methodGetContext   = 3
	methodQueryContext = 4
	methodGIDTable     = 5
	methodGIDEntry     = 6

	methodCreate  = 0 // CQ_CREATE, QP_CREATE, SRQ_CREATE, DM_ALLOC
	methodDestroy = 1 // CQ_DESTROY, QP_DESTROY, SRQ_DESTROY, DM_FREE, MR_DESTROY

	methodSoleDestroy = 0 // PD_DESTROY, AH_DESTROY, MW_DESTROY
	methodDMMRReg     = 0
	methodAdviseMR    = 2
	methodQueryMR     = 3
	methodRegDmabufMR = 4
	methodAsyncAlloc  = 0
)

// Attributes, each numbered within its method.
const (
	attrUHWIn  = 0x1000 // UVERBS_ATTR_UHW_IN: for the driver
	attrUHWOut = 0x1001

	attrCoreIn   = 0
	attrCoreOut  = 1
	attrWriteCmd = 2

	attrPortNum  = 0
	attrPortResp = 1

	attrNumCompVectors = 0 // of GET_CONTEXT and QUERY_CONTEXT
	attrCoreSupport    = 1

	attrInfoObject = 0
	attrInfoTotal  = 1
	attrInfoList   = 2

	attrTableEntrySize = 0
	attrTableFlags     = 1
	attrTableEntries   = 2
	attrTableNum       = 3

	attrEntryPort  = 0
	attrEntryIndex = 1
	attrEntryFlags = 2
	attrEntryResp  = 3

	attrCQHandle     = 0
	attrCQCQE        = 1
	attrCQUserHandle = 2
	attrCQChannel    = 3
	attrCQVector     = 4
	attrCQFlags      = 5
	attrCQRespCQE    = 6
	attrCQEventFD    = 7

	attrQPHandle     = 0
	attrQPXRCD       = 1
	attrQPPD         = 2
	attrQPSRQ        = 3
	attrQPSendCQ     = 4
	attrQPRecvCQ     = 5
	attrQPIndTable   = 6
	attrQPUserHandle = 7
	attrQPCap        = 8
	attrQPType       = 9
	attrQPFlags      = 10
	attrQPSourceQPN  = 11
	attrQPEventFD    = 12
	attrQPRespCap    = 13
	attrQPRespNum    = 14

	attrSRQHandle     = 0
	attrSRQPD         = 1
	attrSRQXRCD       = 2
	attrSRQCQ         = 3
	attrSRQUserHandle = 4
	attrSRQMaxWR      = 5
	attrSRQMaxSGE     = 6
	attrSRQLimit      = 7
	attrSRQMaxTags    = 8
	attrSRQType       = 9
	attrSRQEventFD    = 10
	attrSRQRespMaxWR  = 11
	attrSRQRespMaxSGE = 12
	attrSRQRespNum    = 13

	attrDestroyHandle = 0 // of every destroying method
	attrDestroyResp   = 1

	attrDMHandle    = 0
	attrDMLength    = 1
	attrDMAlignment = 2

	attrDMMRHandle   = 0
	attrDMMROffset   = 1
	attrDMMRLength   = 2
	attrDMMRPD       = 3
	attrDMMRAccess   = 4
	attrDMMRDM       = 5
	attrDMMRRespLKey = 6
	attrDMMRRespRKey = 7

	attrAdvisePD     = 0
	attrAdviseAdvice = 1
	attrAdviseFlags  = 2
	attrAdviseSGEs   = 3

	attrMRHandle     = 0
	attrMRRespLKey   = 1
	attrMRRespRKey   = 2
	attrMRRespLength = 3
	attrMRRespIOVA   = 4

	attrAsyncFD = 0
)

const (
	qpfSQSigAll       = 1 << 12 // IB_UVERBS_QP_CREATE_SQ_SIG_ALL
	qpfKnown          = qpfSQSigAll | 1<<1 | 1<<8 | 1<<9 | 1<<11
	cqfKnown          = 3 // IB_UVERBS_CQ_FLAGS_TIMESTAMP_COMPLETION, _IGNORE_OVERRUN
	srqtBasic         = 0 // IB_UVERBS_SRQT_BASIC
	gidTypeRoCEv2     = 2 // IB_UVERBS_GID_TYPE_ROCE_V2
	supportOptionalMR = 1 // IB_UVERBS_CORE_SUPPORT_OPTIONAL_MR_ACCESS
	advicePrefetch    = 0 // IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH
	adviceWrite       = 1
	adviceNoFault     = 2
	adviseFlush       = 1  // IB_UVERBS_ADVISE_MR_FLAG_FLUSH
	driverRXE         = 14 // enum rdma_driver_id
	driverHFI1        = 15
)
