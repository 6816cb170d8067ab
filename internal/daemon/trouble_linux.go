package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/cm/gsi"
	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// Kinds of trouble.
const (
	TroubleRefused = "refused" // a call was refused
	TroubleFailed  = "failed"  // a work request failed
	TroubleMisuse  = "misuse"  // strict mode found misuse
	// TroubleFlushed is work that came back with WR_FLUSH_ERR because of what the program
	// itself had done. Programs that end a connection in order have it, too.
	TroubleFlushed = "flushed"
	// TroubleUnconnected is about an id of the connection manager that was not connected,
	// or whose address was not resolved.
	TroubleUnconnected = "unconnected"
)

// Trouble is something that a program was told by a number only, or not at all, and
// what is behind it.
type Trouble struct {
	At   time.Time `json:"at"` // the first time
	PID  int       `json:"pid"`
	Comm string    `json:"comm"`
	Kind string    `json:"kind"`
	// Title is one line, Text everything there is to say: several lines, without a
	// newline at the end. Both are for people.
	Title string `json:"title"`
	Text  string `json:"text"`
	// Count is how often the same was seen of the same program.
	Count int `json:"count"`
}

// maxTroubles is how many of them a node remembers. The oldest make room.
const maxTroubles = 64

// troubles is the memory of a node.
type troubles struct {
	mu   sync.Mutex
	list []Trouble
}

// add remembers t, and reports whether it is new.
func (l *troubles) add(t Trouble) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.list {
		if o := &l.list[i]; o.PID == t.PID && o.Title == t.Title && o.Kind == t.Kind {
			o.Count++
			return false
		}
	}
	if len(l.list) == maxTroubles {
		l.list = l.list[1:]
	}
	t.Count = 1
	l.list = append(l.list, t)
	return true
}

// all returns what is remembered, oldest first.
func (l *troubles) all() []Trouble {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Trouble{}, l.list...)
}

// desk puts into words what the owners of devices note down: they cannot wait for a log,
// nor ask another node what it knows.
type desk struct {
	log   *slog.Logger
	notes chan note
	sync  chan chan struct{}
	quit  chan struct{}
	done  chan struct{}
}

// note is trouble before it has words.
type note struct {
	h    *hosted
	a    *attached // whose program; nil if that is not known
	at   time.Time
	err  error          // of a refused call
	q    *qp.QP         // that failed
	wc   cq.WC          // with this; SUCCESS: without a completion
	code *strict.Report // of strict mode
	try  *explain.Attempt
	hist *qp.History // as it was, of a queue pair that its program took out of service
	site uintptr     // where the call was made that was refused, or posted what failed; 0: not known
}

// maxNotes bounds the notes that wait. More are lost: a program that fails all the time
// fails for the same reasons.
const maxNotes = 256

func newDesk(log *slog.Logger) *desk {
	return &desk{log: log, notes: make(chan note, maxNotes), sync: make(chan chan struct{}), quit: make(chan struct{}), done: make(chan struct{})}
}

// put notes something down, without blocking.
func (d *desk) put(n note) {
	n.at = time.Now()
	select {
	case d.notes <- n:
	default:
	}
}

// run works until the desk is closed. all are the nodes of the daemon.
func (d *desk) run(all func() []*hosted) {
	defer close(d.done)
	for {
		select {
		case n := <-d.notes:
			d.write(&n, all())
			continue
		default:
		}
		select {
		case n := <-d.notes:
			d.write(&n, all())
		case c := <-d.sync:
			close(c)
		case <-d.quit:
			return
		}
	}
}

// write puts one note into words.
func (d *desk) write(n *note, all []*hosted) {
	t := Trouble{At: n.at}
	if n.a != nil {
		t.PID, t.Comm = n.a.pid, n.a.comm
	}
	switch {
	case n.err != nil:
		t.Kind, t.Title, t.Text = TroubleRefused, n.err.Error(), explain.Call(n.err)
		t.Text = insert(t.Text, "called from", n.h.sites.describe(n.site))
	case n.code != nil:
		t.Kind, t.Title, t.Text = TroubleMisuse, n.code.String(), n.h.misuse(n.code)
	case n.try != nil:
		t.Kind, t.Text = TroubleUnconnected, explain.Connection(n.try, stationOf(n.try, all))
		t.Title, _, _ = strings.Cut(t.Text, "\n")
	default:
		t.Kind, t.Text = TroubleFailed, n.h.story(n, all)
		t.Title, _, _ = strings.Cut(t.Text, "\n")
		what := "posted by"
		if n.hist != nil {
			t.Kind, what = TroubleFlushed, "because of a call from"
		} else if n.wc.Status == ib.WCWRFlushErr {
			t.Kind = TroubleFlushed
		}
		t.Text = insert(t.Text, what, n.h.sites.describe(n.site))
	}
	if n.h.troubles.add(t) && t.Kind != TroubleFlushed {
		d.log.Warn(t.Kind, "node", n.h.cfg.Name, "pid", t.PID, "comm", t.Comm, "what", t.Title)
	}
}

