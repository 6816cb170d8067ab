package ucma

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
)

// The structures of rdma_user_cm.h. Fields are in the order and at the offsets of the C
// structures, which a test compares with the installed headers; numbers are in the
// machine's byte order unless their name ends in BE.

var native = binary.NativeEndian

// Command numbers (enum rdma_ucm_cmd).
const (
	cmdCreateID     = 0
	cmdDestroyID    = 1
	cmdBindIP       = 2
	cmdResolveIP    = 3
	cmdResolveRoute = 4
	cmdQueryRoute   = 5
	cmdConnect      = 6
	cmdListen       = 7
	cmdAccept       = 8
	cmdReject       = 9
	cmdDisconnect   = 10
	cmdInitQPAttr   = 11
	cmdGetEvent     = 12
	cmdGetOption    = 13
	cmdSetOption    = 14
	cmdNotify       = 15
	cmdJoinIPMcast  = 16
	cmdLeaveMcast   = 17
	cmdMigrateID    = 18
	cmdQuery        = 19
	cmdBind         = 20
	cmdResolveAddr  = 21
	cmdJoinMcast    = 22
)

const (
	// HeaderBytes is struct rdma_ucm_cmd_hdr: command, in, out.
	HeaderBytes = 8
	// MaxCommand bounds what a command can be: in is 16 bits.
	MaxCommand = HeaderBytes + 1<<16
)

// Address families as Linux numbers them.
const (
	afINET  = 2
	afINET6 = 10
	afIB    = 27
)

// Sizes of the addresses.
const (
	sockaddrIn  = 16
	sockaddrIn6 = 28
	sockaddrIB  = 48
)

type (
	sin6    [sockaddrIn6]byte
	storage [128]byte // struct __kernel_sockaddr_storage
)

type createIDCmd struct {
	UID, Response uint64
	PS            uint16
	QPType        uint8
	_             [5]byte
}

type idResp struct{ ID uint32 }

// idCmd is DESTROY_ID, LEAVE_MCAST, QUERY, QUERY_ROUTE, INIT_QP_ATTR and MIGRATE_ID: an
// id and something else.
type idCmd struct {
	Response uint64
	ID       uint32
	Arg      uint32 // reserved, option, qp_state, fd
}

type eventsResp struct{ EventsReported uint32 }

type bindIPCmd struct {
	Response uint64
	Addr     sin6
	ID       uint32
}

type bindCmd struct {
	ID             uint32
	Size, Reserved uint16
	Addr           storage
}

type resolveIPCmd struct {
	Src, Dst sin6
	ID       uint32
	Timeout  int32
}

type resolveAddrCmd struct {
	ID               uint32
	Timeout          int32
	SrcSize, DstSize uint16
	Reserved         uint32
	Src, Dst         storage
}

// idValueCmd is RESOLVE_ROUTE, LISTEN and NOTIFY.
type idValueCmd struct {
	ID    uint32
	Value int32 // timeout_ms, backlog, event
}

type connParam struct {
	QPNum, QKey                                         uint32
	Private                                             [256]byte
	PrivateLen, SRQ, ResponderResources, InitiatorDepth uint8
	FlowControl, RetryCount, RNRRetryCount, Valid       uint8
}

type udParam struct {
	QPNum, QKey uint32
	AH          ahAttr
	Private     [256]byte
	PrivateLen  uint8
	_           [7]byte
}

type ece struct{ VendorID, AttrMod uint32 }

type connectCmd struct {
	Conn     connParam
	ID       uint32
	Reserved uint32
	ECE      ece
}

type acceptCmd struct {
	UID      uint64
	Conn     connParam
	ID       uint32
	Reserved uint32
	ECE      ece
}

type rejectCmd struct {
	ID                 uint32
	PrivateLen, Reason uint8
	_                  [2]byte
	Private            [256]byte
}

type disconnectCmd struct{ ID uint32 }

type getEventCmd struct{ Response uint64 }

// eventResp is followed by 304 bytes of connParam or udParam; see encodeEvent.
type eventResp struct {
	UID       uint64
	ID, Event uint32
	Status    int32
}

const (
	eventParamOff = 20
	eventECEOff   = 328
	eventBytes    = 336
	eventMinBytes = 324 // before there were ECE
)

type setOptionCmd struct {
	OptVal                     uint64
	ID, Level, OptName, OptLen uint32
}

type joinIPCmd struct {
	Response, UID uint64
	Addr          sin6
	ID            uint32
}

type joinCmd struct {
	Response, UID uint64
	ID            uint32
	Size, Flags   uint16
	Addr          storage
}

// ahAttr is struct ib_uverbs_ah_attr.
type ahAttr struct {
	DGID                              [16]byte
	FlowLabel                         uint32
	SGIDIndex, HopLimit, TrafficClass uint8
	_                                 uint8
	DLID                              uint16
	SL, SrcPathBits                   uint8
	StaticRate, IsGlobal, PortNum     uint8
	_                                 uint8
}

func ahOf(av *ib.AV) ahAttr {
	a := ahAttr{DGID: av.DGID, FlowLabel: av.FlowLabel, SGIDIndex: av.SGIDIndex, HopLimit: av.HopLimit, TrafficClass: av.TrafficClass, SL: av.SL, PortNum: av.PortNum}
	if av.IsGlobal {
		a.IsGlobal = 1
	}
	return a
}

