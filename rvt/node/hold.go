package node

import (
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// hold keeps acknowledgements back for a moment when the program is expected to post its
// answer, so that both travel in one send and one receive. TCP does the same with its
// delayed ACKs, and like TCP this one goes by what happened lately ("pingpong mode"):
// a wrong guess costs the peer the delay, and some of them in a row end it.
//
// The program may answer later than that each time, where instructions are emulated and the
// processor has to come back to it from the background goroutine first. There hold learns how
// long an answer takes, and a wrong guess, which costs more then, counts twice.
type hold struct {
	delay       time.Duration // how long an acknowledgement may wait now; 0: never
	least, most time.Duration // between these
	at          vtime.Time    // when the oldest one came up
	state       holdState
	score       int // grows with each post that followed in time
}

// AckDelay is a delay for Config.AckDelay that is long enough for a program to answer,
// and not worth mentioning to a peer that waits in vain.
const AckDelay = 20 * time.Microsecond

// maxAckDelay is the longest delay that hold learns: what a change of threads and back takes
// in an emulated machine, and some messages in it.
const maxAckDelay = time.Millisecond

type holdState uint8

const (
	holdNone  holdState = iota
	holdWatch           // acknowledgements left at once; will a post follow?
	holdAcks            // acknowledgements wait
	holdLate            // they have waited in vain; how late is the post?
)

const (
	// holdScore is the score from which acknowledgements wait, holdBest the most it
	// grows to, and holdStep what a guess gives if right and takes if wrong. A new node
	// begins with confidence.
	holdScore, holdBest, holdStep = 8, 16, 4
)

// newHold returns a hold for a machine that is pace times slower than others; it learns only
// if that is slow.
func newHold(delay time.Duration, pace int) hold {
	h := hold{delay: delay * time.Duration(max(pace, 1)), score: holdBest}
	h.least, h.most = h.delay, h.delay
	if pace > 1 && delay > 0 {
		h.most = max(h.delay, maxAckDelay)
	}
	return h
}

// active reports whether acknowledgements wait.
func (h *hold) active() bool { return h.state == holdAcks }

// until is when acknowledgements that wait must leave.
func (h *hold) until() vtime.Time {
	if h.state != holdAcks {
		return vtime.Never
	}
	return h.at.Add(h.delay)
}

// acksUp tells that a pass is about to send nothing but acknowledgements, and decides
// whether they wait.
func (h *hold) acksUp(now vtime.Time) bool {
	if h.delay == 0 {
		return false
	}
	switch h.state {
	case holdAcks:
		if now < h.until() {
			return true
		}
		h.miss()
		h.state = holdLate
		return false
	case holdWatch:
		h.miss()
	}
	h.at = now
	if h.score < holdScore {
		h.state = holdWatch
		return false
	}
	h.state = holdAcks
	return true
}

// posted tells that the program has posted, and that everything is sent now.
func (h *hold) posted(now vtime.Time) {
	took := now.Sub(h.at)
	switch {
	case h.state == holdNone:
		return
	case took <= h.delay:
		h.score = min(h.score+holdStep, holdBest)
	case took <= h.most:
		h.delay = min(2*took, h.most)
	case h.state != holdLate: // that was one already
		h.miss()
	}
	h.state = holdNone
}

// sent tells that everything was sent for another reason.
func (h *hold) sent() { h.state = holdNone }

func (h *hold) miss() {
	step := holdStep
	if h.delay > h.least {
		step *= 2
	}
	h.score = max(h.score-step, 0)
	h.state = holdNone
}

// letGo sends the acknowledgements that wait.
func (n *Node) letGo() {
	if n.hold.active() {
		n.hold.sent()
		n.emit(n.now())
	}
}

// acksLast moves an acknowledgement behind the requests of the same QP that were built
// after it: a segmentation offload train may end with a shorter datagram, not begin with
// one. Between requests and responses of a QP no order is promised.
func (n *Node) acksLast() {
	p := n.out.Packets
	for i := 0; i+1 < len(p); i++ {
		if !p[i].IsAck() || p[i+1].QPN != p[i].QPN {
			continue
		}
		ack := p[i]
		for ; i+1 < len(p) && p[i+1].QPN == ack.QPN && !p[i+1].IsAck(); i++ {
			p[i] = p[i+1]
		}
		p[i] = ack
	}
}
