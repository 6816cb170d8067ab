package daemon

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/fdspace"
)

// seqSocket is a blocking SEQPACKET socket, outside the runtime's poller: a command
// costs the program the way there and back, and the poller would add half of it again. One
// that is idle gives its thread back, if it was admitted to a lobby.
type seqSocket struct {
	fd  int
	oob [unixRights]byte

	// Set by lobby.admit.
	lobby *lobby        // where it waits when it is idle; nil: it keeps its thread
	tag   int32         // its name there
	ready chan struct{} // a token once there is something to receive
}

const unixRights = 64 // room for the control message of maxFiles descriptors

// recv reads one message into b, waiting for it, and the descriptors that came along,
// which the caller must close. It returns io.EOF when the peer has closed.
func (s *seqSocket) recv(b []byte) (n int, files []int, err error) {
	for {
		n, oobn, flags, _, err := unix.Recvmsg(s.fd, b, s.oob[:], unix.MSG_CMSG_CLOEXEC)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN && s.lobby != nil:
			if err := s.lobby.await(s); err != nil {
				return 0, nil, os.NewSyscallError("epoll_ctl", err)
			}
			continue
		case err == unix.ECONNRESET:
			return 0, nil, io.EOF
		case err != nil:
			return 0, nil, os.NewSyscallError("recvmsg", err)
		}
		files, err := parseRights(s.oob[:oobn])
		switch {
		case err != nil:
		case n == 0:
			err = io.EOF
		case flags&unix.MSG_TRUNC != 0:
			err = errors.New("daemon: message is too long")
		}
		if err != nil {
			closeAll(files)
			return 0, nil, err
		}
		return n, files, nil
	}
}

func parseRights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var files []int
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err == nil {
			files = append(files, fds...)
		}
	}
	return files, nil
}

// errSlow reports a program that does not read its answers.
var errSlow = errors.New("daemon: the program does not read its answers")

// send writes one message. It never waits: a program has one command under way, so
// there is always room unless it does not read.
func (s *seqSocket) send(b []byte, files []int) error {
	var oob []byte
	if len(files) > 0 {
		oob = unix.UnixRights(files...)
	}
	for {
		err := unix.Sendmsg(s.fd, b, oob, nil, unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT)
		switch err {
		case nil:
			return nil
		case unix.EINTR:
			continue
		case unix.EAGAIN:
			return errSlow
		}
		return os.NewSyscallError("sendmsg", err)
	}
}

// shutdown ends a recv under way, of another goroutine.
func (s *seqSocket) shutdown() { _ = unix.Shutdown(s.fd, unix.SHUT_RDWR) }

func (s *seqSocket) close() {
	if s.lobby != nil {
		s.lobby.leave(s)
	}
	fdspace.Close(s.fd)
}

func closeAll(files []int) {
	for _, fd := range files {
		_ = unix.Close(fd)
	}
}

// maxPath is the longest path of a socket.
const maxPath = 107

func checkPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("daemon: the path of the control socket, %s, is longer than %d bytes; set XDG_RUNTIME_DIR to a shorter directory", path, maxPath)
	}
	return nil
}

// listen makes the control socket at path. The caller holds the lock that makes it
// certain that nobody listens there, so what is left behind may go.
func listen(path string, mode os.FileMode) (*seqSocket, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	abstract := path[0] == '@' // it goes with its socket
	if !abstract {
		_ = os.Remove(path)
	}
	err = unix.Bind(fd, &unix.SockaddrUnix{Name: path})
	if err == nil && !abstract {
		err = os.Chmod(path, mode)
	}
	if err == nil {
		err = unix.Listen(fd, 1024)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("daemon: control socket %s: %w", path, err)
	}
	return &seqSocket{fd: fdspace.Keep(fd)}, nil
}

func (s *seqSocket) accept() (*seqSocket, *unix.Ucred, error) {
	for {
		fd, _, err := unix.Accept4(s.fd, unix.SOCK_CLOEXEC)
		switch err {
		case nil:
		case unix.EINTR, unix.ECONNABORTED:
			continue
		default:
			return nil, nil, os.NewSyscallError("accept", err)
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil {
			_ = unix.Close(fd)
			return nil, nil, os.NewSyscallError("getsockopt", err)
		}
		return &seqSocket{fd: fdspace.Keep(fd)}, cred, nil
	}
}

func dial(path string) (*seqSocket, error) {
	if err := checkPath(path); err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		_ = unix.Close(fd)
		return nil, &os.PathError{Op: "connect", Path: path, Err: err}
	}
	return &seqSocket{fd: fd}, nil
}
