package uverbs

import (
	"golang.org/x/sys/unix"
)

// pollErr reports whether the write end of a pipe has lost its reader.
func pollErr(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd)}}
	n, err := unix.Poll(p, 0)
	return err == nil && n > 0 && p[0].Revents&(unix.POLLERR|unix.POLLNVAL) != 0
}
