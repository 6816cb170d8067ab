package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Peer is what is known of the other end of a connection.
type Peer struct {
	// Name is the peer's device, if that is simulated here too; else empty.
	Name string
	// QP is its queue pair, nil if the device has none of that number.
	QP *qp.History
	// Unknown: whoever explains knows all nodes of its network, and none has that address.
	Unknown bool
}

// Completion explains a completion of the queue pair that h tells about. The text has
// several lines and ends without a newline. peer may be nil.
func Completion(wc *cq.WC, h *qp.History, peer *Peer) string {
	w := &writer{}
	if wc.Status == ib.WCSuccess {
		return fmt.Sprintf("wr %d of qp %v: SUCCESS: nothing to explain", wc.WRID, h.QPN)
	}
	f, flushed := h.Find(wc)
	w.line(0, "wr %d of qp %v failed with %v (vendor_err 0x%x): %s.", wc.WRID, h.QPN, wc.Status, uint32(wc.VendorErr), wc.VendorErr)
	switch {
	case f == nil && wc.Status == ib.WCWRFlushErr:
		w.line(1, "It was not carried out: the queue pair was in ERR. Nothing is remembered of why.")
	case f == nil:
		w.line(1, "Nothing more is remembered of it: later failures took its place, or the queue pair was reset.")
	case flushed:
		if w.flushed(wc, h, f) {
			return w.String()
		}
	default:
		w.failure(h, f)
	}
	if !flushed || f == nil || f.Kind != qp.FailedSend && f.Kind != qp.FailedRecv {
		w.peer(h, f, peer)
	}
	cause := wc.VendorErr
	if flushed && f != nil && wc.VendorErr != ib.CauseFlushPosted {
		if f.Kind == qp.FailedSend || f.Kind == qp.FailedRecv {
			return w.String() // the completion that it names says what to look at
		}
		cause = f.Cause
	}
	w.advice(known(cause, peer), wc.Status)
	return w.String()
}

// QP tells what a queue pair remembers of failures, for reports without a completion.
// It is empty if nothing failed.
func QP(h *qp.History, peer *Peer) string {
	f := h.Ended()
	if f == nil {
		return ""
	}
	w := &writer{}
	if f.Kind == qp.FailedByVerb {
		w.line(0, "Posted work of qp %v came back with WR_FLUSH_ERR.", h.QPN)
	} else {
		w.line(0, "qp %v is in %v: %s.", h.QPN, h.State, f.Cause)
	}
	w.failure(h, f)
	w.peer(h, f, peer)
	w.advice(known(f.Cause, peer), f.Status)
	return w.String()
}

// known replaces a NAK by what the peer says is behind it.
func known(c ib.Cause, p *Peer) ib.Cause {
	switch c {
	case ib.CauseNAKInvalidReq, ib.CauseNAKAccess, ib.CauseNAKOp:
		if p != nil && p.QP != nil && p.QP.Ended() != nil {
			return p.QP.Ended().Cause
		}
	}
	return c
}

// writer collects lines.
type writer struct{ strings.Builder }

func (w *writer) line(indent int, format string, args ...any) {
	if w.Len() > 0 {
		w.WriteByte('\n')
	}
	w.WriteString(strings.Repeat("  ", indent))
	fmt.Fprintf(w, format, args...)
}

// flushed explains a completion that only shares the fate of another. It returns true if
// everything is said: only the first of those that came back together has the whole story.
func (w *writer) flushed(wc *cq.WC, h *qp.History, f *qp.Failure) bool {
	back, short := &f.Flushed, f.Kind == qp.FailedSend || f.Kind == qp.FailedRecv
	if wc.VendorErr == ib.CauseFlushPosted {
		back, short = &f.Posted, false
		w.line(1, "It was posted when the queue pair was in ERR already. ERR accepts work only to give it back.")
	} else {
		w.line(1, "It was not at fault: the queue pair went to ERR and gave back everything that was posted.")
	}
	if !short && back.N > 1 && wc.WRID != back.First {
		w.line(1, "%d have come back so far for this reason. wr %d was the first: what is said of it holds for this one.", back.N, back.First)
		return true
	}
	switch f.Kind {
	case qp.FailedSend:
		w.line(1, "What failed first is wr %d, %s: %v, %s. Its completion has the details.", f.WRID, operation(f), f.Status, f.Cause)
	case qp.FailedRecv:
		w.line(1, "What failed first is receive wr %d: %v, %s. Its completion has the details.", f.WRID, f.Status, f.Cause)
	default:
		w.line(1, "What took the queue pair to ERR:")
		w.failure(h, f)
	}
	return false
}

