package node

import "github.com/rvtsim/rvtsim/wire"

// maxLoopback bounds the packets on their way from the node to itself. When they are
// that many the others wait, as for a full socket; the next pass makes room.
const maxLoopback = 256

// loopback is the queue of packets that a node sends to itself: the adapter's internal
// switch. Frames taken out stay valid until release.
type loopback struct {
	frames []loopFrame // a ring, allocated on first use
	head   int         // oldest frame not released
	taken  int         // frames from head on that have been taken
	held   int         // frames from head on that hold packets, taken ones included
}

type loopFrame struct {
	path wire.Path
	buf  []byte // without a valid ICRC: nothing can damage it here
}

// len is the number of packets that have not been taken.
func (l *loopback) len() int { return l.held - l.taken }

// push copies a frame in; false if there is no room.
func (l *loopback) push(path *wire.Path, b []byte) bool {
	if l.held == maxLoopback {
		return false
	}
	if l.frames == nil {
		l.frames = make([]loopFrame, maxLoopback)
	}
	f := &l.frames[(l.head+l.held)%maxLoopback]
	f.path = *path
	f.buf = append(f.buf[:0], b...)
	l.held++
	return true
}

// next takes the oldest frame out, nil if there is none.
func (l *loopback) next() *loopFrame {
	if l.taken == l.held {
		return nil
	}
	f := &l.frames[(l.head+l.taken)%maxLoopback]
	l.taken++
	return f
}

// release makes the room of the taken frames free.
func (l *loopback) release() {
	l.head = (l.head + l.taken) % maxLoopback
	l.held -= l.taken
	l.taken = 0
}
