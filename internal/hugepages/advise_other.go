//go:build !linux

package hugepages

// Advise does nothing on this system.
func Advise() (int, error) { return 0, nil }
