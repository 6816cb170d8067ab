//go:build amd64 || arm64

package notify

import (
	"bytes"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// target is the thread that made a call and waits for its answer.
type target struct {
	s   *supervisor
	id  uint64
	tid int
}

// valid reports whether the thread still waits. What was read from /proc or from memory
// by its number before that belongs to it.
func (t *target) valid() bool { return stillPending(t.s.listener, t.id) }

// mayRead finds out whether the system lets us read a process's memory: rights are
// checked before addresses.
func mayRead(pid int) unix.Errno {
	var b [1]byte
	if _, e := vmRead(pid, 8, b[:]); e != unix.EFAULT {
		return e
	}
	return 0
}

func vmRead(pid int, addr uint64, b []byte) (int, unix.Errno) {
	if len(b) == 0 {
		return 0, 0
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMReadv(pid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	e, _ := err.(unix.Errno)
	return n, e
}

func (t *target) read(addr uint64, b []byte) unix.Errno {
	n, e := vmRead(t.tid, addr, b)
	if e == 0 && n < len(b) {
		e = unix.EFAULT
	}
	return e
}

func (t *target) write(addr uint64, b []byte) unix.Errno {
	if len(b) == 0 {
		return 0
	}
	if !t.valid() {
		return unix.EINTR // nobody will see it
	}
	local := []unix.Iovec{{Base: &b[0]}}
	local[0].SetLen(len(b))
	n, err := unix.ProcessVMWritev(t.tid, local, []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}, 0)
	if err == nil && n < len(b) {
		err = unix.EFAULT
	}
	e, _ := err.(unix.Errno)
	return e
}

// path reads a string that ends with a 0 byte, shorter than PATH_MAX.
func (t *target) path(addr uint64) (string, bool) {
	const first, page = 256, 4096
	var buf [unix.PathMax]byte
	for n := 0; n < len(buf); {
		// No further than the page reaches: the next one may not exist.
		size := min(page-int(addr%page), len(buf)-n)
		if n == 0 {
			size = min(size, first)
		}
		if t.read(addr, buf[n:n+size]) != 0 {
			return "", false
		}
		if i := bytes.IndexByte(buf[n:n+size], 0); i >= 0 {
			return string(buf[:n+i]), true
		}
		n += size
		addr += uint64(size)
	}
	return "", false
}

// proc is the name of a file of the thread in /proc.
func (t *target) proc(name string) string { return "/proc/" + strconv.Itoa(t.tid) + "/" + name }

func (t *target) fdPath(fd int32) string { return t.proc("fd/" + strconv.Itoa(int(fd))) }

// fileID tells files apart.
type fileID struct{ dev, ino uint64 }

func fileOf(path string) (fileID, bool) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, false
	}
	return fileID{uint64(st.Dev), st.Ino}, true
}

// tgid is the process that the thread belongs to, 0 if it has gone.
func (t *target) tgid() int {
	b, err := os.ReadFile(t.proc("status"))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Tgid:"); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// base is the directory that a relative path starts from.
func (t *target) base(dirfd int32) (string, bool) {
	name := t.proc("cwd")
	if dirfd != unix.AT_FDCWD {
		name = t.fdPath(dirfd)
	}
	dir, err := os.Readlink(name)
	return dir, err == nil && strings.HasPrefix(dir, "/")
}
