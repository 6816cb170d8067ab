package wire

import "github.com/rvtsim/rvtsim/ib"

// UDPPort is the UDP destination port of RoCE v2 (ROCE_V2_UDP_DPORT).
const UDPPort = 4791

// Sizes in bytes.
const (
	bthBytes       = 12
	rethBytes      = 16
	aethBytes      = 4
	atomicEthBytes = 28
	atomicAckBytes = 8
	dethBytes      = 8
	immBytes       = 4
	iethBytes      = 4
	fethBytes      = 4
	// cnpReservedBytes follow the BTH of a CNP and are zero (IBTA annex A17).
	cnpReservedBytes = 16
	// atomicWriteBytes is the only payload length that ATOMIC_WRITE has.
	atomicWriteBytes = 8
	udpBytes         = 8
	ipv4Bytes        = 20
	ipv6Bytes        = 40

	// ICRCBytes is the length of the invariant CRC that ends every packet.
	ICRCBytes = 4
	// MaxHeaderBytes is the longest BTH plus extended headers, that of an atomic
	// request.
	MaxHeaderBytes = bthBytes + atomicEthBytes
)

// Mask is what an opcode is and what it carries (kernel: enum rxe_hdr_mask).
type Mask uint32

const (
	// Request goes from requester to responder (RXE_REQ_MASK).
	Request Mask = 1 << iota
	// Response goes from responder to requester (RXE_ACK_MASK in the kernel, which
	// sets it on READ responses as well).
	Response
	// Start is set on the first packet of a message: FIRST, ONLY and messages that
	// always have one packet.
	Start
	// End is set on the last packet of a message.
	End

	// Send, Write, Read and Atomic name the operation. They are set on its requests
	// and on its responses; combine them with Request or Response. Atomic covers
	// CMP_SWAP, FETCH_ADD and ATOMIC_ACK.
	Send
	Write
	Read
	Atomic
	// Flush and AtomicWrite are the operations of IBTA annex A19. AtomicWrite is
	// neither Write nor Atomic, as in the kernel.
	Flush
	AtomicWrite
	// Ack is the bare ACKNOWLEDGE: an ACK, NAK or RNR NAK without data.
	Ack

	// The extended headers that follow the BTH, in the order of the wire.
	HasDETH
	HasFETH
	HasRETH
	HasAtomicETH
	HasAETH
	HasAtomicAck
	HasImm
	HasIETH

	// TakesRecv says that the packet consumes a receive work request, when it is
	// the first of its message that needs one (RXE_RWR_MASK).
	TakesRecv
	// Completes says that the packet makes a receive completion (RXE_COMP_MASK).
	Completes
	// Payload says that payload may follow the headers; it may have length zero.
	Payload
)

// OpInfo is what the opcode alone says about a packet.
type OpInfo struct {
	// Name is the operation in upper case, with the prefix UC_ or UD_ on those
	// transports and none on RC.
	Name string
	Mask Mask
	// HeaderBytes is the length of BTH and extended headers.
	HeaderBytes int
}

// Info returns the properties of an opcode, or nil if the opcode does not exist on
// any transport that RoCE v2 devices have (RC, UC, UD and the CNP). The result is
// shared; do not modify it.
func Info(op ib.Opcode) *OpInfo {
	if i := &opTable[op]; i.HeaderBytes != 0 {
		return i
	}
	return nil
}

// Shorthands of the table below.
const (
	req    = Request
	resp   = Response
	single = Start | End
)

