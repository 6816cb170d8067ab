package daemon

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// linger is how long a connection that is idle keeps its thread. A program that is at work
// sends its next command sooner, and the thread that answers it is there already.
const linger = 5 * time.Millisecond

// lobby is where idle connections wait: one thread for all of them. A program may have
// thousands of connections, one for each id of librdmacm that is synchronous.
type lobby struct {
	poller
	done chan struct{}

	mu      sync.Mutex // guards both below
	next    int32
	waiting map[int32]chan struct{} // by the tag of the socket
}

func newLobby() (*lobby, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	l := &lobby{poller: p, done: make(chan struct{}), waiting: map[int32]chan struct{}{}}
	go l.run()
	return l, nil
}

// admit makes a socket wait here from now on when it is idle. One that cannot keeps its
// thread all the time.
func (l *lobby) admit(s *seqSocket) {
	l.mu.Lock()
	l.next++
	s.tag, s.ready = l.next, make(chan struct{}, 1)
	l.waiting[s.tag] = s.ready
	l.mu.Unlock()
	// It tells of nothing until it is armed.
	ev := unix.EpollEvent{Events: unix.EPOLLONESHOT, Fd: s.tag}
	tv := unix.NsecToTimeval(int64(linger))
	if unix.EpollCtl(l.epoll, unix.EPOLL_CTL_ADD, s.fd, &ev) != nil || unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv) != nil {
		l.leave(s)
		return
	}
	s.lobby = l
}

// await waits until there is something to receive, or the peer is gone.
func (l *lobby) await(s *seqSocket) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLONESHOT, Fd: s.tag}
	if err := unix.EpollCtl(l.epoll, unix.EPOLL_CTL_MOD, s.fd, &ev); err != nil {
		return err
	}
	<-s.ready
	return nil
}

// leave forgets a socket, which nobody waits for any more.
func (l *lobby) leave(s *seqSocket) {
	_ = unix.EpollCtl(l.epoll, unix.EPOLL_CTL_DEL, s.fd, nil)
	l.mu.Lock()
	delete(l.waiting, s.tag)
	l.mu.Unlock()
}

func (l *lobby) run() {
	defer close(l.done)
	events := make([]unix.EpollEvent, 64)
	for {
		came, ok := l.wait(events)
		if !ok {
			return
		}
		l.mu.Lock()
		for _, e := range came {
			if c := l.waiting[e.Fd]; c != nil {
				select {
				case c <- struct{}{}:
				default: // it has been told
				}
			}
		}
		l.mu.Unlock()
	}
}

// close ends the thread. No socket waits here any more.
func (l *lobby) close() {
	l.end()
	<-l.done
	l.free()
}
