package uverbs

import "encoding/binary"

// The structures of ib_user_verbs.h. Fields are in the order and at the offsets of the
// C structures, which a test compares with the installed headers; numbers are in the
// machine's byte order. A Response field is the address for the answer.

var native = binary.NativeEndian

// encode returns the bytes of one of the structures below.
func encode(v any) []byte {
	b, err := binary.Append(nil, native, v)
	if err != nil {
		panic("uverbs: structure without a fixed size: " + err.Error())
	}
	return b
}

// Command numbers (enum ib_uverbs_write_cmds).
const (
	cmdGetContext        = 0
	cmdQueryDevice       = 1
	cmdQueryPort         = 2
	cmdAllocPD           = 3
	cmdDeallocPD         = 4
	cmdCreateAH          = 5
	cmdDestroyAH         = 8
	cmdRegMR             = 9
	cmdReregMR           = 11
	cmdDeregMR           = 13
	cmdAllocMW           = 14
	cmdDeallocMW         = 16
	cmdCreateCompChannel = 17
	cmdCreateCQ          = 18
	cmdResizeCQ          = 19
	cmdDestroyCQ         = 20
	cmdPollCQ            = 21
	cmdReqNotifyCQ       = 23
	cmdCreateQP          = 24
	cmdQueryQP           = 25
	cmdModifyQP          = 26
	cmdDestroyQP         = 27
	cmdPostSend          = 28
	cmdPostRecv          = 29
	cmdAttachMcast       = 30
	cmdDetachMcast       = 31
	cmdCreateSRQ         = 32
	cmdModifySRQ         = 33
	cmdQuerySRQ          = 34
	cmdDestroySRQ        = 35
	cmdPostSRQRecv       = 36

	cmdMask     = 0xff       // IB_USER_VERBS_CMD_COMMAND_MASK
	cmdExtended = 0x80000000 // IB_USER_VERBS_CMD_FLAG_EXTENDED
)

type asyncEventDesc struct {
	Element   uint64
	EventType uint32
	Reserved  uint32
}

type compEventDesc struct {
	CQHandle uint64
}

const (
	cmdHdrBytes   = 8  // struct ib_uverbs_cmd_hdr
	exCmdHdrBytes = 16 // struct ib_uverbs_ex_cmd_hdr
)

// respOnly is a command that consists of its response address: ib_uverbs_get_context,
// _query_device, _alloc_pd, _create_comp_channel.
type respOnly struct {
	Response uint64
}

type getContextResp struct {
	AsyncFD        uint32
	NumCompVectors uint32
}

type queryDeviceResp struct {
	FWVer                 uint64
	NodeGUID              [8]byte // big-endian
	SysImageGUID          [8]byte
	MaxMRSize             uint64
	PageSizeCap           uint64
	VendorID              uint32
	VendorPartID          uint32
	HWVer                 uint32
	MaxQP                 uint32
	MaxQPWR               uint32
	DeviceCapFlags        uint32
	MaxSGE                uint32
	MaxSGERd              uint32
	MaxCQ                 uint32
	MaxCQE                uint32
	MaxMR                 uint32
	MaxPD                 uint32
	MaxQPRdAtom           uint32
	MaxEERdAtom           uint32
	MaxResRdAtom          uint32
	MaxQPInitRdAtom       uint32
	MaxEEInitRdAtom       uint32
	AtomicCap             uint32
	MaxEE                 uint32
	MaxRDD                uint32
	MaxMW                 uint32
	MaxRawIPv6QP          uint32
	MaxRawEthyQP          uint32
	MaxMcastGrp           uint32
	MaxMcastQPAttach      uint32
	MaxTotalMcastQPAttach uint32
	MaxAH                 uint32
	MaxFMR                uint32
	MaxMapPerFMR          uint32
	MaxSRQ                uint32
	MaxSRQWR              uint32
	MaxSRQSGE             uint32
	MaxPKeys              uint16
	LocalCAAckDelay       uint8
	PhysPortCnt           uint8
	Reserved              [4]byte
}

type exQueryDevice struct {
	CompMask uint32
	Reserved uint32
}

