package verbs

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/swqe"
)

// StrictReport is one case of misuse that strict mode found.
type StrictReport struct {
	Code   string   // stable: "STRICT-SQ-01"
	Title  string   // what kind it is
	Object string   // which object: "qp 0x11"
	Text   string   // what happened, with the state of the objects
	Places []string // the calls involved, with file and line
}

func (r StrictReport) String() string {
	s := r.Code + ": " + r.Object + ": " + r.Title + ": " + r.Text
	for _, p := range r.Places {
		s += "\n  " + p
	}
	return s
}

// maxReports bounds what Device.Reports keeps.
const maxReports = 1024

// strictHost gives the tracker a lock, call sites, and somebody to report to. All its
// methods work on nil, which checks nothing. Its lock is taken after the node's and a
// queue's, and it takes no other.
type strictHost struct {
	checks strict.Checks
	seed   uint64
	name   string
	notify func(StrictReport)

	mu      sync.Mutex
	t       *strict.Tracker
	reports []StrictReport
	rngs    map[*cq.CQ]*rand.Rand
	cqs     []*CQ
}

// newStrict prepares the checks that cfg asks for and changes the device's own
// configuration for them.
func newStrict(cfg *Config, dc *rvt.Config) *strictHost {
	checks := cfg.StrictChecks
	if cfg.Strict {
		checks = strict.All()
	}
	if checks == (strict.Checks{}) {
		return nil
	}
	s := &strictHost{checks: checks, seed: cfg.Seed, name: cfg.Name, notify: cfg.StrictReport, rngs: map[*cq.CQ]*rand.Rand{}}
	if s.notify == nil {
		s.notify = s.log
	}
	strict.Configure(checks, cfg.Seed, dc)
	dc.Observer = s
	return s
}

func (s *strictHost) track(dev *rvt.Device) {
	if s != nil {
		s.t = strict.NewTracker(s.checks, dev.Keys(), s.take)
	}
}

// take turns a report into text. The lock is held.
func (s *strictHost) take(r strict.Report) {
	out := StrictReport{Code: r.Code.ID, Title: r.Code.Title, Object: r.Object, Text: r.Text}
	for _, p := range r.Places {
		if at := where(p.Site); at != "" {
			out.Places = append(out.Places, p.What+" at "+at)
		}
	}
	if len(s.reports) < maxReports {
		s.reports = append(s.reports, out)
	}
	s.notify(out)
}

func (s *strictHost) log(r StrictReport) {
	slog.Warn(r.Title, "code", r.Code, "device", s.name, "object", r.Object, "what", r.Text, "at", strings.Join(r.Places, "; "))
}

// Reports returns what strict mode has found so far; see [Config.Strict].
func (d *Device) Reports() []StrictReport {
	if d.strict == nil {
		return nil
	}
	d.strict.mu.Lock()
	defer d.strict.mu.Unlock()
	return append([]StrictReport(nil), d.strict.reports...)
}

// here is the call site of the program: the first frame outside of this package.
func here() (site strict.Site) {
	runtime.Callers(2, site[:])
	return site
}

// where names the first frame of a site that is not in this package. A program's own
// tests may be in it, so files decide.
func where(site strict.Site) string {
	n := 0
	for n < len(site) && site[n] != 0 {
		n++
	}
	if n == 0 {
		return ""
	}
	frames := runtime.CallersFrames(site[:n])
	for {
		f, more := frames.Next()
		inside := strings.Contains(f.Function, "rvtsim/verbs.") && !strings.HasSuffix(f.File, "_test.go") || strings.HasPrefix(f.Function, "runtime.")
		if !inside || !more {
			name := f.Function[strings.LastIndexByte(f.Function, '/')+1:]
			return fmt.Sprintf("%s:%d (%s)", filepath.Base(f.File), f.Line, name)
		}
	}
}

// with runs f with the tracker locked.
func (s *strictHost) with(f func(*strict.Tracker)) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.t)
}

// SendDone implements qp.Observer.
func (s *strictHost) SendDone(q *qp.QP, w *swqe.SWQE, status ib.WCStatus, entered bool) {
	s.with(func(t *strict.Tracker) { t.SendDone(q, w, status, entered) })
}

// RecvDone implements qp.Observer.
func (s *strictHost) RecvDone(q *qp.QP, wrID uint64, status ib.WCStatus, entered bool) {
	s.with(func(t *strict.Tracker) { t.RecvDone(q, wrID, status, entered) })
}

// NoReceive implements qp.Observer.
func (s *strictHost) NoReceive(q *qp.QP) { s.with(func(t *strict.Tracker) { t.NoReceive(q) }) }

// Refused implements qp.Observer.
func (s *strictHost) Refused(q *qp.QP, f *qp.Failure) {
	s.with(func(t *strict.Tracker) { t.Refused(q, f) })
}