// settle returns when everything is written that was put before.
func (d *desk) settle() {
	c := make(chan struct{})
	select {
	case d.sync <- c:
		<-c
	case <-d.done:
	}
}

// close ends run, once everything is written that was there.
func (d *desk) close() {
	close(d.quit)
	<-d.done
}

// misuse is the text of a report of strict mode.
func (h *hosted) misuse(r *strict.Report) string {
	var b strings.Builder
	b.WriteString(r.String())
	for _, p := range r.Places {
		b.WriteString("\n  in " + p.What)
		if at := h.sites.describe(p.Site[0]); at != "" {
			b.WriteString(", called from " + at)
		}
	}
	b.WriteString("\n" + r.Code.Why)
	for _, f := range r.Code.Fix {
		b.WriteString("\n  - " + f)
	}
	return b.String()
}

// story explains a completion. It asks the devices one at a time.
func (h *hosted) story(n *note, all []*hosted) string {
	var hist qp.History
	if h.node.Do(func(*rvt.Device, vtime.Time) { hist = n.q.History() }) != nil {
		return fmt.Sprintf("wr %d of qp %v failed with %v; the node has failed since.", n.wc.WRID, n.wc.QPN, n.wc.Status)
	}
	if n.hist != nil && (len(hist.Failures) == 0 || hist.Failures[len(hist.Failures)-1].Kind != qp.FailedByVerb) {
		hist = *n.hist // reset since
	}
	if n.wc.Status == ib.WCSuccess {
		return explain.QP(&hist, peerOf(&hist, all))
	}
	for i := range hist.Failures {
		if f := &hist.Failures[i]; n.wc.VendorErr == 0 && f.WRID == n.wc.WRID && f.Status == n.wc.Status {
			n.wc.VendorErr = f.Cause
		}
	}
	return explain.Completion(&n.wc, &hist, peerOf(&hist, all))
}

// peerOf finds the other end of a connection among the daemon's nodes; nil if there can be
// none.
func peerOf(hist *qp.History, all []*hosted) *explain.Peer {
	if hist.Type.IsDatagram() || hist.Attr.AV.DGID.IsZero() {
		return nil
	}
	for _, h := range all {
		if !h.has(hist.Attr.AV.DGID) {
			continue
		}
		p := &explain.Peer{Name: "node " + h.cfg.Name}
		err := h.node.Do(func(dev *rvt.Device, _ vtime.Time) {
			if q := dev.QP(hist.Attr.DestQPN); q != nil {
				o := q.History()
				p.QP = &o
			}
		})
		if err == nil {
			return p
		}
	}
	return &explain.Peer{Unknown: true}
}

// Refused implements uverbs.RefusalHost. Libraries try what a device may not have, or ask
// in a form that it may not know, and go on: that is no trouble of the program.
func (h *hosted) Refused(c *uverbs.Context, err error) {
	var v *ib.VerbError
	// Programs look for the end of the GID table by asking for empty entries.
	if !errors.As(err, &v) || v.Errno == ib.EOPNOTSUPP && !strings.HasPrefix(v.Verb, "create_") || v.Errno == ib.ENODATA && v.Verb == "query_gid_ex" || v.Errno == ib.Errno(unix.EBADF) || v.Verb == "ioctl" || v.Verb == "write" {
		return
	}
	a, _ := c.Owner.(*attached)
	h.desk.put(note{h: h, a: a, err: err, site: h.uv.Site()})
}

// tooPatient is how long the destruction of an object may wait for acknowledgements: another
// thread may be about to give them.
const tooPatient = time.Second

// destruction is one that waits. If its handle is used again meanwhile, a report may be lost.
type destruction struct {
	c      *uverbs.Context
	handle uint32
}

// Unacked implements uverbs.UnackedHost: the program hangs until it has acknowledged its
// events.
func (h *hosted) Unacked(c *uverbs.Context, verb string, handle uint32, object fmt.Stringer, events int) {
	if !h.cfg.Sites && !h.cfg.Strict.Events {
		return
	}
	a, _ := c.Owner.(*attached)
	r := strict.UnackedReport(verb, object.String(), events, strict.Site{h.uv.Site()})
	if h.waits == nil {
		h.waits = map[destruction]*time.Timer{}
	}
	key := destruction{c, handle}
	h.waits[key] = time.AfterFunc(tooPatient, func() {
		h.desk.put(note{h: h, a: a, code: &r})
		h.Do(func(*rvt.Device, vtime.Time) { delete(h.waits, key) })
	})
}

