package qp

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Plea is what a host is told when a QP's retransmission timer has run out, before it uses up
// a retry or gives up on its peer. A peer that is an adapter in a program stands still while the program is stopped,
// which an adapter in hardware does not; and a process that was stopped itself has not
// seen answers in time. The host may know.
type Plea struct {
	Peer ib.GID        // the address of the peer
	QPN  ib.QPN        // and its number
	Late time.Duration // how long after it was due the timer was run
	Last bool          // no retry is left: the QP is about to fail
	// Waited is how long the host has had the QP wait since it sent last, and Spared how often
	// it has given it its retries anew since the peer answered last. Whoever only guesses that
	// the peer is well bounds both.
	Waited time.Duration
	Spared uint8
}

// Verdict is what the host makes of a [Plea]. The zero value lets the QP use up a retry, or
// fail with RETRY_EXC_ERR if there is none.
type Verdict struct {
	// Wait, if above 0, leaves the QP alone for so long: it sends nothing again, and the
	// host is asked anew then, unless the peer has answered.
	Wait time.Duration
	// Again, if no retry is left, gives the QP all its retries anew, and has it send again at once.
	Again bool
}
