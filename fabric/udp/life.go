package udp

import (
	"sync"
	"sync/atomic"
)

// life lets Close run beside other calls without closing a file descriptor under
// them: the last one out releases. Its zero value is open.
type life struct {
	state   atomic.Int64 // calls inside, plus closedBit
	once    sync.Once
	release func()
}

const closedBit = 1 << 62

// enter reports whether the port is open, and keeps it so until leave.
func (l *life) enter() bool {
	if l.state.Add(1)&closedBit != 0 {
		l.leave()
		return false
	}
	return true
}

func (l *life) leave() {
	if l.state.Add(-1) == closedBit {
		l.once.Do(l.release)
	}
}

// closed reports whether close was called.
func (l *life) closed() bool { return l.state.Load()&closedBit != 0 }

// close marks the port closed. It reports whether this call did it; if so the caller
// is inside and must wake any sleeper and then leave.
func (l *life) close() bool {
	for {
		s := l.state.Load()
		if s&closedBit != 0 {
			return false
		}
		if l.state.CompareAndSwap(s, (s+1)|closedBit) {
			return true
		}
	}
}
