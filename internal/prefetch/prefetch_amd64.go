package prefetch

import "unsafe"

// Bytes asks for n bytes at p, n > 0, and does not wait for them. It changes nothing but time.
//
//go:noescape
func Bytes(p unsafe.Pointer, n int)
