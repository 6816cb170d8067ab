package cm

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// CommID names one end of an exchange. Whoever chose it knows what it means.
type CommID uint32

// Room for private data, in bytes.
const (
	REQPrivateBytes     = 92
	REPPrivateBytes     = 196
	RTUPrivateBytes     = 224
	REJPrivateBytes     = 148
	MRAPrivateBytes     = 222
	DREQPrivateBytes    = 220
	DREPPrivateBytes    = 224
	SIDRReqPrivateBytes = 216
	SIDRRepPrivateBytes = 136
	LAPPrivateBytes     = 168
	APRPrivateBytes     = 148
	// InfoBytes is the room for additional information in REJ, SIDR_REP and APR.
	InfoBytes = 72
)

// Transport is the transport service that a REQ asks for.
type Transport uint8

const (
	TransportRC  Transport = 0
	TransportUC  Transport = 1
	TransportRD  Transport = 2
	TransportXRC Transport = 3 // with extended transport 1
)

// Path is a path in a REQ. For RoCE it is made up from addresses: there are no LIDs.
type Path struct {
	LocalLID, RemoteLID uint16 // 0xffff: none
	// LocalGID is the sender's, RemoteGID the receiver's.
	LocalGID, RemoteGID ib.GID
	// FlowLabel (20 bits) also decides the UDP source ports of both QPs.
	FlowLabel    uint32
	PacketRate   uint8 // 6 bits; 0: the port's
	TrafficClass uint8
	HopLimit     uint8
	SL           uint8 // 4 bits
	SubnetLocal  bool
	AckTimeout   uint8 // local ACK timeout, 5 bits
}

func (p *Path) walk(c *codec, off int) {
	whole(c, off, 2, &p.LocalLID)
	whole(c, off+2, 2, &p.RemoteLID)
	c.raw(off+4, p.LocalGID[:])
	c.raw(off+20, p.RemoteGID[:])
	field(c, off+36, 0, 20, &p.FlowLabel)
	field(c, off+39, 2, 6, &p.PacketRate)
	whole(c, off+40, 1, &p.TrafficClass)
	whole(c, off+41, 1, &p.HopLimit)
	field(c, off+42, 0, 4, &p.SL)
	oneBit(c, off+42, 4, &p.SubnetLocal)
	field(c, off+43, 0, 5, &p.AckTimeout)
}

// REQ asks for a connection (IBTA 12.6.5). Timeouts are IB times: 4.096 us times 2 to
// the power of the field.
type REQ struct {
	LocalCommID        CommID
	VendorID           uint32 // 24 bits, ECE
	ServiceID          ServiceID
	LocalCAGUID        uint64
	LocalQKey          ib.QKey
	LocalQPN           ib.QPN
	ResponderResources uint8  // READs and atomics that the sender answers at once
	LocalEECN          uint32 // 24 bits
	InitiatorDepth     uint8  // READs and atomics that the sender has open at once
	RemoteEECN         uint32 // 24 bits
	// RemoteResponseTimeout is what the sender gives the receiver to answer,
	// LocalResponseTimeout what the receiver shall give the sender.
	RemoteResponseTimeout uint8 // 5 bits
	Transport             Transport
	FlowControl           bool // end-to-end flow control
	// StartingPSN is the first PSN of what the receiver of the REQ sends.
	StartingPSN          ib.PSN
	LocalResponseTimeout uint8 // 5 bits
	RetryCount           uint8 // 3 bits
	PKey                 uint16
	PathMTU              ib.MTU // 4 bits
	RDCExists            bool
	RNRRetryCount        uint8 // 3 bits
	MaxCMRetries         uint8 // 4 bits: how often the receiver repeats its REP
	SRQ                  bool
	ExtTransport         uint8 // 3 bits
	Primary, Alternate   Path
	SAP                  bool // the alternate path is supported
	Private              [REQPrivateBytes]byte
}

// Attr implements Message.
func (*REQ) Attr() Attr { return AttrREQ }