type exQueryDeviceResp struct {
	Base             queryDeviceResp
	CompMask         uint32
	ResponseLength   uint32
	ODPCaps          [3]uint64
	TimestampMask    uint64
	HCACoreClock     uint64
	DeviceCapFlagsEx uint64
	RSSCaps          [4]uint32
	MaxWQTypeRQ      uint32
	RawPacketCaps    uint32
	TMCaps           [6]uint32
	CQModerationCaps [2]uint32
	MaxDMSize        uint64
	XRCODPCaps       uint32
	Reserved         uint32
}

type queryPort struct {
	Response uint64
	PortNum  uint8
	Reserved [7]byte
}

type queryPortResp struct {
	PortCapFlags  uint32
	MaxMsgSz      uint32
	BadPKeyCntr   uint32
	QKeyViolCntr  uint32
	GIDTblLen     uint32
	PKeyTblLen    uint16
	LID           uint16
	SMLID         uint16
	State         uint8
	MaxMTU        uint8
	ActiveMTU     uint8
	LMC           uint8
	MaxVLNum      uint8
	SMSL          uint8
	SubnetTimeout uint8
	InitTypeReply uint8
	ActiveWidth   uint8
	ActiveSpeed   uint8
	PhysState     uint8
	LinkLayer     uint8
	Flags         uint8
	Reserved      uint8
}

// handleOnly is a command that consists of a handle: ib_uverbs_dealloc_pd, _dereg_mr,
// _dealloc_mw, _destroy_ah; or the answer of ALLOC_PD, CREATE_AH and
// CREATE_COMP_CHANNEL.
type handleOnly struct {
	Handle uint32
}

type regMR struct {
	Response    uint64
	Start       uint64
	Length      uint64
	HCAVA       uint64
	PDHandle    uint32
	AccessFlags uint32
}

type regMRResp struct {
	MRHandle uint32
	LKey     uint32
	RKey     uint32
}

type reregMR struct {
	Response    uint64
	MRHandle    uint32
	Flags       uint32
	Start       uint64
	Length      uint64
	HCAVA       uint64
	PDHandle    uint32
	AccessFlags uint32
}

type reregMRResp struct {
	LKey uint32
	RKey uint32
}

type allocMW struct {
	Response uint64
	PDHandle uint32
	MWType   uint8
	Reserved [3]byte
}

type allocMWResp struct {
	MWHandle uint32
	RKey     uint32
}

type createCQ struct {
	Response    uint64
	UserHandle  uint64
	CQE         uint32
	CompVector  uint32
	CompChannel int32
	Reserved    uint32
}

type createCQResp struct {
	CQHandle uint32
	CQE      uint32
}

type exCreateCQ struct {
	UserHandle  uint64
	CQE         uint32
	CompVector  uint32
	CompChannel int32
	CompMask    uint32
	Flags       uint32
	Reserved    uint32
}

type exCreateCQResp struct {
	Base           createCQResp
	CompMask       uint32
	ResponseLength uint32
}

type resizeCQ struct {
	Response uint64
	CQHandle uint32
	CQE      uint32
}

type resizeCQResp struct {
	CQE      uint32
	Reserved uint32
}

type pollCQ struct {
	Response uint64
	CQHandle uint32
	NE       uint32
}

type pollCQResp struct {
	Count    uint32
	Reserved uint32
}

type reqNotifyCQ struct {
	CQHandle      uint32
	SolicitedOnly uint32
}

// destroyObject is ib_uverbs_destroy_cq, _destroy_qp, _destroy_srq and _query_srq.
type destroyObject struct {
	Response uint64
	Handle   uint32
	Reserved uint32
}

type destroyCQResp struct {
	CompEventsReported  uint32
	AsyncEventsReported uint32
}

// eventsResp is the answer of DESTROY_QP and DESTROY_SRQ.
type eventsResp struct {
	EventsReported uint32
}

type globalRoute struct {
	DGID         [16]byte
	FlowLabel    uint32
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	Reserved     uint8
}

type ahAttr struct {
	GRH         globalRoute
	DLID        uint16
	SL          uint8
	SrcPathBits uint8
	StaticRate  uint8
	IsGlobal    uint8
	PortNum     uint8
	Reserved    uint8
}

type createAH struct {
	Response   uint64
	UserHandle uint64
	PDHandle   uint32
	Reserved   uint32
	Attr       ahAttr
}

// qpCaps is what the creation of a QP has in common in all its forms.
type qpCaps struct {
	MaxSendWR     uint32
	MaxRecvWR     uint32
	MaxSendSGE    uint32
	MaxRecvSGE    uint32
	MaxInlineData uint32
}

