package spec

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// node is one device of a scenario with what a script made on it.
type node struct {
	name   string
	dev    *rvt.Device
	gid    ib.GID
	pd     *rvt.PD
	events []string // not printed by the events directive yet
	out    qp.Outbox
	gather mr.Batch

	verdict qp.Verdict // of its host on QPs without retries
	always  bool       // and on those with some
}

// The named objects of a script. Names are unique in their kind.
type (
	cqObj struct {
		name string
		node *node
		cq   *cq.CQ
	}
	srqObj struct {
		name string
		node *node
		srq  *swqe.SRQ
	}
	mrObj struct {
		name string
		node *node
		mr   *rvt.MR
		buf  []byte
		base uint64
	}
	mwObj struct {
		name string
		node *node
		mw   *mr.Window
	}
	ahObj struct {
		name string
		node *node
		ah   *swqe.AH
	}
	pdObj struct {
		name string
		node *node
		pd   *rvt.PD
	}
	qpObj struct {
		name string
		node *node
		qp   *qp.QP
		attr qp.Attr // what connect uses
	}
)

// Interp runs the directives of one script against its own world.
type Interp struct {
	now   vtime.Time
	nodes []*node
	wire  wireState

	cqs  []*cqObj
	srqs []*srqObj
	mrs  []*mrObj
	mws  []*mwObj
	ahs  []*ahObj
	pds  []*pdObj
	qps  []*qpObj
	cm   *cmWorld // nil until the script asks for it

	trace    bool
	steps    int // of the directive being run
	print    strings.Builder
	overflow bool
}

// New returns an empty world at time 0 with a wire of 500 us latency.
func New() *Interp {
	return &Interp{trace: true, wire: wireState{latency: defaultLatency, batch: maxSteps}}
}

const defaultLatency = 500 * time.Microsecond

// find returns the element of list with the name, nil if there is none.
func find[T any](list []T, name func(T) string, want string) (T, bool) {
	i := slices.IndexFunc(list, func(e T) bool { return name(e) == want })
	if i < 0 {
		var zero T
		return zero, false
	}
	return list[i], true
}

func (in *Interp) node(name string) (*node, error) {
	if n, ok := find(in.nodes, func(n *node) string { return n.name }, name); ok {
		return n, nil
	}
	return nil, fmt.Errorf("no device %q", name)
}

func (in *Interp) qp(name string) (*qpObj, error) {
	if q, ok := find(in.qps, func(q *qpObj) string { return q.name }, name); ok {
		return q, nil
	}
	return nil, fmt.Errorf("no qp %q", name)
}

func (in *Interp) cq(name string) (*cqObj, error) {
	if c, ok := find(in.cqs, func(c *cqObj) string { return c.name }, name); ok {
		return c, nil
	}
	return nil, fmt.Errorf("no cq %q", name)
}

func (in *Interp) srq(name string) (*srqObj, error) {
	if s, ok := find(in.srqs, func(s *srqObj) string { return s.name }, name); ok {
		return s, nil
	}
	return nil, fmt.Errorf("no srq %q", name)
}

func (in *Interp) mr(name string) (*mrObj, error) {
	if m, ok := find(in.mrs, func(m *mrObj) string { return m.name }, name); ok {
		return m, nil
	}
	return nil, fmt.Errorf("no mr %q", name)
}

func (in *Interp) mw(name string) (*mwObj, error) {
	if m, ok := find(in.mws, func(m *mwObj) string { return m.name }, name); ok {
		return m, nil
	}
	return nil, fmt.Errorf("no mw %q", name)
}

func (in *Interp) ah(name string) (*ahObj, error) {
	if a, ok := find(in.ahs, func(a *ahObj) string { return a.name }, name); ok {
		return a, nil
	}
	return nil, fmt.Errorf("no ah %q", name)
}

// pdOf returns the domain of that name on n, made on first use; the empty name is the
// domain that every device has.
func (in *Interp) pdOf(n *node, name string) (*rvt.PD, error) {
	if name == "" {
		return n.pd, nil
	}
	for _, p := range in.pds {
		if p.name == name && p.node == n {
			return p.pd, nil
		}
	}
	pd, err := n.dev.AllocPD()
	if err == nil {
		in.pds = append(in.pds, &pdObj{name, n, pd})
	}
	return pd, err
}

// qpName names a queue pair of a device as the script does.
func (in *Interp) qpName(n *node, qpn ib.QPN) string {
	for _, q := range in.qps {
		if q.node == n && q.qp.QPN == qpn {
			return q.name
		}
	}
	return qpn.String()
}

// object names what an event is about.
func (in *Interp) object(n *node, e *qp.Event) string {
	switch {
	case e.QP != nil:
		return "qp " + in.qpName(n, e.QP.QPN)
	case e.SRQ != nil:
		for _, s := range in.srqs {
			if s.srq == e.SRQ {
				return "srq " + s.name
			}
		}
	case e.CQ != nil:
		for _, c := range in.cqs {
			if c.cq == e.CQ {
				return "cq " + c.name
			}
		}
	}
	return "port 1"
}

// collect takes a device's events, prints them in the trace and keeps them for the
// events directive.
func (in *Interp) collect(n *node) {
	var buf [16]qp.Event
	for {
		got := n.dev.PollEvents(buf[:])
		if got == 0 {
			return
		}
		for i := range buf[:got] {
			text := buf[i].Type.String()
			if buf[i].Comp {
				text = "COMP"
			}
			text += " " + in.object(n, &buf[i])
			n.events = append(n.events, text)
			in.tracef("%s event %s", n.name, text)
		}
	}
}

// tracef prints one line of the trace, with the time in front.
func (in *Interp) tracef(format string, args ...any) {
	if in.trace {
		in.printf("%10s %s\n", clock(in.now), fmt.Sprintf(format, args...))
	}
}

// printf adds to what the directive prints, up to a bound.
func (in *Interp) printf(format string, args ...any) {
	if in.print.Len() > maxTrace {
		in.overflow = true
		return
	}
	fmt.Fprintf(&in.print, format, args...)
}

// clock is an instant in ASCII.
func clock(t vtime.Time) string { return strings.Replace(t.String(), "µ", "u", 1) }

// span is a duration in ASCII.
func span(d time.Duration) string { return strings.Replace(d.String(), "µ", "u", 1) }
