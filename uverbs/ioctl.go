package uverbs

import "github.com/rvtsim/rvtsim/ib"

// enotty is ENOTTY.
const enotty ib.Errno = 25

// IoctlRequest is RDMA_VERBS_IOCTL, the only request of the device file.
const IoctlRequest = 0xc0181b01

// Ioctl carries out an ioctl() on the device file. buf is the structure that the
// argument points to, with its attributes. The answer ENOTTY tells libibverbs that
// there is no ioctl interface: it uses write() from then on.
func (c *Context) Ioctl(caller *Caller, request uint32, buf []byte, passed Passed) Reply {
	return Reply{Errno: enotty}
}
