//go:build amd64 || arm64

package notify

import (
	"bytes"
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// children lists the processes whose parent is this one. Orphans of its descendants
// become its children too, once it has become a subreaper.
func children() []int {
	self := os.Getpid()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err == nil && parentOf(pid) == self {
			pids = append(pids, pid)
		}
	}
	return pids
}

// parentOf is the parent of a process, 0 if there is no such process. The name in
// /proc/PID/stat may contain anything, but a ")" ends it.
func parentOf(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(string(f[1]))
	return ppid
}

// killChildren kills this process's children but those in keep, and returns them. Their
// own children are ours as soon as they are dead.
func killChildren(keep []int) []int {
	pids := slices.DeleteFunc(children(), func(pid int) bool { return slices.Contains(keep, pid) })
	for _, pid := range pids {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	return pids
}

// killTree kills everything below this process but keep and what is below that, and
// reaps it.
func killTree(keep []int) {
	for {
		pids := killChildren(keep)
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_, _ = waitFor(pid)
		}
	}
}

func becomeSubreaper() error {
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}
