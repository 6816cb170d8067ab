//go:build amd64 || arm64

package notify

import (
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names under which this binary runs itself.
const (
	roleSupervisor = "rvtsim-supervisor"
	roleProgram    = "rvtsim-program"
)

// init takes over when the process was started by spawn. It runs on the main thread,
// which the program dies with (Pdeathsig) and which becomes the program (execve).
func init() {
	if len(os.Args) < 2 || os.Args[0] != roleSupervisor && os.Args[0] != roleProgram {
		return
	}
	runtime.LockOSThread()
	l, err := takeLink(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	switch os.Args[0] {
	case roleSupervisor:
		superviseMain(l, os.Args[2:])
	case roleProgram:
		programMain(l, os.Args[2:])
	}
	os.Exit(0)
}

// programMain puts this process under the filter, passes the listener on, and becomes
// the program. From the filter on it must not make a call that the filter catches until
// the supervisor has said go: nobody would answer.
func programMain(l link, args []string) {
	r := currentRange()
	code, err := buildFilter(r)
	if err != nil {
		_ = l.send(msgError, encodeError(classOther, err.Error(), 0))
		return
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		_ = l.send(msgError, encodeError(classUnavailable, "no_new_privs cannot be set", err.(unix.Errno)))
		return
	}
	listener, e := installFilter(code)
	if e != 0 {
		_ = l.send(msgError, encodeError(classUnavailable, whyNoListener(e), e))
		return
	}
	err = l.send(msgListener, "", listener)
	_ = unix.Close(listener)
	if err != nil {
		return
	}
	if kind, _, _, err := l.recv(); err != nil || kind != msgGo {
		return
	}
	err = syscall.Exec(args[0], args[1:], os.Environ())
	e, _ = err.(unix.Errno)
	_ = l.send(msgError, encodeError(classOther, args[0], e))
}

func whyNoListener(e unix.Errno) string {
	switch e {
	case unix.EBUSY:
		return "this process is under such a supervisor already (another rvtsim exec --via seccomp, or a container runtime that uses one), and the kernel allows one only"
	case unix.EPERM, unix.EACCES:
		return "something around us, a container say, does not allow a filter"
	}
	return "the kernel refuses the filter"
}

// currentRange is where devices go. The limit that counts is the hard one: the runtime
// has raised the soft one of this process, and the supervisor raises that of a program
// that has less.
func currentRange() fdRange {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		lim.Max = 1024
	}
	return deviceRange(lim.Max)
}
