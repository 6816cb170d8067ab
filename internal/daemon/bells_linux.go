package daemon

import (
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// bells waits for the doorbells of a node's contexts: one thread for all of them. The
// event descriptors are never read: with edge triggering each write is an event of its
// own, and the counter behind it would take 500 years to fill up.
type bells struct {
	poller
	done chan struct{}

	mu    sync.Mutex // guards both below
	next  int32
	heard map[int32]*attached
}

func newBells(ring func([]*attached)) (*bells, error) {
	p, err := newPoller()
	if err != nil {
		return nil, err
	}
	b := &bells{poller: p, done: make(chan struct{}), heard: map[int32]*attached{}}
	go b.run(ring)
	return b, nil
}

// add listens to the context's eventfd.
func (b *bells) add(a *attached) error {
	b.mu.Lock()
	b.next++
	a.bellID = b.next
	b.heard[a.bellID] = a
	b.mu.Unlock()
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: a.bellID}
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(b.epoll, unix.EPOLL_CTL_ADD, a.efd, &ev))
}

func (b *bells) remove(a *attached) {
	b.mu.Lock()
	delete(b.heard, a.bellID)
	b.mu.Unlock()
	_ = unix.EpollCtl(b.epoll, unix.EPOLL_CTL_DEL, a.efd, nil)
}

func (b *bells) run(ring func([]*attached)) {
	defer close(b.done)
	runtime.LockOSThread()
	events := make([]unix.EpollEvent, 64)
	rung := make([]*attached, 0, len(events))
	for {
		came, ok := b.wait(events)
		if !ok {
			return
		}
		rung = rung[:0]
		b.mu.Lock()
		for _, e := range came {
			if a := b.heard[e.Fd]; a != nil {
				rung = append(rung, a)
			}
		}
		b.mu.Unlock()
		if len(rung) > 0 {
			ring(rung)
		}
	}
}

func (b *bells) close() {
	b.end()
	<-b.done
	b.free()
}