// byVerb says what a program did that took its queue pair to ERR, and to how much work.
func (w *writer) byVerb(f *qp.Failure) {
	if f.Cause == ib.CauseFlushModify {
		w.line(1, "The program moved the queue pair from %v to ERR with modify_qp.", f.From)
	} else {
		w.line(1, "The program deregistered a memory region that posted work still named.")
	}
	var posted []string
	if n := f.Queue.Started + f.Queue.Waiting; n > 0 {
		posted = append(posted, plural(n, "send"))
	}
	if f.Receives > 0 {
		posted = append(posted, plural(f.Receives, "receive"))
	}
	if len(posted) > 0 {
		w.line(1, "What was posted then comes back, each work request once: %s.", strings.Join(posted, " and "))
	}
}

// operation names a send work request.
func operation(f *qp.Failure) string {
	if swqe.Params(f.Opcode) == nil {
		// A ring's entry that a post refused: the refusal has named it.
		return "a request that makes no sense"
	}
	switch f.Opcode {
	case ib.WRBindMW:
		return bind(&f.Bind)
	case ib.WRLocalInv:
		return fmt.Sprintf("a LOCAL_INV of rkey %v", f.InvRKey)
	}
	article := "a"
	if strings.HasPrefix(f.Opcode.String(), "R") || strings.HasPrefix(f.Opcode.String(), "A") {
		article = "an"
	}
	return fmt.Sprintf("%s %v of %s", article, f.Opcode, bytes(uint64(f.Length)))
}

// bind describes a BIND_MW by what the work request says.
func bind(b *swqe.BindInfo) string {
	s := "a BIND_MW"
	if b.MW != nil {
		s += fmt.Sprintf(" of the type %d window with rkey %v", b.MW.Type, b.MW.RKey)
	}
	s += fmt.Sprintf(" to %s at 0x%x", bytes(b.Length), b.Addr)
	if b.MR != nil {
		s += fmt.Sprintf(" of the region with lkey %v", b.MR.LKey)
	}
	return s + fmt.Sprintf(", new rkey %v, rights %v", b.RKey, b.Access)
}

// entry tells which scatter/gather entry failed its check, and what its key stands for.
func (w *writer) entry(f *qp.Failure) {
	switch {
	case f.Fault != ib.CauseNone:
		w.line(1, "Entry %d of its scatter/gather list, %s at 0x%x, lkey %v: %s.", f.EntryAt, bytes(uint64(f.Entry.Length)), f.Entry.Addr, f.Entry.LKey, f.Fault)
		w.extent(&f.Extent, "lkey")
	case f.Opcode == ib.WRBindMW:
		w.extent(&f.Extent, "lkey")
	}
}

// extent tells what memory a key stands for.
func (w *writer) extent(e *mr.Extent, key string) {
	if *e != (mr.Extent{}) {
		w.line(1, "That %s stands for %s at 0x%x to 0x%x, with the rights %v.", key, bytes(e.Length), e.Start, e.Start+e.Length-min(e.Length, 1), e.Access)
	}
}

// failure tells the story of what failed.
func (w *writer) failure(h *qp.History, f *qp.Failure) {
	switch f.Kind {
	case qp.FailedSend:
		w.send(h, f)
	case qp.FailedRecv:
		if f.Abandoned() {
			w.abandoned(h, f)
			return
		}
		room := ", with room for " + bytes(f.Room) + ","
		if f.Fault != ib.CauseNone {
			room = "" // it was not counted
		}
		w.line(1, "Receive wr %d%s had been taken by a message from %s when that failed: %s.", f.WRID, room, far(&f.Attr), f.Cause)
		w.entry(f)
		w.request(f)
	case qp.FailedRequest:
		w.line(1, "A request from %s was refused: %s. No receive was involved, so no completion says so.", far(&f.Attr), f.Cause)
		w.request(f)
	case qp.FailedByVerb:
		w.byVerb(f)
		if f.Cause == ib.CauseFlushModify {
			return
		}
	case qp.FailedByCQ:
		w.line(1, "A completion queue was full when the next completion came. That completion is lost, so the queue pair cannot go on.")
	}
	w.state(h, f)
}