// qpAttrResp is struct ib_uverbs_qp_attr.
type qpAttrResp struct {
	Mask, State, CurState, PathMTU, PathMigState uint32
	QKey, RQPSN, SQPSN, DestQPN, Access          uint32
	AH, AltAH                                    ahAttr
	Cap                                          [5]uint32
	PKeyIndex, AltPKeyIndex                      uint16
	EnSQDAsyncNotify, SQDraining                 uint8
	MaxRdAtomic, MaxDestRdAtomic                 uint8
	MinRNRTimer, PortNum, Timeout, RetryCnt      uint8
	RNRRetry, AltPortNum, AltTimeout             uint8
	_                                            [5]byte
}

// userPath is struct ib_user_path_rec.
type userPath struct {
	DGID, SGID                   [16]byte
	DLID, SLID                   uint16
	RawTraffic                   uint32
	FlowLabelBE                  [4]byte
	Reversible, MTU              uint32
	PKeyBE                       [2]byte
	HopLimit, TrafficClass       uint8
	NumbPath, SL                 uint8
	MTUSelector, RateSelector    uint8
	Rate, PacketLifeTimeSelector uint8
	PacketLifeTime, Preference   uint8
}

type queryRouteResp struct {
	NodeGUIDBE [8]byte
	Route      [2]userPath
	Src, Dst   sin6
	NumPaths   uint32
	PortNum    uint8
	_          [3]byte
	IBDevIndex uint32
	Reserved   uint32
}

const queryRouteMinBytes = 200 // before there was ibdev_index

type queryAddrResp struct {
	NodeGUIDBE       [8]byte
	PortNum          uint8
	_                uint8
	PKey             uint16
	SrcSize, DstSize uint16
	Src, Dst         storage
	IBDevIndex       uint32
	Reserved         uint32
}

const queryAddrMinBytes = 272

// pathData is struct ib_path_rec_data with the record of the subnet administrator in it,
// which is big-endian throughout.
type pathData struct {
	Flags, Reserved uint32
	Record          [64]byte
}

const (
	pathDataBytes = 72
	// pathFlags is IB_PATH_GMP | PRIMARY | OUTBOUND | INBOUND_REVERSE: a path for all uses.
	pathFlags = 0x2b
)

// noIndex (UCMA_INVALID_IB_INDEX) says that a device has no number. The programs find it
// by its node GUID then.
const noIndex = ^uint32(0)

// encode returns the bytes of one of the structures above.
func encode(v any) []byte {
	b, err := binary.Append(nil, native, v)
	if err != nil {
		panic("ucma: structure without a fixed size: " + err.Error())
	}
	return b
}

// addrSize (kernel: rdma_addr_size) is the size of the address that b holds, 0 for a
// family that is not known.
func addrSize(b []byte) int {
	switch native.Uint16(b) {
	case afINET:
		return sockaddrIn
	case afINET6:
		return sockaddrIn6
	case afIB:
		return sockaddrIB
	}
	return 0
}

// parseAddr reads a struct sockaddr_in or sockaddr_in6 from at least 28 bytes. An address
// of family 0 is none; AF_IB is refused.
func parseAddr(verb string, b []byte) (cm.Addr, error) {
	port := binary.BigEndian.Uint16(b[2:])
	switch native.Uint16(b) {
	case 0:
		return cm.Addr{}, nil
	case afINET:
		return cm.IPv4(b[4], b[5], b[6], b[7], port), nil
	case afINET6:
		a := cm.Addr{Family: cm.FamilyIPv6, IP: ib.GID(b[8:24]), Port: port, FlowInfo: binary.BigEndian.Uint32(b[4:])}
		return a, nil
	case afIB:
		return cm.Addr{}, ib.NewVerbError(ib.EADDRNOTAVAIL, verb, "", "RoCE has no AF_IB addresses here")
	}
	return cm.Addr{}, ib.NewVerbError(ib.EINVAL, verb, "", "unknown address family")
}

// isScopeless tells whether b is a link-local IPv6 address without the interface that it
// means.
func isScopeless(b []byte) bool {
	return native.Uint16(b) == afINET6 && b[8] == 0xfe && b[9]&0xc0 == 0x80 && native.Uint32(b[24:]) == 0
}

// putAddr writes an address into b, which has at least 28 bytes, and returns its size.
func putAddr(b []byte, a cm.Addr) int {
	switch a.Family {
	case cm.FamilyIPv4:
		native.PutUint16(b, afINET)
		binary.BigEndian.PutUint16(b[2:], a.Port)
		ip := a.IP.IPv4()
		copy(b[4:8], ip[:])
		return sockaddrIn
	case cm.FamilyIPv6:
		native.PutUint16(b, afINET6)
		binary.BigEndian.PutUint16(b[2:], a.Port)
		binary.BigEndian.PutUint32(b[4:], a.FlowInfo)
		copy(b[8:24], a.IP[:])
		return sockaddrIn6
	}
	return 0
}

// putGIDAddr writes a struct sockaddr_ib.
func putGIDAddr(b []byte, g ib.GID, s cm.ServiceID) {
	native.PutUint16(b, afIB)
	copy(b[8:24], g[:])
	binary.BigEndian.PutUint64(b[24:], uint64(s))
}