func (m *REQ) walk(c *codec) {
	whole(c, 0, 4, &m.LocalCommID)
	whole(c, 5, 3, &m.VendorID)
	whole(c, 8, 8, &m.ServiceID)
	whole(c, 16, 8, &m.LocalCAGUID)
	whole(c, 28, 4, &m.LocalQKey)
	whole(c, 32, 3, &m.LocalQPN)
	whole(c, 35, 1, &m.ResponderResources)
	whole(c, 36, 3, &m.LocalEECN)
	whole(c, 39, 1, &m.InitiatorDepth)
	whole(c, 40, 3, &m.RemoteEECN)
	field(c, 43, 0, 5, &m.RemoteResponseTimeout)
	field(c, 43, 5, 2, &m.Transport)
	oneBit(c, 43, 7, &m.FlowControl)
	whole(c, 44, 3, &m.StartingPSN)
	field(c, 47, 0, 5, &m.LocalResponseTimeout)
	field(c, 47, 5, 3, &m.RetryCount)
	whole(c, 48, 2, &m.PKey)
	field(c, 50, 0, 4, &m.PathMTU)
	oneBit(c, 50, 4, &m.RDCExists)
	field(c, 50, 5, 3, &m.RNRRetryCount)
	field(c, 51, 0, 4, &m.MaxCMRetries)
	oneBit(c, 51, 4, &m.SRQ)
	field(c, 51, 5, 3, &m.ExtTransport)
	m.Primary.walk(c, 52)
	m.Alternate.walk(c, 96)
	oneBit(c, 139, 5, &m.SAP)
	c.raw(140, m.Private[:])
}

// ids are the two comm IDs that most messages start with.
func ids(c *codec, local, remote *CommID) {
	whole(c, 0, 4, local)
	whole(c, 4, 4, remote)
}

// REP accepts a REQ (IBTA 12.6.8).
type REP struct {
	LocalCommID, RemoteCommID CommID
	LocalQKey                 ib.QKey
	LocalQPN                  ib.QPN
	LocalEECN                 uint32 // 24 bits
	// StartingPSN is the first PSN of what the receiver of the REP sends.
	StartingPSN        ib.PSN
	ResponderResources uint8
	InitiatorDepth     uint8
	TargetACKDelay     uint8 // 5 bits
	FailoverAccepted   uint8 // 2 bits
	FlowControl        bool
	RNRRetryCount      uint8 // 3 bits
	SRQ                bool
	LocalCAGUID        uint64
	VendorID           uint32 // 24 bits in three places, ECE
	Private            [REPPrivateBytes]byte
}

// Attr implements Message.
func (*REP) Attr() Attr { return AttrREP }

func (m *REP) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	whole(c, 8, 4, &m.LocalQKey)
	whole(c, 12, 3, &m.LocalQPN)
	hi, mid, lo := uint8(m.VendorID>>16), uint8(m.VendorID>>8), uint8(m.VendorID)
	whole(c, 15, 1, &hi)
	whole(c, 16, 3, &m.LocalEECN)
	whole(c, 19, 1, &mid)
	whole(c, 20, 3, &m.StartingPSN)
	whole(c, 23, 1, &lo)
	m.VendorID = uint32(hi)<<16 | uint32(mid)<<8 | uint32(lo)
	whole(c, 24, 1, &m.ResponderResources)
	whole(c, 25, 1, &m.InitiatorDepth)
	field(c, 26, 0, 5, &m.TargetACKDelay)
	field(c, 26, 5, 2, &m.FailoverAccepted)
	oneBit(c, 26, 7, &m.FlowControl)
	field(c, 27, 0, 3, &m.RNRRetryCount)
	oneBit(c, 27, 3, &m.SRQ)
	whole(c, 28, 8, &m.LocalCAGUID)
	c.raw(36, m.Private[:])
}

// RTU confirms a REP (IBTA 12.6.9).
type RTU struct {
	LocalCommID, RemoteCommID CommID
	Private                   [RTUPrivateBytes]byte
}

// Attr implements Message.
func (*RTU) Attr() Attr { return AttrRTU }

func (m *RTU) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	c.raw(8, m.Private[:])
}

// DREQ asks to disconnect (IBTA 12.6.10).
type DREQ struct {
	LocalCommID, RemoteCommID CommID
	RemoteQPN                 ib.QPN // the receiver's; it ignores a DREQ with another
	Private                   [DREQPrivateBytes]byte
}

// Attr implements Message.
func (*DREQ) Attr() Attr { return AttrDREQ }

