package crcfold

import "golang.org/x/sys/cpu"

// can tells whether the processor has what fold needs.
var can = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ

// fold reads n bytes at p. n is a positive multiple of Block.
//
//go:noescape
func fold(rest *[16]byte, reg uint32, p *byte, n int)

// foldCopy is fold, and writes the bytes to dst.
//
//go:noescape
func foldCopy(dst *byte, rest *[16]byte, reg uint32, p *byte, n int)
