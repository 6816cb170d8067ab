//go:build amd64 || arm64

package notify

import (
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// supervisor answers the calls of one program and its children.
type supervisor struct {
	listener int
	socket   string
	node     string
	numbers  fdRange
	view     view
	contexts *contexts

	idle    atomic.Int32 // workers that wait for a call
	workers atomic.Int32
}

const (
	// minIdle workers wait at any time, so that a program whose device is busy, or
	// whose daemon is stopped, can go on with everything else.
	minIdle    = 1
	maxIdle    = 4
	maxWorkers = 256
)

// superviseMain is the supervisor process: args are socket, node, root, program and its
// arguments.
func superviseMain(up link, args []string) {
	fail := func(err error) {
		if u, ok := err.(*UnavailableError); ok {
			e, _ := u.Err.(unix.Errno)
			_ = up.send(msgError, encodeError(classUnavailable, u.Reason, e))
		} else {
			_ = up.send(msgError, encodeError(classOther, err.Error(), 0))
		}
	}
	s := &supervisor{socket: args[0], node: args[1], numbers: currentRange()}
	if err := s.prepare(args[2]); err != nil {
		fail(err)
		return
	}
	swallowSignals()
	ours, theirs, err := newLinks()
	if err != nil {
		fail(err)
		return
	}
	pid, err := spawn(roleProgram, theirs, args[3:], os.Environ(), syscall.SIGKILL)
	theirs.close()
	if err != nil {
		fail(err)
		return
	}
	if text := s.begin(ours, pid); text != "" {
		_ = unix.Kill(pid, unix.SIGKILL)
		_, _ = waitFor(pid)
		_ = up.send(msgError, text)
		return
	}
	s.stay(up, pid)
}

func (s *supervisor) prepare(root string) error {
	if err := becomeSubreaper(); err != nil {
		return err
	}
	var err error
	if s.view, err = openView(root); err != nil {
		return err
	}
	s.contexts, err = newContexts()
	return err
}

// swallowSignals makes this process deaf to what is meant for the program: it goes there
// through the launcher. Signals that are ignored stay ignored, here and in the program.
func swallowSignals() {
	if list := heeded(); len(list) > 0 {
		signal.Notify(make(chan os.Signal, 1), list...)
	}
}

// begin takes the listener over from the process that is about to become the program,
// and lets it. It returns an encoded error, or nothing once the program runs.
func (s *supervisor) begin(l link, pid int) string {
	defer l.close()
	kind, text, file, err := l.recv()
	switch {
	case err != nil:
		return encodeError(classOther, "the program ended before it began", 0)
	case kind == msgError:
		return text
	case kind != msgListener || file < 0:
		return encodeError(classOther, "the program did not pass its listener", 0)
	}
	s.listener = file
	if e := mayRead(pid); e != 0 {
		return encodeError(classUnavailable, "this process may not read the memory of its children (process_vm_readv)", e)
	}
	// Wakes the other side on the same processor: on kernels that can it is quicker.
	_, _, _ = unix.Syscall(unix.SYS_IOCTL, uintptr(s.listener), unix.SECCOMP_IOCTL_NOTIF_SET_FLAGS, unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP)
	for range minIdle {
		s.hire()
	}
	if err := l.send(msgGo, ""); err != nil {
		return encodeError(classOther, "the program ended before it began", 0)
	}
	if _, text, _, err := l.recv(); err == nil {
		return text
	}
	return ""
}

// stay reaps until no process is left below this one, and reports how the program ended.
// If the launcher dies, so does everything else.
func (s *supervisor) stay(up link, pid int) {
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		pidfd = -1
	}
	var dying atomic.Bool
	go func() {
		for {
			kind, text, _, err := up.recv()
			if err != nil {
				dying.Store(true)
				killChildren(nil)
				return
			}
			if n, err := strconv.Atoi(text); err == nil && kind == msgSignal && pidfd >= 0 {
				_ = unix.PidfdSendSignal(pidfd, unix.Signal(n), nil, 0)
			}
		}
	}()
	for {
		var ws unix.WaitStatus
		reaped, err := unix.Wait4(-1, &ws, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return // ECHILD
		}
		if reaped == pid {
			_ = up.send(msgStatus, strconv.Itoa(codeOf(ws)))
		}
		if dying.Load() {
			killChildren(nil)
		}
	}
}

// hire starts a worker, unless there are many already.
func (s *supervisor) hire() {
	if s.workers.Add(1) > maxWorkers {
		s.workers.Add(-1)
		return
	}
	go s.work()
}

// work answers calls, one after the other. Others do the same.
func (s *supervisor) work() {
	defer s.workers.Add(-1)
	var n notif
	for s.idle.Load() < maxIdle {
		s.idle.Add(1)
		e := receive(s.listener, &n)
		if s.idle.Add(-1) < minIdle && e == 0 {
			s.hire()
		}
		switch {
		case e == 0:
			s.answer(&n)
		case e != unix.ENOENT || s.deserted():
			return
		}
	}
}

// deserted reports whether no process is left under the filter.
func (s *supervisor) deserted() bool {
	p := []unix.PollFd{{Fd: int32(s.listener)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1 && p[0].Revents&unix.POLLHUP != 0
}

// outcome is what becomes of a call.
type outcome struct {
	val   int64
	errno unix.Errno
	pass  bool // the kernel is to carry it out, as if we had not looked
}

var passOn = outcome{pass: true}

// status is what a call returns that has no result: 0, or an error.
func status(e unix.Errno) outcome { return outcome{errno: e} }

// answer decides about a call and tells the kernel.
func (s *supervisor) answer(n *notif) {
	t := &target{s: s, id: n.id, tid: int(n.tid)}
	o := s.decide(t, n)
	r := notifResp{id: n.id, val: o.val, error: -int32(o.errno)}
	if o.pass {
		r = notifResp{id: n.id, flags: unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE}
	}
	respond(s.listener, &r)
}

// decide finds out what a call is about. What we cannot look at is the kernel's.
func (s *supervisor) decide(t *target, n *notif) outcome {
	if t.tid == 0 {
		return passOn
	}
	a := &n.args
	fd := int32(a[0])
	switch int(n.nr) {
	case unix.SYS_WRITE:
		return s.write(t, fd, a[1], a[2])
	case unix.SYS_WRITEV:
		return s.writev(t, fd, a[1], a[2])
	case unix.SYS_PWRITE64:
		return s.pwrite(t, fd)
	case unix.SYS_IOCTL:
		return s.ioctl(t, fd, a[2])
	case unix.SYS_FSTAT:
		return s.fstat(t, fd, a[1])
	case unix.SYS_DUP:
		return s.dup(t, fd, 0, false)
	case unix.SYS_FCNTL:
		return s.dup(t, fd, a[2], int(a[1]) == unix.F_DUPFD_CLOEXEC)
	case sysDup2:
		return s.dupTo(t, fd, int32(a[1]), 0, true)
	case unix.SYS_DUP3:
		return s.dupTo(t, fd, int32(a[1]), int(a[2]), false)
	case sysFstatat:
		return s.fstatat(t, fd, a[1], a[2], int(a[3]))
	case unix.SYS_STATX:
		return s.statx(t, fd, a)
	}
	return s.decidePath(t, n)
}
