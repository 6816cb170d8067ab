//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

// The device of the connection manager stands in the program as the read end of a pipe,
// which is readable while events wait. Whoever asks for an event when there is none
// sleeps, here, until the pipe says otherwise.

// openCM opens the connection manager's device for the program.
func (s *supervisor) openCM(t *target, flags int) outcome {
	tgid, mem, e := t.openMemory()
	if e != 0 {
		return status(e)
	}
	client, token, r, w, err := daemon.OpenCM(s.socket, s.node, tgid, mem)
	if err != nil {
		_ = unix.Close(mem)
		return status(errnoOf(err))
	}
	defer unix.Close(r)
	c := &context{index: cmDevice, memory: w, token: token, conns: []*conn{{tgid: tgid, mem: mem, client: client}}}
	if err = unix.SetNonblock(r, flags&unix.O_NONBLOCK != 0); err != nil {
		s.contexts.end(c)
		return status(errnoOf(err))
	}
	if e = s.keep(c, r); e != 0 {
		return status(e)
	}
	// From here on the end of the pipe is the end of the context, also when the program
	// cannot take it.
	return s.place(t, r, 0, flags&unix.O_CLOEXEC != 0)
}

// addPipe begins to watch a context's pipe: an error there says that nobody reads it.
// The caller holds mu.
func (s *contexts) addPipe(c *context) unix.Errno {
	err := unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, c.memory, &unix.EpollEvent{Fd: int32(c.memory)})
	if err != nil {
		return err.(unix.Errno)
	}
	s.byFile[c.id], s.byPipe[int32(c.memory)] = c, c
	for _, k := range c.conns {
		s.watchSocket(c, k)
	}
	return 0
}

// addSocket is watchSocket for a connection that comes later.
func (s *contexts) addSocket(c *context, k *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.memory >= 0 {
		s.watchSocket(c, k)
	}
}

// watchSocket begins to watch a connection of a context, to learn of the daemon's end. Its
// end takes it out of the set. Without it the program would wait on.
func (s *contexts) watchSocket(c *context, k *conn) {
	fd := k.client.Hangup()
	s.byPipe[-int32(fd)] = c
	_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Fd: -int32(fd)})
}

// hangUp closes the pipe of a channel, so that nobody waits at the other end any more. The
// caller holds mu.
func (s *contexts) hangUp(c *context) {
	if c.memory < 0 {
		return
	}
	_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, c.memory, nil)
	_ = unix.Close(c.memory)
	c.memory = -1
	for fd, o := range s.byPipe {
		if o == c {
			delete(s.byPipe, fd)
		}
	}
}

// daemonGone hangs up a channel whose connection to the daemon has ended. It stays one of the
// manager's: commands fail.
func (s *contexts) daemonGone(fd int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.byPipe[fd]; c != nil {
		_ = unix.EpollCtl(s.epoll, unix.EPOLL_CTL_DEL, int(-fd), nil)
		s.hangUp(c)
	}
}

// watchPipes ends channels whose pipe nobody has open any more, or whose daemon has gone.
func (s *contexts) watchPipes() {
	events := make([]unix.EpollEvent, 16)
	for {
		n, err := unix.EpollWait(s.epoll, events, -1)
		if err != nil && err != unix.EINTR {
			return
		}
		for i := range max(n, 0) {
			if fd := events[i].Fd; fd < 0 {
				s.daemonGone(fd)
				continue
			}
			s.mu.RLock()
			c := s.byPipe[events[i].Fd]
			s.mu.RUnlock()
			if c != nil {
				s.end(c)
			}
		}
	}
}

// cmGetEvent is RDMA_USER_CM_CMD_GET_EVENT.
const cmGetEvent = 12

// writeCM is a command for the connection manager.
func (s *supervisor) writeCM(t *target, c *context, fd int32, addr uint64, n int) outcome {
	var head [4]byte
	if n < len(head) {
		return status(unix.EINVAL)
	}
	if e := t.read(addr, head[:]); e != 0 {
		return status(e)
	}
	for {
		c.mu.Lock()
		o := c.command(t, addr, n)
		c.mu.Unlock()
		if o.errno != unix.EAGAIN || binary.NativeEndian.Uint32(head[:]) != cmGetEvent || t.flagsOf(fd)&unix.O_NONBLOCK != 0 {
			return o
		}
		if e := t.awaitEvent(fd); e != 0 {
			return status(e)
		}
	}
}

// erestartsys (ERESTARTSYS) lets the kernel run the handler of the signal that waits, and
// then restart the call or fail with EINTR, as the handler has it. Without a signal the
// program would see the number.
const erestartsys = unix.Errno(512)

// signalCheck is how often a sleeping call looks for signals.
const signalCheck = 20 * time.Millisecond

// awaitEvent sleeps until the pipe behind a descriptor is readable. EBADF if another thread
// of the program has closed the descriptor since the call: the kernel would let the call
// sleep on, for events that can still come to it alone.
func (t *target) awaitEvent(fd int32) unix.Errno {
	r, e := openFile(t.fdPath(fd), unix.O_RDONLY|unix.O_NONBLOCK)
	if e == unix.ENOENT {
		return unix.EBADF
	}
	if e != 0 {
		return e
	}
	defer unix.Close(r)
	for {
		p := []unix.PollFd{{Fd: int32(r), Events: unix.POLLIN}}
		n, err := unix.Poll(p, int(signalCheck/time.Millisecond))
		switch {
		case err != nil && err != unix.EINTR:
			return err.(unix.Errno)
		case n > 0 && p[0].Revents&unix.POLLIN == 0:
			return unix.EIO // the daemon has gone
		case n > 0:
			return 0
		case !t.valid():
			return unix.EINTR // nobody will see it
		case t.signalled():
			return erestartsys
		}
	}
}

// signalled reports whether a signal waits that the thread takes.
func (t *target) signalled() bool {
	b, err := os.ReadFile(t.proc("status"))
	if err != nil {
		return false
	}
	var pending, shared, blocked, ignored uint64
	for line := range strings.Lines(string(b)) {
		for name, v := range map[string]*uint64{"SigPnd:\t": &pending, "ShdPnd:\t": &shared, "SigBlk:\t": &blocked, "SigIgn:\t": &ignored} {
			if strings.HasPrefix(line, name) {
				_, _ = fmt.Sscanf(line[len(name):], "%x", v) // stays 0 if it is no number
			}
		}
	}
	return (pending|shared)&^blocked&^ignored != 0
}

// flagsOf returns the status flags of a descriptor of the program.
func (t *target) flagsOf(fd int32) int {
	b, err := os.ReadFile(t.proc(fmt.Sprintf("fdinfo/%d", fd)))
	if err != nil {
		return 0
	}
	flags := 0
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "flags:\t"); ok {
			_, _ = fmt.Sscanf(v, "%o", &flags) // stays 0 if it is no number
		}
	}
	return flags
}
