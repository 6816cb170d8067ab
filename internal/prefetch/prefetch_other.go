//go:build !amd64

package prefetch

import "unsafe"

// Bytes does nothing where nobody has tried what it gives.
func Bytes(unsafe.Pointer, int) {}
