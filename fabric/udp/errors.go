package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

// ErrGSODisabled says that the port no longer uses, or never could use, UDP
// segmentation offload and sends every datagram by itself. Nothing was lost, but the
// port is slower. It is never the error of a call; see [Port.Degraded].
var ErrGSODisabled = errors.New("udp: segmentation offload is off")

// GSODisabledError is the [ErrGSODisabled] of one port, with its reason.
type GSODisabledError struct {
	Local netip.AddrPort
	// Err is what the system said: EIO if the device cannot checksum, EINVAL if
	// the kernel does not accept the train, or why the probe at open failed.
	Err error
}

func (e *GSODisabledError) Error() string {
	return fmt.Sprintf("%v on %v: %v", ErrGSODisabled, e.Local, e.Err)
}

// Is makes errors.Is(err, ErrGSODisabled) true.
func (e *GSODisabledError) Is(target error) bool { return target == ErrGSODisabled }

// Unwrap returns the system's error.
func (e *GSODisabledError) Unwrap() error { return e.Err }

// OpenError says why a port could not be opened. It matches the system's error
// number: errors.Is(err, syscall.EADDRINUSE).
type OpenError struct {
	Local netip.AddrPort
	Op    string // the system call or option that failed: "bind", "IP_MTU_DISCOVER"
	Err   error
}

func (e *OpenError) Error() string {
	switch {
	case errors.Is(e.Err, syscall.EADDRINUSE):
		return fmt.Sprintf("udp: %v is in use: another RoCE engine (soft-RoCE holds its port on every address) or an rvtsim daemon may have it: %v", e.Local, e.Err)
	case errors.Is(e.Err, syscall.EADDRNOTAVAIL):
		return fmt.Sprintf("udp: %v is not an address of this machine: %v", e.Local.Addr(), e.Err)
	case errors.Is(e.Err, syscall.EACCES), errors.Is(e.Err, syscall.EPERM):
		return fmt.Sprintf("udp: no permission to open %v (%s): %v", e.Local, e.Op, e.Err)
	case errors.Is(e.Err, syscall.EAFNOSUPPORT):
		return fmt.Sprintf("udp: this machine has no support for the address family of %v: %v", e.Local.Addr(), e.Err)
	}
	return fmt.Sprintf("udp: cannot open %v: %s: %v", e.Local, e.Op, e.Err)
}

// Unwrap returns the system's error.
func (e *OpenError) Unwrap() error { return e.Err }
