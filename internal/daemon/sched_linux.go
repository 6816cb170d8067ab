package daemon

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// slice is how long a thread of the daemon wants to run at a time, in nanoseconds. A
// short one lets a woken thread interrupt programs that spin on their completion queues
// and would otherwise run on for some milliseconds (Linux 6.12).
const slice = 100_000

// Hurry makes the whole process one that wakes often and runs for a short time. A
// privileged one raises its priority too. It is for a process that is a daemon and
// nothing else. Threads that come later inherit it. What the system refuses is left
// alone: it is a matter of speed only.
func Hurry() {
	hurrySession()
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return
	}
	for _, t := range tasks {
		tid, err := strconv.Atoi(t.Name())
		if err != nil {
			continue
		}
		attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: -20, Runtime: slice}
		if unix.SchedSetAttr(tid, &attr, 0) == nil {
			continue
		}
		if cur, err := unix.SchedGetAttr(tid, 0); err == nil {
			attr.Nice = cur.Nice
			_ = unix.SchedSetAttr(tid, &attr, 0)
		}
	}
}

// hurrySession raises the share of the whole session, if it is the daemon's own: where the
// kernel gives each session its share (autogroup), priorities count within one only.
func hurrySession() {
	if sid, err := unix.Getsid(0); err == nil && sid == os.Getpid() {
		_ = os.WriteFile("/proc/self/autogroup", []byte("-20"), 0)
	}
}
