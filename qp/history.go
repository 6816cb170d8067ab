package qp

import (
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// FailureKind says whose work a Failure is about.
type FailureKind uint8

const (
	FailedSend    FailureKind = 1 + iota // a send work request
	FailedRecv                           // a receive that a message had taken
	FailedRequest                        // a request of the peer that was refused; no receive had been taken
	FailedByVerb                         // modify_qp to ERR, or a region deregistered
	FailedByCQ                           // a completion was lost: its queue was full
)

// Failure is what a QP remembers of what took it out of service, for explanations. It
// is written when something fails and costs nothing before.
type Failure struct {
	Kind     FailureKind
	At       vtime.Time
	WRID     uint64 // FailedSend, FailedRecv
	Status   ib.WCStatus
	Cause    ib.Cause
	From, To ib.QPState

	// FailedSend: the work request and what became of it.
	Opcode              ib.WROpcode
	Length              uint32
	PSN, LPSN           ib.PSN
	Packets             uint32 // PSNs that it takes
	Sent                uint32 // packets sent, retransmissions included
	Retries, RNRNAKs    uint32
	FirstSent, LastSent vtime.Time // Never if nothing was sent
	RemoteAddr          uint64
	RKey                ib.RKey
	NAK                 NAK // the last one before the failure, from the peer
	Queue               SendQueueView
	// Entry is the scatter/gather entry that failed its check, of the send work request or
	// of the receive, and Fault why. Fault is 0 if it was nothing of that kind.
	Entry   mr.SGE
	EntryAt int // its place in the list, from 0
	Fault   ib.Cause
	// Bind is what a BIND_MW asked for, InvRKey the key of a LOCAL_INV.
	Bind    swqe.BindInfo
	InvRKey ib.RKey

	// FailedRecv, FailedRequest: what the peer sent.
	Request  Request
	Room     uint64 // FailedRecv: bytes the receive has room for
	Got      uint64 // FailedRecv: bytes of the message before the last packet
	Expected ib.PSN // FailedRecv of an abandoned message: the PSN that was due

	// Extent is what the key that was used stands for: Entry's, or that of the peer's
	// request. Zero if no memory has this key.
	Extent mr.Extent

	Attr Attr // what modify_qp had set

	Receives int // posted to the QP's own queue when it failed
	// Flushed is what came back with WR_FLUSH_ERR because of this so far, Posted what was
	// posted in ERR afterwards and came back at once.
	Flushed, Posted GivenBack
}

// GivenBack counts completions with WR_FLUSH_ERR.
type GivenBack struct {
	N     int
	First uint64 // wr_id of the first one
}

// NAK is a negative acknowledgement that arrived. Syndrome is 0 if none did.
type NAK struct {
	Syndrome ib.Syndrome
	PSN      ib.PSN
	At       vtime.Time
}

// Request is the part of a request packet that a refusal may be about.
type Request struct {
	Opcode  ib.Opcode
	PSN     ib.PSN
	Addr    uint64
	RKey    ib.RKey
	Length  uint32 // as announced
	Payload int    // bytes in the packet
}

// SendQueueView is the occupancy of a send queue and where its indices stand.
type SendQueueView struct {
	Size                              int // max_send_wr
	Started                           int // sent at least in part and not acknowledged
	Waiting                           int // posted, nothing sent yet
	SLast, SAcked, SCur, STail, SHead int
}

// History is a copy of what a QP can tell about itself.
type History struct {
	QPN        ib.QPN
	Type       ib.QPType
	State      ib.QPState
	At         vtime.Time // of the last input
	Attr       Attr
	Queue      SendQueueView
	Receives   int // posted and not taken, in the QP's own queue or the shared one
	SRQ        bool
	NoRecvs    uint64 // messages that met an empty receive queue
	RNRNAKs    uint64 // received
	Resends    uint64
	Timeouts   uint64
	FlushCause ib.Cause
	Failures   []Failure // oldest first
	LastNAK    NAK
	Expects    ib.PSN // of the peer's next request
	GID        ib.GID // the QP's own address
}

// maxFailures bounds what a QP remembers. A QP fails once and is reset; the rest is for
// UC and UD, which carry on after a send error.
const maxFailures = 4

// history is the part of the QP that only failures touch.
type history struct {
	failures []Failure
	lastNAK  NAK
	request  Request  // of the peer, being refused
	rkey     ib.Cause // why the last access by rkey failed
	noRecvs  uint64
}

// queueView describes the send queue.
func (q *QP) queueView() SendQueueView {
	return SendQueueView{
		Size: q.ring.Size() - 1, Started: q.dist(q.SLast, q.STail), Waiting: q.dist(q.STail, q.SHead),
		SLast: q.SLast, SAcked: q.SAcked, SCur: q.SCur, STail: q.STail, SHead: q.SHead,
	}
}

// note adds a failure; the oldest makes room.
func (q *QP) note(f Failure) {
	f.At, f.From, f.Attr, f.Queue = q.Env.Now, q.State, q.Attr, q.queueView()
	if rq := q.recvQueue(); rq != nil && q.SRQ == nil {
		f.Receives = rq.Len()
	}
	h := &q.hist
	if len(h.failures) == maxFailures {
		h.failures = append(h.failures[:0], h.failures[1:]...)
	}
	h.failures = append(h.failures, f)
	if o := q.Env.Observer; o != nil && f.Kind != FailedSend {
		o.Refused(q, &h.failures[len(h.failures)-1])
	}
}

// noteFlush counts a completion with WR_FLUSH_ERR for what it is due to.
func (q *QP) noteFlush(wrID uint64, cause ib.Cause) {
	f := q.LastFailure()
	if f == nil {
		return
	}
	n := &f.Flushed
	if cause == ib.CauseFlushPosted {
		n = &f.Posted
	}
	if n.N++; n.N == 1 {
		n.First = wrID
	}
}

// Abandoned reports whether a receive failed with its message alone: the QP went on.
func (f *Failure) Abandoned() bool { return f.Kind == FailedRecv && f.To == f.From }

// LastFailure returns what ended the QP's service last, nil if nothing is remembered. It is
// the QP's own and good until the QP is used again. The owner calls it.
func (q *QP) LastFailure() *Failure { return ended(q.hist.failures) }

// Ended returns what ended the QP's service last, nil if nothing is remembered.
func (h *History) Ended() *Failure { return ended(h.Failures) }

func ended(list []Failure) *Failure {
	for i := len(list) - 1; i >= 0; i-- {
		if !list[i].Abandoned() {
			return &list[i]
		}
	}
	return nil
}

// noteSend remembers the oldest send WQE, which is about to fail.
func (q *QP) noteSend(status ib.WCStatus, cause ib.Cause) {
	if q.SLast == q.SHead {
		return
	}
	w := q.ring.At(q.SLast)
	f := Failure{
		Kind: FailedSend, WRID: w.WR.WRID, Status: status, Cause: cause, To: ib.StateErr,
		Opcode: w.WR.Opcode, Length: w.Length, PSN: w.PSN, LPSN: w.LPSN, Packets: w.Packets,
		Sent: w.Sent, Retries: w.Retries, RNRNAKs: w.RNRNAKs, FirstSent: vtime.Never, LastSent: vtime.Never,
		RemoteAddr: w.WR.RemoteAddr, RKey: w.WR.RKey, Bind: w.WR.Bind, InvRKey: w.WR.InvRKey,
	}
	if b := &w.WR.Bind; w.WR.Opcode == ib.WRBindMW && b.MR != nil {
		f.Extent = q.Env.Keys.Extent(uint32(b.MR.LKey))
	}
	if keyCause(cause) {
		q.noteEntry(&f, q.PD, w.WR.SGL, q.localAccess(w.WR.Opcode, w.Op()))
	}
	if w.Sent > 0 {
		f.FirstSent, f.LastSent = w.FirstSent, w.LastSent
	}
	if n := q.hist.lastNAK; n.Syndrome != 0 && w.Sent > 0 && n.At >= w.FirstSent {
		f.NAK = n
	}
	q.note(f)
}

// noteError remembers why the QP goes to ERR, if nothing else has done so: a send that
// failed is noted by noteSend.
func (q *QP) noteError(status ib.WCStatus, cause, flush ib.Cause) {
	f := Failure{Status: status, Cause: cause, To: ib.StateErr}
	switch {
	case cause == ib.CauseFlushAfter:
		return
	case cause == ib.CauseFlushModify || flush == ib.CauseFlushMRGone:
		f.Kind = FailedByVerb
	case flush == ib.CauseFlushCQError:
		f.Kind, f.Cause = FailedByCQ, ib.CauseCQOverflow
	case q.RFlags&(RWRIDValid|RRewindSGE) != 0:
		f.Kind, f.WRID = FailedRecv, q.rwqe.WRID
		f.Request, f.Room, f.Got = q.hist.request, q.RLen, q.RRcvLen
		if cause == ib.CauseRecvLKey {
			q.noteEntry(&f, q.recvPD(), q.rwqe.SGL, ib.AccessLocalWrite)
		}
	default:
		f.Kind, f.Request = FailedRequest, q.hist.request
	}
	if f.Fault == ib.CauseNone && f.Request.RKey != 0 {
		f.Extent = q.Env.Keys.Extent(uint32(f.Request.RKey))
	}
	q.note(f)
}

// keyCause reports whether a send failed by a key of its scatter/gather list.
func keyCause(c ib.Cause) bool { return c >= ib.CauseLKeyUnknown && c <= ib.CauseLKeyInvalidated }

// noteEntry looks for the entry of a scatter/gather list that cannot be used.
func (q *QP) noteEntry(f *Failure, pd mr.PD, sgl []mr.SGE, acc ib.Access) {
	for i, e := range sgl {
		if _, c := q.Env.Keys.CheckLKey(pd, e, acc); c != ib.CauseNone {
			f.Entry, f.EntryAt, f.Fault, f.Extent = e, i, c, q.Env.Keys.Extent(uint32(e.LKey))
			return
		}
	}
}

// noteRequest keeps what the peer asked for, before it is refused.
func (q *QP) noteRequest(pkt *wire.Packet) {
	r := Request{Opcode: pkt.Opcode, PSN: pkt.PSN, Payload: len(pkt.Payload)}
	switch m := wire.Info(pkt.Opcode).Mask; {
	case m&wire.HasRETH != 0:
		r.Addr, r.RKey, r.Length = pkt.RETH.VA, pkt.RETH.RKey, pkt.RETH.DMALen
	case m&wire.HasAtomicETH != 0:
		r.Addr, r.RKey, r.Length = pkt.AtomicETH.VA, pkt.AtomicETH.RKey, 8
	case m&wire.Write != 0:
		r.Addr, r.RKey, r.Length = q.reth.VA, q.reth.RKey, q.reth.DMALen
	case m&wire.HasIETH != 0:
		r.RKey = pkt.InvRKey
	}
	q.hist.request = r
}

// stamp records when a send WQE's packet was built.
func (q *QP) stamp(w *swqe.SWQE) {
	if w.Sent++; w.Sent == 1 {
		w.FirstSent = q.Env.Now
	}
	w.LastSent = q.Env.Now
}

// History returns a copy of what the QP knows about itself. The owner calls it.
func (q *QP) History() History {
	h := History{
		QPN: q.QPN, Type: q.Type, State: q.State, At: q.Env.Now, Attr: q.Attr, Queue: q.queueView(),
		SRQ: q.SRQ != nil, NoRecvs: q.hist.noRecvs, RNRNAKs: q.NRNRNAKs, Resends: q.NRCResends, Timeouts: q.NTimeouts,
		FlushCause: q.flushCause, Failures: append([]Failure(nil), q.hist.failures...), LastNAK: q.hist.lastNAK, Expects: q.RPSN,
	}
	// The ring of a destroyed QP may be gone: a host reads its history later than that.
	if rq := q.recvQueue(); rq != nil && !q.Destroy {
		h.Receives = rq.Len()
	}
	if i := int(q.Attr.AV.SGIDIndex); i < len(q.Env.Sources) {
		h.GID = q.Env.Sources[i]
	}
	return h
}

// Find returns what is remembered of a failed completion of this QP: the failure itself,
// or for a flushed one what came before it. first is nil if nothing is known.
func (h *History) Find(wc *cq.WC) (first *Failure, flushed bool) {
	for i := len(h.Failures) - 1; i >= 0; i-- {
		f := &h.Failures[i]
		if (f.Kind == FailedSend || f.Kind == FailedRecv) && f.WRID == wc.WRID && f.Status == wc.Status && f.Cause == wc.VendorErr {
			return f, false
		}
	}
	if wc.Status != ib.WCWRFlushErr {
		return nil, false
	}
	return h.Ended(), true
}
