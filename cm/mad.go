package cm

import (
	"errors"
	"strconv"
)

// Sizes in bytes.
const (
	// MADBytes is the size of every management datagram.
	MADBytes = 256
	// HeaderBytes is the common header of a management datagram.
	HeaderBytes = 24
	bodyBytes   = MADBytes - HeaderBytes
)

// MAD is a management datagram, the payload of one UD packet to QP1.
type MAD [MADBytes]byte

// Values of the common header that the connection manager uses.
const (
	BaseVersion  = 1    // IB_MGMT_BASE_VERSION
	ClassCM      = 0x07 // IB_MGMT_CLASS_CM
	classSMP     = 0x01 // IB_MGMT_CLASS_SUBN_LID_ROUTED
	classSMPDir  = 0x81 // IB_MGMT_CLASS_SUBN_DIRECTED_ROUTE
	ClassVersion = 2    // IB_CM_CLASS_VERSION
	MethodGet    = 0x01 // IB_MGMT_METHOD_GET
	MethodSend   = 0x03 // IB_MGMT_METHOD_SEND
	methodGetRsp = 0x81 // IB_MGMT_METHOD_GET_RESP
	// statusUnsupported (IB_MGMT_MAD_STATUS_UNSUPPORTED_METHOD_ATTRIB) answers a Get
	// that nobody handles.
	statusUnsupported = 0x000c
)

// Attr is the attribute of a management datagram: for class 7 the kind of message.
type Attr uint16

// The messages of the connection manager (kernel: CM_*_ATTR_ID).
const (
	AttrClassPortInfo Attr = 0x0001
	AttrREQ           Attr = 0x0010 // request for communication
	AttrMRA           Attr = 0x0011 // message receipt acknowledgement: "wait longer"
	AttrREJ           Attr = 0x0012 // reject
	AttrREP           Attr = 0x0013 // reply to request
	AttrRTU           Attr = 0x0014 // ready to use
	AttrDREQ          Attr = 0x0015 // disconnection request
	AttrDREP          Attr = 0x0016 // disconnection reply
	AttrSIDRReq       Attr = 0x0017 // service ID resolution request, for datagrams
	AttrSIDRRep       Attr = 0x0018
	AttrLAP           Attr = 0x0019 // load alternate path
	AttrAPR           Attr = 0x001a // alternate path response

	numAttrs = int(AttrAPR-AttrREQ) + 1
)

var attrNames = [numAttrs]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}

func (a Attr) String() string {
	if i := int(a) - int(AttrREQ); i >= 0 && i < numAttrs {
		return attrNames[i]
	}
	return "Attr(0x" + strconv.FormatUint(uint64(a), 16) + ")"
}

// Header is the common header of a management datagram (struct ib_mad_hdr). For the
// connection manager everything but TID, Attr and AttrMod is constant.
type Header struct {
	BaseVersion  uint8  // base_version
	Class        uint8  // mgmt_class
	ClassVersion uint8  // class_version
	Method       uint8  // method
	Status       uint16 // status
	Specific     uint16 // class_specific
	TID          uint64 // tid: names the exchange; receivers of class 7 ignore it
	Attr         Attr   // attr_id
	// AttrMod (attr_mod) carries the options of ECE in REQ, REP and SIDR_REP.
	AttrMod uint32
}

func (h *Header) walk(c *codec) {
	whole(c, 0, 1, &h.BaseVersion)
	whole(c, 1, 1, &h.Class)
	whole(c, 2, 1, &h.ClassVersion)
	whole(c, 3, 1, &h.Method)
	whole(c, 4, 2, &h.Status)
	whole(c, 6, 2, &h.Specific)
	whole(c, 8, 8, &h.TID)
	whole(c, 16, 2, &h.Attr)
	whole(c, 20, 4, &h.AttrMod)
}

// Message is the body of a message of the connection manager: *REQ, *REP and so on.
type Message interface {
	// Attr returns the attribute that announces this kind of body.
	Attr() Attr
	walk(c *codec)
}

// newMessage returns an empty body; nil for an attribute that the class does not have.
func newMessage(a Attr) Message {
	switch a {
	case AttrREQ:
		return new(REQ)
	case AttrMRA:
		return new(MRA)
	case AttrREJ:
		return new(REJ)
	case AttrREP:
		return new(REP)
	case AttrRTU:
		return new(RTU)
	case AttrDREQ:
		return new(DREQ)
	case AttrDREP:
		return new(DREP)
	case AttrSIDRReq:
		return new(SIDRReq)
	case AttrSIDRRep:
		return new(SIDRRep)
	case AttrLAP:
		return new(LAP)
	case AttrAPR:
		return new(APR)
	}
	return nil
}

// Errors of Decode.
var (
	ErrShort     = errors.New("cm: not a management datagram: its size is not 256 bytes")
	ErrNotCM     = errors.New("cm: not a message of the connection manager: want base version 1, class 7, version 2, method Send")
	ErrAttribute = errors.New("cm: unknown attribute")
)

// DecodeHeader reads the common header, whatever the class. b has at least
// HeaderBytes.
func DecodeHeader(b []byte) (h Header) {
	h.walk(&codec{b, true})
	return h
}

// Decode reads a message of the connection manager. Reserved bits are ignored. The
// message does not alias b.
func Decode(b []byte) (Header, Message, error) {
	if len(b) != MADBytes {
		return Header{}, nil, ErrShort
	}
	h := DecodeHeader(b)
	if h.BaseVersion != BaseVersion || h.Class != ClassCM || h.ClassVersion != ClassVersion || h.Method != MethodSend {
		return h, nil, ErrNotCM
	}
	m := newMessage(h.Attr)
	if m == nil {
		return h, nil, ErrAttribute
	}
	m.walk(&codec{b[HeaderBytes:], true})
	return h, m, nil
}

// Encode writes a message. The constants of the header are filled in; of h only TID
// and AttrMod are used, and Status and Specific as they are.
func Encode(h Header, m Message) (b MAD) {
	h.BaseVersion, h.Class, h.ClassVersion, h.Method = BaseVersion, ClassCM, ClassVersion, MethodSend
	h.Attr = m.Attr()
	h.walk(&codec{b[:], false})
	m.walk(&codec{b[HeaderBytes:], false})
	return b
}
