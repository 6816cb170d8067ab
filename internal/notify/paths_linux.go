//go:build amd64 || arm64

package notify

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/uverbs"
)

// decidePath carries out the calls that are about a path only.
func (s *supervisor) decidePath(t *target, n *notif) outcome {
	const cwd = int32(unix.AT_FDCWD)
	a := &n.args
	dir := int32(a[0])
	switch int(n.nr) {
	case sysOpen:
		return s.open(t, cwd, a[0], a[1])
	case unix.SYS_OPENAT:
		return s.open(t, dir, a[1], a[2])
	case unix.SYS_OPENAT2:
		return s.openat2(t, dir, a[1], a[2], a[3])
	case sysStat:
		return s.stat(t, cwd, a[0], a[1], 0)
	case sysLstat:
		return s.stat(t, cwd, a[0], a[1], unix.O_NOFOLLOW)
	case sysAccess:
		return s.access(t, cwd, a[0], a[1])
	case unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2:
		return s.access(t, dir, a[1], a[2])
	case sysReadlink:
		return s.readlink(t, cwd, a[0], a[1], a[2])
	case unix.SYS_READLINKAT:
		return s.readlink(t, dir, a[1], a[2], a[3])
	case unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR:
		if _, ours := s.locate(t, cwd, a[0]); ours {
			return status(unix.EOPNOTSUPP)
		}
	case unix.SYS_EXECVE, unix.SYS_EXECVEAT:
		s.contexts.expectExec(t)
	}
	return passOn
}

// locate finds the path that an argument points to in the view.
func (s *supervisor) locate(t *target, dirfd int32, addr uint64) (string, bool) {
	p, ok := t.path(addr)
	if !ok {
		return "", false // the kernel knows what to say
	}
	return s.view.locate(p, func() (string, bool) { return t.base(dirfd) })
}

func (s *supervisor) openat2(t *target, dirfd int32, addr, how, size uint64) outcome {
	var b [8]byte
	if size < unix.SizeofOpenHow || t.read(how, b[:]) != 0 {
		return passOn
	}
	return s.open(t, dirfd, addr, *(*uint64)(unsafe.Pointer(&b)))
}

func (s *supervisor) open(t *target, dirfd int32, addr, flags64 uint64) outcome {
	p, ours := s.locate(t, dirfd, addr)
	if !ours {
		return passOn
	}
	flags := int(int32(flags64))
	look, e := s.view.open(p, unix.O_PATH)
	if e == unix.ENOENT && flags&unix.O_CREAT != 0 {
		e = unix.EACCES
	}
	if e != 0 {
		return status(e)
	}
	var st unix.Stat_t
	err := unix.Fstat(look, &st)
	_ = unix.Close(look)
	dir := err == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR
	index, device := deviceAt(p)
	switch {
	case flags&(unix.O_CREAT|unix.O_EXCL) == unix.O_CREAT|unix.O_EXCL:
		return status(unix.EEXIST)
	case flags&unix.O_DIRECTORY != 0 && !dir:
		return status(unix.ENOTDIR)
	case device && index == cmDevice && flags&unix.O_PATH == 0:
		return s.openCM(t, flags)
	case device && flags&unix.O_PATH == 0:
		return s.openDevice(t, index, flags)
	case dir && flags&(unix.O_ACCMODE|unix.O_CREAT) != 0 && flags&unix.O_PATH == 0:
		return status(unix.EISDIR)
	case flags&(unix.O_ACCMODE|unix.O_TRUNC) != 0 && flags&unix.O_PATH == 0:
		return status(unix.EACCES)
	}
	fd, e := s.view.open(p, flags&(unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_PATH|unix.O_NONBLOCK))
	if e != 0 {
		return status(e)
	}
	defer unix.Close(fd)
	return s.inject(t, notifAddFD{srcfd: uint32(fd), newfdFlags: uint32(flags & unix.O_CLOEXEC)})
}

// inject adds a descriptor and answers the call with its number. These are two steps
// although SECCOMP_ADDFD_FLAG_SEND makes one of them: that one takes the call for
// answered before the descriptor is there, and if a signal interrupts this thread
// meanwhile (the runtime sends some to itself), the kernel takes the descriptor back and
// the program gets 0, its standard input. Between the two steps nothing can go wrong,
// because the program waits for the answer whatever signals it gets
// (WAIT_KILLABLE_RECV).
func (s *supervisor) inject(t *target, a notifAddFD) outcome {
	a.id = t.id
	n, e := addFD(s.listener, &a)
	if e != 0 {
		return status(e)
	}
	return outcome{val: int64(n)}
}

// dress makes the answer about the file that stands for a device look like one.
func dress(st *unix.Stat_t, index uint32) {
	st.Mode = unix.S_IFCHR | 0o666
	st.Rdev = deviceNumber(index)
	st.Size, st.Blocks = 0, 0
}

