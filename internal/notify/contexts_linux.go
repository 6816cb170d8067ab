//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/daemon"
)

// contexts are the open devices of the program and its children.
type contexts struct {
	placing sync.Mutex // held from the choice of a number in the program until it is taken

	inotify int
	mu      sync.RWMutex // guards what follows
	byFile  map[fileID]*context
	byWatch map[int]*context

	// Channels of the connection manager: who has nobody at the other end of its pipe
	// shows in the set, and so does whose daemon has gone: by the descriptor of a
	// connection, as a negative number.
	epoll  int
	byPipe map[int32]*context
}

// context is one open device: the memfd of the daemon's that stands for it in programs, or
// for the connection manager a pipe, and a connection for each process that uses it.
type context struct {
	id     fileID
	index  uint32
	memory int // as the daemon passed it; nobody else has this description. Of a pipe the write end; -1 once it hung up
	token  uint64
	bell   *daemon.Bell
	watch  int

	mu    sync.Mutex // guards what follows, and is held during a command
	conns []*conn
	ended bool

	execMu sync.Mutex       // guards what follows
	execs  map[int]struct{} // processes that have called exec since connOf has looked
}

// conn is the connection of one process, or of what it was before it called exec.
type conn struct {
	tgid   int // 0: nobody's any more, kept for the regions that are bound to its memory
	mem    int // its /proc/PID/mem, which is bound to the memory, not to the number
	client *daemon.Client
}

func newContexts() (*contexts, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("inotify_init1", err)
	}
	s := &contexts{inotify: fd, byFile: map[fileID]*context{}, byWatch: map[int]*context{}, byPipe: map[int32]*context{}}
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		_ = unix.Close(fd)
		return nil, os.NewSyscallError("epoll_create", err)
	}
	go s.watch()
	go s.watchPipes()
	return s, nil
}

// at is the context behind a descriptor of the program, nil if it is something else.
func (s *contexts) at(t *target, fd int32) *context {
	id, ok := fileOf(t.fdPath(fd))
	if !ok {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.byFile[id]
}

// openFile opens a file, of /proc in most cases.
func openFile(name string, flags int) (int, unix.Errno) {
	for {
		fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			e, _ := err.(unix.Errno)
			return fd, e
		}
	}
}

func ownFD(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }

// describe makes a description of the memfd that name leads to, for the program. The
// kernel counts it as one that writes, unlike the one that memfd_create gave the daemon.
// A write that escapes the filter must not land in a ring: at the end of what offsets can
// say it fails with EINVAL.
func describe(name string) (int, unix.Errno) {
	fd, e := openFile(name, unix.O_RDWR)
	if e == 0 {
		_, _ = unix.Seek(fd, 1<<63-1, unix.SEEK_SET)
	}
	return fd, e
}

// add enters a context into the tables and begins to watch it.
func (s *contexts) add(c *context) unix.Errno {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.index == cmDevice {
		return s.addPipe(c)
	}
	w, err := unix.InotifyAddWatch(s.inotify, ownFD(c.memory), unix.IN_CLOSE_WRITE)
	if err != nil {
		return err.(unix.Errno)
	}
	c.watch = w
	s.byFile[c.id], s.byWatch[w] = c, c
	return 0
}

// watch ends contexts whose memfd nobody has open any more. Mappings count: the kernel
// closes a description when the last of both has gone.
func (s *contexts) watch() {
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(s.inotify, buf)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return
		}
		for b := buf[:n]; len(b) >= unix.SizeofInotifyEvent; {
			w := int(int32(binary.NativeEndian.Uint32(b)))
			length := int(binary.NativeEndian.Uint32(b[12:]))
			b = b[min(len(b), unix.SizeofInotifyEvent+length):]
			s.mu.RLock()
			c := s.byWatch[w]
			s.mu.RUnlock()
			if c != nil && !c.inUse() {
				s.end(c)
			}
		}
	}
}

// inUse reports whether somebody still has the memfd open for writing. A lease is to be
// had only if nobody does. Where leases are refused, the event stands for itself: there
// is one description, unless a program has opened its own by way of /proc.
func (c *context) inUse() bool {
	fd, e := openFile(ownFD(c.memory), unix.O_RDONLY)
	if e != 0 {
		return false
	}
	defer unix.Close(fd)
	_, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_WRLCK)
	return err == unix.EAGAIN
}

