package conform

import (
	"fmt"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Places in the program's memory, as cases name them.
const (
	memBytes = 1 << 20
	srcOff   = 65536
	rcvOff   = 262144
	dstOff   = 524288
	srcBytes = 65536 // filled with a..z over and over; the rest is zero
)

const (
	allAccess = ib.AccessLocalWrite | ib.AccessRemoteMask
	qkey      = 0x11111111
	firstPSN  = 0x100
	immValue  = 0xcafebabe
	// settle is how long a drain goes on after it has what it wants, to see what should
	// not come.
	settleTime = 30 * time.Millisecond
	// pollEvery bounds how long a drain waits before it polls again.
	pollEvery = 300 * time.Microsecond
	endEvents = 20 * time.Millisecond
)

// endpoint is a queue pair of the case.
type endpoint struct {
	name string
	live bool
	qpn  ib.QPN
	cap  QPCap
	typ  ib.QPType
}

// runner carries out one case.
type runner struct {
	dut  DUT
	base uint64
	cfg  settings
	rec  Record
	mrs  map[string]MRKeys
	keys map[string]ib.RKey // of windows
	eps  map[string]*endpoint
	cqe  map[string]int // capacities granted; a queue is polled while it is here
	now  time.Duration
	// sent is the operation and length of each send, for profiles that repeat them in
	// error completions.
	sent map[string]wrInfo
	vars map[string]string
	srq  SRQAttr
	took time.Duration // of the last drain
}

type wrInfo struct{ op, length string }

// settings are the attributes that "set" changes.
type settings struct {
	typ                                         ib.QPType
	sigAll                                      bool
	sendWR, recvWR, sge, inline                 int
	sendCQE, recvCQE                            int
	accessA, accessB                            ib.Access
	timeout, retry, rnrRetry, rnrTimer, rd, drd int
	mtu                                         ib.MTU
	destQPN                                     ib.QPN
	pkeyIndex, portNum, sgidIndex               int
	enSQD                                       bool
}

func defaultSettings() settings {
	return settings{typ: ib.QPTypeRC, sendWR: 16, recvWR: 16, sge: 2, inline: 64, sendCQE: 64, recvCQE: 64, accessA: allAccess, accessB: allAccess,
		timeout: 14, retry: 2, rnrRetry: 7, rnrTimer: 12, rd: 4, drd: 4, mtu: ib.MTU1024, portNum: 1}
}

// outcome is a record with what the comparison needs besides.
type outcome struct {
	Record
	sent map[string]wrInfo
	took time.Duration
}

// runCase carries out a case on a fresh device. The error says what is wrong with the
// case, not with the device.
func runCase(d DUT, c *Case) (outcome, error) {
	r := &runner{dut: d, cfg: defaultSettings(), mrs: map[string]MRKeys{}, keys: map[string]ib.RKey{}, eps: map[string]*endpoint{}, cqe: map[string]int{}, sent: map[string]wrInfo{}, vars: map[string]string{}}
	r.rec = Record{Scenario: c.Name, What: c.What}
	var size int
	if r.base, size = d.Memory(); size != memBytes {
		return outcome{}, fmt.Errorf("the device's program has %d bytes of memory, want %d", size, memBytes)
	}
	r.fill()
	if err := r.prepare(); err != nil {
		return outcome{}, err
	}
	for i := range c.Steps {
		if err := r.step(&c.Steps[i]); err != nil {
			return outcome{}, fmt.Errorf("%s:%d: %w", c.File, c.Steps[i].Line, err)
		}
		if err := d.Err(); err != nil {
			return outcome{}, fmt.Errorf("%s:%d: %w", c.File, c.Steps[i].Line, err)
		}
	}
	r.states("A", "B")
	r.asyncEvents(endEvents)
	return outcome{r.rec, r.sent, r.now}, nil
}

func (r *runner) fill() {
	b := make([]byte, srcBytes)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	r.dut.Poke(srcOff, b)
}

// prepare creates the domain and the regions that every case has.
func (r *runner) prepare() error {
	if e := r.dut.AllocPD("pd"); e != 0 {
		return fmt.Errorf("alloc_pd: %w", e)
	}
	for _, m := range []struct {
		name string
		acc  ib.Access
	}{{"mr", allAccess}, {"ro", 0}, {"rr", ib.AccessLocalWrite | ib.AccessRemoteRead}, {"rw", ib.AccessLocalWrite | ib.AccessRemoteWrite}} {
		k, e := r.dut.RegMR(m.name, "pd", r.base, memBytes, m.acc)
		if e != 0 {
			return fmt.Errorf("reg_mr: %w", e)
		}
		r.mrs[m.name] = k
	}
	return nil
}

// step carries out one step and records its result if it is a call.
func (r *runner) step(s *Step) error {
	do, ok := verbs[s.Verb]
	if !ok {
		return fmt.Errorf("no step %q", s.Verb)
	}
	a := newArgs(s)
	res := do(r, a)
	if err := a.done(); err != nil {
		return err
	}
	switch {
	case s.Call:
		label, err := r.expand(s.Label)
		if err != nil {
			return err
		}
		if strings.Contains(label, "$") {
			list(&r.rec.Calls, "%s", strings.ReplaceAll(label, "$", res.String()))
		} else {
			list(&r.rec.Calls, "%s=%s", label, res)
		}
	case res.errno != 0 && !res.said:
		// Nobody expected it to fail.
		list(&r.rec.Calls, "%s=%s", s.Verb, res)
	}
	return nil
}

// result is what a step came to.
type result struct {
	errno ib.Errno
	made  bool // it creates something: success is "ok"
	said  bool // the failure is in the record already
}

func (r result) String() string {
	if r.errno == 0 && r.made {
		return "ok"
	}
	return errnoName(r.errno)
}

// wait lets d pass, without polling.
func (r *runner) wait(d time.Duration) {
	for end := r.now + d; r.now < end; {
		r.now += r.dut.Wait(end - r.now)
	}
}

// drain polls every queue until want completions came or limit passed, then a little
// longer. It returns how many came.
func (r *runner) drain(want int, limit time.Duration) int {
	start := r.now
	end, n, late := r.now+limit, 0, false
	for {
		k := r.pollAll()
		n += k
		if n >= want && !late {
			late = true
			end = r.now + settleTime
		}
		if r.now >= end {
			break
		}
		if k == 0 {
			r.now += r.dut.Wait(min(pollEvery, end-r.now))
		}
	}
	r.took = r.now - start
	return n
}

func (r *runner) pollAll() (n int) {
	for _, q := range queueNames {
		if _, ok := r.cqe[q]; !ok {
			continue
		}
		for {
			wc, ok := r.dut.Poll(q)
			if !ok {
				break
			}
			n++
			r.recordWC(q, &wc)
		}
	}
	return n
}

func (r *runner) recordWC(q string, wc *WC) {
	s := fmt.Sprintf("%s id=%d %s %s len=%d flags=0x%x verr=%d", q, wc.ID, wc.Status, opcodeName(wc.Opcode), wc.ByteLen, uint32(wc.Flags), wc.VendorErr)
	if wc.Flags&ib.WCFlagWithImm != 0 {
		s += fmt.Sprintf(" imm=0x%08x", wc.Imm)
	}
	if wc.Status == ib.WCSuccess && wc.Opcode&ib.WCRecv != 0 {
		s += " src_qp=" + r.qpName(wc.SrcQP)
	}
	if ep := r.eps[q[:1]]; ep != nil && ep.live && wc.QPN != ep.qpn {
		s += " WRONG_QPNUM"
	}
	list(&r.rec.Completions, "%s", s)
}

func (r *runner) qpName(n ib.QPN) string {
	for _, name := range []string{"A", "B"} {
		if ep := r.eps[name]; ep != nil && ep.qpn == n && (name == "A" || ep.live) {
			return name
		}
	}
	if n == 0 {
		return "0"
	}
	return "other"
}

// states records the state of queue pairs.
func (r *runner) states(names ...string) {
	for _, n := range names {
		if ep := r.eps[n]; ep == nil || !ep.live {
			continue
		}
		v, e := r.dut.QueryQP(n)
		if e != 0 {
			list(&r.rec.States, "%s=%s", n, errnoName(e))
			continue
		}
		list(&r.rec.States, "%s=%s/%s", n, v.State, v.Cached)
	}
}

// asyncEvents collects asynchronous events; it ends when none came for d.
func (r *runner) asyncEvents(d time.Duration) {
	for end := r.now + d; ; {
		if ev, ok := r.dut.AsyncEvent(); ok {
			o := ev.Object
			switch {
			case o == "":
				o = "port"
			case strings.HasSuffix(o, ".s"), strings.HasSuffix(o, ".r"):
				o += "cq"
			}
			list(&r.rec.Async, "%s(%s)", eventNames[ev.Type], o)
			end = r.now + d
			continue
		}
		if r.now >= end {
			return
		}
		r.now += r.dut.Wait(end - r.now)
	}
}