func (m *DREQ) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	whole(c, 8, 3, &m.RemoteQPN)
	c.raw(12, m.Private[:])
}

// DREP confirms a DREQ (IBTA 12.6.11).
type DREP struct {
	LocalCommID, RemoteCommID CommID
	Private                   [DREPPrivateBytes]byte
}

// Attr implements Message.
func (*DREP) Attr() Attr { return AttrDREP }

func (m *DREP) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	c.raw(8, m.Private[:])
}

// About says which message a REJ or an MRA is about.
type About uint8

const (
	AboutREQ   About = 0
	AboutREP   About = 1
	AboutOther About = 2 // REJ: none in particular; MRA: LAP
)

// MRA asks the peer to wait longer for an answer (IBTA 12.6.6).
type MRA struct {
	LocalCommID, RemoteCommID CommID
	Message                   About
	ServiceTimeout            uint8 // IB time, 5 bits
	Private                   [MRAPrivateBytes]byte
}

// Attr implements Message.
func (*MRA) Attr() Attr { return AttrMRA }

func (m *MRA) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	field(c, 8, 0, 2, &m.Message)
	field(c, 9, 0, 5, &m.ServiceTimeout)
	c.raw(10, m.Private[:])
}

// REJ ends an attempt to connect (IBTA 12.6.7).
type REJ struct {
	LocalCommID, RemoteCommID CommID
	Message                   About
	InfoLength                uint8 // 7 bits: bytes of Info that count
	Reason                    Reason
	Info                      [InfoBytes]byte // additional reject information (ARI)
	Private                   [REJPrivateBytes]byte
}

// Attr implements Message.
func (*REJ) Attr() Attr { return AttrREJ }

func (m *REJ) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	field(c, 8, 0, 2, &m.Message)
	field(c, 9, 0, 7, &m.InfoLength)
	whole(c, 10, 2, &m.Reason)
	c.raw(12, m.Info[:])
	c.raw(84, m.Private[:])
}

// SIDRReq asks which datagram QP serves a service ID (IBTA 12.11.1).
type SIDRReq struct {
	RequestID CommID
	PKey      uint16
	ServiceID ServiceID
	Private   [SIDRReqPrivateBytes]byte
}

// Attr implements Message.
func (*SIDRReq) Attr() Attr { return AttrSIDRReq }

func (m *SIDRReq) walk(c *codec) {
	whole(c, 0, 4, &m.RequestID)
	whole(c, 4, 2, &m.PKey)
	whole(c, 8, 8, &m.ServiceID)
	c.raw(16, m.Private[:])
}

// SIDRStatus is the answer to a SIDR_REQ.
type SIDRStatus uint8

const (
	SIDRValid       SIDRStatus = 0
	SIDRUnsupported SIDRStatus = 1 // nobody listens
	SIDRRejected    SIDRStatus = 2
	SIDRNoQP        SIDRStatus = 3
	SIDRRedirect    SIDRStatus = 4
	SIDRVersion     SIDRStatus = 5
)

// SIDRRep answers a SIDR_REQ (IBTA 12.11.2).
type SIDRRep struct {
	RequestID  CommID
	Status     SIDRStatus
	InfoLength uint8
	// VendorID has 24 bits, in two places: 8 high bits in a field of 16, and 8 low
	// bits (ECE); the middle ones are lost.
	VendorHigh uint16
	QPN        ib.QPN
	VendorLow  uint8
	ServiceID  ServiceID
	QKey       ib.QKey
	Info       [InfoBytes]byte
	Private    [SIDRRepPrivateBytes]byte
}

// Attr implements Message.
func (*SIDRRep) Attr() Attr { return AttrSIDRRep }

func (m *SIDRRep) walk(c *codec) {
	whole(c, 0, 4, &m.RequestID)
	whole(c, 4, 1, &m.Status)
	whole(c, 5, 1, &m.InfoLength)
	whole(c, 6, 2, &m.VendorHigh)
	whole(c, 8, 3, &m.QPN)
	whole(c, 11, 1, &m.VendorLow)
	whole(c, 12, 8, &m.ServiceID)
	whole(c, 20, 4, &m.QKey)
	c.raw(24, m.Info[:])
	c.raw(96, m.Private[:])
}

