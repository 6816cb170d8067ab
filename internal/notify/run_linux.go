//go:build amd64 || arm64

package notify

import (
	"errors"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Run runs a program and returns its exit status, 128 plus the signal if one ended it,
// when the program and everything that it started have ended. An error means that the
// program did not run, or that its supervisor was killed; that of an environment which
// does not allow any of this is an *UnavailableError.
//
// Signals that this process gets meanwhile go to the program. Run makes this process a
// subreaper; no other goroutine should wait for children that it did not start.
func Run(c Config) (int, error) {
	if err := probe(); err != nil {
		return 0, err
	}
	if err := becomeSubreaper(); err != nil {
		return 0, err
	}
	keep := children()
	ours, theirs, err := newLinks()
	if err != nil {
		return 0, err
	}
	defer ours.close()
	pid, err := spawn(roleSupervisor, theirs, append([]string{c.Socket, c.Node, c.Root, c.Prog}, c.Args...), c.Env, 0)
	theirs.close()
	if err != nil {
		return 0, err
	}
	stop := passSignals(ours)
	defer stop()
	code, err := outcomeOf(ours)
	if _, e := waitFor(pid); e != nil {
		err = errors.Join(err, os.NewSyscallError("wait4", e))
	}
	killTree(keep) // nothing is left unless the supervisor was killed
	return code, err
}

// Available says why programs cannot be run here, with an *UnavailableError, or nothing.
func Available() error { return probe() }

// outcomeOf waits for what the supervisor has to say at the end.
func outcomeOf(l link) (int, error) {
	code, known := 0, false
	for {
		kind, text, _, err := l.recv()
		switch {
		case err != nil && known:
			return code, nil
		case err != nil:
			return 0, errors.New("the supervisor of the program was killed, and the program with it")
		case kind == msgError:
			return 0, decodeError(text)
		case kind == msgStatus:
			code, err = strconv.Atoi(text)
			known = err == nil
		}
	}
}

// passed are the signals that mean the program.
var passed = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGALRM, syscall.SIGWINCH, syscall.SIGCONT,
}

// heeded are those of passed that this process was not told to ignore. A program under
// nohup inherits that.
func heeded() []os.Signal {
	var list []os.Signal
	for _, s := range passed {
		if !signal.Ignored(s) {
			list = append(list, s)
		}
	}
	return list
}

// passSignals hands signals to the supervisor, for the program, until stop is called.
func passSignals(l link) (stop func()) {
	ch := make(chan os.Signal, 16)
	if list := heeded(); len(list) > 0 {
		signal.Notify(ch, list...)
	}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-ch:
				if n := s.(syscall.Signal); !fromTerminal(n) {
					_ = l.send(msgSignal, strconv.Itoa(int(n)))
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ch)
		close(done)
	}
}

// fromTerminal reports whether a signal is one that the terminal sends, when it sends
// them to this process's group, and so to the program itself.
func fromTerminal(s syscall.Signal) bool {
	switch s {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGWINCH, syscall.SIGCONT:
	default:
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY, 0)
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// Errors travel between the processes as a class, an errno and a text.
const (
	classUnavailable = "U"
	classOther       = "O"
)

func encodeError(class, text string, e unix.Errno) string {
	return class + strconv.Itoa(int(e)) + " " + text
}

func decodeError(s string) error {
	class, rest := s[:min(1, len(s))], s[min(1, len(s)):]
	var n int
	var text string
	for i := range rest {
		if rest[i] == ' ' {
			n, _ = strconv.Atoi(rest[:i])
			text = rest[i+1:]
			break
		}
	}
	var err error
	if n != 0 {
		err = unix.Errno(n)
	}
	if class == classUnavailable {
		return &UnavailableError{Reason: text, Err: err}
	}
	if err == nil {
		return errors.New(text)
	}
	return &os.PathError{Op: "exec", Path: text, Err: err}
}
