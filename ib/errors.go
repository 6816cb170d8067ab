package ib

import (
	"errors"
	"strconv"
)

// Errno is a Linux error number. The C API returns it from the call or in errno.
type Errno int

// The numbers that verbs calls give (Linux, generic architecture).
const (
	EPERM      Errno = 1
	ENOENT     Errno = 2
	EINTR      Errno = 4
	EAGAIN     Errno = 11
	ENOMEM     Errno = 12
	EACCES     Errno = 13
	EFAULT     Errno = 14
	EBUSY      Errno = 16
	ENODEV     Errno = 19
	EINVAL     Errno = 22
	ENOSPC     Errno = 28
	ENODATA    Errno = 61
	EOPNOTSUPP Errno = 95
)

var errnoNames = map[Errno]string{EPERM: "EPERM", ENOENT: "ENOENT", EINTR: "EINTR", EAGAIN: "EAGAIN", ENOMEM: "ENOMEM", EACCES: "EACCES", EFAULT: "EFAULT", EBUSY: "EBUSY", ENODEV: "ENODEV", EINVAL: "EINVAL", ENOSPC: "ENOSPC", ENODATA: "ENODATA", EOPNOTSUPP: "EOPNOTSUPP"}

// Error makes an Errno usable as a target of errors.Is.
func (e Errno) Error() string {
	if n, ok := errnoNames[e]; ok {
		return n
	}
	return "errno " + strconv.Itoa(int(e))
}

// VerbError is the error of a refused verbs call. It says which verb, which object,
// what was wrong with it, and which errno the C API would give. errors.Is matches it
// against its Errno.
type VerbError struct {
	Verb   string // as in the C API without prefix: "post_send"
	Object string // as printed elsewhere: "qp 0x11"; empty if there is none yet
	Reason string // a phrase: "state is INIT, need RTS, SQD, SQE or ERR"
	Errno  Errno
}

// NewVerbError makes a VerbError. reason is a finished phrase.
func NewVerbError(errno Errno, verb, object, reason string) *VerbError {
	return &VerbError{Verb: verb, Object: object, Reason: reason, Errno: errno}
}

func (e *VerbError) Error() string {
	s := e.Verb + ": "
	if e.Object != "" {
		s += e.Object + ": "
	}
	return s + e.Reason + " (" + e.Errno.Error() + ")"
}

// Is makes errors.Is(err, ib.EINVAL) true for a VerbError with that number.
func (e *VerbError) Is(target error) bool {
	n, ok := target.(Errno)
	return ok && n == e.Errno
}

// ErrnoOf returns the errno that err carries, 0 for nil, EINVAL if it carries none.
func ErrnoOf(err error) Errno {
	if err == nil {
		return 0
	}
	var v *VerbError
	if errors.As(err, &v) {
		return v.Errno
	}
	var n Errno
	if errors.As(err, &n) {
		return n
	}
	return EINVAL
}
