package node

import (
	"time"

	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// mostGrace bounds how long a queue pair waits for its peer because its own timer was late.
const mostGrace = 500 * time.Millisecond

// Grace is how long a queue pair that pleads should wait for its peer because this process was
// not running when the timer was due. That shows how long a process waits for its turn on this
// machine, and the peer, who may be on it, may have to wait as long. It is given once for each
// time that the queue pair has sent, so that it gives up in the end. 0: the timer was in time.
func Grace(p qp.Plea) time.Duration {
	if p.Late <= starved || p.Waited > 0 {
		return 0
	}
	return min(p.Late, mostGrace)
}

// Judge is a rvt.Config.Judge for devices in real time whose host knows no more than [Grace].
func Judge(_ vtime.Time, p qp.Plea) qp.Verdict { return qp.Verdict{Wait: Grace(p)} }
