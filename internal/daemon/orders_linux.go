package daemon

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// order is what a daemon has the engine in a program do to its part of the node: what
// "rvtsim fault" has asked for. It travels as JSON.
type order struct {
	ID     uint64              `json:"id"`            // of the answer
	Net    *netOrder           `json:"net,omitempty"` // before Links
	Links  []linkOrder         `json:"links,omitempty"`
	PortUp *bool               `json:"port_up,omitempty"`
	Fault  *topology.LiveFault `json:"fault,omitempty"` // at the objects of the program
}

// netOrder is the network between the nodes, when it takes time: what the file says, and
// what was changed since.
type netOrder struct {
	Nodes    int               `json:"nodes"`
	Network  topology.Link     `json:"network"`
	Links    []topology.Link   `json:"links,omitempty"`
	Switches []topology.Switch `json:"switches,omitempty"`
	Changed  []topology.Fault  `json:"changed"`
	Seed     uint64            `json:"seed"`
}

// ways builds the network.
func (n *netOrder) ways() (*runner.Ways, error) {
	f := &topology.File{Nodes: make([]topology.Node, n.Nodes), Network: n.Network, Links: n.Links, Switches: n.Switches}
	w, err := runner.NewWays(f, n.Seed)
	for i := range n.Changed {
		if err == nil {
			err = w.Change(&n.Changed[i])
		}
	}
	return w, err
}

// linkOrder says what packets to a destination suffer from now on.
type linkOrder struct {
	To         ib.GID              `json:"to"` // zero: every destination that no other order names
	Impairment topology.Impairment `json:"impairment"`
	Seed       uint64              `json:"seed"`
	From       int                 `json:"from"` // position of the node, and of the other one, in the file
	Peer       int                 `json:"peer"`
}

// obeyed is the answer to an order.
type obeyed struct {
	n   int // objects that it has happened to
	err string
}

// order has the programs on a node that host themselves do o, and waits for them. It
// returns how many objects were concerned. A program that is stopped does it when it goes
// on; then silent names it.
func (d *Daemon) order(h *hosted, o order) (n int, silent []string, err error) {
	all := d.programsOf(h)
	answers := make([]chan obeyed, len(all))
	for i, p := range all {
		answers[i] = p.tell(o)
	}
	late := time.NewTimer(askFor)
	defer late.Stop()
	for i, p := range all {
		a, ok := p.outcome(answers[i], late.C)
		if !ok {
			late.Reset(0)
			silent = append(silent, strconv.Itoa(p.c.pid))
		}
		n += a.n
		if a.err != "" && err == nil {
			err = fmt.Errorf("program %d: %s", p.c.pid, a.err)
		}
		p.forget(answers[i])
	}
	return n, silent, err
}

// tell sends an order. The answer will be in the channel.
func (p *program) tell(o order) chan obeyed {
	ch := make(chan obeyed, 1)
	p.mu.Lock()
	p.orders++
	o.ID = p.orders
	if p.answers == nil {
		p.answers = map[uint64]chan obeyed{}
	}
	p.answers[o.ID] = ch
	p.mu.Unlock()
	text, err := json.Marshal(&o)
	if err == nil {
		var b []byte
		if b, err = appendReply(nil, &reply{kind: repOrder, out: text}); err == nil {
			err = p.c.sock.send(b, nil)
		}
	}
	if err != nil {
		ch <- obeyed{err: err.Error()}
	}
	return ch
}

// outcome waits for an answer, which is empty if the program has ended without one. It may
// have ended because of what it was ordered to do, and have said so just before. ok is false
// if it is late.
func (p *program) outcome(ch chan obeyed, late <-chan time.Time) (a obeyed, ok bool) {
	ok = true
	select {
	case a = <-ch:
		return a, true
	case <-p.c.left:
	case <-late:
		ok = false
	}
	select {
	case a = <-ch:
		return a, true
	default:
		return a, ok
	}
}

// forget gives up waiting for an answer.
func (p *program) forget(ch chan obeyed) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.answers {
		if c == ch {
			delete(p.answers, id)
		}
	}
}

// obeyed serves OBEYED: what came of an order.
func (c *conn) obeyed(rq *request) error {
	if c.prog == nil {
		return c.fail(ib.Errno(unix.EPROTO))
	}
	p := c.prog
	p.mu.Lock()
	defer p.mu.Unlock()
	if ch := p.answers[rq.arg]; ch != nil {
		delete(p.answers, rq.arg)
		ch <- obeyed{n: int(int32(rq.index)), err: string(rq.data)}
	}
	return nil
}

// unreached is the error if a fault could not reach a program.
func unreached(silent []string) error {
	if len(silent) == 0 {
		return nil
	}
	return fmt.Errorf("process %s does not answer; it will happen to it when it goes on", strings.Join(silent, ", "))
}

// obey carries out an order of the daemon, in the program, and answers it.
func (e *Engine) obey(b []byte) {
	n := binary.LittleEndian.Uint32(b[32:])
	var o order
	if int(n) > len(b)-repLen {
		return
	}
	if err := json.Unmarshal(b[repLen:repLen+int(n)], &o); err != nil {
		return // of another version: it does not concern us
	}
	told := false
	tell := func(n int, err error) {
		if told {
			return
		}
		told = true
		rq := request{op: opObeyed, arg: o.ID, index: uint32(n)}
		if err != nil {
			rq.data = []byte(err.Error())
		}
		_ = e.ctl.send(appendRequest(nil, &rq), nil)
	}
	tell(e.carryOut(&o, func(n int) { tell(n, nil) }))
}

// carryOut does what an order says. It calls done, unless there is an error, before the
// program sees what comes of it: it may end at once.
func (e *Engine) carryOut(o *order, done func(n int)) (n int, err error) {
	if o.Net != nil && !reflect.DeepEqual(o.Net, e.net) { // else packets keep their places in queues
		if e.ways, err = o.Net.ways(); err != nil {
			return 0, err
		}
		e.net = o.Net
	}
	for i := range o.Links {
		if err := e.impair(&o.Links[i]); err != nil {
			return 0, err
		}
	}
	switch {
	case o.PortUp != nil:
		e.h.Do(func(d *rvt.Device, _ vtime.Time) { d.SetPort(*o.PortUp) })
	case o.Fault != nil:
		return e.d.verbFaults(e.h, o.Fault, done)
	}
	return 0, nil
}

// impair changes what packets of this program suffer, and what lies on their way. Programs on
// one node draw their misfortunes independently of each other, and have queues of their own.
func (e *Engine) impair(o *linkOrder) error {
	l := topology.Link{Impairment: o.Impairment}
	p, err := runner.PolicyOf(&l, o.Seed+uint64(e.h.seat.Index)<<40, o.From, o.Peer)
	if err != nil {
		return err
	}
	var w fabric.Way
	if e.ways != nil {
		to := o.Peer - 1
		if to == outside {
			to = e.net.Nodes
		}
		w = e.ways.Between(o.From, to)
	}
	e.h.Do(func(*rvt.Device, vtime.Time) {
		if o.To.IsZero() {
			e.h.impaired.SetPolicy(p)
			e.h.impaired.SetWay(w)
		} else {
			e.h.impaired.SetPolicyFor(o.To, p)
			e.h.impaired.SetWayFor(o.To, w)
		}
	})
	return nil
}
