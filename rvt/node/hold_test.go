package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// batches notes the opcodes of each WriteBatch.
type batches struct {
	*SwitchPort
	sent [][]ib.Opcode
}

func (p *batches) WriteBatch(src []fabric.Datagram) (int, error) {
	var ops []ib.Opcode
	for i := range src {
		var pkt wire.Packet
		wire.Decode(src[i].Buf[:len(src[i].Buf)-wire.ICRCBytes], &pkt)
		ops = append(ops, pkt.Opcode)
	}
	p.sent = append(p.sent, ops)
	return p.SwitchPort.WriteBatch(src)
}

// heldPair is a pair of nodes that hold acknowledgements, with a clock and what each has
// put on the wire.
func heldPair(t *testing.T) (a, b *held, clock *vtime.Time) {
	clock = new(vtime.Time)
	*clock = vtime.Time(time.Second)
	var ports []*batches
	o := options{cfg: Config{Manual: true, AckDelay: AckDelay, Now: func() vtime.Time { return *clock }}}
	o.wrap = func(p fabric.Port) fabric.Port {
		ports = append(ports, &batches{SwitchPort: p.(*SwitchPort)})
		return ports[len(ports)-1]
	}
	x, y, qx, qy := pair(t, o)
	a, b = &held{end: x, port: ports[0]}, &held{end: y, port: ports[1]}
	a.post = func() {
		a.sendLike(swqe.SendWR{Opcode: ib.WRSend, SGL: x.sge(0, 64)}, func(wr []swqe.SendWR) error { _, err := x.n.dev.PostSend(qx, wr); return err })
	}
	b.post = func() {
		b.sendLike(swqe.SendWR{Opcode: ib.WRSend, SGL: y.sge(0, 64)}, func(wr []swqe.SendWR) error { _, err := y.n.dev.PostSend(qy, wr); return err })
	}
	for range 100 {
		x.recv(qx, swqe.RecvWR{SGL: x.sge(4096, 64)})
		y.recv(qy, swqe.RecvWR{SGL: y.sge(4096, 64)})
	}
	return a, b, clock
}

type held struct {
	*end
	port *batches
	post func()
}

// sendLike posts as a doorbell does.
func (h *held) sendLike(wr swqe.SendWR, post func([]swqe.SendWR) error) {
	_, err := h.n.BeginPost()
	require.NoError(h.t, err)
	require.NoError(h.t, post([]swqe.SendWR{wr}))
	h.n.End(SendNow)
}

// wire returns what has been sent since it was last asked.
func (h *held) wire() [][]ib.Opcode {
	s := h.port.sent
	h.port.sent = nil
	return s
}

// TestAckTravelsWithTheAnswer plays ping-pong: each message has the acknowledgement of
// the one before with it, behind it, in one batch.
func TestAckTravelsWithTheAnswer(t *testing.T) {
	a, b, clock := heldPair(t)
	a.post()
	a.wire()
	for range 10 {
		for _, h := range []*held{b, a} {
			require.True(t, h.n.Progress())
			require.NotEmpty(t, h.poll())
			require.Empty(t, h.wire(), "the acknowledgement waits")
			*clock = clock.Add(AckDelay / 2)
			h.n.Progress()
			require.Empty(t, h.wire(), "and another poll does not end that")
			h.post()
			require.Equal(t, [][]ib.Opcode{{ib.OpSendOnly, ib.OpAcknowledge}}, h.wire())
		}
	}
	require.Zero(t, a.n.Counters().Device.RetransPackets)
}

// TestAckDoesNotWaitForLong sends to a program that polls and never answers: the first
// acknowledgements leave when their time is over, and those after them at once. When the
// program begins to answer they wait again.
func TestAckDoesNotWaitForLong(t *testing.T) {
	a, b, clock := heldPair(t)
	for i := range 10 {
		a.post()
		b.n.Progress()
		if len(b.port.sent) == 0 {
			require.Less(t, i, 4, "the node does not learn")
			require.Equal(t, clock.Add(AckDelay), b.n.deadline())
			*clock = clock.Add(AckDelay)
			b.n.Progress()
		}
		require.Equal(t, [][]ib.Opcode{{ib.OpAcknowledge}}, b.wire())
		a.n.Progress()
		require.Len(t, a.poll(), 1)
	}
	held := false
	for range 10 {
		a.post()
		b.n.Progress()
		held = len(b.wire()) == 0
		b.post()
		a.n.Progress()
		*clock = clock.Add(time.Second)
		settle(a.end, b.end)
		*clock = clock.Add(time.Second)
		settle(a.end, b.end)
		a.wire()
		b.wire()
	}
	require.True(t, held)
}

