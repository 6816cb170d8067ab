//go:build amd64 || arm64

package notify

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

// openDevice opens a device of the daemon for the program.
func (s *supervisor) openDevice(t *target, index uint32, flags int) outcome {
	tgid, mem, e := t.openMemory()
	if e != 0 {
		return status(e)
	}
	client, o, err := daemon.OpenDevice(s.socket, s.node, index, tgid, mem)
	if err != nil {
		_ = unix.Close(mem)
		return status(errnoOf(err))
	}
	c := &context{index: index, memory: o.Memory, token: o.Token, bell: o.Bell, conns: []*conn{{tgid: tgid, mem: mem, client: client}}}
	if e = s.keep(c, c.memory); e != 0 {
		return status(e)
	}
	// From here on the end of this description is the end of the context, also when
	// the program cannot take it.
	fd, e := describe(ownFD(c.memory))
	if e != 0 {
		s.contexts.end(c)
		return status(e)
	}
	defer unix.Close(fd)
	return s.place(t, fd, 0, flags&unix.O_CLOEXEC != 0)
}

// keep begins to watch a context, known by the file that the program gets. One that
// cannot be watched ends.
func (s *supervisor) keep(c *context, fd int) unix.Errno {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		s.contexts.end(c)
		return errnoOf(err)
	}
	c.id = fileID{uint64(st.Dev), st.Ino}
	e := s.contexts.add(c)
	if e != 0 {
		s.contexts.end(c)
	}
	return e
}

// place puts a description into the program, at a number that the filter watches.
func (s *supervisor) place(t *target, fd int, least uint64, cloexec bool) outcome {
	s.contexts.placing.Lock()
	defer s.contexts.placing.Unlock()
	// From above: what the program opens itself comes from below.
	for n := s.numbers.first + s.numbers.count - 1; n >= s.numbers.first && uint64(n) >= least; n-- {
		var st unix.Stat_t
		if unix.Lstat(t.fdPath(int32(n)), &st) == nil {
			continue
		}
		return s.put(t, fd, n, cloexec)
	}
	return status(unix.EMFILE)
}

// put puts a description on a number of the program, raising its limit if need be.
func (s *supervisor) put(t *target, fd int, n uint32, cloexec bool) outcome {
	a := notifAddFD{flags: unix.SECCOMP_ADDFD_FLAG_SETFD, srcfd: uint32(fd), newfd: n}
	if cloexec {
		a.newfdFlags = unix.O_CLOEXEC
	}
	o := s.inject(t, a)
	if o.errno == unix.EBADF && s.raiseLimit(t) {
		o = s.inject(t, a)
	}
	if o.errno == unix.EBADF {
		o.errno = unix.EMFILE
	}
	return o
}

func (s *supervisor) raiseLimit(t *target) bool {
	var lim unix.Rlimit
	if err := unix.Prlimit(t.tid, unix.RLIMIT_NOFILE, nil, &lim); err != nil {
		return false
	}
	want := uint64(s.numbers.first + s.numbers.count)
	if lim.Cur >= want || lim.Max < want || !t.valid() {
		return false
	}
	lim.Cur = want
	return unix.Prlimit(t.tid, unix.RLIMIT_NOFILE, &lim, nil) == nil
}

// maxCommand is the longest command: its header counts 65535 words of 8 bytes twice.
const maxCommand = 1 << 18

