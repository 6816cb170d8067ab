//go:build amd64 || arm64

package notify

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// link is one end of a SEQPACKET socket between two of the processes. Messages begin
// with a byte that says what they are.
type link int

const (
	msgError    = 'E' // could not start; followed by the text
	msgListener = 'L' // comes with the listener
	msgGo       = 'G' // become the program
	msgStatus   = 'X' // the program has ended; followed by its wait status in decimal
	msgSignal   = 'S' // pass a signal on; followed by its number in decimal
)

func newLinks() (a, b link, err error) {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, 0, os.NewSyscallError("socketpair", err)
	}
	return link(p[0]), link(p[1]), nil
}

func (l link) close() { _ = unix.Close(int(l)) }

func (l link) send(kind byte, text string, files ...int) error {
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	for {
		err := unix.Sendmsg(int(l), append([]byte{kind}, text...), oob, nil, unix.MSG_NOSIGNAL)
		if err != unix.EINTR {
			return err
		}
	}
}

// recv waits for a message; io.EOF when the other side has gone. file is -1 if none
// came along.
func (l link) recv() (kind byte, text string, file int, err error) {
	b, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := unix.Recvmsg(int(l), b, oob, unix.MSG_CMSG_CLOEXEC)
	for err == unix.EINTR {
		n, oobn, _, _, err = unix.Recvmsg(int(l), b, oob, unix.MSG_CMSG_CLOEXEC)
	}
	if n == 0 || err == unix.ECONNRESET {
		err = io.EOF
	}
	if err != nil {
		return 0, "", -1, err
	}
	file = -1
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
		if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
			file = fds[0]
		}
	}
	return b[0], string(b[1:n]), file, nil
}

// spawn runs this binary again as role, with a link and arguments. What this process
// inherited goes to the child at the same numbers.
func spawn(role string, l link, args, env []string, death syscall.Signal) (pid int, err error) {
	exe := "/proc/self/exe"
	if p, err := os.Executable(); err == nil && unix.Access(p, unix.X_OK) == nil {
		exe = p
	}
	syscall.ForkLock.Lock()
	down, err := unix.Dup(int(l)) // without close-on-exec
	syscall.ForkLock.Unlock()
	if err != nil {
		return 0, os.NewSyscallError("dup", err)
	}
	defer unix.Close(down)
	return syscall.ForkExec(exe, append([]string{role, strconv.Itoa(down)}, args...), &syscall.ProcAttr{
		Env: env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Pdeathsig: death},
	})
}

// takeLink takes over what spawn passed.
func takeLink(arg string) (link, error) {
	fd, err := strconv.Atoi(arg)
	if err != nil {
		return 0, errors.New("notify: this role is not for the command line")
	}
	unix.CloseOnExec(fd)
	return link(fd), nil
}

// waitFor reaps one child.
func waitFor(pid int) (unix.WaitStatus, error) {
	var ws unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &ws, 0, nil)
		if err != unix.EINTR {
			return ws, err
		}
	}
}

// codeOf is the exit status that a shell shows: 128 plus the signal for a program that
// was killed.
func codeOf(ws unix.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