// exchange takes a message at now, which the program answers after that long, 0 for never, and
// returns how long its acknowledgement has waited for nothing. Somebody looks when it is due.
func (h *hold) exchange(now vtime.Time, answer time.Duration) (lost time.Duration) {
	waits := h.acksUp(now)
	if waits && (answer == 0 || answer > h.delay) {
		lost = h.delay
		if h.acksUp(h.until()) {
			panic("it waits for longer than it said")
		}
	}
	if answer > 0 {
		h.posted(now.Add(answer))
	}
	return lost
}

// TestHoldLearns has a program answer after twenty times the delay. On a slow machine the
// acknowledgements soon wait for it, and no longer if it answers each second message only.
// Elsewhere nothing is learned.
func TestHoldLearns(t *testing.T) {
	const answer = 20 * AckDelay
	now := vtime.Time(time.Second)
	lost := func(h *hold, messages, answered int) (sum time.Duration) {
		for i := range messages {
			now = now.Add(10 * time.Millisecond)
			if i%answered == 0 {
				sum += h.exchange(now, answer)
			} else {
				sum += h.exchange(now, 0)
			}
		}
		return sum
	}
	h := newHold(AckDelay, 2)
	require.Equal(t, 2*AckDelay, h.delay)
	require.Equal(t, 2*AckDelay, lost(&h, 1, 1), "the first one")
	require.Zero(t, lost(&h, 100, 1))
	require.True(t, h.acksUp(now.Add(time.Second)))
	require.Equal(t, 2*answer, h.delay)
	h.sent()
	require.LessOrEqual(t, lost(&h, 100, 2), 3*h.most)
	require.Zero(t, lost(&h, 100, 2), "it has given up")
	require.Zero(t, lost(&h, 100, 1))
	require.True(t, h.acksUp(now.Add(time.Second)), "and begins again")

	h = newHold(AckDelay, 2)
	for range 100 {
		now = now.Add(time.Second)
		h.exchange(now, 2*maxAckDelay)
	}
	require.Equal(t, h.least, h.delay, "that is no answer")

	h = newHold(AckDelay, 1)
	require.LessOrEqual(t, lost(&h, 100, 1), 4*AckDelay)
	require.Equal(t, AckDelay, h.delay)
	h = newHold(0, 7)
	require.Zero(t, lost(&h, 100, 1))
}

// TestAckLeavesBefore lets a program whose acknowledgement waits issue a command, which
// may destroy the QP, and go to sleep: it must be on its way before.
func TestAckLeavesBefore(t *testing.T) {
	for name, f := range map[string]func(*Node){
		"a command": func(n *Node) {
			_, err := n.Begin()
			require.NoError(t, err)
			n.End(SendNow)
		},
		"sleep": func(n *Node) { n.Park() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, _ := heldPair(t)
			a.post()
			b.n.Progress()
			require.Empty(t, b.wire())
			f(b.n)
			require.Equal(t, [][]ib.Opcode{{ib.OpAcknowledge}}, b.wire())
		})
	}
}

func TestLinger(t *testing.T) {
	now := vtime.Time(time.Second)
	l := newLinger(Linger)
	require.True(t, l.passed(now, true), "a packet came: the next one may be near")
	for range 3 {
		now = now.Add(Linger / 5)
		require.True(t, l.passed(now, false))
		require.True(t, l.lasts())
	}
	// In vain: a few times, and then no more.
	stays := 0
	for range 20 {
		now = now.Add(time.Second)
		if l.passed(now, true) {
			stays++
			for l.passed(now, false) {
				now = now.Add(Linger / 5)
			}
		}
		require.False(t, l.lasts())
	}
	require.Less(t, stays, lingerCredit)
	// Packets follow one another again.
	stays = 0
	for range 4 {
		now = now.Add(Linger / 5)
		if l.passed(now, true) {
			stays++
		}
	}
	require.NotZero(t, stays)
	// Somebody else had the processor.
	require.False(t, l.passed(now.Add(2*lingerGap*Linger), false))
	require.Zero(t, l.credit)
	off := newLinger(0)
	require.False(t, off.passed(now, true))
}

