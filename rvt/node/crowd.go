package node

import (
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// crowd tells whether a program that polls shares its processor with others. A poll that finds
// nothing then only keeps others from the processor, the peer among them perhaps, and when the
// slice is used up it is gone for some milliseconds. One who sleeps is back as soon as a packet
// comes. On a machine with a processor to spare nothing is as fast as looking again and again.
type crowd struct {
	pace  time.Duration // times as long is all that is named below
	vain  int           // polls in vain in a row, close together
	since vtime.Time    // when the first of them was
	last  vtime.Time    // when the last poll was
	lost  vtime.Time    // when the processor was last lost between two of them
	until vtime.Time    // the machine counts as crowded until then
	worth int           // grows when something comes for which a long look was worth it
	dozes int
}

const (
	// denseGap is the most time between two polls, on average, of a program that does nothing
	// else, and densePolls how many in a row show it. Who has other work to do is left alone.
	denseGap   = 2 * time.Microsecond
	densePolls = 16
	// crowdSlice is the shortest absence that others are made responsible for. Two of them
	// within crowdTwice show a crowd, and it is taken to last for crowdLasts.
	crowdSlice = 500 * time.Microsecond
	crowdTwice = 20 * time.Millisecond
	crowdLasts = 200 * time.Millisecond
	// In a crowd, too, one looks for a while, since what comes meanwhile needs no wake-up: for
	// longLook if that is worth it, as it is if the peer has another processor and only has to
	// wake up, else for shortLook. Each lookAgain times the long one is tried.
	shortLook = 5 * time.Microsecond
	longLook  = 50 * time.Microsecond
	lookWorth = 4
	lookMost  = 16
	lookAgain = 32
)

func newCrowd(pace int) crowd { return crowd{pace: time.Duration(max(pace, 1))} }

// polled takes note of a poll at now, which found something to do or did not, and reports
// whether to sleep for it.
func (c *crowd) polled(now vtime.Time, worked bool) bool {
	gap := now.Sub(c.last)
	c.last = now
	if worked {
		if took := now.Sub(c.since); c.vain > 0 && took > shortLook*c.pace && took <= longLook*c.pace && now < c.until {
			c.worth = min(c.worth+lookWorth, lookMost)
		}
		c.vain = 0
		return false
	}
	if c.vain > 0 && gap >= crowdSlice*c.pace {
		c.absent(now, gap)
	}
	if c.vain == 0 {
		c.since = now
	}
	c.vain++
	if now >= c.until || !c.dense(now) || now.Sub(c.since) < c.look() {
		return false
	}
	c.dozes++
	c.worth = max(c.worth-1, 0)
	return true
}

// absent takes note of a gap between two polls in vain.
func (c *crowd) absent(now vtime.Time, gap time.Duration) {
	if c.dense(now.Add(-gap)) {
		if now.Sub(c.lost) < crowdTwice*c.pace {
			c.until = now.Add(crowdLasts * c.pace)
		}
		c.lost = now
	}
	c.vain = 0
}

// dense reports whether the polls until then came one right after the other.
func (c *crowd) dense(then vtime.Time) bool {
	return c.vain >= densePolls && then.Sub(c.since) <= time.Duration(c.vain)*denseGap*c.pace
}

// look is how long one looks before one sleeps.
func (c *crowd) look() time.Duration {
	if c.worth > 0 || c.dozes%lookAgain == 0 {
		return longLook * c.pace
	}
	return shortLook * c.pace
}

// woke tells that a sleep ended at now.
func (c *crowd) woke(now vtime.Time) { c.vain, c.last = 0, now }
