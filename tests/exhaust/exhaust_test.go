// Package exhaust runs short RC exchanges under every pattern of losses, duplicates
// and reorderings of their first packets, and compares each with a model: completions
// exactly once and in order, memory as if each operation had happened at once.
//
//	go test ./tests/exhaust                                            the first few packets
//	go test ./tests/exhaust -exhaust.packets=8 -exhaust.fates=pdts     the first 8: minutes
package exhaust

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

var (
	packetsFlag = flag.Int("exhaust.packets", 0, "packets whose fate is varied; 0: a few")
	fatesFlag   = flag.String("exhaust.fates", fateLetters, "what may happen to a packet: p nothing, d drop, t twice, s swap, g ghost, l late")
	replayFlag  = flag.String("exhaust.replay", "", "one pattern to run, as printed by a failure")
)

// level is a set of patterns: these fates for the first so many packets.
type level struct {
	fates   string
	packets int
}

func levels() []level {
	switch {
	case *packetsFlag > 0:
		return []level{{*fatesFlag, *packetsFlag}}
	case invariants.Race:
		return []level{{fateLetters, 2}, {"pdts", 3}}
	}
	return []level{{fateLetters, 4}, {"pdts", 5}}
}

// fate is what the network does to a packet.
type fate uint8

const (
	pass  fate = iota
	drop       // lost
	twice      // delivered twice in a row
	swap       // delivered after the next packet in its direction
	ghost      // delivered, and again when nothing else is under way
	late       // delivered only when nothing else is under way
	numFates
)

const fateLetters = "pdtsgl"

// chooser enumerates sequences of choices: after each run, next moves on to the next
// sequence that was not tried. Choices that a run did not get to are not varied.
type chooser struct {
	level
	choice []int // indices into fates
	pos    int
}

func (c *chooser) choose() fate {
	if c.pos >= c.packets {
		return pass
	}
	if c.pos == len(c.choice) {
		c.choice = append(c.choice, 0)
	}
	c.pos++
	return fate(strings.IndexByte(fateLetters, c.fates[c.choice[c.pos-1]]))
}

// next prepares the next run; false when all were done.
func (c *chooser) next() bool {
	c.choice = c.choice[:c.pos]
	c.pos = 0
	for n := len(c.choice); n > 0; n = len(c.choice) {
		if c.choice[n-1]++; c.choice[n-1] < len(c.fates) {
			return true
		}
		c.choice = c.choice[:n-1]
	}
	return false
}

func (c *chooser) String() string {
	var b strings.Builder
	for _, i := range c.choice[:c.pos] {
		b.WriteByte(c.fates[i])
	}
	return b.String()
}

// config is an exchange under one setting of the devices.
type config struct {
	name     string
	profile  qp.Profile
	window   int
	rdAtomic uint8
	ops      []op
	back     []op  // the other direction
	recvs    []int // offsets of the receives, at either end
	lateRecv bool  // receives are posted only after an RNR NAK
	models   [2]*model
}

const maxSteps = 4000

// run lets one exchange happen and compares it with the model.
func (c *config) run(ch *chooser) error {
	a, b := newHost(1, c), newHost(2, c)
	a.connect(b, c)
	b.connect(a, c)
	for _, h := range []*host{a, b} {
		for _, off := range c.recvs {
			wr := swqe.RecvWR{WRID: recvID(off), SGL: []mr.SGE{{Addr: bufBase + uint64(off), Length: recvBytes, LKey: h.mr.LKey}}}
			if c.lateRecv {
				h.late = append(h.late, wr)
				continue
			}
			_, err := h.d.PostRecv(h.q, []swqe.RecvWR{wr})
			must(err)
		}
	}
	for i, o := range c.ops {
		_, err := a.d.PostSend(a.q, []swqe.SendWR{o.wr(i, a, b)})
		must(err)
	}
	for i, o := range c.back {
		_, err := b.d.PostSend(b.q, []swqe.SendWR{o.wr(i, b, a)})
		must(err)
	}
	if err := exchange(a, b, ch); err != nil {
		return err
	}
	ma, mb := c.expect()
	sentA, recvA := split(a)
	sentB, recvB := split(b)
	err := errors.Join(sameWCs("requester", ma.want, sentA), sameWCs("responder", ma.got, recvB),
		sameWCs("other requester", mb.want, sentB), sameWCs("other responder", mb.got, recvA))
	if err != nil {
		return err
	}
	return errors.Join(sameMemory("requester", ma.a, a.buf), sameMemory("responder", ma.b, b.buf))
}

