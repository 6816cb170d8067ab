//go:build !amd64

package uaccess

// Guard returns zeros: there is no code for this processor.
func Guard() (start, end, landing uintptr) { return 0, 0, 0 }

func move(uintptr, uintptr, int, uintptr, int) bool { panic("uaccess: not for this processor") }
