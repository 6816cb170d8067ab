package shm

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/fdspace"
	"github.com/rvtsim/rvtsim/vtime"
)

const (
	// patience is how long a lane may be full, with nothing taken out of it, until what is for
	// it is lost. A reader that wants its processor back after a while has it by then. It holds
	// up what is for others meanwhile, whose queue pairs give half a second, often.
	patience = 200 * time.Millisecond
	// spillAfter is how long READ responses wait for a reader that takes nothing, until they
	// may fill the ring.
	spillAfter = 100 * time.Microsecond
)

// Lane is the writing side of one lane of another program's inbox.
type Lane struct {
	inbox *inboxHeader
	head  *laneHeader
	ring  []byte
	bell  int // event descriptor of the reader
	maps  [2][]byte

	tail, shown uint64     // written so far, published so far
	taken       uint64     // laneHeader.head, as last seen
	gap, gapEnd uint64     // the last piece that was left unused: how long, and where it ends
	fullSince   vtime.Time // 0: it was not full
	stood       uint64     // laneHeader.head when standing last looked
	stoodSince  vtime.Time // when it saw that first
}

// OpenLane makes lane k of somebody else's inbox. file and bell are the descriptors of that
// inbox and of its reader's event. file still belongs to the caller; bell is the lane's if
// there is no error. Nobody else may write to that lane meanwhile.
func OpenLane(file, bell, k int) (*Lane, error) {
	if k < 0 || k >= Lanes {
		return nil, fmt.Errorf("shm: lane %d of %d", k, Lanes)
	}
	if err := check(file); err != nil {
		return nil, err
	}
	h, err := mapFile(file, 0, pageBytes)
	if err != nil {
		return nil, err
	}
	b, err := mapFile(file, laneOffset(k), laneStride)
	if err != nil {
		_ = unix.Munmap(h)
		return nil, err
	}
	if mark := inboxHeaderOf(h).magic.Load(); mark != magic {
		_, _ = unix.Munmap(h), unix.Munmap(b)
		return nil, fmt.Errorf("%w: its mark is %#x", ErrInbox, mark)
	}
	l := &Lane{inbox: inboxHeaderOf(h), bell: fdspace.Keep(bell), maps: [2][]byte{h, b}}
	l.head, l.ring = laneOf(b)
	// Whoever wrote here before may have gone in the middle of a record, which then was
	// not published.
	l.tail = l.head.tail.Load()
	l.shown = l.tail
	if bit := uint64(1) << (k % 64); l.inbox.active[k/64].Or(bit)&bit == 0 {
		l.inbox.changes.Add(1)
	}
	return l, nil
}

// Gone reports whether the reader has ended.
func (l *Lane) Gone() bool { return l.inbox.gone.Load() != 0 }

// Close gives everything back. Nobody uses the lane any more. A port closes those that it has joined. Closing twice is no error.
func (l *Lane) Close() {
	if l.maps[0] == nil {
		return
	}
	fdspace.Close(l.bell)
	_, _ = unix.Munmap(l.maps[0]), unix.Munmap(l.maps[1])
	l.maps = [2][]byte{}
}

// rewind goes back to the start of the ring if the reader has taken everything.
func (l *Lane) rewind() {
	if at := l.tail % laneBytes; at > rewindBytes && l.head.head.Load() == l.tail {
		l.taken = l.tail
		l.skip(at)
	}
}

// skip leaves the rest of the ring unused.
func (l *Lane) skip(at uint64) {
	binary.LittleEndian.PutUint32(l.ring[at:], skip)
	l.gap = laneBytes - at
	l.tail += l.gap
	l.gapEnd = l.tail
}

// reserve returns the room for a packet of n bytes and the headers around it, or nil if
// there is none. What is written there counts after the next reserve or publish.
func (l *Lane) reserve(n int) []byte {
	if l.tail-l.shown >= publishBytes {
		l.publish()
	}
	need := uint64(recordBytes(n))
	at := l.tail % laneBytes
	gap := uint64(0)
	if at+need > laneBytes || at+need > usualBytes && l.room(laneBytes-at+need) {
		gap = laneBytes - at
	}
	if !l.room(gap + need) {
		return nil
	}
	if gap > 0 {
		l.skip(at)
		at = 0
	}
	l.tail += need
	return l.ring[at : at+need]
}

// giveBack takes back the room that reserve returned last, for a packet of n bytes.
func (l *Lane) giveBack(n int) { l.tail -= uint64(recordBytes(n)) }

// room reports whether n more bytes fit. A reader that has taken more than there was is
// not believed.
func (l *Lane) room(n uint64) bool {
	if l.tail-l.taken+n <= laneBytes {
		return true
	}
	l.look()
	return l.tail-l.taken+n <= laneBytes
}

// look finds out what the reader has taken.
func (l *Lane) look() {
	if h := l.head.head.Load(); l.tail-h <= laneBytes && h != l.taken {
		l.taken, l.fullSince = h, 0
	}
}

// unread is how many bytes of packets the reader has not taken, as last seen.
func (l *Lane) unread() uint64 {
	n := l.tail - l.taken
	if l.taken < l.gapEnd { // there is never more than one gap before the tail
		n -= min(n, l.gap)
	}
	return n
}

// crowded reports whether a READ response of n bytes has to wait for its reader, so that what is
// under way stays in the caches: no window bounds READ responses. A reader that does not run gets
// all that there is room for.
func (l *Lane) crowded(n int, clock func() vtime.Time) bool {
	need := uint64(recordBytes(n))
	if l.unread()+need <= readBytes {
		return false
	}
	if l.look(); l.unread()+need <= readBytes {
		return false
	}
	return l.waits(clock()) <= spillAfter
}

// publish shows what was written, and wakes the reader if it sleeps.
func (l *Lane) publish() {
	if l.tail == l.shown {
		return
	}
	l.shown = l.tail
	l.head.tail.Store(l.tail)
	if l.inbox.asleep.Load() != 0 && l.inbox.asleep.Swap(0) != 0 {
		one := uint64(1)
		_, _, _ = unix.RawSyscall(unix.SYS_WRITE, uintptr(l.bell), uintptr(unsafe.Pointer(&one)), 8)
	}
}

// standing returns how long, of what can be told, nothing was taken out of a lane that has
// packets; 0 if there are none, or nobody will take them.
func (l *Lane) standing(now vtime.Time) time.Duration {
	h := l.head.head.Load()
	if h == l.shown || l.Gone() {
		l.stoodSince = 0
		return 0
	}
	if h != l.stood || l.stoodSince == 0 {
		l.stood, l.stoodSince = h, now
	}
	return max(now.Sub(l.stoodSince), 1)
}

// full decides what becomes of packets that there is no room for: wait, or lose them.
func (l *Lane) full(now vtime.Time) (lose bool) { return l.waits(now) > patience }

// waits is how long packets have been waiting for a reader that has taken nothing meanwhile.
func (l *Lane) waits(now vtime.Time) time.Duration {
	if l.fullSince == 0 {
		l.fullSince = max(now, 1)
	}
	return now.Sub(l.fullSince)
}