// expect returns what the model makes of the exchange, one direction each.
func (c *config) expect() (ab, ba *model) {
	if c.models[0] == nil {
		ab = &model{a: bytes.Clone(image(1)), b: bytes.Clone(image(2)), recv: c.recvs}
		for i, o := range c.ops {
			ab.execute(i, o)
		}
		ba = &model{a: ab.b, b: ab.a, recv: c.recvs}
		for i, o := range c.back {
			ba.execute(i, o)
		}
		c.models = [2]*model{ab, ba}
	}
	return c.models[0], c.models[1]
}

func sameMemory(name string, want, got []byte) error {
	if bytes.Equal(want, got) {
		return nil
	}
	for i := range want {
		if want[i] != got[i] {
			return fmt.Errorf("%s: byte %d of memory is %#x, want %#x", name, i, got[i], want[i])
		}
	}
	return nil
}

// exchange moves packets until both devices are idle and no timer runs.
func exchange(a, b *host, ch *chooser) error {
	now := vtime.Time(0)
	var flight, held, idle []frame
	for range maxSteps {
		if len(flight) == 0 {
			for _, h := range []*host{a, b} {
				peer := b
				if h == b {
					peer = a
				}
				for f, ok := h.emit(now, peer); ok; f, ok = h.emit(now, peer) {
					flight = append(flight, f)
				}
				h.poll()
			}
		}
		if len(flight) == 0 {
			switch {
			case len(held) > 0:
				flight, held = append(flight, held...), held[:0]
			case len(idle) > 0:
				flight, idle = append(flight, idle[0]), idle[1:]
			default:
				at := vtime.Min(a.d.Deadline(), b.d.Deadline())
				if at == vtime.Never {
					return nil
				}
				now = max(now, at)
				a.expire(now)
				b.expire(now)
			}
			for i := range flight {
				flight[i].to.receive(now, &flight[i])
			}
			flight = flight[:0]
			continue
		}
		f := flight[0]
		flight = flight[1:]
		fates := ch.choose()
		switch fates {
		case drop:
			continue
		case swap:
			held = append(held, f)
			continue
		case late:
			idle = append(idle, f)
			continue
		case ghost:
			idle = append(idle, f)
		}
		f.to.receive(now, &f)
		if fates == twice {
			f.to.receive(now, &f)
		}
		rest := held[:0]
		for _, h := range held {
			if h.to == f.to {
				h.to.receive(now, &h)
			} else {
				rest = append(rest, h)
			}
		}
		held = rest
	}
	return errors.New("no end in sight")
}

// expire runs the timers, and posts the receives that were held back once the peer was
// told to wait for them.
func (h *host) expire(now vtime.Time) {
	h.d.Expire(now)
	h.d.Commit(now)
	if len(h.late) > 0 && h.d.Counters().SentRNRNAK > 0 {
		_, err := h.d.PostRecv(h.q, h.late)
		must(err)
		h.late = nil
	}
	h.poll()
}

func split(h *host) (sent, received []cq.WC) {
	for _, wc := range h.wcs {
		if wc.WRID>>32 == 1 {
			received = append(received, wc)
		} else {
			sent = append(sent, wc)
		}
	}
	return sent, received
}

func TestEveryPattern(t *testing.T) {
	// The runs leave little behind and make much garbage.
	defer debug.SetGCPercent(debug.SetGCPercent(1000))
	for _, c := range configs() {
		t.Run(c.name, func(t *testing.T) {
			if *replayFlag != "" {
				if err := c.run(replay(t, *replayFlag)); err != nil {
					t.Fatal(err)
				}
				return
			}
			runs, failures := 0, 0
			for _, l := range levels() {
				ch := &chooser{level: l}
				for more := true; more && failures < 3; more = ch.next() {
					runs++
					if err := guarded(&c, ch); err != nil {
						failures++
						t.Errorf("pattern %v: %v\nTo run it again:\n  go test ./tests/exhaust -run '%s$' -exhaust.replay=%v", ch, err, t.Name(), ch)
					}
				}
			}
			t.Logf("%d patterns", runs)
		})
	}
}