func deviceNumber(index uint32) uint64 {
	if index == cmDevice {
		return unix.Mkdev(uverbs.CMMajor, uverbs.CMMinor)
	}
	return unix.Mkdev(uverbs.UverbsMajor, uverbs.UverbsMinorBase+index)
}

func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

func (s *supervisor) stat(t *target, dirfd int32, addr, to uint64, nofollow int) outcome {
	p, ours := s.locate(t, dirfd, addr)
	if !ours {
		return passOn
	}
	fd, e := s.view.open(p, unix.O_PATH|nofollow)
	if e != 0 {
		return status(e)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return status(err.(unix.Errno))
	}
	if index, device := deviceAt(p); device {
		dress(&st, index)
	}
	return status(t.write(to, bytesOf(&st)))
}

// fstatat is newfstatat: fstat if the path is empty.
func (s *supervisor) fstatat(t *target, dirfd int32, addr, to uint64, flags int) outcome {
	if flags&unix.AT_EMPTY_PATH != 0 {
		if p, ok := t.path(addr); ok && p == "" || addr == 0 {
			return s.fstat(t, dirfd, to)
		}
	}
	return s.stat(t, dirfd, addr, to, nofollow(flags))
}

func nofollow(atFlags int) int {
	if atFlags&unix.AT_SYMLINK_NOFOLLOW != 0 {
		return unix.O_NOFOLLOW
	}
	return 0
}

func (s *supervisor) fstat(t *target, fd int32, to uint64) outcome {
	c := s.contexts.at(t, fd)
	if c == nil {
		return passOn
	}
	var st unix.Stat_t
	if err := unix.Stat(t.fdPath(fd), &st); err != nil {
		return passOn
	}
	dress(&st, c.index)
	return status(t.write(to, bytesOf(&st)))
}

func (s *supervisor) statx(t *target, dirfd int32, a *[6]uint64) outcome {
	flags := int(int32(a[2]))
	var index uint32
	var device bool
	var fd int
	var e unix.Errno
	if p, ok := t.path(a[1]); flags&unix.AT_EMPTY_PATH != 0 && (ok && p == "" || a[1] == 0) {
		c := s.contexts.at(t, dirfd)
		if c == nil {
			return passOn
		}
		index, device = c.index, true
		if fd, e = openFile(t.fdPath(dirfd), unix.O_PATH); e != 0 {
			return passOn
		}
	} else {
		p, ours := s.locate(t, dirfd, a[1])
		if !ours {
			return passOn
		}
		index, device = deviceAt(p)
		if fd, e = s.view.open(p, unix.O_PATH|nofollow(flags)); e != 0 {
			return status(e)
		}
	}
	defer unix.Close(fd)
	var stx unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, int(uint32(a[3])), &stx); err != nil {
		return status(err.(unix.Errno))
	}
	if device {
		stx.Mode = unix.S_IFCHR | 0o666
		stx.Rdev_major, stx.Rdev_minor = unix.Major(deviceNumber(index)), unix.Minor(deviceNumber(index))
		stx.Size, stx.Blocks = 0, 0
	}
	return status(t.write(a[4], bytesOf(&stx)))
}

// access answers from what a file is: all may read, and write to devices.
func (s *supervisor) access(t *target, dirfd int32, addr, mode uint64) outcome {
	p, ours := s.locate(t, dirfd, addr)
	if !ours {
		return passOn
	}
	if mode&^7 != 0 {
		return status(unix.EINVAL)
	}
	fd, e := s.view.open(p, unix.O_PATH)
	if e != 0 {
		return status(e)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return status(err.(unix.Errno))
	}
	allowed := uint64(unix.R_OK)
	if _, device := deviceAt(p); device {
		allowed |= unix.W_OK
	} else if st.Mode&unix.S_IFMT == unix.S_IFDIR {
		allowed |= unix.X_OK
	}
	if mode&^allowed != 0 {
		return status(unix.EACCES)
	}
	return outcome{}
}

func (s *supervisor) readlink(t *target, dirfd int32, addr, to, size uint64) outcome {
	p, ours := s.locate(t, dirfd, addr)
	if !ours {
		return passOn
	}
	if int32(size) <= 0 {
		return status(unix.EINVAL)
	}
	fd, e := s.view.open(p, unix.O_PATH|unix.O_NOFOLLOW)
	if e != 0 {
		return status(e)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK {
		return status(unix.EINVAL)
	}
	b := make([]byte, min(size, unix.PathMax))
	n, err := unix.Readlinkat(fd, "", b)
	if err != nil {
		return status(err.(unix.Errno))
	}
	if e := t.write(to, b[:n]); e != 0 {
		return status(e)
	}
	return outcome{val: int64(n)}
}
