// Package model holds the device against a reference that is too plain to be wrong in
// the same places: see reference_test.go. Random programs of legal calls run on both,
// over networks that lose, duplicate and reorder as drawn, in all three profiles.
// Completions, memory and QP states must agree after every step. Calls that must be
// refused come from a generator of their own, which knows the errno.
//
//	go test ./tests/model                                   the same programs each time
//	go test ./tests/model -rapid.seed=7 -rapid.checks=5000   others, more
//
// What fails is shrunk to a short program and printed with its draws.
package model

import (
	"flag"
	"os"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
)

// Programs of a plain run; the race detector is about ten times slower.
const (
	defaultChecks     = 400
	defaultChecksRace = 25
)

func TestMain(m *testing.M) {
	flag.Parse()
	set := make(map[string]bool)
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	checks := defaultChecks
	if invariants.Race {
		checks = defaultChecksRace
	}
	for name, v := range map[string]string{"rapid.seed": "1", "rapid.checks": strconv.Itoa(checks), "rapid.nofailfile": "true"} {
		if !set[name] {
			if err := flag.Set(name, v); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}

// seen counts the completions that were compared, by status: a generator that only
// makes programs which fail at once would prove nothing.
var seen [ib.NumWCStatuses]int

func TestModel(t *testing.T) {
	clear(seen[:])
	rapid.Check(t, program)
	for s := range ib.NumWCStatuses {
		t.Logf("%7d %v", seen[s], ib.WCStatus(s))
	}
	for _, s := range []ib.WCStatus{ib.WCSuccess, ib.WCWRFlushErr, ib.WCLocProtErr, ib.WCRemAccessErr, ib.WCRemInvReqErr, ib.WCRetryExcErr, ib.WCRNRRetryExcErr} {
		if seen[ib.WCSuccess] > 5000 && seen[s] < 10 && !t.Failed() {
			t.Errorf("only %d completions with %v", seen[s], s)
		}
	}
}

func TestIllegalCallsBeforeRTS(t *testing.T) { rapid.Check(t, illegalBeforeRTS) }

func program(t *rapid.T) {
	w := newWorld(t, drawPlan(t))
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		l := w.links[between(t, 0, len(w.links)-1, "half")]
		w.step(l, between(t, 0, 19, "kind"))
		w.settle()
	}})
}

// step does one thing to one half, or a harmless thing to all of them at once.
func (w *world) step(l *link, kind int) {
	switch failed := l.state == ib.StateErr || l.peer.state == ib.StateErr; {
	case failed && kind < 10:
		w.reconnect(l.pair)
	case kind < 5:
		if n := rqDepth - len(*l.recvs); n > 0 {
			w.postRecvs(l, w.drawRecvs(l, between(w.t, 1, n, "receives"), false))
		}
	case kind < 11:
		if n := sqDepth - len(l.sends); n > 0 {
			w.postSends(l, w.drawSends(l, between(w.t, 1, n, "sends"), false), oneOf(w.t, "per call", sqDepth, 1, 3))
		}
	case kind < 14:
		w.everybody()
	case kind == 14:
		w.illegalSend(l)
	case kind == 15:
		w.illegalRecv(l)
	case kind == 16:
		w.illegalModify(l)
	case kind == 17:
		w.drain(l)
	case kind == 18:
		if once(w.t, 3, "to ERR") && l.state != ib.StateErr {
			w.modifyTo(l, ib.StateErr)
			l.toErr()
		}
	case kind == 19:
		w.reconnect(l.pair)
	}
}

// drain moves a QP to SQD, or back. A QP with work on the wire stays as it is: how much
// of its queue has been started is a matter of timing.
func (w *world) drain(l *link) {
	switch {
	case l.state == ib.StateRTS && len(l.sends) == 0:
		w.modifyTo(l, ib.StateSQD)
		l.state = ib.StateSQD
	case l.state == ib.StateSQD:
		w.modifyTo(l, ib.StateRTS)
		l.state = ib.StateRTS
	}
}

// everybody posts sends that cannot fail on all halves at once.
func (w *world) everybody() {
	need := make(map[*[]recvOp]int)
	type post struct {
		l   *link
		ops []sendOp
	}
	var posts []post
	for _, l := range w.links {
		if l.state != ib.StateRTS || len(l.sends) > 0 || !l.peer.receives() {
			return
		}
	}
	for _, l := range w.links {
		w.replaceRecvs(l)
	}
	for _, l := range w.links {
		var ops []sendOp
		for _, o := range w.drawSends(l, between(w.t, 0, rqDepth, "sends"), true) {
			if o.takesReceive() {
				need[l.peer.recvs]++
			}
			if l.refusal(&o) == ib.WCSuccess && need[l.peer.recvs] <= len(*l.peer.recvs) {
				ops = append(ops, o)
			}
		}
		posts = append(posts, post{l, ops})
	}
	for _, l := range w.links {
		for _, r := range *l.recvs {
			if total(r.local) < maxMessage || !l.side.allowsAll(r.local, ib.AccessLocalWrite) {
				return
			}
		}
	}
	for _, p := range posts {
		w.postSends(p.l, p.ops, oneOf(w.t, "per call", sqDepth, 1))
	}
}

// replaceRecvs fills a receive queue with receives that take any message.
func (w *world) replaceRecvs(l *link) {
	if n := rqDepth - len(*l.recvs); n > 0 {
		w.postRecvs(l, w.drawRecvs(l, n, true))
	}
}

// reconnect takes both halves of a pair through RESET.
func (w *world) reconnect(pair int) {
	a, b := w.links[2*pair], w.links[2*pair+1]
	for _, l := range []*link{a, b} {
		w.modifyTo(l, ib.StateReset)
		l.reset()
		l.state = ib.StateReset
	}
	w.settle() // what is still under way finds nobody
	for _, l := range []*link{a, b} {
		w.adopt(l.node)
		l.state = ib.StateRTS
	}
	w.connect(a, b)
}
