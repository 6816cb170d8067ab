package qp

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Profile holds every point where implementations of the same standard differ. The
// engine reads it through Env.Prof and has no other switch. A difference is a field
// here, a row in spec/DEVIATIONS.md and a scenario.
type Profile struct {
	Name string

	// Completion queues
	CQStickyOverflow bool // an overflowed queue never accepts again
	CQErrorKillsQP   bool // a lost completion takes the QP to ERR (C9-218, C11-37)
	ErrorWCFilled    bool // failed completions carry opcode and length too
	RecvGRHFlag      bool // every receive says GRH, not just datagrams
	SendImmFlag      bool // send completions say WITH_IMM
	RecvSrcQP        bool // connected receives carry the peer's QPN in src_qp
	RecvHeaderSL     bool // a datagram's sl says which network header it came with

	// Posting
	BadKeyAtPost      bool // a bad lkey refuses the post instead of failing the WR
	BadOpcodeAtPost   bool // likewise an operation that the transport lacks
	RdAtomicZeroPost  bool // likewise a READ or atomic with max_rd_atomic 0
	SendInvLocalWrite bool // SEND_WITH_INV needs LOCAL_WRITE on what it sends
	UDQKeyVerbatim    bool // a Q_Key with the top bit set is sent as it is
	MemoryPlacement   bool // RC has ATOMIC_WRITE and FLUSH (IBTA annex A19)
	UDTooLongAtPost   bool // a datagram over the MTU is refused; else it vanishes with SUCCESS
	RecvErrFlushes    bool // post_recv in ERR completes flushed; else it stays in the queue
	BadLKeyStatus     ib.WCStatus
	InlineReadStatus  bool // INLINE with READ fails the WR (LOC_PROT_ERR); else EINVAL at the post

	// Requester
	RetrySeven        bool // retry_cnt 7 means for ever
	TimeoutZero       time.Duration
	TimeoutJiffy      time.Duration // timers are whole jiffies this long; 0: exact
	TimeoutRoundFirst bool          // 2^t us become jiffies before the factor 4.096
	SeqNAKKeepsRetry  bool          // sequence NAKs do not use up retry_cnt
	SendOneProbe      bool          // after a timeout one packet at a time until an ACK
	AdaptiveWindow    bool          // after a loss fewer packets are in flight for a while
	AckReqEvery       int           // AckReq on a packet when more than this many went without
	HopLimitFromRoute bool          // the AV's hop limit is ignored: 64, as the route says
	FlowLabelUnsent   bool          // the AV's flow label chooses the UDP port but stays out of the IPv6 header
	CreditFlow        bool          // end-to-end credits are given and honoured
	BadResponseStatus ib.WCStatus   // a response that does not fit
	ReadLenStatus     ib.WCStatus   // a READ response of a wrong length
	SQEOnSendError    bool          // a UC or UD send error leads to SQE, not ERR

	// Responder
	AckEach           bool // one ACK for each message that asks, never merged
	NAKAfterRNR       bool // a packet ahead of the one that met RNR is NAKed once
	RecvTooSmall      ib.WCStatus
	RecvTooSmallNAK   ib.Syndrome
	RecvBadLKey       ib.WCStatus
	QPAccessStatus    ib.WCStatus // of a receive in progress when the QP lacks a right
	RKeyStatus        ib.WCStatus // of the receive that a WRITE with immediate data had taken when its key failed
	ShortWriteOK      bool        // a WRITE may carry less than its RETH announced
	ZeroLastOK        bool        // LAST without payload is accepted
	EnforceDestRd     bool        // more READs than max_dest_rd_atomic are NAKed
	SendInvBadIgnored bool        // SEND_WITH_INV of a bad key is delivered without the flag
	InvalidateAny     bool        // and may invalidate an ordinary region
	UCErrorKillsQP    bool        // a UC or UD receive that is too small fails and takes the QP to ERR
	SRQAbort          ib.WCStatus // of a receive that UC or UD took from an SRQ for a message and then gave up; SUCCESS: it serves the QP's next one
	DupReadAny        bool        // a duplicate READ is executed as it says, without a saved request

	// Events
	CommEst        bool
	SQDrained      bool // raised at all
	SQDrainedAlone bool // raised even if en_sqd_async_notify was not set
	LastWQE        bool // LAST_WQE_REACHED at all
	LastWQEAll     bool // also when the requester's side failed
	ReqAccessErr   bool // QP_REQ_ERR and QP_ACCESS_ERR at the responder

	RQKeptOnReset bool // receives survive RESET
}

