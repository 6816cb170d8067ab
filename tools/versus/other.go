//go:build !linux

// Versus measures unmodified verbs programs against UCX. It needs Linux.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("versus: needs Linux\n")
	os.Exit(3)
}
