//go:build !amd64

package crcfold

const can = false

func fold(reg uint32, _ *byte, _ int) uint32 { return reg }

func foldCopy(_ *byte, reg uint32, _ *byte, _ int) uint32 { return reg }
