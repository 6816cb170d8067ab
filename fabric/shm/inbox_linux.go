package shm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/internal/fdspace"
	"github.com/rvtsim/rvtsim/internal/prefetch"
	"github.com/rvtsim/rvtsim/wire"
)

// ErrInbox reports a file that is no inbox of this build.
var ErrInbox = errors.New("shm: not an inbox")

// Inbox is the reading side of a program. It belongs to one reader.
type Inbox struct {
	fd    int
	head  *inboxHeader
	lanes []*inLane // those that are read
	fresh []*inLane // those that somebody has begun to write to
	seen  uint32    // inboxHeader.changes, as both know it
	has   [Lanes / 64]uint64
	turn  int     // the lane that is read first next time
	last  *inLane // the lane that was read last
	maps  [][]byte
}

// inLane is a lane as its reader sees it.
type inLane struct {
	head   *laneHeader
	ring   []byte
	at     uint64      // end of what was delivered
	tail   uint64      // end of what may be, as last seen
	asked  uint64      // end of what the processor was asked for
	broken atomic.Bool // its indices made no sense
}

// NewInbox makes an inbox. Its file is sealed: it cannot become shorter under a writer.
func NewInbox() (*Inbox, error) {
	fd, err := unix.MemfdCreate("rvtsim-inbox", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	in := &Inbox{fd: fdspace.Keep(fd)}
	if err := in.init(in.fd); err != nil {
		in.close()
		return nil, err
	}
	return in, nil
}

func (in *Inbox) init(fd int) error {
	if err := unix.Ftruncate(fd, fileBytes); err != nil {
		return os.NewSyscallError("ftruncate", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return os.NewSyscallError("F_ADD_SEALS", err)
	}
	b, err := mapFile(fd, 0, pageBytes)
	if err != nil {
		return err
	}
	in.head, in.maps = inboxHeaderOf(b), append(in.maps, b)
	in.head.magic.Store(magic)
	return nil
}

const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// mapFile maps a piece of an inbox. Children of the process do not get it: they could not
// use it, and would keep its memory. An inbox stays mapped until its process ends, for
// whoever reads a packet in it.
func mapFile(fd int, offset int64, n int) ([]byte, error) {
	b, err := unix.Mmap(fd, offset, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	_ = unix.Madvise(b, unix.MADV_DONTFORK)
	return b, nil
}

// FD is the descriptor of the inbox's file, for those who are to write to it.
func (in *Inbox) FD() int { return in.fd }

// close gives everything back. Nobody reads a packet in the inbox any more.
func (in *Inbox) close() {
	for _, b := range in.maps {
		_ = unix.Munmap(b)
	}
	fdspace.Close(in.fd)
}

// MarkGone says in an inbox's file that nobody reads it any more. It is for whoever hands
// the files out, and does nothing to a file that is no inbox.
func MarkGone(fd int) {
	b := []byte{1, 0, 0, 0}
	_, _ = unix.Pwrite(fd, b, int64(unsafe.Offsetof(inboxHeader{}.gone)))
}

// waiting reports whether there is something to read. Any goroutine may ask, beside the
// reader: the answer may be a false yes, but never a false no if no reader is at work.
func (in *Inbox) waiting(lanes []*inLane, seen uint32) bool {
	if in.head.changes.Load() != seen {
		return true
	}
	for _, l := range lanes {
		if !l.broken.Load() && l.head.tail.Load() != l.head.head.Load() {
			return true
		}
	}
	return false
}

// look finds lanes that somebody has begun to write to. They are fresh until adopt. It
// reports whether there was anything new, be it a lane that cannot be mapped.
func (in *Inbox) look() (changed bool) {
	now := in.head.changes.Load()
	if now == in.seen {
		return false
	}
	in.seen = now
	for w := range in.has {
		fresh := in.head.active[w].Load() &^ in.has[w]
		in.has[w] |= fresh
		for k := w * 64; fresh != 0; k, fresh = k+1, fresh>>1 {
			if fresh&1 == 0 {
				continue
			}
			b, err := mapFile(in.FD(), laneOffset(k), laneStride)
			if err != nil {
				continue // what is written there is lost, as in a socket without memory
			}
			in.maps = append(in.maps, b)
			l := &inLane{}
			l.head, l.ring = laneOf(b)
			l.at = l.head.head.Load()
			in.fresh = append(in.fresh, l)
		}
	}
	return true
}

// adopt begins to read the fresh lanes.
func (in *Inbox) adopt() {
	in.lanes = append(in.lanes[:len(in.lanes):len(in.lanes)], in.fresh...)
	in.fresh = nil
}

// release gives back what the last read has delivered.
func (in *Inbox) release() {
	for _, l := range in.lanes {
		if l.at != l.head.head.Load() && !l.broken.Load() {
			l.head.head.Store(l.at)
		}
	}
}

// read delivers packets whose ICRC is right.
func (in *Inbox) read(dst []fabric.Datagram, known *wire.ICRCPrefixes, c *fabric.PortCounters) int {
	n := 0
	for i := range in.lanes {
		l := in.lanes[(in.turn+i)%len(in.lanes)]
		n += l.read(dst[n:], known, c)
		in.last = l
		if n == len(dst) {
			break
		}
	}
	in.turn++
	return n
}

func (l *inLane) read(dst []fabric.Datagram, known *wire.ICRCPrefixes, c *fabric.PortCounters) int {
	n := 0
	if l.broken.Load() {
		return 0
	}
	tail := l.head.tail.Load()
	l.tail = tail
	if tail-l.at > laneBytes || tail%recordAlign != 0 || l.at%recordAlign != 0 {
		l.broken.Store(true)
		c.RxTooShort++
		return 0
	}
	for n < len(dst) && l.at != tail {
		at := int(l.at % laneBytes)
		room := min(int(tail-l.at), laneBytes-at)
		size := recordLength(l.ring[at:])
		if size == skip {
			l.at += uint64(laneBytes - at)
			if tail-l.at > laneBytes { // past the tail
				l.broken.Store(true)
				c.RxTooShort++
				return n
			}
			continue
		}
		if size > maxPacket || recordBytes(int(size)) > room {
			l.broken.Store(true)
			c.RxTooShort++
			return n
		}
		b := l.ring[at : at+recordHead+int(size)]
		l.at += uint64(recordBytes(int(size)))
		if next := l.ahead(int(l.at + recordHead + prefetchBytes - max(l.asked, l.at))); len(next) > 0 {
			prefetch.Bytes(unsafe.Pointer(&next[0]), len(next))
		}
		if l.accept(b, &dst[n], known, c) {
			n++
		}
	}
	return n
}

// ahead returns up to n bytes that were not delivered yet, nor returned before: the processor is
// to be asked for them. In the ring there may be anything.
func (l *inLane) ahead(n int) []byte {
	l.asked = max(l.asked, l.at)
	if at := l.asked % laneBytes; at >= usualBytes && l.at%laneBytes < usualBytes {
		l.asked += laneBytes - at // there the writer goes on, most times
	}
	if l.asked >= l.tail {
		l.tail = l.head.tail.Load()
	}
	at := l.asked % laneBytes
	n = min(n, int(min(l.tail-l.asked, laneBytes)), int(laneBytes-at))
	if n <= 0 || l.tail < l.asked {
		return nil
	}
	n = min((n+recordAlign-1)&^(recordAlign-1), int(laneBytes-at))
	l.asked += uint64(n)
	return l.ring[at : at+uint64(n)]
}

// ahead is that of the lane that was read last.
func (in *Inbox) ahead(n int) []byte {
	if in.last == nil {
		return nil
	}
	return in.last.ahead(n)
}

// accept checks one record and counts it.
func (l *inLane) accept(b []byte, d *fabric.Datagram, known *wire.ICRCPrefixes, c *fabric.PortCounters) bool {
	buf := b[recordHead:len(b):len(b)]
	if len(buf) < fabric.MinDatagramBytes {
		c.RxTooShort++
		return false
	}
	*d = fabric.Datagram{Path: pathOf(b), Buf: buf}
	body := len(buf) - wire.ICRCBytes
	if known.Of(&d.Path, body).ICRC(0, buf[:body]) != binary.LittleEndian.Uint32(buf[body:]) {
		c.RxBadICRC++
		return false
	}
	c.RxPackets++
	c.RxBytes += uint64(len(buf))
	return true
}

// check tells whether a descriptor that came from another process is an inbox that cannot
// shrink.
func check(fd int) error {
	s, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || s&seals != seals {
		return fmt.Errorf("%w: its size is not sealed", ErrInbox)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Size != fileBytes {
		return fmt.Errorf("%w: its size is %d, want %d", ErrInbox, st.Size, int64(fileBytes))
	}
	return nil
}