// abandoned tells of a receive whose message was given up while the queue pair went on.
func (w *writer) abandoned(h *qp.History, f *qp.Failure) {
	from := "from " + far(&f.Attr)
	if h.Type.IsDatagram() {
		from = "of somebody"
	}
	w.line(1, "Receive wr %d of the shared queue, with room for %s, had been taken by a message %s that will never be complete.", f.WRID, bytes(f.Room), from)
	if f.Cause == ib.CauseMessageCut {
		w.line(1, "PSN %d was due, PSN %d came: what lies between was lost, or came in another order. Nothing is sent again on %v.", uint32(f.Expected), uint32(f.Request.PSN), h.Type)
	}
	w.request(f)
	w.line(1, "What arrived of the message may be in its buffer; nothing says how much. The receive is yours again: post it to the shared queue.")
	if h.State == f.To {
		w.line(1, "The queue pair is still in %v and takes the next message.", h.State)
	} else {
		w.line(1, "The queue pair stayed in %v then, and is in %v now.", f.To, h.State)
	}
}

// send tells the story of a send work request.
func (w *writer) send(h *qp.History, f *qp.Failure) {
	what := fmt.Sprintf("wr %d is %s", f.WRID, operation(f))
	if op := swqe.Params(f.Opcode); op != nil && (op.Has(swqe.OpRdAtomic) || f.Opcode == ib.WRRDMAWrite || f.Opcode == ib.WRRDMAWriteWithImm) {
		what += fmt.Sprintf(", remote address 0x%x, rkey %v", f.RemoteAddr, f.RKey)
	}
	if h.Type.IsDatagram() {
		w.line(1, "%s.", what)
	} else {
		w.line(1, "%s, from qp %v at %s to %s.", what, h.QPN, address(h.GID), far(&f.Attr))
	}
	w.entry(f)
	switch {
	case f.Sent == 0:
		w.line(1, "Nothing of it was sent: the adapter found the fault before.")
	case f.Cause == ib.CauseMemoryFault:
		w.line(1, "It takes %s. What could not be fetched from memory was not sent.", plural(int(f.Packets), "packet"))
	default:
		if f.Sent == 1 {
			w.line(1, "%s, %s.", sent(f), before(f.FirstSent, f.At))
		} else {
			w.line(1, "%s. The first packet left %s, the last one %s.", sent(f), before(f.FirstSent, f.At), before(f.LastSent, f.At))
		}
		w.answer(f)
		w.timers(f)
	}
	w.queue(f)
}

// sent counts packets in words.
func sent(f *qp.Failure) string {
	psns := fmt.Sprintf("PSN %v", uint32(f.PSN))
	if f.Packets > 1 {
		psns = fmt.Sprintf("PSN %d..%d", uint32(f.PSN), uint32(f.LPSN))
	}
	s := fmt.Sprintf("It takes %s (%s) and put %s on the wire", plural(int(f.Packets), "packet number"), psns, plural(int(f.Sent), "packet"))
	if f.Retries > 0 {
		s += fmt.Sprintf(", going back %s", plural(int(f.Retries), "time"))
	}
	return s
}

// answer tells what came back.
func (w *writer) answer(f *qp.Failure) {
	switch n := f.NAK; {
	case n.Syndrome == 0 && f.Cause == ib.CauseRetryTimeout:
		w.line(1, "No answer to it came, neither positive nor negative.")
	case n.Syndrome == 0:
	case n.Syndrome.Kind() == ib.SyndromeRNR:
		w.line(1, "The peer answered %s \"receiver not ready\" (RNR NAK), the last time for PSN %d: wait %v.", plural(int(f.RNRNAKs), "time"), uint32(n.PSN), ib.RNRTimeout(n.Syndrome.Value()))
	default:
		w.line(1, "The peer answered %v (syndrome 0x%02x) for PSN %d.", n.Syndrome, uint8(n.Syndrome), uint32(n.PSN))
	}
}

