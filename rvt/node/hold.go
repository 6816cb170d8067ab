package node

import (
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// hold keeps acknowledgements back for a moment when the program is expected to post its
// answer, so that both travel in one send and one receive. TCP does the same with its
// delayed ACKs, and like TCP this one goes by what happened lately ("pingpong mode"):
// a wrong guess costs the peer the delay, and some of them in a row end it.
type hold struct {
	delay time.Duration // how long an acknowledgement may wait; 0: never
	at    vtime.Time    // when the oldest one came up
	state holdState
	score int // grows with each post that followed in time
}

// AckDelay is a delay for Config.AckDelay that is long enough for a program to answer,
// and not worth mentioning to a peer that waits in vain.
const AckDelay = 20 * time.Microsecond

type holdState uint8

const (
	holdNone  holdState = iota
	holdWatch           // acknowledgements left at once; will a post follow?
	holdAcks            // acknowledgements wait
)

const (
	// holdScore is the score from which acknowledgements wait, holdBest the most it
	// grows to, and holdStep what a guess gives if right and takes if wrong. A new node
	// begins with confidence.
	holdScore, holdBest, holdStep = 8, 16, 4
)

func newHold(delay time.Duration) hold { return hold{delay: delay, score: holdBest} }

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
	if h.state == holdNone {
		return
	}
	if now.Sub(h.at) > h.delay {
		h.miss()
		return
	}
	h.score = min(h.score+holdStep, holdBest)
	h.state = holdNone
}

// sent tells that everything was sent for another reason.
func (h *hold) sent() { h.state = holdNone }

func (h *hold) miss() {
	h.score = max(h.score-holdStep, 0)
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