// TestLingerWhereOthersDrove has packets come one after another at a node that somebody
// polled: it begins to stay for the next one after many of them, not after a few.
func TestLingerWhereOthersDrove(t *testing.T) {
	now := vtime.Time(time.Second)
	l := newLinger(Linger)
	require.True(t, l.passed(now, true))
	l.napped()
	require.False(t, l.lasts())
	stays := 0
	for i := range 2 * lingerDoubt {
		now = now.Add(Linger / 5)
		if l.passed(now, true) {
			stays++
			require.Greater(t, i, lingerDoubt-lingerCredit)
		}
	}
	require.NotZero(t, stays)
}

// TestLingerInTheWay has a peer on the same processor, who answers only when the goroutine sleeps:
// it stays for one packet in many.
func TestLingerInTheWay(t *testing.T) {
	now := vtime.Time(time.Second)
	l := newLinger(Linger)
	stays := 0
	for range 200 {
		now = now.Add(Linger / 5)
		if l.passed(now, true) {
			stays++
			for l.passed(now, false) {
				now = now.Add(Linger / 10)
			}
		}
	}
	require.NotZero(t, stays)
	require.Less(t, stays, 2*200/lingerInWay)
}

// TestLingerLeaves has a packet wake the program up: the goroutine makes room for it, and stays
// again from the next packet on.
func TestLingerLeaves(t *testing.T) {
	now := vtime.Time(time.Second)
	l := newLinger(Linger)
	for range lingerCredit {
		require.True(t, l.passed(now, true))
	}
	l.leave(now)
	require.False(t, l.lasts())
	require.False(t, l.passed(now, false))
	require.False(t, l.passed(now.Add(Linger/5), false))
	require.True(t, l.passed(now.Add(Linger/5), true))
	require.True(t, l.passed(now.Add(2*Linger/5), false))
}

// TestWatch asks whether others drive: after a pause, and while the background goroutine
// looks again and again.
func TestWatch(t *testing.T) {
	var w watch
	ask := func(polls, parks uint64, lingers bool) bool {
		return w.driven(uses{polls: polls, parks: parks}, fewPolls, lingers)
	}
	require.False(t, ask(3, 0, false), "a few")
	require.False(t, ask(6, 0, false), "and a few more: a program that wakes up now and then")
	require.True(t, ask(10, 0, false))
	require.False(t, ask(10, 0, false))

	// A program that polls all the time, one poll between two looks.
	for i := range uint64(3) {
		require.False(t, ask(11+i, 0, true))
	}
	require.True(t, ask(14, 0, true))
	require.False(t, ask(15, 0, true), "it begins anew")
	// One that sleeps on events polls once for each.
	for i := range uint64(20) {
		require.False(t, ask(16+i, 1+i, true), i)
		require.False(t, ask(16+i, 1+i, true), i)
	}

	// Posts count with the polls between them; alone they prolong a nap only.
	w = watch{}
	require.False(t, w.driven(uses{posts: 100}, fewPolls, false))
	require.True(t, w.driven(uses{polls: 1, posts: 103}, fewPolls, false))
	require.True(t, w.driven(uses{polls: 1, posts: 104}, 0, false))
	require.False(t, w.driven(uses{polls: 1, posts: 104}, 0, false))
}

// TestLingerEnds has the background goroutine of a node linger after a packet: it must
// come to sleep in the port.
func TestLingerEnds(t *testing.T) {
	o := options{cfg: Config{Linger: Linger}}
	a, b, qa, _ := pair(t, o)
	a.send(qa, a.write(1, b, 100))
	require.Eventually(t, func() bool {
		b.n.mu.Lock()
		defer b.n.mu.Unlock()
		return b.n.received > 0 && b.n.sleeping
	}, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return len(a.poll()) == 1 }, time.Minute, time.Millisecond)
}