// timers tells what the retry attributes mean, where they decided.
func (w *writer) timers(f *qp.Failure) {
	a := &f.Attr
	switch f.Cause {
	case ib.CauseRetryTimeout, ib.CauseRetrySequence:
		if d, ok := ib.AckTimeout(a.Timeout); ok {
			w.line(1, "timeout %d means %v, retry_cnt %d: the queue pair gives up after about %v without progress.", a.Timeout, round(d), a.RetryCnt, round(d*time.Duration(a.RetryCnt+1)))
		} else {
			w.line(1, "timeout 0 means no timer; retry_cnt is %d.", a.RetryCnt)
		}
	case ib.CauseRNRRetry:
		w.line(1, "rnr_retry %d: after the first RNR NAK it is tried %s. (7 would mean for ever.)", a.RNRRetry, plural(int(a.RNRRetry), "more time"))
	}
}

// queue tells how full the send queue was.
func (w *writer) queue(f *qp.Failure) {
	v := &f.Queue
	others := v.Started + v.Waiting - 1
	s := fmt.Sprintf("Send queue: %d of %d slots in use; %d sent or being sent, %d not started.", v.Started+v.Waiting, v.Size, v.Started, v.Waiting)
	switch {
	case others <= 0:
		s += " It was the only one."
	case f.To == ib.StateErr:
		s += fmt.Sprintf(" The %s behind it %s flushed.", plural(others, "request"), isAre(others, "was", "were"))
	}
	w.line(1, "%s", s)
	w.line(1, "(For reports about the adapter itself: SLast %d, SAcked %d, SCur %d, STail %d, SHead %d.)", v.SLast, v.SAcked, v.SCur, v.STail, v.SHead)
}

// request tells what the peer sent.
func (w *writer) request(f *qp.Failure) {
	r := &f.Request
	info := wire.Info(r.Opcode)
	if *r == (qp.Request{}) || info == nil {
		return
	}
	s := fmt.Sprintf("The packet: %s, PSN %d", info.Name, uint32(r.PSN))
	if r.Payload > 0 {
		s += fmt.Sprintf(", %s of payload", bytes(uint64(r.Payload)))
	}
	switch m := info.Mask; {
	case m&wire.HasIETH != 0:
		s += fmt.Sprintf(", rkey to invalidate %v", r.RKey)
	case r.Length > 0:
		s += fmt.Sprintf(", for %s at 0x%x, rkey %v", bytes(uint64(r.Length)), r.Addr, r.RKey)
	case f.Kind == qp.FailedRecv && f.Got > 0:
		s += fmt.Sprintf(", after %s of the same message", bytes(f.Got))
	}
	w.line(1, "%s.", s)
	switch f.Cause {
	case ib.CauseRKeyPD, ib.CauseRKeyRange, ib.CauseRKeyAccess:
		w.extent(&f.Extent, "rkey")
	case ib.CauseQPAccess:
		w.line(1, "The queue pair's access flags are %v.", f.Attr.AccessFlags)
	case ib.CauseTooManyReads:
		w.line(1, "The queue pair's max_dest_rd_atomic is %d.", f.Attr.MaxDestRdAtomic)
	case ib.CausePacketLength:
		w.line(1, "The queue pair's path MTU is %v.", f.Attr.PathMTU)
	}
}

// state tells where the queue pair went and where it is now.
func (w *writer) state(h *qp.History, f *qp.Failure) {
	s := fmt.Sprintf("The queue pair went from %v to %v", f.From, f.To)
	if h.State != f.To {
		s += fmt.Sprintf(", and is in %v now", h.State)
	}
	w.line(1, "%s.", s)
}

