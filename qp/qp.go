package qp

import (
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Cap (struct ibv_qp_cap) is the size of a QP's queues.
type Cap struct {
	MaxSendWR, MaxRecvWR   int
	MaxSendSGE, MaxRecvSGE int
	MaxInlineData          int
}

// InitAttr (struct ibv_qp_init_attr) describes a QP to create.
type InitAttr struct {
	Context  any
	SendCQ   *cq.CQ
	RecvCQ   *cq.CQ
	SRQ      *swqe.SRQ // nil: the QP has a receive queue of its own
	RQ       swqe.RecvQueue
	SQ       SendQueue // nil unless the program's own send ring is to be told
	Cap      Cap
	Type     ib.QPType
	SQSigAll bool // sq_sig_all: every send completes with a CQE
}

// Attr (struct ibv_qp_attr) is what modify_qp sets and query_qp returns.
type Attr struct {
	State, CurState         ib.QPState
	PathMTU                 ib.MTU
	PathMigState            ib.MigState
	QKey                    ib.QKey
	RQPSN, SQPSN            ib.PSN
	DestQPN                 ib.QPN
	AccessFlags             ib.Access
	Cap                     Cap
	AV, AltAV               ib.AV
	PKeyIndex, AltPKeyIndex uint16
	EnSQDAsyncNotify        bool
	SQDraining              bool
	MaxRdAtomic             uint8
	MaxDestRdAtomic         uint8
	MinRNRTimer             uint8
	PortNum, AltPortNum     uint8
	Timeout, AltTimeout     uint8
	RetryCnt                uint8
	RNRRetry                uint8
}

// SFlag (kernel: s_flags, RVT_S_*) says why the requester waits, and other bits of
// its state.
type SFlag uint16

const (
	SSignalReqWR     SFlag = 1 << iota // RVT_S_SIGNAL_REQ_WR: only signaled WRs complete
	SWaitRNR                           // RVT_S_WAIT_RNR: an RNR NAK's time has not passed
	SWaitFence                         // RVT_S_WAIT_FENCE: earlier READs or atomics are open
	SWaitRdAtomic                      // RVT_S_WAIT_RDMAR: the rd_atomic limit is reached
	SWaitSSNCredit                     // RVT_S_WAIT_SSN_CREDIT: no end-to-end credit
	SWaitAck                           // RVT_S_WAIT_ACK: one probe is out, wait for its answer
	SWaitWindow                        // too many PSNs unacknowledged
	SWaitLast                          // the next WQE must wait until all before it are retired
	SSendOne                           // RVT_S_SEND_ONE: after a timeout, probe packet by packet
	SUnlimitedCredit                   // RVT_S_UNLIMITED_CREDIT: the peer gives no credits
	sAnyWaitSend     = SWaitRNR | SWaitFence | SWaitRdAtomic | SWaitSSNCredit | SWaitAck | SWaitWindow | SWaitLast
)

// RFlag (kernel: r_flags, r_aflags) is the responder's and the completer's state.
type RFlag uint8

const (
	RRdmarSeq  RFlag = 1 << iota // RVT_R_RDMAR_SEQ: a READ restart is out, ignore other responses
	RCommEst                     // RVT_R_COMM_EST: COMM_EST was raised
	RWRIDValid                   // RVT_R_WRID_VALID: a receive is taken and not completed
	RRewindSGE                   // RVT_R_REWIND_SGE: UC: the taken receive serves the next message
)

// QP (kernel: rvt_qp) is a queue pair. Fields that hold protocol state carry the
// kernel's names; they are exported for tests and observers, only this package
// changes them.
type QP struct {
	Env     *Env
	QPN     ib.QPN // qp_num
	Type    ib.QPType
	PD      mr.PD
	Context any
	Attr    Attr // what modify_qp set
	State   ib.QPState

	SendCQ, RecvCQ *cq.CQ
	SRQ            *swqe.SRQ
	RQ             swqe.RecvQueue // its own queue, nil with an SRQ
	SQ             SendQueue      // told of each WQE retired, may be nil
	Cap            Cap

	// Requester
	ring         swqe.Ring
	SHead        int    // s_head: next free slot to post into
	STail        int    // s_tail: next WQE never started
	SCur         int    // s_cur: WQE being sent or sent again
	SAcked       int    // s_acked: oldest WQE not acknowledged
	SLast        int    // s_last: oldest WQE not retired
	SAvail       int    // s_avail: slots the poster may use without looking
	SNextPSN     ib.PSN // s_next_psn: PSN of the next WQE posted
	SPSN         ib.PSN // s_psn: next PSN to put on the wire
	SLastPSN     ib.PSN // s_last_psn: PSN of the last response processed
	SSendingHPSN ib.PSN // s_sending_hpsn: highest PSN ever put on the wire
	SSSN         uint32 // s_ssn: next send sequence number
	SLSN         uint32 // s_lsn: limit sequence number (credits)
	SRetry       uint8  // s_retry: transport retries left
	SRNRRetry    uint8  // s_rnr_retry: RNR retries left
	SNumRdAtomic int    // s_num_rd_atomic: READs and atomics issued and not answered
	SFlags       SFlag  // s_flags
	sWindow      int    // PSNs that may be unacknowledged on the wire; see window
	sGrownPSN    ib.PSN // SLastPSN when sWindow grew last
	sNoAck       int    // packets sent since the last one that asked for an ACK
	sProbe       ib.PSN // PSN of the probe while SWaitAck
	flushCause   ib.Cause
	STimerAt     vtime.Time    // s_timer: retransmission deadline
	sWaited      time.Duration // how long the host has had it wait; see Plea
	sSpared      uint8         // how often the host has given it its retries anew; see Plea
	SRNRTimerAt  vtime.Time    // s_rnr_timer
	wantDrained  bool          // SQ_DRAINED is due when the queue has drained
	SPort        uint16        // UDP source port of this flow

	// Responder
	RPSN      ib.PSN      // r_psn: next PSN expected
	RMSN      ib.MSN      // r_msn: messages completed
	RState    ib.Opcode   // r_state: last request opcode accepted
	RNAKState ib.Syndrome // r_nak_state: NAK outstanding, 0 if none
	RFlags    RFlag       // r_flags, r_aflags
	RLen      uint64      // r_len: room of the message in progress
	RRcvLen   uint64      // r_rcv_len: bytes of it received
	rwqe      swqe.RWQE   // r_wr_id, r_sg_list: the receive taken
	reth      wire.RETH   // of the WRITE in progress
	SAckQueue []AckEntry  // s_ack_queue: READs and atomics kept for duplicates
	RHeadAck  int         // r_head_ack_queue: where the next one goes
	rSafePSN  ib.PSN      // RPSN at the last Emit: all before it is in memory
	rOpenRd   int         // READs and atomics not fully answered yet
	resp      respQueue   // responses to send, in order
	noAckYet  bool        // no request was acknowledged since RTR
	fatal     bool        // the queue holds a fatal NAK: nothing may follow it

	// Scheduling, for the owner.
	Queued  bool // in the owner's run queue
	Next    *QP  // link of the run queue
	HeapPos int  // position in the owner's deadline heap, -1 if absent
	HeapAt  vtime.Time
	Destroy bool
	Mcast   int // multicast groups it is attached to

	cc *congestion // nil without congestion control

	hist history // what failed, for explanations

	failPosts  int         // posts that InjectPostErrors has yet to refuse
	nextStatus ib.WCStatus // of the next work request to be posted; see InjectNextStatus
	noReceives bool        // see InjectNoReceives

	// Counters of this QP
	NRCResends uint64 // n_rc_resends
	NRNRNAKs   uint64 // n_rnr_naks
	NTimeouts  uint64
}

// New creates a QP in RESET. The owner has checked attr against its limits.
func New(env *Env, qpn ib.QPN, pd mr.PD, attr *InitAttr) *QP {
	q := &QP{Env: env, QPN: qpn, Type: attr.Type, PD: pd, Context: attr.Context, SendCQ: attr.SendCQ, RecvCQ: attr.RecvCQ, SRQ: attr.SRQ, RQ: attr.RQ, SQ: attr.SQ, Cap: env.Drv.grant(attr.Cap), HeapPos: -1}
	q.ring = swqe.NewRing(env.Drv.Entries(attr.Cap.MaxSendWR) + 1)
	if q.SRQ == nil && q.RQ == nil {
		q.RQ = swqe.NewRQ(env.Drv.Entries(attr.Cap.MaxRecvWR), attr.Cap.MaxRecvSGE)
	}
	if !attr.SQSigAll {
		q.SFlags = SSignalReqWR
	}
	q.SPort = wire.SourcePortUD(qpn)
	q.cc = newCongestion(env)
	q.initQP()
	return q
}

// Renumber gives a QP in RESET another number. The owner keeps its table in step.
func (q *QP) Renumber(n ib.QPN) {
	q.QPN = n
	q.SPort = wire.SourcePortUD(n)
}

// initQP (kernel: rvt_init_qp) sets everything to its value in RESET. What was posted
// vanishes without completions.
func (q *QP) initQP() {
	q.State = ib.StateReset
	q.Attr = Attr{State: ib.StateReset, Cap: q.Cap, PathMigState: ib.MigMigrated}
	q.SHead, q.STail, q.SCur, q.SAcked, q.SLast = 0, 0, 0, 0, 0
	q.SAvail = q.ring.Size() - 1
	q.setSendPSN(0)
	q.SSSN, q.SLSN = 1, 0
	q.SNumRdAtomic, q.sNoAck = 0, 0
	q.SFlags &= SSignalReqWR
	q.STimerAt, q.SRNRTimerAt = vtime.Never, vtime.Never
	q.wantDrained = false
	q.flushCause = 0
	q.RPSN, q.RMSN, q.RNAKState = 0, 0, 0
	q.RState = ib.OpSendLast
	q.RFlags, q.RLen, q.RRcvLen = 0, 0, 0
	q.SAckQueue, q.RHeadAck = q.SAckQueue[:0], 0
	q.dropAnswers()
	q.cc.reset()
	q.fatal = false
	if rq, ok := q.RQ.(*swqe.RQ); ok && !q.Env.Prof.RQKeptOnReset {
		rq.Drop()
	}
}

// setSendPSN sets the PSN of the first packet to send.
func (q *QP) setSendPSN(p ib.PSN) {
	q.SNextPSN, q.SPSN = p, p
	q.SLastPSN, q.SSendingHPSN = p.Add(-1), p.Add(-1)
	q.sGrownPSN = q.SLastPSN
	q.sWindow = min(initialWindow, q.Env.Limits.WindowPackets)
}

// pmtu is the payload of a full packet in bytes.
func (q *QP) pmtu() int { return q.Attr.PathMTU.Bytes() }

// Deadline returns the instant of the QP's next timer, Never if none runs.
func (q *QP) Deadline() vtime.Time {
	at := vtime.Min(q.STimerAt, q.SRNRTimerAt)
	if q.cc != nil {
		at = vtime.Min(at, q.cc.wakeAt)
	}
	return at
}

// object names the QP in messages.
func (q *QP) object() string { return "qp " + q.QPN.String() }

func (q *QP) String() string { return q.object() }

// article names the kind of QP in a sentence: "an RC", "a UD".
func (q *QP) article() string {
	if q.Type == ib.QPTypeRC {
		return "an RC"
	}
	return "a " + q.Type.String()
}

// recvQueue returns where receives come from.
func (q *QP) recvQueue() swqe.RecvQueue {
	if q.SRQ != nil {
		return q.SRQ.RQ
	}
	return q.RQ
}

// Outstanding returns how many send WQEs are posted and not retired.
func (q *QP) Outstanding() int { return q.dist(q.SLast, q.SHead) }

// dist returns how far index b lies after a.
func (q *QP) dist(a, b int) int {
	if d := b - a; d >= 0 {
		return d
	}
	return b - a + q.ring.Size()
}

// SWQE returns entry i of the send ring, for observers.
func (q *QP) SWQE(i int) *swqe.SWQE { return q.ring.At(i) }

// RingSize (s_size) returns the slots of the send ring.
func (q *QP) RingSize() int { return q.ring.Size() }
