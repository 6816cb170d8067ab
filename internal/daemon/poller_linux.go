package daemon

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/fdspace"
)

// poller is an epoll descriptor for one thread, with an event that tells the thread to
// end. The event has the tag 0.
type poller struct {
	epoll int
	stop  int // eventfd
}

func newPoller() (poller, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return poller{}, os.NewSyscallError("epoll_create", err)
	}
	p := poller{fdspace.Keep(epoll), -1}
	if p.stop, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err == nil {
		p.stop = fdspace.Keep(p.stop)
		err = unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, p.stop, &unix.EpollEvent{Events: unix.EPOLLIN})
	}
	if err != nil {
		p.free()
		return poller{}, os.NewSyscallError("epoll", err)
	}
	return p, nil
}

// end tells the thread to end.
func (p *poller) end() { _, _ = unix.Write(p.stop, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

// free closes the descriptors, when the thread has ended.
func (p *poller) free() {
	fdspace.Close(p.epoll)
	fdspace.Close(p.stop)
}

// wait waits for events. It returns false when the thread is to end.
func (p *poller) wait(events []unix.EpollEvent) ([]unix.EpollEvent, bool) {
	for {
		n, err := unix.EpollWait(p.epoll, events, -1)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil, false
		}
		for _, e := range events[:n] {
			if e.Fd == 0 {
				return nil, false
			}
		}
		return events[:n], true
	}
}
