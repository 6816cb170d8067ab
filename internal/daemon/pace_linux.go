package daemon

import "time"

// pace keeps a loop from waking for each message of a stream. Where loop and program share
// a processor, the doorbell of each post would hand it to the loop, which would find one
// message, send it, sleep, and give the processor back for the next: two changes of process
// for each. So after some doorbells in a row of one node the loop leaves the words set, and
// looks at the rings when a moment has passed, like an adapter that moderates interrupts.
//
// A program that waits for each of its sends looks the same until then. It is told by what
// the moment brings: one message at most. Then the loop goes back to doorbells, and is
// slower to try again each time.
type pace struct {
	last  *driven // whose doorbell was the last
	row   int     // its doorbells without one of another node
	after int     // doorbells in a row until the next try
	thin  int     // moments in a row that brought next to nothing
	on    bool
}

const (
	// paceFor is the moment: enough for a program to post some hundred messages, little
	// beside what it costs to send them.
	paceFor = 50 * time.Microsecond
	// paceFirst and paceMost bound pace.after.
	paceFirst, paceMost = 8, 4096
	// paceThin moments end a stream.
	paceThin = 2
)

// rang notes a doorbell.
func (p *pace) rang(n *driven) {
	if p.last != n {
		p.last, p.row = n, 0
	}
	p.row++
}

// hold decides whether the loop, which has nothing to do, is to leave the words set.
func (p *pace) hold(armed []*driven) bool {
	if len(armed) == 0 {
		p.on = false
		return false
	}
	if !p.on && p.row >= max(p.after, paceFirst) {
		p.on, p.thin = true, 0
	}
	if p.on {
		for _, n := range armed {
			n.taken = 0
		}
	}
	return p.on
}

// judge looks at what the moment has brought.
func (p *pace) judge(armed []*driven) {
	taken := 0
	for _, n := range armed {
		taken += n.taken
	}
	if taken > 1 {
		p.thin, p.after = 0, paceFirst
		return
	}
	if p.thin++; p.thin >= paceThin {
		p.on, p.row = false, 0
		p.after = min(max(p.after, paceFirst)*4, paceMost)
	}
}
