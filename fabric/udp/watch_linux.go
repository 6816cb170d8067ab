package udp

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
)

// watch is the epoll descriptor of a host that waits for many ports at once.
type watch struct {
	epoll int
	tag   int32
}

// add makes the host wait for fd. Its entry goes when fd is closed.
func (w *watch) add(fd int, events uint32) error {
	return os.NewSyscallError("epoll_ctl", unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: w.tag}))
}

// change replaces the events of fd. It cannot fail for a descriptor that was added.
func (w *watch) change(fd int, events uint32) {
	_ = unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, fd, &unix.EpollEvent{Events: events, Fd: w.tag})
}

// wakeEvents are those of an event descriptor that is never read: each write is one.
const wakeEvents = unix.EPOLLIN | unix.EPOLLET

// Watch is for hosts that wait for many ports at once, instead of Wait: everything that
// ends a Wait, but for Close, makes the epoll descriptor report tag. It holds until the port
// is closed, also for groups that are joined later. The host calls Heard when the tag was reported,
// before it reads, and does not sleep while the port is Pending. Call it once, before
// anybody else uses the port.
func (p *Port) Watch(epoll int, tag int32) error {
	if !p.life.enter() {
		return fabric.ErrClosed
	}
	defer p.life.leave()
	p.groupMu.Lock()
	defer p.groupMu.Unlock()
	p.watch = &watch{epoll, tag}
	if err := p.watch.add(p.waiter.eventFD, wakeEvents); err != nil {
		return err
	}
	for _, g := range *p.groups.Load() {
		if err := p.watch.add(g.fd, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return p.watch.add(p.sock.fd, unix.EPOLLIN)
}

// Heard forgets all Wakes so far; see Watch.
func (p *Port) Heard() { p.waiter.woken.Swap(false) }

// Pending reports that ReadBatch has datagrams that it had no room for.
func (p *Port) Pending() bool { return p.waiter.pending.Load() }

// setBlocked notes whether the socket was full. The writer calls it.
func (p *Port) setBlocked(blocked bool) {
	if p.waiter.blocked.Swap(blocked) == blocked || p.watch == nil {
		return
	}
	events := uint32(unix.EPOLLIN)
	if blocked {
		events |= unix.EPOLLOUT
	}
	p.watch.change(p.sock.fd, events)
}

// Watch is [Port.Watch] for all sockets of the port, now and later.
func (m *Multi) Watch(epoll int, tag int32) error {
	if !m.life.enter() {
		return fabric.ErrClosed
	}
	defer m.life.leave()
	m.watch = &watch{epoll, tag}
	return m.watch.add(m.wake.eventFD, wakeEvents)
}

// watchNew makes the host wait for those of next that are not in old.
func (m *Multi) watchNew(old, next []*Port) {
	if m.watch == nil {
		return
	}
	for _, p := range next {
		if portOf(old, p.gid) != p {
			_ = p.Watch(m.watch.epoll, m.watch.tag) // it has no memory: the address is deaf until the next change
		}
	}
}

// Heard forgets all Wakes so far; see Watch.
func (m *Multi) Heard() {
	m.wake.woken.Swap(false)
	for _, p := range *m.ports.Load() {
		p.Heard()
	}
}

// Pending reports that ReadBatch has datagrams that it had no room for.
func (m *Multi) Pending() bool {
	for _, p := range *m.ports.Load() {
		if p.Pending() {
			return true
		}
	}
	return false
}
