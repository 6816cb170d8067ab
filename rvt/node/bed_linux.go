package node

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const canDoze = true

// bed is where threads sleep that polled in vain: a futex. Go's own means of waiting would need
// a second thread to wake a thread of C.
type bed struct {
	turns    atomic.Uint32 // grows with each wake
	sleepers atomic.Int32
}

const (
	futexWait = 0 | futexPrivate // FUTEX_WAIT
	futexWake = 1 | futexPrivate // FUTEX_WAKE
	// futexPrivate (FUTEX_PRIVATE_FLAG): all are threads of one process.
	futexPrivate = 128
	everybody    = 1<<31 - 1
)

// sleep returns after a wake, after d, for no reason, or at once if turns is no longer was.
func (b *bed) sleep(was uint32, d time.Duration) {
	ts := unix.NsecToTimespec(d.Nanoseconds())
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.turns)), futexWait, uintptr(was),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// wake ends all sleeps.
func (b *bed) wake() {
	b.turns.Add(1)
	_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&b.turns)), futexWake, everybody, 0, 0, 0)
}