// qpBody is ib_uverbs_create_qp without its response, and the beginning of
// ib_uverbs_ex_create_qp.
type qpBody struct {
	UserHandle   uint64
	PDHandle     uint32
	SendCQHandle uint32
	RecvCQHandle uint32
	SRQHandle    uint32
	Cap          qpCaps
	SQSigAll     uint8
	QPType       uint8
	IsSRQ        uint8
	Reserved     uint8
}

type createQP struct {
	Response uint64
	Body     qpBody
}

type exCreateQP struct {
	Body            qpBody
	CompMask        uint32
	CreateFlags     uint32
	RWQIndTblHandle uint32
	SourceQPN       uint32
}

type createQPResp struct {
	QPHandle uint32
	QPN      uint32
	Cap      qpCaps
	Reserved uint32
}

type exCreateQPResp struct {
	Base           createQPResp
	CompMask       uint32
	ResponseLength uint32
}

type qpDest struct {
	DGID         [16]byte
	FlowLabel    uint32
	DLID         uint16
	Reserved     uint16
	SGIDIndex    uint8
	HopLimit     uint8
	TrafficClass uint8
	SL           uint8
	SrcPathBits  uint8
	StaticRate   uint8
	IsGlobal     uint8
	PortNum      uint8
}

type queryQP struct {
	Response uint64
	QPHandle uint32
	AttrMask uint32
}

type queryQPResp struct {
	Dest            qpDest
	AltDest         qpDest
	Cap             qpCaps
	QKey            uint32
	RQPSN           uint32
	SQPSN           uint32
	DestQPNum       uint32
	QPAccessFlags   uint32
	PKeyIndex       uint16
	AltPKeyIndex    uint16
	QPState         uint8
	CurQPState      uint8
	PathMTU         uint8
	PathMigState    uint8
	SQDraining      uint8
	MaxRdAtomic     uint8
	MaxDestRdAtomic uint8
	MinRNRTimer     uint8
	PortNum         uint8
	Timeout         uint8
	RetryCnt        uint8
	RNRRetry        uint8
	AltPortNum      uint8
	AltTimeout      uint8
	SQSigAll        uint8
	Reserved        [5]byte
}

type modifyQP struct {
	Dest             qpDest
	AltDest          qpDest
	QPHandle         uint32
	AttrMask         uint32
	QKey             uint32
	RQPSN            uint32
	SQPSN            uint32
	DestQPNum        uint32
	QPAccessFlags    uint32
	PKeyIndex        uint16
	AltPKeyIndex     uint16
	QPState          uint8
	CurQPState       uint8
	PathMTU          uint8
	PathMigState     uint8
	EnSQDAsyncNotify uint8
	MaxRdAtomic      uint8
	MaxDestRdAtomic  uint8
	MinRNRTimer      uint8
	PortNum          uint8
	Timeout          uint8
	RetryCnt         uint8
	RNRRetry         uint8
	AltPortNum       uint8
	AltTimeout       uint8
	Reserved         [2]byte
}

type exModifyQP struct {
	Base      modifyQP
	RateLimit uint32
	Reserved  uint32
}

type exModifyQPResp struct {
	CompMask       uint32
	ResponseLength uint32
}

// postWR is ib_uverbs_post_send, _post_recv and _post_srq_recv.
type postWR struct {
	Response uint64
	Handle   uint32
	WRCount  uint32
	SGECount uint32
	WQESize  uint32
}

type postResp struct {
	BadWR uint32
}

// mcastCmd is ib_uverbs_attach_mcast and _detach_mcast.
type mcastCmd struct {
	GID      [16]byte
	QPHandle uint32
	MLID     uint16
	Reserved uint16
}

type createSRQ struct {
	Response   uint64
	UserHandle uint64
	PDHandle   uint32
	MaxWR      uint32
	MaxSGE     uint32
	SRQLimit   uint32
}

type createSRQResp struct {
	SRQHandle uint32
	MaxWR     uint32
	MaxSGE    uint32
	SRQN      uint32
}

type modifySRQ struct {
	SRQHandle uint32
	AttrMask  uint32
	MaxWR     uint32
	SRQLimit  uint32
}

type querySRQResp struct {
	MaxWR    uint32
	MaxSGE   uint32
	SRQLimit uint32
	Reserved uint32
}
