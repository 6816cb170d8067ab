package qp

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Plea is what a host is told before a QP gives up on its peer: the last retry has timed
// out. A peer that is an adapter in a program stands still while the program is stopped,
// which an adapter in hardware does not; and a process that was stopped itself has not
// seen answers in time. The host may know.
type Plea struct {
	Peer ib.GID        // the address of the peer
	QPN  ib.QPN        // and its number
	Late time.Duration // how long after it was due the timer was run
}

// Verdict is what the host makes of a [Plea]. The zero value lets the QP fail with
// RETRY_EXC_ERR.
type Verdict struct {
	// Wait, if above 0, leaves the QP alone for so long: it sends nothing again, and the
	// host is asked anew then, unless the peer has answered.
	Wait time.Duration
	// Again gives the QP all its retries anew, and has it send again at once.
	Again bool
}
