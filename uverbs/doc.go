// Package uverbs is the kernel's user ABI for RDMA over an [rvt.Device]: what a
// program does to /dev/infiniband/uverbsN by write() and ioctl(), and the rings that
// it shares with the driver. A program that is linked with the distribution's
// libibverbs cannot tell the difference.
//
// The package is the command layer only. Bytes come in, bytes and descriptors go out;
// the memory of the calling process is a [mr.Memory], the memory of the rings a
// [RingMemory]. How the bytes travel is the host's business: a daemon gets them from a
// preloaded library over a socket, a host inside the program by a plain call.
//
// # Use
//
//	dev := uverbs.NewDevice(host, cfg)    // one for each rvt.Device
//	ctx, err := dev.Open(rings)           // for each open() of the device file
//	rep := ctx.Write(caller, buf, passed) // for each write()
//	rep = ctx.Ioctl(caller, request, arg, buf, passed) // for each ioctl()
//	ctx.Scan(d)                           // for each doorbell, as the device's owner
//	dev.HandleEvent(&ev)                  // for each rvt.Event, as the owner
//	ctx.Close()                           // the last close() of the file
//
// Write, Ioctl, Doorbell and Close enter the device through [Host.Do] and may be
// called from any goroutine. Scan and HandleEvent must be called by the owner, that is
// from within Do or the host's own loop.
//
// # Commands and methods
//
// A command of the write() interface is a function in one of the cmd_ files; a method of
// the ioctl interface is one in ioctl_device.go, ioctl_objects.go or dm.go, with a row
// that says which attributes it has. Both end in the same functions, and INVOKE_WRITE
// carries the first by the second. libibverbs asks for the ioctl interface when it opens
// a device and uses it for what has a method there; DeviceConfig.NoIoctl denies it.
//
// # Two personalities
//
// DeviceConfig.ABI chooses whose private part of the ABI is spoken: that of rdma_rxe
// (provider librxe: every queue is a ring, a write() is only a doorbell) or that of
// rdmavt (provider libhfi1verbs: sends travel inside the write()). Both work on the
// same objects.
//
// # Trust
//
// Nothing that a program can write is believed: lengths, handles, ring indices and
// entries are copied, masked and bounded. A program can spoil its own objects only.
package uverbs
