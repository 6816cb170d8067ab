package udp

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/fdspace"
)

// waiter is the sleeping half of a port.
type waiter struct {
	eventFD int
	// woken is set from a Wake until the Wait that it ended, so that any number of
	// Wakes cost one system call.
	woken atomic.Bool
	// blocked says that the last WriteBatch met back-pressure: wait for room too.
	blocked atomic.Bool
	// pending says that ReadBatch holds datagrams it had no room for.
	pending atomic.Bool
	fds     [2 + MaxGroups]unix.PollFd
	quiet   bool // Config.QuietNaps
}

func (w *waiter) init() (err error) {
	if w.eventFD, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		w.eventFD = fdspace.Keep(w.eventFD)
	}
	return err
}

func (w *waiter) release() {
	fdspace.Close(w.eventFD)
	w.eventFD = -1
}

// signal makes the event descriptor readable. The only possible failure is a full
// counter, which is readable already.
func (w *waiter) signal() {
	one := uint64(1)
	for {
		_, _, e := unix.RawSyscall(unix.SYS_WRITE, uintptr(w.eventFD), uintptr(unsafe.Pointer(&one)), 8)
		if e != unix.EINTR {
			return
		}
	}
}

// rearm forgets all Wakes so far. The order matters: a Wake between the two steps
// finds woken set and writes nothing, but then the Wait that is returning was its own.
func (w *waiter) rearm() {
	var count [8]byte
	for {
		_, _, e := unix.RawSyscall(unix.SYS_READ, uintptr(w.eventFD), uintptr(unsafe.Pointer(&count[0])), 8)
		if e != unix.EINTR {
			break
		}
	}
	_ = binary.NativeEndian.Uint64(count[:])
	w.woken.Swap(false) // not Store: it must see what the waker wrote before
}

// Wake ends the Wait under way, or else the next one. Any goroutine may call it; on a
// closed port it does nothing.
func (p *Port) Wake() {
	if !p.life.enter() {
		return
	}
	defer p.life.leave()
	if !p.waiter.woken.Swap(true) {
		p.waiter.signal()
	}
}

// EventFD is the descriptor of an event that ends a Wait when an eight-byte number is
// written to it: for those who have something for the port's host that does not come by its
// sockets, in other processes too. It belongs to the port.
func (p *Port) EventFD() int { return p.waiter.eventFD }

// Wait blocks until a datagram is there, until the socket has room again if the last
// WriteBatch was short, until Wake, or until d has passed; d <= 0 only looks. On a
// closed port, or when Close is called meanwhile, it returns [fabric.ErrClosed].
func (p *Port) Wait(d time.Duration) error {
	if !p.life.enter() {
		return fabric.ErrClosed
	}
	defer p.life.leave()
	w := &p.waiter
	if w.pending.Load() {
		d = 0
	}
	fds := p.pollSet()
	if err := ppoll(fds, d, false); err != nil {
		return os.NewSyscallError("udp: ppoll", err)
	}
	if p.life.closed() {
		return fabric.ErrClosed // leaves the event readable, for whoever else waits
	}
	if fds[0].Revents != 0 {
		w.rearm()
	}
	return nil
}

// Nap implements fabric.Napper. Like Wait it is for one goroutine at a time. Without
// Config.QuietNaps it fails with [fabric.ErrNoWait] if d > 0: a goroutine in a system call
// keeps its processor until Go's scheduler takes it back, some 20 us to 10 ms later, and if
// all others poll one of them cannot go on meanwhile. A timer gives it up at once.
func (p *Port) Nap(d time.Duration) error { return p.waiter.nap(&p.life, d) }

func (w *waiter) nap(l *life, d time.Duration) error {
	if !l.enter() {
		return fabric.ErrClosed
	}
	defer l.leave()
	if d <= 0 {
		return nil
	}
	if !w.quiet {
		return fabric.ErrNoWait
	}
	w.fds[0] = unix.PollFd{Fd: int32(w.eventFD), Events: unix.POLLIN}
	if err := ppoll(w.fds[:1], d, d <= quietNap); err != nil {
		return os.NewSyscallError("udp: ppoll", err)
	}
	if l.closed() {
		return fabric.ErrClosed // leaves the event readable
	}
	if w.fds[0].Revents != 0 {
		w.rearm()
	}
	return nil
}

// pollSet lists what to wait for: the event first, then the sockets.
func (p *Port) pollSet() []unix.PollFd {
	w := &p.waiter
	events := int16(unix.POLLIN)
	if w.blocked.Load() {
		events |= unix.POLLOUT
	}
	w.fds[0] = unix.PollFd{Fd: int32(w.eventFD), Events: unix.POLLIN}
	w.fds[1] = unix.PollFd{Fd: int32(p.sock.fd), Events: events}
	n := 2
	for _, g := range *p.groups.Load() {
		w.fds[n] = unix.PollFd{Fd: int32(g.fd), Events: unix.POLLIN}
		n++
	}
	return w.fds[:n]
}

// quietNap is the longest nap that Go's scheduler may be kept from knowing about.
const quietNap = time.Millisecond

// ppoll waits for any of fds, for d at most. A wait that can block goes through
// Syscall, which tells Go's scheduler, unless it is quiet; a mere look does not need to.
func ppoll(fds []unix.PollFd, d time.Duration, quiet bool) error {
	ts := unix.NsecToTimespec(int64(max(d, 0)))
	for {
		var e syscall.Errno
		if d <= 0 || quiet {
			_, _, e = unix.RawSyscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		} else {
			_, _, e = unix.Syscall6(unix.SYS_PPOLL, uintptr(unsafe.Pointer(&fds[0])), uintptr(len(fds)), uintptr(unsafe.Pointer(&ts)), 0, 0, 0)
		}
		// After EINTR ts holds what is left of it: the raw system call, unlike
		// libc's, updates its argument.
		switch e {
		case 0:
			return nil
		case unix.EINTR:
			continue
		}
		return e
	}
}