// postSend posts as much as there are free slots by the rule of polled completions.
func (s *strictHost) postSend(dev *rvt.Device, q *QP, verb string, wrs []swqe.SendWR) (n int, err error) {
	site := here()
	for i := range wrs {
		room, why := 0, ""
		s.with(func(t *strict.Tracker) { room, why = t.Room(q.core, site) })
		if room == 0 && qp.StateOps(q.core.State)&qp.PostSendOK != 0 {
			return i, ib.NewVerbError(ib.ENOMEM, verb, q.String(), fmt.Sprintf("wr %d (%v): %s", wrs[i].WRID, wrs[i].Opcode, why))
		}
		if _, err := dev.PostSend(q.core, wrs[i:i+1]); err != nil {
			return i, err
		}
		s.with(func(t *strict.Tracker) { t.PostSend(q.core, &wrs[i], site) })
	}
	return len(wrs), nil
}

// postRecv posts receives one at a time: each may complete at once.
func (s *strictHost) postRecv(q *qp.QP, srq *swqe.SRQ, wrs []swqe.RecvWR, post func() (int, error)) (int, error) {
	site := here()
	s.with(func(t *strict.Tracker) {
		for i := range wrs {
			t.PostRecv(q, srq, &wrs[i], site)
		}
	})
	n, err := post()
	s.with(func(t *strict.Tracker) { t.UnpostRecv(q, srq, len(wrs)-n) })
	return n, err
}

// newCQ gives a queue its own sequence of random choices.
func (s *strictHost) newCQ(c *CQ) {
	s.with(func(*strict.Tracker) {
		s.cqs = append(s.cqs, c)
		s.rngs[c.core] = rand.New(rand.NewPCG(s.seed, uint64(c.core.Handle)))
	})
}

// poll polls, and uses the freedom that the API leaves: completions of different queue
// pairs have no order, and those of a queue that announces nothing may come a little
// later. The caller is the queue's one consumer.
func (s *strictHost) poll(c *CQ, wc []WC) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	rng := s.rngs[c.core]
	if s.checks.Freedom && c.ch == nil && len(wc) > 1 && rng.IntN(4) == 0 {
		wc = wc[:1+rng.IntN(len(wc))]
	}
	n := c.core.Poll(wc)
	s.t.Polled(c.core, n)
	if s.checks.Freedom {
		// Neighbours of different queue pairs change places: the order within each stays.
		for i := 1; i < n; i++ {
			if wc[i].QPN != wc[i-1].QPN && rng.IntN(2) == 0 {
				wc[i], wc[i-1] = wc[i-1], wc[i]
			}
		}
	}
	return n
}

func (s *strictHost) arm(c *CQ) {
	s.with(func(t *strict.Tracker) { t.Arm(c.core, c.ch != nil, here()) })
}

// waiting looks at the queues of a channel before the program sleeps.
func (s *strictHost) waiting(ch *CompChannel) {
	if s == nil || !ch.queue.isEmpty() {
		return
	}
	s.with(func(t *strict.Tracker) {
		var list []*cq.CQ
		for _, c := range s.cqs {
			if c.ch == ch {
				t.Wait(c.core, here())
				list = append(list, c.core)
			}
		}
		t.WaitUnarmed(list, here())
	})
}

func (s *strictHost) destroyCQ(c *CQ) {
	s.with(func(t *strict.Tracker) {
		t.DestroyCQ(c.core)
		delete(s.rngs, c.core)
		for i, o := range s.cqs {
			if o == c {
				s.cqs = append(s.cqs[:i], s.cqs[i+1:]...)
				break
			}
		}
	})
}

func (s *strictHost) destroyQP(q *QP) {
	s.with(func(t *strict.Tracker) { t.DestroyQP(q.core) })
}
func (s *strictHost) destroySRQ(q *SRQ) {
	s.with(func(t *strict.Tracker) { t.DestroySRQ(q.core) })
}

// modify looks at attributes that were changed, or refused with err.
func (s *strictHost) modify(q *QP, a *QPAttr, mask ib.AttrMask, err error) {
	s.with(func(t *strict.Tracker) {
		if err != nil {
			t.ModifyRefused(q.core, a, mask, here())
			return
		}
		if mask&ib.AttrState != 0 && q.core.State == ib.StateReset {
			t.Reset(q.core, q.core.Env.Prof.RQKeptOnReset)
		}
		t.Modify(q.core, mask, here())
	})
}

func (s *strictHost) dereg(m *MR) {
	s.with(func(t *strict.Tracker) { t.Dereg(m.lkey, here()) })
}

// patience is how long a destroy may wait for acknowledgements without being reported:
// another goroutine may be about to give them.
const patience = time.Second

// unacked reports a destroy that waits too long, or gave up.
func (s *strictHost) unacked(verb, object string, a *ackCount) (done func()) {
	if s == nil {
		return func() {}
	}
	site := here()
	report := func() {
		if n := a.count(); n > 0 {
			s.with(func(t *strict.Tracker) { t.Unacked(verb, object, n, site) })
		}
	}
	timer := time.AfterFunc(patience, report)
	return func() {
		timer.Stop()
		report()
	}
}

// watch lets the tracker see what the device writes.
func (s *strictHost) watch(m *memory) mr.Memory {
	if s == nil {
		return m
	}
	return strict.Memory{Mem: m, Freedom: s.checks.Freedom, T: s}
}

// Wrote implements strict.Writes.
func (s *strictHost) Wrote(m mr.Memory, addr uint64, n int) {
	s.with(func(t *strict.Tracker) { t.DeviceWrote(m, addr, n) })
}
