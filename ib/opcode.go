package ib

// Opcode is the BTH opcode: transport in the top three bits, operation in the low
// five. Header sequence and class of each are in package wire.
type Opcode uint8

// Transport classes, the top three bits of an Opcode.
const (
	TransportRC  Opcode = 0x00
	TransportUC  Opcode = 0x20
	TransportRD  Opcode = 0x40
	TransportUD  Opcode = 0x60
	TransportCNP Opcode = 0x80
	TransportXRC Opcode = 0xa0
	// TransportMask covers the transport bits.
	TransportMask Opcode = 0xe0
	// OperationMask covers the operation bits.
	OperationMask Opcode = 0x1f
)

// Operations, the low five bits of an Opcode; an RC opcode is the bare operation.
const (
	OpSendFirst      Opcode = 0x00
	OpSendMiddle     Opcode = 0x01
	OpSendLast       Opcode = 0x02
	OpSendLastImm    Opcode = 0x03
	OpSendOnly       Opcode = 0x04
	OpSendOnlyImm    Opcode = 0x05
	OpWriteFirst     Opcode = 0x06
	OpWriteMiddle    Opcode = 0x07
	OpWriteLast      Opcode = 0x08
	OpWriteLastImm   Opcode = 0x09
	OpWriteOnly      Opcode = 0x0a
	OpWriteOnlyImm   Opcode = 0x0b
	OpReadRequest    Opcode = 0x0c
	OpReadRespFirst  Opcode = 0x0d
	OpReadRespMiddle Opcode = 0x0e
	OpReadRespLast   Opcode = 0x0f
	OpReadRespOnly   Opcode = 0x10
	OpAcknowledge    Opcode = 0x11
	OpAtomicAck      Opcode = 0x12
	OpCmpSwap        Opcode = 0x13
	OpFetchAdd       Opcode = 0x14
	OpSendLastInv    Opcode = 0x16
	OpSendOnlyInv    Opcode = 0x17
	OpFlush          Opcode = 0x1c
	OpAtomicWrite    Opcode = 0x1d
	UCSendOnly              = TransportUC | OpSendOnly
	UDSendOnly              = TransportUD | OpSendOnly
	UDSendOnlyImm           = TransportUD | OpSendOnlyImm
	OpcodeCNP        Opcode = 0x81 // congestion notification on RoCE v2
)

// Transport returns the transport class bits.
func (o Opcode) Transport() Opcode { return o & TransportMask }

// Operation returns the operation bits.
func (o Opcode) Operation() Opcode { return o & OperationMask }