// replay makes the choices of a pattern that was printed.
func replay(t *testing.T, pattern string) *chooser {
	ch := &chooser{level: level{fateLetters, len(pattern)}}
	for i := range len(pattern) {
		at := strings.IndexByte(fateLetters, pattern[i])
		if at < 0 {
			t.Fatalf("-exhaust.replay: %q is no fate", pattern[i])
		}
		ch.choice = append(ch.choice, at)
	}
	return ch
}

// guarded turns a panic into an error, so that the pattern is printed with it.
func guarded(c *config, ch *chooser) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	return c.run(ch)
}

// TestChooser checks the enumeration: every sequence once.
func TestChooser(t *testing.T) {
	ch := &chooser{level: level{fateLetters, 3}}
	seen := map[string]bool{}
	for more := true; more; more = ch.next() {
		if ch.choose() != drop { // a dropped first packet has no successors here
			ch.choose()
			ch.choose()
		}
		if seen[ch.String()] {
			t.Fatalf("%v came twice", ch)
		}
		seen[ch.String()] = true
	}
	n := int(numFates)
	if want := (n-1)*n*n + 1; len(seen) != want {
		t.Fatalf("%d sequences, want %d", len(seen), want)
	}
}

func configs() (list []config) {
	const landing = 5120
	send := func(n int, f ...ib.SendFlags) op { return op{kind: ib.WRSend, local: 100, n: n, flags: flag1(f)} }
	read := func(at, n int, f ...ib.SendFlags) op {
		return op{kind: ib.WRRDMARead, local: landing + at, n: n, remote: at, flags: flag1(f)}
	}
	write := func(n, at int, f ...ib.SendFlags) op {
		return op{kind: ib.WRRDMAWrite, local: 300, n: n, remote: at, flags: flag1(f)}
	}
	writeImm := func(n, at int) op { return op{kind: ib.WRRDMAWriteWithImm, local: 300, n: n, remote: at} }
	add := func(k int, v uint64) op {
		return op{kind: ib.WRAtomicFetchAndAdd, local: 4200 + 8*k, n: 8, remote: atomicAt, a: v}
	}
	cas := func(k int, compare, swap uint64) op {
		return op{kind: ib.WRAtomicCmpAndSwp, local: 4200 + 8*k, n: 8, remote: atomicAt, a: compare, b: swap}
	}
	recvs := []int{6144, 7168}
	exchanges := []config{
		{name: "send", ops: []op{send(700), send(10)}, recvs: recvs},
		{name: "write_imm", ops: []op{writeImm(500, 0), send(300)}, recvs: recvs},
		{name: "read", ops: []op{read(0, 700), read(800, 200)}},
		{name: "atomics", ops: []op{add(0, 5), cas(1, 5, 9), add(2, 7)}},
		{name: "mixed", ops: []op{send(300), read(0, 400), write(100, 600), add(0, 3), send(20, ib.SendFence)}, recvs: recvs},
		{name: "write_read", ops: []op{write(300, 0), read(0, 300, ib.SendFence), write(300, 2000), add(0, 1)}},
		{name: "fence", ops: []op{read(0, 400), write(300, 0, ib.SendFence), add(0, 2), send(20, ib.SendFence)}, recvs: recvs},
		{name: "both_ways", ops: []op{send(300), read(2000, 300)}, back: []op{send(400), add(0, 1)}, recvs: recvs},
		{name: "late_recv", ops: []op{send(300), read(0, 300), writeImm(10, 600)}, recvs: recvs, lateRecv: true},
		{name: "zero", ops: []op{send(0), write(0, 0), read(0, 0), writeImm(0, 0)}, recvs: recvs},
	}
	for _, p := range []qp.Profile{qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE} {
		for _, v := range []struct {
			name     string
			window   int
			rdAtomic uint8
		}{{"", 256, 4}, {"_tight", 2, 1}} {
			for _, c := range exchanges {
				c.name = p.Name + "/" + c.name + v.name
				c.profile, c.window, c.rdAtomic = p, v.window, v.rdAtomic
				list = append(list, c)
			}
		}
	}
	return list
}

func flag1(f []ib.SendFlags) ib.SendFlags {
	if len(f) == 0 {
		return 0
	}
	return f[0]
}
