package crcfold

import "golang.org/x/sys/cpu"

// can tells whether the processor has what fold needs.
var can = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ

// fold runs the register reg over n bytes at p. n is a positive multiple of Block.
//
//go:noescape
func fold(reg uint32, p *byte, n int) uint32

// foldCopy is fold, and writes the bytes to dst.
//
//go:noescape
func foldCopy(dst *byte, reg uint32, p *byte, n int) uint32