// Acknowledged implements uverbs.UnackedHost.
func (h *hosted) Acknowledged(c *uverbs.Context, handle uint32) {
	if t := h.waits[destruction{c, handle}]; t != nil {
		t.Stop()
		delete(h.waits, destruction{c, handle})
	}
}

// failed takes note of work that failed on its own account, and of the first that was posted
// when its queue pair was in ERR. What else is flushed was told of with what took it there.
func (h *hosted) failed(q *qp.QP, wrID uint64, status ib.WCStatus, site uintptr) {
	if status == ib.WCSuccess {
		return
	}
	wc := cq.WC{WRID: wrID, QPN: q.QPN, Status: status}
	if status == ib.WCWRFlushErr {
		f := q.LastFailure()
		if f == nil || f.Posted != (qp.GivenBack{N: 1, First: wrID}) {
			return
		}
		wc.VendorErr = ib.CauseFlushPosted
	}
	h.desk.put(note{h: h, a: h.programOf(q), q: q, wc: wc, site: site})
}

// turnedAway takes note of a request of the peer that cost the queue pair its life
// without a completion that says so, of a completion that was lost, and of posted work that
// the program's own call sends back.
func (h *hosted) turnedAway(q *qp.QP, f *qp.Failure) {
	switch f.Kind {
	case qp.FailedRequest, qp.FailedByCQ:
		h.desk.put(note{h: h, a: h.programOf(q), q: q})
	case qp.FailedByVerb:
		if a := h.programOf(q); a != nil && f.Queue.Started+f.Queue.Waiting+f.Receives > 0 {
			hist := q.History()
			h.desk.put(note{h: h, a: a, q: q, hist: &hist, site: h.uv.Site()})
		}
	}
}

// misused takes note of what strict mode has found.
func (h *hosted) misused(r strict.Report) {
	if ofDaemon(r.Subject) {
		return
	}
	h.desk.put(note{h: h, a: h.programOf(r.Subject), code: &r})
}

// ofDaemon reports whether an object is the connection manager's. What it does would look
// wrong in a program: its receives share the room for what is longer than a MAD.
func ofDaemon(subject any) bool {
	switch s := subject.(type) {
	case *qp.QP:
		return s.Type == ib.QPTypeGSI
	case *cq.CQ:
		_, ok := s.Context.(*gsi.Agent)
		return ok
	}
	return false
}

// programOf is the program that an object belongs to, nil if that is not known.
func (h *hosted) programOf(subject any) *attached {
	if h.uv == nil {
		return nil
	}
	c := h.uv.ContextOf(subject)
	if c == nil {
		return nil
	}
	a, _ := c.Owner.(*attached)
	return a
}

// watcher is what a node's device tells of work requests, beside strict mode.
type watcher struct{ h *hosted }

var _ qp.Observer = watcher{}

// SendDone implements qp.Observer.
func (w watcher) SendDone(q *qp.QP, s *swqe.SWQE, status ib.WCStatus, _ bool) {
	w.h.failed(q, s.WR.WRID, status, 0)
}

// RecvDone implements qp.Observer.
func (w watcher) RecvDone(q *qp.QP, wrID uint64, status ib.WCStatus, _ bool) {
	w.h.failed(q, wrID, status, 0)
}

// NoReceive implements qp.Observer.
func (watcher) NoReceive(*qp.QP) {}

// Refused implements qp.Observer.
func (w watcher) Refused(q *qp.QP, f *qp.Failure) { w.h.turnedAway(q, f) }

// strictWatcher is both.
type strictWatcher struct {
	*strict.Guard
	h *hosted
}

// SendDone implements qp.Observer.
func (w strictWatcher) SendDone(q *qp.QP, s *swqe.SWQE, status ib.WCStatus, entered bool) {
	w.h.failed(q, s.WR.WRID, status, w.Posted(q)[0])
	w.Guard.SendDone(q, s, status, entered)
}

// RecvDone implements qp.Observer.
func (w strictWatcher) RecvDone(q *qp.QP, wrID uint64, status ib.WCStatus, entered bool) {
	w.h.failed(q, wrID, status, 0)
	w.Guard.RecvDone(q, wrID, status, entered)
}

// Refused implements qp.Observer.
func (w strictWatcher) Refused(q *qp.QP, f *qp.Failure) {
	w.h.turnedAway(q, f)
	w.Guard.Refused(q, f)
}

// lookEvery is how often strict mode looks at what programs do without a call.
const lookEvery = 400 * time.Millisecond

// look lets strict mode see polls and receives in the rings, until stop is closed.
func (h *hosted) look(stop <-chan struct{}) {
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		select {
		case <-stop:
			return
		case <-t.C:
			h.Do(func(*rvt.Device, vtime.Time) {
				h.guard.CatchUp()
				h.guard.Overdue()
			})
		}
	}
}
