package notify

import "golang.org/x/sys/unix"

const (
	auditArch  = unix.AUDIT_ARCH_AARCH64
	sysFstatat = unix.SYS_FSTATAT

	// Calls that this architecture does not have; no call has these numbers.
	sysOpen = -1 - iota
	sysStat
	sysLstat
	sysAccess
	sysReadlink
	sysDup2
)

var oldPathCalls, oldFDCalls []uint32
