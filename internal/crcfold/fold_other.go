//go:build !amd64

package crcfold

const can = false

func fold(reg uint32, _ *byte, _ int) uint32 { return reg }

func foldCopy(_ *byte, reg uint32, _ uintptr, _ int) (uint32, bool) { return reg, false }

// Guard returns zeros: there is no code for this processor.
func Guard() (start, end, landing uintptr) { return 0, 0, 0 }