// peer tells what the other end knows.
func (w *writer) peer(h *qp.History, f *qp.Failure, p *Peer) {
	if p == nil || h.Type.IsDatagram() {
		return
	}
	if p.Name == "" {
		if p.Unknown && f != nil && f.Cause == ib.CauseRetryTimeout {
			w.line(0, "No node here has the address %s. Is that the GID which the peer has sent? (A node of another daemon or machine may have it.)", address(h.Attr.AV.DGID))
		}
		return
	}
	if f != nil && (f.Kind == qp.FailedByVerb || f.Kind == qp.FailedByCQ || f.Kind == qp.FailedSend && (f.Sent == 0 || f.Cause == ib.CauseMemoryFault)) {
		return // the peer has nothing to do with it
	}
	w.line(0, "The peer, %s, which runs here as well:", p.Name)
	o := p.QP
	if o == nil {
		w.line(1, "It has no qp %v now: that queue pair was destroyed, by the end of its program perhaps, or there never was one.", h.Attr.DestQPN)
		return
	}
	s := fmt.Sprintf("Its qp %v is in %v, with %s posted.", o.QPN, o.State, plural(o.Receives, "receive"))
	switch o.State {
	case ib.StateReset, ib.StateInit:
		s += " A queue pair answers from RTR on; before that every packet is dropped."
	case ib.StateErr:
		s += " In ERR it drops every packet."
	}
	w.line(1, "%s", s)
	switch {
	case o.State < ib.StateRTR || o.State == ib.StateErr:
	case o.Attr.AV.DGID != h.GID:
		w.line(1, "It is connected to %s, not to this one: it drops what comes from here.", far(&o.Attr))
	case o.Attr.DestQPN != h.QPN:
		w.line(1, "It is connected to %s, not to this one. A packet does not say which queue pair of an address it is from, so it takes what comes from here for that one's, and answers there.", far(&o.Attr))
	default:
		w.sequence(f, o)
	}
	if o.NoRecvs > 0 {
		w.line(1, "%s met an empty receive queue there.", plural(int(o.NoRecvs), "message"))
	}
	if g := o.Ended(); g != nil {
		w.line(1, "What took it out of service: %s (0x%x).", strings.TrimPrefix(g.Cause.String(), "flushed: "), uint32(g.Cause))
		if g.Kind == qp.FailedRecv || g.Kind == qp.FailedRequest {
			w.request(g)
		}
	}
}

// sequence compares the packet numbers of a request that got no answer with what the peer
// waits for.
func (w *writer) sequence(f *qp.Failure, o *qp.History) {
	if f == nil || f.Cause != ib.CauseRetryTimeout || o.State < ib.StateRTR || o.State == ib.StateErr {
		return
	}
	switch {
	case f.PSN.Cmp(o.Expects) > 0:
		w.line(1, "It waits for PSN %d, and this request begins with %d: it ignores what comes too early. sq_psn here and rq_psn there must be the same number.", uint32(o.Expects), uint32(f.PSN))
	case f.LPSN.Cmp(o.Expects) < 0:
		w.line(1, "It waits for PSN %d and takes this request, PSN %d, for one that it has had already. Either its answers do not arrive here, or sq_psn here and rq_psn there are not the same number.", uint32(o.Expects), uint32(f.PSN))
	}
}

// advice adds what usually leads to a cause and where to look.
func (w *writer) advice(c ib.Cause, s ib.WCStatus) {
	a, ok := causes[c]
	if !ok {
		a = statuses[s].advice
	}
	if len(a) == 0 {
		return
	}
	w.line(0, "What to look at:")
	for _, l := range a {
		w.line(1, "- %s", l)
	}
}

// far names the other end.
func far(a *qp.Attr) string {
	if a.AV.DGID.IsZero() {
		return "the peer"
	}
	return fmt.Sprintf("qp %v at %s", a.DestQPN, address(a.AV.DGID))
}

// address writes an IPv4 address as people do.
func address(g ib.GID) string { return strings.TrimPrefix(g.String(), "::ffff:") }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func isAre(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

func bytes(n uint64) string { return plural(int(n), "byte") }

// before says how long before the failure something was.
func before(from, failure vtime.Time) string {
	if from == vtime.Never || failure <= from {
		return "just before the failure"
	}
	return fmt.Sprintf("%v before the failure", round(failure.Sub(from)))
}

// round keeps three digits or so.
func round(d time.Duration) time.Duration {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= unit {
			return d.Round(unit / 100)
		}
	}
	return d
}
