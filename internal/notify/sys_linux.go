//go:build amd64 || arm64

package notify

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// notif is struct seccomp_notif: a call that waits for an answer.
type notif struct {
	id    uint64
	tid   uint32 // thread that called, in our process namespace; 0 if it is not in it
	flags uint32
	nr    int32
	arch  uint32
	ip    uint64
	args  [6]uint64
}

// notifResp is struct seccomp_notif_resp.
type notifResp struct {
	id    uint64
	val   int64
	error int32 // negative errno
	flags uint32
}

// notifAddFD is struct seccomp_notif_addfd.
type notifAddFD struct {
	id         uint64
	flags      uint32
	srcfd      uint32
	newfd      uint32
	newfdFlags uint32
}

const (
	sizeofNotif = uint16(unsafe.Sizeof(notif{}))
	sizeofResp  = uint16(unsafe.Sizeof(notifResp{}))
	sizeofData  = 64 // struct seccomp_data
)

func seccomp(op, flags uintptr, arg unsafe.Pointer) (uintptr, unix.Errno) {
	r, _, e := unix.RawSyscall(unix.SYS_SECCOMP, op, flags, uintptr(arg))
	return r, e
}

// listenerFlags: without WAIT_KILLABLE_RECV a signal makes the kernel forget a call
// that is being carried out, and restart it, so that it is carried out twice.
const listenerFlags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV

// installFilter puts this thread and everything that it will start under a filter and
// returns the descriptor on which calls are answered.
func installFilter(code []unix.SockFilter) (int, unix.Errno) {
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	r, e := seccomp(unix.SECCOMP_SET_MODE_FILTER, listenerFlags, unsafe.Pointer(&prog))
	runtime.KeepAlive(code)
	return int(r), e
}

// probe finds out, without changing anything, whether the kernel has what we need.
func probe() error {
	action := uint32(unix.SECCOMP_RET_USER_NOTIF)
	if _, e := seccomp(unix.SECCOMP_GET_ACTION_AVAIL, 0, unsafe.Pointer(&action)); e != 0 {
		return refusedBy(e, "the kernel has no user notification (Linux 5.0, CONFIG_SECCOMP_FILTER)")
	}
	var sizes [3]uint16
	if _, e := seccomp(unix.SECCOMP_GET_NOTIF_SIZES, 0, unsafe.Pointer(&sizes)); e != 0 {
		return refusedBy(e, "the kernel does not tell the sizes of its structures")
	}
	if sizes[0] > sizeofNotif || sizes[1] > sizeofResp || sizes[2] > sizeofData {
		return &UnavailableError{Reason: "the kernel's structures are larger than this version knows"}
	}
	// Flags are checked before the address, which is bad in any case.
	if _, e := seccomp(unix.SECCOMP_SET_MODE_FILTER, listenerFlags, nil); e != unix.EFAULT {
		return refusedBy(e, "the kernel has no SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (Linux 5.19)")
	}
	return nil
}

func refusedBy(e unix.Errno, missing string) error {
	if e == unix.EPERM || e == unix.EACCES {
		missing = "something around us, a container say, does not allow the system call seccomp"
	}
	return &UnavailableError{Reason: missing, Err: e}
}

func ioctl(fd int, req uintptr, arg unsafe.Pointer) (uintptr, unix.Errno) {
	r, _, e := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), req, uintptr(arg))
	return r, e
}

// receive waits for a call. ENOENT says that its thread has gone meanwhile, or, on newer
// kernels, that all have.
func receive(listener int, n *notif) unix.Errno {
	for {
		*n = notif{} // the kernel insists
		if _, e := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(n)); e != unix.EINTR {
			return e
		}
	}
}

// respond answers a call. That its thread has gone is nothing to worry about.
func respond(listener int, r *notifResp) {
	for {
		if _, e := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(r)); e != unix.EINTR {
			return
		}
	}
}

// stillPending reports whether a call still waits for its answer, so that its thread is
// the one it was.
func stillPending(listener int, id uint64) bool {
	for {
		if _, e := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&id)); e != unix.EINTR {
			return e == 0
		}
	}
}

// addFD puts a descriptor of ours into the process that waits, and returns its number
// there.
func addFD(listener int, a *notifAddFD) (int, unix.Errno) {
	for {
		if r, e := ioctl(listener, unix.SECCOMP_IOCTL_NOTIF_ADDFD, unsafe.Pointer(a)); e != unix.EINTR {
			return int(r), e
		}
	}
}