// The three profiles. IBTA follows the standard and the man pages and is the default.
var (
	ProfileIBTA = Profile{
		Name:             "ibta",
		CQStickyOverflow: true, CQErrorKillsQP: true, RecvHeaderSL: true,
		BadOpcodeAtPost: true, RdAtomicZeroPost: true, UDTooLongAtPost: true, MemoryPlacement: true,
		RecvErrFlushes: true, BadLKeyStatus: ib.WCLocProtErr,
		AckReqEvery: 31, AdaptiveWindow: true,
		BadResponseStatus: ib.WCBadRespErr, ReadLenStatus: ib.WCLocLenErr, SQEOnSendError: true,
		RecvTooSmall: ib.WCLocLenErr, RecvTooSmallNAK: ib.NAKInvalidReq, RecvBadLKey: ib.WCLocProtErr,
		QPAccessStatus: ib.WCLocAccessErr, RKeyStatus: ib.WCLocAccessErr, EnforceDestRd: true, SRQAbort: ib.WCRemAbortErr,
		CommEst: true, SQDrained: true, LastWQE: true, LastWQEAll: true, ReqAccessErr: true,
	}
	ProfileRDMAVT = Profile{
		Name:             "rdmavt",
		CQStickyOverflow: true, CQErrorKillsQP: true, ErrorWCFilled: true, RecvSrcQP: true,
		BadKeyAtPost: true, BadOpcodeAtPost: true, RdAtomicZeroPost: true, SendInvLocalWrite: true, UDTooLongAtPost: true,
		RecvErrFlushes: true, BadLKeyStatus: ib.WCLocProtErr,
		TimeoutZero: 4 * time.Millisecond, TimeoutJiffy: time.Millisecond, TimeoutRoundFirst: true, SeqNAKKeepsRetry: true, SendOneProbe: true,
		AckReqEvery: 15, CreditFlow: true,
		BadResponseStatus: ib.WCLocQPOpErr, ReadLenStatus: ib.WCLocLenErr,
		RecvTooSmall: ib.WCLocQPOpErr, RecvTooSmallNAK: ib.NAKInvalidReq, RecvBadLKey: ib.WCLocProtErr,
		QPAccessStatus: ib.WCLocQPOpErr, RKeyStatus: ib.WCLocProtErr, ShortWriteOK: true, ZeroLastOK: true,
		SendInvBadIgnored: true, InvalidateAny: true,
		CommEst: true, LastWQE: true, RQKeptOnReset: true,
	}
	ProfileRXE = Profile{
		Name:        "rxe",
		RecvGRHFlag: true, SendImmFlag: true,
		BadLKeyStatus: ib.WCLocQPOpErr, InlineReadStatus: true, UDQKeyVerbatim: true, MemoryPlacement: true,
		RetrySeven: true, TimeoutJiffy: 4 * time.Millisecond, AckReqEvery: 64,
		HopLimitFromRoute: true, FlowLabelUnsent: true,
		BadResponseStatus: ib.WCBadRespErr, ReadLenStatus: ib.WCLocLenErr,
		AckEach: true, NAKAfterRNR: true,
		RecvTooSmall: ib.WCLocQPOpErr, RecvTooSmallNAK: ib.NAKRemoteOp, RecvBadLKey: ib.WCLocQPOpErr,
		QPAccessStatus: ib.WCLocAccessErr, RKeyStatus: ib.WCRemAccessErr, UCErrorKillsQP: true, SRQAbort: ib.WCRemInvReqErr, DupReadAny: true,
		SQDrained: true, SQDrainedAlone: true,
	}
)

// ProfileByName finds a profile; ok is false for an unknown name.
func ProfileByName(name string) (p Profile, ok bool) {
	for _, p := range []Profile{ProfileIBTA, ProfileRDMAVT, ProfileRXE} {
		if p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Shared returns a profile that equals p: one of the three if it is one of them, so that all
// devices of one kind read the same memory. p must not change any more.
func (p *Profile) Shared() *Profile {
	for _, q := range []*Profile{&ProfileIBTA, &ProfileRDMAVT, &ProfileRXE} {
		if *p == *q {
			return q
		}
	}
	return p
}

// ackTimeout returns the retransmission timeout of a 5-bit code; ok is false if the
// profile never times out.
func (p *Profile) ackTimeout(code uint8) (d time.Duration, ok bool) {
	d, ok = ib.AckTimeout(code)
	if !ok {
		return p.TimeoutZero, p.TimeoutZero > 0
	}
	j := p.TimeoutJiffy
	switch {
	case j == 0:
	case p.TimeoutRoundFirst: // kernel: rvt_timeout_to_jiffies
		n := (time.Microsecond<<(code&31) + j - 1) / j
		d = n * 4096 / 1000 * j
	default:
		d = max((d+j-1)/j*j, j)
	}
	return d, true
}
