package netlab

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Marker is the environment variable that programs run in a network have: the network's
// id. Namespaces are known by numbers that the kernel uses again; the marker tells whose
// programs are in them.
const Marker = "RVTSIM_NETWORK"

// Program is a process in a namespace of a network.
type Program struct {
	PID  int
	Comm string
}

// Programs lists the processes in the namespaces with these inodes that carry the id of
// the network. Processes that this user may not look at are not there.
func Programs(inodes []uint64, id string) []Program {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	var out []Program
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil || pid == os.Getpid() {
			continue
		}
		var st unix.Stat_t
		if unix.Stat(dir+"/ns/net", &st) != nil || !slices.Contains(inodes, st.Ino) {
			continue
		}
		env, err := os.ReadFile(dir + "/environ")
		if err != nil || !slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool { return string(v) == Marker+"="+id }) {
			continue
		}
		comm, _ := os.ReadFile(dir + "/comm")
		out = append(out, Program{pid, strings.TrimSpace(string(comm))})
	}
	return out
}

// patience is how long a program has to end by itself.
const patience = 2 * time.Second

// End ends programs: it asks them to, and kills those that do not. It returns when they
// are gone.
func End(programs []Program) {
	var fds []int
	for _, p := range programs {
		fd, err := unix.PidfdOpen(p.PID, 0)
		if err != nil {
			continue
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
		_ = unix.PidfdSendSignal(fd, unix.SIGTERM, nil, 0)
		_ = unix.PidfdSendSignal(fd, unix.SIGCONT, nil, 0)
	}
	deadline := time.Now().Add(patience)
	for _, fd := range fds {
		if !awaitEnd(fd, time.Until(deadline)) {
			_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
			awaitEnd(fd, patience)
		}
	}
}

// awaitEnd waits for a process to end.
func awaitEnd(pidfd int, d time.Duration) bool {
	for end := time.Now().Add(d); ; {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(max(time.Until(end), 0)/time.Millisecond))
		if err != unix.EINTR {
			return ready > 0
		}
	}
}