// rcOps are the operations by the low five bits of the opcode. UC shares the first
// twelve (kernel: rxe_opcode[]).
var rcOps = [...]struct {
	op   ib.Opcode
	name string
	mask Mask
}{
	{ib.OpSendFirst, "SEND_FIRST", req | Start | Send | TakesRecv | Payload},
	{ib.OpSendMiddle, "SEND_MIDDLE", req | Send | Payload},
	{ib.OpSendLast, "SEND_LAST", req | End | Send | Completes | Payload},
	{ib.OpSendLastImm, "SEND_LAST_IMM", req | End | Send | HasImm | Completes | Payload},
	{ib.OpSendOnly, "SEND_ONLY", req | single | Send | TakesRecv | Completes | Payload},
	{ib.OpSendOnlyImm, "SEND_ONLY_IMM", req | single | Send | HasImm | TakesRecv | Completes | Payload},
	{ib.OpWriteFirst, "WRITE_FIRST", req | Start | Write | HasRETH | Payload},
	{ib.OpWriteMiddle, "WRITE_MIDDLE", req | Write | Payload},
	{ib.OpWriteLast, "WRITE_LAST", req | End | Write | Payload},
	{ib.OpWriteLastImm, "WRITE_LAST_IMM", req | End | Write | HasImm | TakesRecv | Completes | Payload},
	{ib.OpWriteOnly, "WRITE_ONLY", req | single | Write | HasRETH | Payload},
	{ib.OpWriteOnlyImm, "WRITE_ONLY_IMM", req | single | Write | HasRETH | HasImm | TakesRecv | Completes | Payload},
	{ib.OpReadRequest, "READ_REQUEST", req | single | Read | HasRETH},
	{ib.OpReadRespFirst, "READ_RESP_FIRST", resp | Start | Read | HasAETH | Payload},
	{ib.OpReadRespMiddle, "READ_RESP_MIDDLE", resp | Read | Payload},
	{ib.OpReadRespLast, "READ_RESP_LAST", resp | End | Read | HasAETH | Payload},
	{ib.OpReadRespOnly, "READ_RESP_ONLY", resp | single | Read | HasAETH | Payload},
	{ib.OpAcknowledge, "ACKNOWLEDGE", resp | single | Ack | HasAETH},
	{ib.OpAtomicAck, "ATOMIC_ACK", resp | single | Atomic | HasAETH | HasAtomicAck},
	{ib.OpCmpSwap, "CMP_SWAP", req | single | Atomic | HasAtomicETH},
	{ib.OpFetchAdd, "FETCH_ADD", req | single | Atomic | HasAtomicETH},
	{ib.OpSendLastInv, "SEND_LAST_INV", req | End | Send | HasIETH | Completes | Payload},
	{ib.OpSendOnlyInv, "SEND_ONLY_INV", req | single | Send | HasIETH | TakesRecv | Completes | Payload},
	{ib.OpFlush, "FLUSH", req | single | Flush | HasFETH | HasRETH},
	{ib.OpAtomicWrite, "ATOMIC_WRITE", req | single | AtomicWrite | HasRETH | Payload},
}

var opTable = buildOpTable()

func buildOpTable() (t [256]OpInfo) {
	add := func(op ib.Opcode, name string, m Mask) { t[op] = OpInfo{name, m, m.headerBytes()} }
	for _, o := range &rcOps {
		add(ib.TransportRC|o.op, o.name, o.mask)
		if o.op <= ib.OpWriteOnlyImm {
			add(ib.TransportUC|o.op, "UC_"+o.name, o.mask)
		}
		if o.op == ib.OpSendOnly || o.op == ib.OpSendOnlyImm {
			add(ib.TransportUD|o.op, "UD_"+o.name, o.mask|HasDETH)
		}
	}
	// A CNP belongs to no message. Its reserved bytes count as a header.
	t[ib.OpcodeCNP] = OpInfo{"CNP", 0, bthBytes + cnpReservedBytes}
	return t
}

// headerBytes is the length of the BTH and of the extended headers in m.
func (m Mask) headerBytes() int {
	n := bthBytes
	for _, h := range [...]struct {
		bit   Mask
		bytes int
	}{
		{HasDETH, dethBytes}, {HasFETH, fethBytes}, {HasRETH, rethBytes}, {HasAtomicETH, atomicEthBytes},
		{HasAETH, aethBytes}, {HasAtomicAck, atomicAckBytes}, {HasImm, immBytes}, {HasIETH, iethBytes},
	} {
		if m&h.bit != 0 {
			n += h.bytes
		}
	}
	return n
}
