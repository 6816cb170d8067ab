package notify

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_X86_64
	sysFstatat = unix.SYS_NEWFSTATAT

	sysOpen     = unix.SYS_OPEN
	sysStat     = unix.SYS_STAT
	sysLstat    = unix.SYS_LSTAT
	sysAccess   = unix.SYS_ACCESS
	sysReadlink = unix.SYS_READLINK
	sysDup2     = unix.SYS_DUP2
)

var (
	oldPathCalls = []uint32{sysOpen, sysStat, sysLstat, sysAccess, sysReadlink}
	oldFDCalls   = []uint32{sysDup2}
)