// write is a command.
func (s *supervisor) write(t *target, fd int32, addr, n uint64) outcome {
	c := s.contexts.at(t, fd)
	if c == nil {
		return passOn
	}
	if n == 0 || n > maxCommand {
		return status(unix.EINVAL)
	}
	if c.index == cmDevice {
		return s.writeCM(t, c, fd, addr, int(n))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.command(t, addr, int(n))
}

// writev is one command after the other, as for any file that has no writev of its own.
func (s *supervisor) writev(t *target, fd int32, addr, count uint64) outcome {
	c := s.contexts.at(t, fd)
	if c == nil {
		return passOn
	}
	if count > 1024 {
		return status(unix.EINVAL)
	}
	vec := make([]byte, 16*count)
	if e := t.read(addr, vec); e != 0 {
		return status(e)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	done := outcome{}
	for ; len(vec) > 0; vec = vec[16:] {
		base, n := binary.NativeEndian.Uint64(vec), binary.NativeEndian.Uint64(vec[8:])
		if n == 0 {
			continue
		}
		o := status(unix.EINVAL)
		if n <= maxCommand {
			o = c.command(t, base, int(n))
		}
		if o.errno != 0 {
			if done.val > 0 {
				return done
			}
			return o
		}
		done.val += o.val
	}
	return done
}

// pwrite does not exist for devices, which have no positions.
func (s *supervisor) pwrite(t *target, fd int32) outcome {
	if s.contexts.at(t, fd) == nil {
		return passOn
	}
	return status(unix.ESPIPE)
}

// command carries out a write(). The caller holds c.mu.
func (c *context) command(t *target, addr uint64, n int) outcome {
	k, data, e := c.fetch(t, addr, n)
	if e != 0 {
		return status(e)
	}
	if qp, bell := daemon.DoorbellOf(data); bell && c.bell != nil && c.bell.Ring(qp) {
		return outcome{val: int64(n)}
	}
	a, err := k.client.Write(data, t.inode)
	return c.store(t, k, &a, err, int64(n))
}

// ioctl is RDMA_VERBS_IOCTL; its argument begins with the length of it all.
func (s *supervisor) ioctl(t *target, fd int32, addr uint64) outcome {
	c := s.contexts.at(t, fd)
	if c == nil || c.index == cmDevice { // the pipe has no such ioctl either
		return passOn
	}
	var length [2]byte
	if e := t.read(addr, length[:]); e != 0 {
		return status(e)
	}
	n := int(binary.NativeEndian.Uint16(length[:]))
	if n < 24 { // struct ib_uverbs_ioctl_hdr
		return status(unix.EINVAL)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	k, data, e := c.fetch(t, addr, n)
	if e != 0 {
		return status(e)
	}
	a, err := k.client.Ioctl(addr, data, t.inode)
	return c.store(t, k, &a, err, 0)
}

// inode is what a descriptor of the program refers to, 0 if it is not open.
func (t *target) inode(fd int32) uint64 {
	id, _ := fileOf(t.fdPath(fd))
	return id.ino
}

// store carries out an answer in the program. The bytes go first: if they cannot be
// stored, no descriptor is left there that the program does not know of.
func (c *context) store(t *target, k *conn, a *daemon.Answer, err error, val int64) outcome {
	if err != nil {
		return status(errnoOf(err))
	}
	defer func() {
		for _, f := range a.Files {
			_ = unix.Close(f)
		}
	}()
	ok := k.store(a.OutAddr, a.Out)
	for _, w := range a.Writes {
		ok = ok && k.store(w.Addr, w.Data)
	}
	if !ok {
		return status(unix.EFAULT)
	}
	for i, off := range a.Offsets {
		n, e := addFD(t.s.listener, &notifAddFD{id: t.id, srcfd: uint32(a.Files[i]), newfdFlags: unix.O_CLOEXEC})
		if e != 0 {
			return status(e)
		}
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], uint32(n))
		if !k.store(a.OutAddr+uint64(off), b[:]) {
			return status(unix.EFAULT)
		}
	}
	if a.Errno != 0 {
		return status(a.Errno)
	}
	return outcome{val: val}
}

func (k *conn) store(addr uint64, b []byte) bool {
	n, err := unix.Pwrite(k.mem, b, int64(addr))
	return len(b) == 0 || err == nil && n == len(b)
}

// dup is dup and fcntl(F_DUPFD): another number that the filter watches.
func (s *supervisor) dup(t *target, fd int32, least uint64, cloexec bool) outcome {
	c := s.contexts.at(t, fd)
	if c == nil {
		return passOn
	}
	src, e := c.sourceOf(t, fd)
	if e != 0 {
		return status(e)
	}
	defer unix.Close(src)
	if least > uint64(s.numbers.first+s.numbers.count-1) {
		return status(unix.EINVAL)
	}
	return s.place(t, src, least, cloexec)
}

// dupTo is dup2 and dup3. A number that the filter does not watch would be a device that
// takes no commands: better an error now.
func (s *supervisor) dupTo(t *target, fd, to int32, flags int, sameIsFine bool) outcome {
	c := s.contexts.at(t, fd)
	switch {
	case c == nil:
		return passOn
	case fd == to && sameIsFine:
		return outcome{val: int64(to)}
	case fd == to || flags&^unix.O_CLOEXEC != 0:
		return status(unix.EINVAL)
	case !s.numbers.contains(to):
		return status(unix.EBADF)
	}
	src, e := c.sourceOf(t, fd)
	if e != 0 {
		return status(e)
	}
	defer unix.Close(src)
	s.contexts.placing.Lock()
	defer s.contexts.placing.Unlock()
	return s.put(t, src, uint32(to), flags&unix.O_CLOEXEC != 0)
}

// sourceOf returns the program's description, or where the system does not let us have
// it (containers often do not) a new one.
func (c *context) sourceOf(t *target, fd int32) (int, unix.Errno) {
	if pidfd, err := unix.PidfdOpen(t.tgid(), 0); err == nil {
		defer unix.Close(pidfd)
		if got, err := unix.PidfdGetfd(pidfd, int(fd), 0); err == nil {
			if c.is(got) {
				return got, 0
			}
			_ = unix.Close(got)
		}
	}
	src, e := -1, unix.Errno(0)
	if c.index == cmDevice {
		src, e = openFile(t.fdPath(fd), unix.O_RDONLY)
	} else {
		src, e = describe(t.fdPath(fd))
	}
	if e == 0 && !c.is(src) { // closed or replaced meanwhile, by another thread
		_ = unix.Close(src)
		e = unix.EBADF
	}
	return src, e
}

// is reports whether a descriptor of ours is the context's memfd.
func (c *context) is(fd int) bool {
	var st unix.Stat_t
	return unix.Fstat(fd, &st) == nil && fileID{uint64(st.Dev), st.Ino} == c.id
}
