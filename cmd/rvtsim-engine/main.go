//go:build linux && cgo

// Rvtsim-engine is the engine that the preload library loads into a program: a device that
// runs where the program runs. It is built with -buildmode=c-shared; package shim finds it,
// and internal/daemon holds what it does. This package is only the boundary to C.
package main

/*
#cgo CFLAGS: -I${SRCDIR}/../../shim/src -O2
#include <errno.h>
#include <string.h>
#include "engine.h"

extern struct rvtsim_host rvtsim_host;
extern struct rvtsim_bell rvtsim_bell;

#cgo noescape host_copy
#cgo nocallback host_copy
#cgo noescape host_compare_swap
#cgo nocallback host_compare_swap
#cgo noescape host_fetch_add
#cgo nocallback host_fetch_add
static int64_t host_copy(uintptr_t p, int64_t n, int to) { return rvtsim_host.copy((const struct rvtsim_piece *)p, n, to); }
static int host_compare_swap(uint64_t a, uint64_t c, uint64_t s, uint64_t *old) { return rvtsim_host.compare_swap(a, c, s, old); }
static int host_fetch_add(uint64_t a, uint64_t v, uint64_t *old) { return rvtsim_host.fetch_add(a, v, old); }
static int host_landing(uintptr_t s, uintptr_t e, uintptr_t l) { return rvtsim_host.landing(s, e, l); }
static int host_move(int fd) { return rvtsim_host.move(fd); }
static void host_forget(int fd) { rvtsim_host.forget(fd); }
static int host_write_event(int fd, uintptr_t p, size_t n) { return rvtsim_host.write_event(fd, (const void *)p, n); }
*/
import "C"

import (
	"errors"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/crcfold"
	"github.com/rvtsim/rvtsim/internal/daemon"
	"github.com/rvtsim/rvtsim/internal/fdspace"
	"github.com/rvtsim/rvtsim/internal/uaccess"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/uverbs"
)

func main() {} // a library has none

// engine is set before the library is told that it has started.
var engine *daemon.Engine

// here is the memory of this process. What is not there ends a copy with an error, for
// the preload library catches the fault.
type here struct {
	guarded bool // also in the engine's own code
}

var (
	_ mr.Memory = (*here)(nil)
	_ mr.Prober = (*here)(nil)
	_ mr.Direct = (*here)(nil)
)

// newHere names the engine's own code that touches the program's memory to the preload library.
func newHere() *here {
	for _, guard := range []func() (start, end, landing uintptr){uaccess.Guard, crcfold.Guard} {
		start, end, landing := guard()
		if start == 0 || C.host_landing(C.uintptr_t(start), C.uintptr_t(end), C.uintptr_t(landing)) != 0 {
			return &here{}
		}
	}
	return &here{guarded: true}
}

// Direct implements mr.Direct.
func (h *here) Direct() bool { return h.guarded }

func (*here) ReadV(ops []mr.Op) (int, error)  { return copyV(ops, 0) }
func (*here) WriteV(ops []mr.Op) (int, error) { return copyV(ops, 1) }

func copyV(ops []mr.Op, toProgram C.int) (int, error) {
	if len(ops) == 0 {
		return 0, nil
	}
	// As a number: the pieces hold pointers into the engine's heap, which stay where they
	// are and alive.
	n := int(C.host_copy(C.uintptr_t(uintptr(unsafe.Pointer(&ops[0]))), C.int64_t(len(ops)), toProgram))
	runtime.KeepAlive(ops)
	if n < len(ops) {
		return n, mr.ErrFault
	}
	return n, nil
}

func (*here) CompareSwap64(addr, compare, swap uint64) (uint64, error) {
	var old C.uint64_t
	if C.host_compare_swap(C.uint64_t(addr), C.uint64_t(compare), C.uint64_t(swap), &old) != 0 {
		return 0, mr.ErrFault
	}
	return uint64(old), nil
}

func (*here) FetchAdd64(addr, add uint64) (uint64, error) {
	var old C.uint64_t
	if C.host_fetch_add(C.uint64_t(addr), C.uint64_t(add), &old) != 0 {
		return 0, mr.ErrFault
	}
	return uint64(old), nil
}

// Writable implements mr.Prober: the processor checks the right to write before it adds 0.
func (h *here) Writable(addrs ...uint64) error {
	for _, addr := range addrs {
		if _, err := h.FetchAdd64(addr&^7, 0); err != nil {
			return err
		}
	}
	return nil
}

// place implements fdspace.Place.
type place struct{}

func (place) Move(fd int) int { return int(C.host_move(C.int(fd))) }
func (place) Forget(fd int)   { C.host_forget(C.int(fd)) }

func writeEvent(fd int, b []byte) error {
	e := C.host_write_event(C.int(fd), C.uintptr_t(uintptr(unsafe.Pointer(&b[0]))), C.size_t(len(b)))
	runtime.KeepAlive(b)
	if e != 0 {
		return syscall.Errno(e)
	}
	return nil
}

// errnoOf is what a call of the C library would leave in errno.
func errnoOf(err error) C.int {
	var sys unix.Errno
	if errors.As(err, &sys) {
		return C.int(sys)
	}
	if e := ib.ErrnoOf(err); e != 0 {
		return C.int(e)
	}
	return C.EIO
}

//export engineStart
func engineStart(grant unsafe.Pointer, n C.size_t, socket, port C.int, name *C.char) C.int {
	fdspace.Set(place{})
	uverbs.WriteEvent = writeEvent
	e, err := daemon.StartEngine(C.GoBytes(grant, C.int(n)), int(socket), int(port), newHere(), (*node.Bell)(unsafe.Pointer(&C.rvtsim_bell)))
	if err != nil {
		return errnoOf(err)
	}
	out := unsafe.Slice((*byte)(unsafe.Pointer(name)), C.RVTSIM_ENGINE_NAME)
	out[copy(out[:len(out)-1], e.Socket())] = 0
	engine = e
	return 0
}

//export engineOpen
func engineOpen(o *C.struct_rvtsim_opened) C.int {
	c, err := engine.Open()
	if err != nil {
		return errnoOf(err)
	}
	o.index, o.memory, o.event = C.int(c.Index), C.int(c.Memory), C.int(c.Event)
	o.token, o.bell_offset = C.uint64_t(c.Token), C.uint64_t(c.BellOffset)
	return 0
}

//export engineClose
func engineClose(index C.int) { engine.Close(int(index)) }

//export engineCommand
func engineCommand(index, op C.int, arg C.uint64_t, data unsafe.Pointer, n C.size_t, out unsafe.Pointer, room C.size_t, files *C.int, nfiles *C.int) C.int {
	k, fds := engine.Command(int(index), int(op), uint64(arg), unsafe.Slice((*byte)(data), int(n)), unsafe.Slice((*byte)(out), int(room)))
	for i, fd := range fds {
		unsafe.Slice(files, len(fds))[i] = C.int(fd)
	}
	*nfiles = C.int(len(fds))
	return C.int(k)
}

//export engineDoorbell
func engineDoorbell(index C.int, qp C.uint32_t) C.int {
	if engine.Doorbell(int(index), uint32(qp)) {
		return 1
	}
	return 0
}

//export engineProgress
func engineProgress() { engine.Progress() }

//export engineSettle
func engineSettle() { engine.Settle() }

//export engineLeave
func engineLeave() { engine.Leave() }
