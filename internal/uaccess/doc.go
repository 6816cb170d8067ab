// Package uaccess copies between the engine and memory of the program that it is in, which
// the program may have unmapped. A fault ends the copy and not the program: whoever catches
// faults of this process leads one that happened inside of [Guard] to where Guard says, as the
// kernel's exception table does for copy_from_user. Without such a one a fault is what it is for
// other code.
package uaccess

import "unsafe"

// Load copies len(buf) bytes at addr to buf. It returns false if some of them are not there;
// then buf has any of them.
func Load(buf []byte, addr uint64) bool {
	if len(buf) == 0 {
		return true
	}
	return move(uintptr(unsafe.Pointer(&buf[0])), uintptr(addr), len(buf), 0, 0)
}

// Store copies buf to addr, the end last: a program that polls that finds the rest in place. It
// returns false if some of the memory is not there; then any of it may have been written. The
// processor is asked for the lines of ahead meanwhile, which are going to be needed next.
func Store(addr uint64, buf, ahead []byte) bool {
	if len(buf) == 0 {
		return true
	}
	var next uintptr
	if len(ahead) > 0 {
		next = uintptr(unsafe.Pointer(&ahead[0]))
	}
	return move(uintptr(addr), uintptr(unsafe.Pointer(&buf[0])), len(buf), next, (len(ahead)+lineBytes-1)/lineBytes)
}

// lineBytes is a line of the cache.
const lineBytes = 64
