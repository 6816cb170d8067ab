package wire

import "github.com/rvtsim/rvtsim/ib"

// Path is the network half of a packet: what the IP and UDP headers say. The core
// fills it for packets to send; a port fills it for packets that arrived.
type Path struct {
	Src, Dst ib.GID
	// TClass is the IPv4 TOS or IPv6 traffic class, ECN bits included.
	TClass uint8
	// HopLimit is the TTL; 64 where a port cannot know it.
	HopLimit uint8
	// SPort is the UDP source port. The destination is always [UDPPort].
	SPort uint16
	// FlowLabel is the IPv6 flow label (20 bits); 0 on IPv4.
	FlowLabel uint32
	// IPID is the IPv4 identification where known, else 0.
	IPID uint16
}

// IsIPv4 reports whether the path runs over IPv4: both addresses are IPv4-mapped.
func (p *Path) IsIPv4() bool { return p.Src.IsIPv4() && p.Dst.IsIPv4() }

// Packet is a decoded RoCE v2 packet from the BTH to the last payload byte. Which
// extended headers mean anything follows from Opcode (see [Info]); the others are
// zero after Decode and are ignored by the encoder.
//
// Payload aliases the buffer given to Decode. It excludes the pad bytes.
//
// What most packets have comes first, so that it shares a line of the cache.
type Packet struct {
	// BTH
	Opcode ib.Opcode
	SE     bool // solicited event
	M      bool // migration request
	Pad    uint8
	TVer   uint8
	FECN   bool
	BECN   bool
	AckReq bool
	DestQP ib.QPN
	PSN    ib.PSN
	PKey   uint16

	FETH    FETH
	Imm     uint32 // ImmDt, as a big-endian number
	Payload []byte
	AETH    AETH

	RETH      RETH
	AtomicETH AtomicETH
	AtomicAck uint64 // AtomicAckETH: original data
	DETH      DETH
	InvRKey   ib.RKey // IETH
}

// RETH is the RDMA extended header, also the first 16 bytes of FLUSH and ATOMIC_WRITE.
type RETH struct {
	VA     uint64
	RKey   ib.RKey
	DMALen uint32
}

// AETH is the ACK extended header.
type AETH struct {
	Syndrome ib.Syndrome
	MSN      ib.MSN
}

// AtomicETH is the atomic extended header. For FETCH_ADD the addend is in SwapAdd.
type AtomicETH struct {
	VA      uint64
	RKey    ib.RKey
	SwapAdd uint64
	Compare uint64
}

// DETH is the datagram extended header.
type DETH struct {
	QKey  ib.QKey
	SrcQP ib.QPN
}

// FETH is the FLUSH extended header.
type FETH struct {
	SEL uint8 // selectivity level, 2 bits
	PLT uint8 // placement type, 4 bits
}
