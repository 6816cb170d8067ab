package uaccess

// Guard returns the bounds of the code that touches the program's memory, and where a fault
// inside of them is to go on, with all registers as they were. All are 0 if there is no such
// code for this processor: then nothing here may be used.
func Guard() (start, end, landing uintptr)

// move copies n bytes, n > 0, in ascending order, the last eight by themselves, and asks for
// lines of the cache from ahead on. It returns false after a fault.
//
//go:noescape
func move(dst, src uintptr, n int, ahead uintptr, lines int) bool

// moveFault is where move goes on after a fault.
//
//go:noescape
func moveFault(dst, src uintptr, n int, ahead uintptr, lines int) bool

var _ = moveFault // called by nobody
