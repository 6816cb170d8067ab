package netlab

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNotPermitted says that this process may not make namespaces, as in most containers.
var ErrNotPermitted = errors.New("network namespaces are not permitted here")

// Permitted reports whether this process may make network namespaces as it is. It tries.
func Permitted() bool {
	ok := make(chan bool)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends in its new namespace
		ok <- unix.Unshare(unix.CLONE_NEWNET) == nil
	}()
	return <-ok
}

// Contain makes cmd start in new namespaces of the given kinds (CLONE_NEWNET and so on),
// as root of a new user namespace unless this process may do without.
func Contain(cmd *exec.Cmd, kinds uintptr) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	a := cmd.SysProcAttr
	a.Cloneflags |= kinds
	if os.Geteuid() == 0 && Permitted() {
		return
	}
	a.Cloneflags |= unix.CLONE_NEWUSER
	a.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
	a.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
}

// Refused reports whether starting a command failed because namespaces are not permitted.
func Refused(err error) bool {
	for _, e := range []syscall.Errno{unix.EPERM, unix.EACCES, unix.ENOSPC, unix.EINVAL} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
