//go:build !amd64

package crcfold

const can = false

func fold(*[16]byte, uint32, *byte, int) {}

func foldCopy(*byte, *[16]byte, uint32, *byte, int) {}
