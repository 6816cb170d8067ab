//go:build !linux || !cgo

// Rvtsim-engine is the engine that the preload library loads into a program. It needs
// Linux and a C compiler; see main.go.
package main

import "os"

func main() {
	_, _ = os.Stderr.WriteString("rvtsim-engine: a library, built with -buildmode=c-shared on Linux, with cgo\n")
	os.Exit(3)
}
