package ib

import "time"

// rnrTable (kernel: ib_rvt_rnr_table) is the wait in microseconds of each RNR timer
// code. Index 25 is 61440; rxe has 61410 there, a typing error.
var rnrTable = [32]uint32{
	655360, 10, 20, 30, 40, 60, 80, 120,
	160, 240, 320, 480, 640, 960, 1280, 1920,
	2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720,
	40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520,
}

// RNRTimeout returns how long a requester waits after an RNR NAK with this 5-bit
// timer code. Only the low five bits count.
func RNRTimeout(code uint8) time.Duration {
	return time.Duration(rnrTable[code&31]) * time.Microsecond
}

// AckTimeout returns the local ACK timeout of a 5-bit code: 4.096 us times 2^code.
// Code 0 means "no timeout" by IBTA; what a device does then is a matter of its
// profile, so ok is false.
func AckTimeout(code uint8) (d time.Duration, ok bool) {
	if code&31 == 0 {
		return 0, false
	}
	return time.Duration(4096) << (code & 31), true
}

// creditTable (kernel: credit_table) maps a 5-bit credit code to receive credits.
var creditTable = [31]uint32{
	0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
	256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
}

// CreditInvalid (kernel: IB_AETH_CREDIT_INVAL) says that the responder gives no
// end-to-end credits; the requester need not wait for any.
const CreditInvalid uint8 = 31

// Credits returns the number of receives that a credit code advertises; ok is false
// for CreditInvalid.
func Credits(code uint8) (n uint32, ok bool) {
	code &= 31
	if code == CreditInvalid {
		return 0, false
	}
	return creditTable[code], true
}

// CreditCode (kernel: part of rvt_compute_aeth) returns the largest code whose value
// does not exceed free.
func CreditCode(free uint32) uint8 {
	lo, hi := 0, len(creditTable)-1
	for lo < hi {
		mid := (lo + hi + 1) / 2
		if creditTable[mid] <= free {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return uint8(lo)
}

// Syndrome is the first byte of an AETH: three bits of kind, five of value.
type Syndrome uint8

// Kinds of syndrome, the top three bits.
const (
	SyndromeACK      Syndrome = 0x00 // low bits: credit code
	SyndromeRNR      Syndrome = 0x20 // low bits: RNR timer code
	SyndromeNAK      Syndrome = 0x60 // low bits: NAK code
	SyndromeKindMask Syndrome = 0xe0
)

// NAK syndromes, complete bytes.
const (
	NAKPSNSequence   Syndrome = 0x60
	NAKInvalidReq    Syndrome = 0x61
	NAKRemoteAccess  Syndrome = 0x62
	NAKRemoteOp      Syndrome = 0x63
	NAKInvalidRDReq  Syndrome = 0x64
	syndromeValueMax          = 0x1f
)

// Kind returns the top three bits.
func (s Syndrome) Kind() Syndrome { return s & SyndromeKindMask }

// Value returns the low five bits.
func (s Syndrome) Value() uint8 { return uint8(s) & syndromeValueMax }

func (s Syndrome) String() string {
	switch s.Kind() {
	case SyndromeACK:
		return "ACK"
	case SyndromeRNR:
		return "RNR_NAK"
	}
	switch s {
	case NAKPSNSequence:
		return "NAK_PSN_SEQUENCE"
	case NAKInvalidReq:
		return "NAK_INVALID_REQUEST"
	case NAKRemoteAccess:
		return "NAK_REMOTE_ACCESS"
	case NAKRemoteOp:
		return "NAK_REMOTE_OPERATIONAL"
	case NAKInvalidRDReq:
		return "NAK_INVALID_RD_REQUEST"
	}
	return "SYNDROME_RESERVED"
}
