package ib

import "strconv"

// QPN is a queue pair number (24 bits).
type QPN uint32

const (
	// QPNSMI is QP0, the subnet management interface. RoCE ports have none.
	QPNSMI QPN = 0
	// QPNGSI is QP1, the general services interface.
	QPNGSI QPN = 1
	// QPNMulticast is the destination QPN of every multicast packet.
	QPNMulticast QPN = 0xffffff
	// QPNMask covers the 24 bits that exist on the wire.
	QPNMask QPN = 0xffffff
)

func (q QPN) String() string { return "0x" + strconv.FormatUint(uint64(q), 16) }

// PSNMask covers the 24 bits of a packet sequence number. (hfi1 can negotiate 31
// bits on OPA; RoCE cannot.)
const PSNMask = 0xffffff

// PSN is a packet sequence number: a 24-bit counter that wraps. Use Add, Sub and
// Cmp; plain comparison is wrong across the wrap.
type PSN uint32

// Add returns p+n modulo 2^24. Pass a negative n to step back.
func (p PSN) Add(n int) PSN { return PSN(uint32(int64(p)+int64(n)) & PSNMask) }

// Sub returns the signed distance p-q, in the window -2^23 .. 2^23-1.
func (p PSN) Sub(q PSN) int { return int(int32((uint32(p)-uint32(q))<<8) >> 8) }

// Cmp (kernel: cmp_psn, psn_compare) orders p against q inside a window of 2^23:
// negative if p is older, 0 if equal, positive if newer.
func (p PSN) Cmp(q PSN) int { return p.Sub(q) }

// MSN is a message sequence number: 24 bits, wraps like a PSN.
type MSN uint32

// Add returns m+n modulo 2^24.
func (m MSN) Add(n int) MSN { return MSN(uint32(int64(m)+int64(n)) & PSNMask) }

// Cmp (kernel: rvt_cmp_msn) orders m against n inside a window of 2^23.
func (m MSN) Cmp(n MSN) int { return PSN(m).Sub(PSN(n)) }

// LKey is the key that lets the local adapter use registered memory.
type LKey uint32

// RKey is the key that lets a remote adapter use registered memory or a window.
type RKey uint32

func (k LKey) String() string { return "0x" + strconv.FormatUint(uint64(k), 16) }
func (k RKey) String() string { return "0x" + strconv.FormatUint(uint64(k), 16) }

// QKey guards datagram queue pairs.
type QKey uint32

// QKeyGSI is the Q_Key of QP1.
const QKeyGSI QKey = 0x80010000

// PKeyDefault is the only partition key of a RoCE port: full member, default.
const PKeyDefault uint16 = 0xffff

// PKeyMatch tells whether a packet's P_Key may enter a port or QP with P_Key own:
// the low 15 bits are equal and not both sides are limited members.
func PKeyMatch(packet, own uint16) bool {
	return packet&0x7fff == own&0x7fff && (packet|own)&0x8000 != 0
}

// GRHBytes is the room that a UD receive keeps for the global route header.
const GRHBytes = 40

// MaxMsgBytes is the longest RC or UC message (IBTA: 2^31 bytes).
const MaxMsgBytes = 1 << 31

// MTU is the path MTU enumeration (enum ib_mtu).
type MTU uint8

const (
	MTU256  MTU = 1
	MTU512  MTU = 2
	MTU1024 MTU = 3
	MTU2048 MTU = 4
	MTU4096 MTU = 5
)

// Valid reports whether m is one of the five path MTUs.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes returns the payload bytes of one packet at this MTU; 0 if invalid.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// Log2 (kernel: log_pmtu) is the binary logarithm of Bytes.
func (m MTU) Log2() uint { return uint(m) + 7 }

func (m MTU) String() string { return strconv.Itoa(m.Bytes()) }

// MTUFromBytes returns the MTU of exactly n bytes.
func MTUFromBytes(n int) (MTU, bool) {
	for m := MTU256; m <= MTU4096; m++ {
		if m.Bytes() == n {
			return m, true
		}
	}
	return 0, false
}

// RoCEHeaderBytes is what the kernel (rxe: RXE_MAX_HDR_LENGTH) subtracts from a
// network device's MTU before it rounds down to an IB MTU.
const RoCEHeaderBytes = 80

// MTUForNetdev returns the largest IB MTU that fits a network device of the given
// MTU in bytes: 1500 gives 1024, 9000 gives 4096. Below 336 it returns MTU256,
// which is the least that a port may have.
func MTUForNetdev(n int) MTU {
	for m := MTU4096; m > MTU256; m-- {
		if m.Bytes() <= n-RoCEHeaderBytes {
			return m
		}
	}
	return MTU256
}
