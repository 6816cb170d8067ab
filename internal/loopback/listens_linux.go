package loopback

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Listens says whether process pid or one of its descendants listens on a TCP port, and
// whether anybody else does, all in the caller's network namespace. It looks and does not
// connect, which a server would take for its client. Two sockets that share a port both
// count. Processes of other users count as others.
func Listens(pid int, port string) (own, other bool) {
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		table, _ := os.ReadFile(file)
		for _, socket := range Listeners(string(table), port) {
			if holds(pid, "socket:["+socket+"]") {
				own = true
			} else {
				other = true
			}
		}
	}
	return own, other
}

// Listeners returns the inodes of the sockets that listen on a TCP port, out of a table as
// /proc/net/tcp and /proc/net/tcp6 have it.
func Listeners(table, port string) (inodes []string) {
	const (
		local, state, inode = 1, 3, 9 // columns
		listen              = "0A"
	)
	n, err := strconv.Atoi(port)
	if err != nil {
		return nil
	}
	want := fmt.Sprintf(":%04X", n)
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > inode && f[state] == listen && strings.HasSuffix(f[local], want) {
			inodes = append(inodes, f[inode])
		}
	}
	return inodes
}

// holds reports whether a process or one of its descendants has a file open.
func holds(pid int, file string) bool {
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == file {
			return true
		}
	}
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid)) // any thread may have children
	for _, l := range lists {
		text, _ := os.ReadFile(l)
		for _, child := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(child); err == nil && holds(n, file) {
				return true
			}
		}
	}
	return false
}