// end closes everything that belongs to a context. The daemon destroys it with the last
// connection.
func (s *contexts) end(c *context) {
	s.mu.Lock()
	delete(s.byFile, c.id)
	if c.index == cmDevice {
		s.hangUp(c)
	} else {
		delete(s.byWatch, c.watch)
		_, _ = unix.InotifyRmWatch(s.inotify, uint32(c.watch))
	}
	s.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	c.ended = true
	for _, k := range c.conns {
		k.close()
	}
	c.conns = nil
	if c.bell != nil {
		c.bell.Close()
	}
	if c.index != cmDevice {
		_ = unix.Close(c.memory)
	}
}

func (k *conn) close() {
	k.client.Close()
	_ = unix.Close(k.mem)
}

// alive reports whether the memory is still that of a process: not after exec or exit.
func (k *conn) alive() bool {
	var b [1]byte
	n, err := unix.Pread(k.mem, b[:], 8)
	return err != nil || n > 0
}

// fetch reads n bytes of the caller's memory and returns the connection of its process.
func (c *context) fetch(t *target, addr uint64, n int) (*conn, []byte, unix.Errno) {
	b := make([]byte, n)
	for range 2 {
		k, e := c.connOf(t)
		if e != 0 {
			return nil, nil, e
		}
		got, err := unix.Pread(k.mem, b, int64(addr))
		switch {
		case err != nil || got > 0 && got < n:
			return nil, nil, unix.EFAULT
		case got == n:
			if !t.valid() {
				return nil, nil, unix.EINTR
			}
			return k, b, 0
		}
		c.drop(k) // its memory has gone: the process is another program now
	}
	return nil, nil, unix.EFAULT
}

// connOf finds the connection of the caller's process, or makes one.
func (c *context) connOf(t *target) (*conn, unix.Errno) {
	if c.ended {
		return nil, unix.ENODEV
	}
	c.heedExecs()
	for _, k := range c.conns {
		if k.tgid == t.tid || isThread(k.tgid, t.tid) {
			return k, 0
		}
	}
	tgid, mem, e := t.openMemory()
	if e != 0 {
		return nil, e
	}
	for _, k := range slices.Clone(c.conns) {
		if !k.alive() {
			c.drop(k)
		}
	}
	client, err := daemon.Attach(t.s.socket, c.token, tgid, mem)
	if err != nil {
		_ = unix.Close(mem)
		return nil, errnoOf(err)
	}
	k := &conn{tgid: tgid, mem: mem, client: client}
	c.conns = append(c.conns, k)
	if c.index == cmDevice {
		t.s.contexts.addSocket(c, k)
	}
	return k, 0
}

// drop ends the connection of a process that has gone, but never the last one: that
// would be the end of the context, which somebody still has open.
func (c *context) drop(k *conn) {
	if i := slices.Index(c.conns, k); i >= 0 && len(c.conns) > 1 {
		c.conns = slices.Delete(c.conns, i, i+1)
		k.close()
		return
	}
	k.tgid = 0
}

func isThread(tgid, tid int) bool {
	return tgid != 0 && unix.Access("/proc/"+strconv.Itoa(tgid)+"/task/"+strconv.Itoa(tid), unix.F_OK) == nil
}

// expectExec takes the connections of the caller's process away from it: it may be about
// to change its memory. That alone would show, for the old memory is gone then, but the
// child of a vfork leaves memory behind that is still its parent's. If exec fails the next
// command makes a new connection.
func (s *contexts) expectExec(t *target) {
	s.mu.RLock()
	all := slices.Collect(maps.Values(s.byFile))
	s.mu.RUnlock()
	if len(all) == 0 {
		return
	}
	tgid := t.tgid()
	for _, c := range all {
		c.execMu.Lock()
		if c.execs == nil {
			c.execs = map[int]struct{}{}
		}
		c.execs[tgid] = struct{}{}
		c.execMu.Unlock()
	}
}

// heedExecs carries out what expectExec has noted. It is apart because a command may take
// long, and exec is not to wait for it.
func (c *context) heedExecs() {
	c.execMu.Lock()
	defer c.execMu.Unlock()
	for _, k := range c.conns {
		if _, gone := c.execs[k.tgid]; gone {
			k.tgid = 0
		}
	}
	clear(c.execs)
}

// openMemory opens the memory of the caller's process.
func (t *target) openMemory() (tgid, mem int, e unix.Errno) {
	tgid = t.tgid()
	mem, err := unix.Open(t.proc("mem"), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, -1, err.(unix.Errno)
	}
	if tgid == 0 || !t.valid() {
		_ = unix.Close(mem)
		return 0, -1, unix.EINTR
	}
	return tgid, mem, 0
}

func errnoOf(err error) unix.Errno {
	if e, ok := err.(unix.Errno); ok && e != 0 {
		return e
	}
	return unix.EIO
}
