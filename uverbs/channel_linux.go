package uverbs

import (
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/rvtsim/rvtsim/internal/fdspace"
)

// WriteEvent writes an event into a pipe, whose reader may be gone. A host that is part of
// a program replaces it, before it opens a device: there the signal that such a write
// raises would be the program's.
var WriteEvent = func(fd int, b []byte) error {
	_, err := syscall.Write(fd, b)
	return err
}

// channel is a completion channel or the asynchronous event queue of a context: a
// pipe whose read end the program has. The program polls and reads it with no help of
// this package.
//
// A pipe holds some thousand records. What does not fit waits in queue, and a
// goroutine moves it on as the program reads.
type channel struct {
	mu      sync.Mutex
	fd      int
	w       *os.File // the write end fd, non-blocking
	ino     uint64
	bytes   int // of a record
	queue   []record
	moving  bool // a goroutine moves the queue on
	closed  bool
	users   int    // completion queues that report here
	dropped uint64 // records lost because the program does not read
}

// record is an event on its way. count is the object's counter of events written,
// nil if no object counts it.
type record struct {
	data  [16]byte
	count *uint32
}

// maxQueued bounds the records that wait for a program that does not read.
const maxQueued = 1 << 16

// newChannel makes a channel of records of so many bytes. The file returned is the
// read end, which blocks unless the program changes that.
func newChannel(bytes int) (*channel, *os.File, error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return nil, nil, err
	}
	r := os.NewFile(uintptr(p[0]), "uverbs-events")
	var st syscall.Stat_t
	err := syscall.Fstat(p[0], &st)
	if err == nil {
		err = syscall.SetNonblock(p[1], true)
	}
	if err != nil {
		r.Close()
		syscall.Close(p[1])
		return nil, nil, err
	}
	w := fdspace.Keep(p[1])
	return &channel{fd: w, w: os.NewFile(uintptr(w), "uverbs-events"), ino: st.Ino, bytes: bytes}, r, nil
}

// writeEnd is what this package writes to.
func (ch *channel) writeEnd() *os.File { return ch.w }

// send gives a record to the program, without blocking.
func (ch *channel) send(data []byte, count *uint32) {
	r := record{count: count}
	copy(r.data[:], data)
	ch.mu.Lock()
	defer ch.mu.Unlock()
	switch {
	case ch.closed:
		return
	case len(ch.queue) >= maxQueued:
		ch.dropped++
		return
	}
	ch.queue = append(ch.queue, r)
	if ch.moving || ch.flush() {
		return
	}
	ch.moving = true
	go ch.move()
}

// flush writes what waits, as far as the pipe takes it. It returns false if records
// are left that the pipe will take later. The caller holds mu.
func (ch *channel) flush() (done bool) {
	raw, err := ch.w.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { done = ch.writeSome(int(fd)) })
	}
	if err != nil {
		ch.queue = nil
		return true
	}
	return done
}

// writeSome writes records until none are left (true) or the pipe is full (false).
// If the program closed its end, the records vanish.
func (ch *channel) writeSome(fd int) bool {
	sent := 0
	for _, r := range ch.queue {
		err := WriteEvent(fd, r.data[:ch.bytes])
		if err == syscall.EINTR {
			err = WriteEvent(fd, r.data[:ch.bytes])
		}
		if err == syscall.EAGAIN || err == syscall.EINTR {
			break
		}
		if err == nil && r.count != nil {
			*r.count++
		}
		sent++
	}
	rest := copy(ch.queue, ch.queue[sent:])
	clear(ch.queue[rest:])
	ch.queue = ch.queue[:rest]
	return rest == 0
}

// move waits for room in the pipe and moves the queue on until it is empty.
func (ch *channel) move() {
	raw, err := ch.w.SyscallConn()
	if err == nil {
		err = raw.Write(func(fd uintptr) bool {
			ch.mu.Lock()
			defer ch.mu.Unlock()
			if ch.closed || ch.writeSome(int(fd)) {
				ch.moving = false
				return true
			}
			return false
		})
	}
	if err != nil {
		ch.mu.Lock()
		ch.moving, ch.queue = false, nil
		ch.mu.Unlock()
	}
}

// forget removes the records of an object that is being destroyed, those in the pipe
// included, and returns how many the program has read. libibverbs waits in the destroy
// call until it has acknowledged exactly so many. The object's records begin with
// handle.
func (ch *channel) forget(handle uint64, count *uint32) uint32 {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	kept := ch.queue[:0]
	for _, r := range ch.queue {
		if r.count != count {
			kept = append(kept, r)
		}
	}
	clear(ch.queue[len(kept):])
	ch.queue = kept
	if *count > 0 && !ch.closed {
		*count -= min(ch.unread(handle), *count)
	}
	return *count
}

// unread takes every record out of the pipe, drops those of one object, and writes
// the others back. What the program reads meanwhile counts as read. The caller holds
// mu.
func (ch *channel) unread(handle uint64) (removed uint32) {
	raw, err := ch.w.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		r, err := syscall.Open("/proc/self/fd/"+strconv.Itoa(int(fd)), syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
		if err != nil {
			return
		}
		defer syscall.Close(r)
		for _, b := range ch.readAll(r) {
			if native.Uint64(b) == handle {
				removed++
				continue
			}
			_ = WriteEvent(int(fd), b)
		}
	})
	return removed
}

// readAll reads the records that are in the pipe.
func (ch *channel) readAll(fd int) [][]byte {
	var all [][]byte
	for {
		buf := make([]byte, 512*ch.bytes)
		n, err := syscall.Read(fd, buf)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || n <= 0 {
			return all
		}
		for ; n >= ch.bytes; n -= ch.bytes {
			all = append(all, buf[:ch.bytes])
			buf = buf[ch.bytes:]
		}
	}
}

// abandoned reports whether the program has closed its end.
func (ch *channel) abandoned() bool {
	gone := false
	raw, err := ch.w.SyscallConn()
	if err != nil {
		return true
	}
	_ = raw.Control(func(fd uintptr) { gone = pollErr(int(fd)) })
	return gone
}

// close closes the write end: the program reads end of file.
func (ch *channel) close() {
	ch.mu.Lock()
	was := ch.closed
	ch.closed, ch.queue = true, nil
	ch.mu.Unlock()
	if !was {
		fdspace.Forget(ch.fd)
		ch.w.Close() // waits for move, which needs mu
	}
}
