package node

import (
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// linger lets the background goroutine look for packets for a moment before it sleeps in
// the port, as the kernel does with net.core.busy_poll: a client that sends its next
// request when it has the answer to the last would otherwise pay for a wake-up each time.
// It goes by what happened lately: it stays if packets used to come in time, and not at
// all if they did not, or if others want the processor.
type linger struct {
	limit  time.Duration // the longest stay after a packet; 0: never
	credit int           // grows with each packet that came in time, up to lingerCredit
	last   vtime.Time    // when a packet came last
	wrote  vtime.Time    // when the port took some of what waits for room in it
	looked vtime.Time    // when it was last looked for one, 0 if the goroutine has slept since
	gaveUp vtime.Time    // when it went to sleep after it had looked in vain
}

// Linger is a limit for Config.Linger that is some round trips long.
const Linger = 50 * time.Microsecond

const (
	lingerCredit = 8
	// lingerDoubt is how many packets have to come in time before it stays where others drove.
	lingerDoubt = 64
	// lingerInWay is how many if it was in the way: the peer had its packet ready as soon as
	// the goroutine slept, so they share a processor.
	lingerInWay = 16
	// lingerGap times the limit between two looks shows that another thread had the processor.
	lingerGap = 2
)

func newLinger(limit time.Duration) linger { return linger{limit: limit, credit: lingerCredit / 2} }

// lasts reports whether the goroutine is going to look again after a pass in vain.
func (l *linger) lasts() bool { return l.looked != 0 }

// napped tells that others drive. If they do not for a moment, then perhaps because they have
// lost the processor, and whoever looks for packets on it would keep them from it.
func (l *linger) napped() { l.credit, l.looked = -lingerDoubt, 0 }

// leave tells that the program has been woken up: it drives from now on, maybe on this very
// processor. The goroutine does not stay until the next packet comes.
func (l *linger) leave(now vtime.Time) { l.looked, l.last = 0, now.Add(-lingerGap*l.limit) }

// awaits takes note of a pass, which ended now, after which packets wait for room in the port,
// and decides whether to stay: a peer that takes what it gets makes room in less time than a
// sleep lasts. took tells that the port took some.
func (l *linger) awaits(now vtime.Time, took bool) bool {
	if took {
		l.wrote = now
	}
	return l.limit > 0 && now.Sub(l.wrote) <= l.limit
}

// passed takes note of a pass, which ended now, and decides whether to stay.
func (l *linger) passed(now vtime.Time, received bool) bool {
	if l.limit == 0 {
		return false
	}
	since, gap := now.Sub(l.last), now.Sub(l.looked)
	stayed := l.looked != 0
	switch {
	case received:
		if now.Sub(l.gaveUp) < l.limit/2 {
			l.credit = -lingerInWay
		} else if since <= l.limit {
			l.credit = min(l.credit+1, lingerCredit)
		}
		l.last = now
	case stayed && gap > lingerGap*l.limit:
		l.credit = 0
	case stayed && since > l.limit:
		l.credit--
		l.gaveUp = now
	}
	if l.credit <= 0 || now.Sub(l.last) > l.limit {
		l.looked = 0
		return false
	}
	l.looked = now
	return true
}