// LAP offers an alternate path (IBTA 12.8.1). RoCE has none; Linux drops the message.
type LAP struct {
	LocalCommID, RemoteCommID CommID
	RemoteQPN                 ib.QPN
	RemoteResponseTimeout     uint8 // 5 bits
	LocalLID, RemoteLID       uint16
	LocalGID, RemoteGID       ib.GID
	FlowLabel                 uint32 // 20 bits
	TrafficClass              uint8
	HopLimit                  uint8
	PacketRate                uint8 // 6 bits
	SL                        uint8 // 4 bits
	SubnetLocal               bool
	AckTimeout                uint8 // 5 bits
	Private                   [LAPPrivateBytes]byte
}

// Attr implements Message.
func (*LAP) Attr() Attr { return AttrLAP }

func (m *LAP) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	whole(c, 12, 3, &m.RemoteQPN)
	field(c, 15, 0, 5, &m.RemoteResponseTimeout)
	whole(c, 20, 2, &m.LocalLID)
	whole(c, 22, 2, &m.RemoteLID)
	c.raw(24, m.LocalGID[:])
	c.raw(40, m.RemoteGID[:])
	field(c, 56, 0, 20, &m.FlowLabel)
	whole(c, 59, 1, &m.TrafficClass)
	whole(c, 60, 1, &m.HopLimit)
	field(c, 61, 2, 6, &m.PacketRate)
	field(c, 62, 0, 4, &m.SL)
	oneBit(c, 62, 4, &m.SubnetLocal)
	field(c, 63, 0, 5, &m.AckTimeout)
	c.raw(64, m.Private[:])
}

// APR answers a LAP (IBTA 12.8.2).
type APR struct {
	LocalCommID, RemoteCommID CommID
	InfoLength                uint8
	Status                    uint8
	Info                      [InfoBytes]byte
	Private                   [APRPrivateBytes]byte
}

// Attr implements Message.
func (*APR) Attr() Attr { return AttrAPR }

func (m *APR) walk(c *codec) {
	ids(c, &m.LocalCommID, &m.RemoteCommID)
	whole(c, 8, 1, &m.InfoLength)
	whole(c, 9, 1, &m.Status)
	c.raw(12, m.Info[:])
	c.raw(84, m.Private[:])
}

// Reason is why a REJ was sent (enum ib_cm_rej_reason).
type Reason uint16

// The reasons that this package sends or treats specially.
const (
	RejTimeout          Reason = 4
	RejInvalidServiceID Reason = 8
	RejStaleConn        Reason = 10
	RejInvalidGID       Reason = 12
	RejConsumerDefined  Reason = 28 // the program said no
	RejVendorOption     Reason = 35 // the program does not like the ECE options
)

var reasonNames = [...]string{
	1: "NO_QP", 2: "NO_EEC", 3: "NO_RESOURCES", 4: "TIMEOUT", 5: "UNSUPPORTED", 6: "INVALID_COMM_ID",
	7: "INVALID_COMM_INSTANCE", 8: "INVALID_SERVICE_ID", 9: "INVALID_TRANSPORT_TYPE", 10: "STALE_CONN",
	11: "RDC_NOT_EXIST", 12: "INVALID_GID", 13: "INVALID_LID", 14: "INVALID_SL", 15: "INVALID_TRAFFIC_CLASS",
	16: "INVALID_HOP_LIMIT", 17: "INVALID_PACKET_RATE", 18: "INVALID_ALT_GID", 19: "INVALID_ALT_LID",
	20: "INVALID_ALT_SL", 21: "INVALID_ALT_TRAFFIC_CLASS", 22: "INVALID_ALT_HOP_LIMIT", 23: "INVALID_ALT_PACKET_RATE",
	24: "PORT_CM_REDIRECT", 25: "PORT_REDIRECT", 26: "INVALID_MTU", 27: "INSUFFICIENT_RESP_RESOURCES",
	28: "CONSUMER_DEFINED", 29: "INVALID_RNR_RETRY", 30: "DUPLICATE_LOCAL_COMM_ID", 31: "INVALID_CLASS_VERSION",
	32: "INVALID_FLOW_LABEL", 33: "INVALID_ALT_FLOW_LABEL", 35: "VENDOR_OPTION_NOT_SUPPORTED",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return "Reason(" + strconv.Itoa(int(r)) + ")"
}
