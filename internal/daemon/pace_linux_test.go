package daemon

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPace plays the doorbells of programs to the moderation of a loop.
func TestPace(t *testing.T) {
	a, b := &driven{}, &driven{}
	armed := []*driven{a}
	var p pace
	// moment lets one pass that brings so many messages.
	moment := func(taken int) {
		require.True(t, p.hold(armed))
		a.taken = taken
		p.judge(armed)
	}
	row := func(n int) {
		for range n {
			require.False(t, p.hold(armed))
			p.rang(a)
		}
	}

	// A ping-pong: never.
	for range 1000 {
		p.rang(a)
		require.False(t, p.hold(armed))
		p.rang(b)
		require.False(t, p.hold(armed))
	}
	// A stream, until it ends.
	p.rang(b)
	row(paceFirst)
	for range 50 {
		moment(64)
		moment(1) // one that is late
	}
	moment(0)
	require.False(t, p.hold(armed))
	// A program that waits for each send: less and less often.
	p = pace{}
	for after := paceFirst; after < paceMost; after *= 4 {
		row(after)
		moment(1)
		moment(1)
	}
	row(paceMost)
	moment(1)
	moment(1)
	row(paceMost) // no less often than that
	// The same program begins to stream.
	moment(2)
	moment(0)
	moment(0)
	require.False(t, p.hold(armed))
	// Nothing is armed: nothing to hold.
	p = pace{}
	row(paceFirst)
	require.False(t, p.hold(nil))
}
