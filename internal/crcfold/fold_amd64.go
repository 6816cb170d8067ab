package crcfold

import "golang.org/x/sys/cpu"

// can tells whether the processor has what fold needs.
var can = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VPCLMULQDQ

// fold runs the register reg over n bytes at p. n is a positive multiple of Block.
//
//go:noescape
func fold(reg uint32, p *byte, n int) uint32

// foldCopy is fold, and writes the bytes to dst. ok is false after a fault.
//
//go:noescape
func foldCopy(dst *byte, reg uint32, p uintptr, n int) (after uint32, ok bool)

// foldCopyFault is where foldCopy goes on after a fault.
//
//go:noescape
func foldCopyFault(dst *byte, reg uint32, p uintptr, n int) (after uint32, ok bool)

var _ = foldCopyFault // called by nobody

// Guard is for [FoldLoad] what uaccess.Guard is for the copies there.
func Guard() (start, end, landing uintptr)
