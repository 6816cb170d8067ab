package fdspace

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Place is who looks after descriptors in a process that is not ours.
type Place interface {
	// Move gives the file behind fd another number, closes fd, and protects the new
	// number from the program. If that fails it returns fd.
	Move(fd int) int
	// Forget ends the protection of a number that is about to be closed.
	Forget(fd int)
}

var place atomic.Pointer[Place]

// Set installs the place, once, before any descriptor is made.
func Set(p Place) { place.Store(&p) }

// Keep returns the number under which a new descriptor is to be kept; the old number is
// not valid any more. It passes on what is no descriptor.
func Keep(fd int) int {
	if p := place.Load(); p != nil && fd >= 0 {
		return (*p).Move(fd)
	}
	return fd
}

// Forget ends what Keep has begun for a descriptor that somebody else closes.
func Forget(fd int) {
	if p := place.Load(); p != nil && fd >= 0 {
		(*p).Forget(fd)
	}
}

// Close closes a descriptor that Keep has returned. It does nothing with what is none.
func Close(fd int) {
	if fd >= 0 {
		Forget(fd)
		_ = unix.Close(fd)
	}
}
