//go:build amd64 || arm64

package notify

import "golang.org/x/sys/unix"

const (
	netlinkRDMA = 20         // NETLINK_RDMA
	verbsIoctl  = 0xc0181b01 // RDMA_VERBS_IOCTL
)

// fdRange are the descriptor numbers that devices get in the program.
type fdRange struct{ first, count uint32 }

// deviceRange places the numbers below the program's limit and below 1024: every
// program has room there, the kernel's table stays small, and select() reaches them.
// A program that uses them itself is only slower.
func deviceRange(limit uint64) fdRange {
	top := uint32(min(limit, 1024))
	n := min(64, top/4)
	return fdRange{top - n, n}
}

func (r fdRange) contains(fd int32) bool {
	return fd >= 0 && uint32(fd) >= r.first && uint32(fd)-r.first < r.count
}

// buildFilter returns the program that decides, by number and arguments, which system
// calls the supervisor gets to see. Everything else stays as quick as it was, except for
// the few instructions of the filter in front of calls that it mentions.
func buildFilter(r fdRange) ([]unix.SockFilter, error) {
	a := newAssembler()
	a.load(dataArch)
	a.jump(unix.BPF_JEQ, auditArch, "", "allow")
	a.load(dataNr)
	goTo := func(label string, nrs ...uint32) {
		for _, nr := range nrs {
			a.jump(unix.BPF_JEQ, nr, label, "")
		}
	}
	goTo("fd", unix.SYS_WRITE, unix.SYS_FSTAT, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_WRITEV, unix.SYS_PWRITE64)
	goTo("fcntl", unix.SYS_FCNTL)
	goTo("ioctl", unix.SYS_IOCTL)
	goTo("fstatat", sysFstatat)
	goTo("statx", unix.SYS_STATX)
	goTo("socket", unix.SYS_SOCKET)
	goTo("fd", oldFDCalls...)
	goTo("notify", pathCalls...)
	goTo("notify", oldPathCalls...)
	a.jump(unix.BPF_JEQ, unix.SYS_READLINKAT, "notify", "allow")

	a.label("fcntl")
	a.arg(1)
	a.jump(unix.BPF_JEQ, unix.F_DUPFD, "fd", "")
	a.jump(unix.BPF_JEQ, unix.F_DUPFD_CLOEXEC, "fd", "allow")
	a.label("ioctl")
	a.arg(1)
	a.jump(unix.BPF_JEQ, verbsIoctl, "fd", "allow")
	// With AT_EMPTY_PATH these are fstat, which is frequent; the path, if there is one
	// after all, is not looked at.
	a.label("fstatat")
	a.arg(3)
	a.jump(unix.BPF_JSET, unix.AT_EMPTY_PATH, "fd", "notify")
	a.label("statx")
	a.arg(2)
	a.jump(unix.BPF_JSET, unix.AT_EMPTY_PATH, "fd", "notify")
	a.label("socket")
	a.arg(0)
	a.jump(unix.BPF_JEQ, unix.AF_NETLINK, "", "allow")
	a.arg(2)
	a.jump(unix.BPF_JEQ, netlinkRDMA, "refuse", "allow")
	// The kernel takes the low word of a descriptor argument, and so do we.
	a.label("fd")
	a.arg(0)
	a.jump(unix.BPF_JGE, r.first, "", "allow")
	a.jump(unix.BPF_JGE, r.first+r.count, "allow", "notify")

	a.label("allow")
	a.ret(unix.SECCOMP_RET_ALLOW)
	a.label("refuse")
	a.ret(unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT))
	a.label("notify")
	a.ret(unix.SECCOMP_RET_USER_NOTIF)
	return a.assemble()
}

// pathCalls take a path and exist on every architecture; oldPathCalls and oldFDCalls on
// some. SYS_READLINKAT, SYS_STATX and sysFstatat are apart, in buildFilter.
var pathCalls = []uint32{
	unix.SYS_OPENAT, unix.SYS_OPENAT2, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2,
	unix.SYS_GETXATTR, unix.SYS_LGETXATTR, unix.SYS_LISTXATTR, unix.SYS_LLISTXATTR,
	unix.SYS_EXECVE, unix.SYS_EXECVEAT, // to know that memory changes
}
