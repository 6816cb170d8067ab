// Package crcfold does the bulk of an Ethernet CRC-32 by folding: it moves the lines of a
// message onto later ones until few are left, which have the same CRC. With AVX-512 and
// VPCLMULQDQ it works at four lines of the cache at once, where hash/crc32 works at one and
// waits for it: 4 KiB take half the time. It can copy the message on the way. It uses no
// tables, which the message would drive out of the cache.
//
// The method is that of Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction" (Intel, 2009). In a polynomial over two elements, a block that
// stands D bits before another may be moved onto it: its upper half times x^(D+32) mod P and
// its lower one times x^(D-32) mod P, bits reflected.
package crcfold

import "unsafe"

// Block is the unit of what is folded, in bytes.
const Block = 256

// Fold runs the register reg, not inverted, over as many whole blocks of b as there are. It
// returns what becomes of it, and how many bytes that is: 0 if the processor cannot.
func Fold(reg uint32, b []byte) (after uint32, n int) {
	if n = len(b) &^ (Block - 1); n == 0 || !can {
		return reg, 0
	}
	return fold(reg, &b[0], n), n
}

// FoldCopy is Fold, and copies those bytes to dst, which is as long as b or longer and does
// not overlap it. It reads each once.
func FoldCopy(dst []byte, reg uint32, b []byte) (after uint32, n int) {
	if n = len(b) &^ (Block - 1); n == 0 || !can {
		return reg, 0
	}
	after, ok := foldCopy(&dst[:n][0], reg, uintptr(unsafe.Pointer(&b[0])), n)
	if !ok {
		panic("crcfold: the copy met memory that is not there")
	}
	return after, n
}

// Loads reports whether FoldLoad can be used.
func Loads() bool { return can }

// FoldLoad is FoldCopy from addr, where the program may have unmapped its memory: ok is false if
// not all of it is there, and then dst has any of it. len(dst) is a positive multiple of Block. The
// register is that of what dst has, even if the program writes there at the same time. A fault
// ends like this only if whoever catches them knows [Guard].
func FoldLoad(dst []byte, reg uint32, addr uint64) (after uint32, ok bool) {
	return foldCopy(&dst[0], reg, uintptr(addr), len(dst)/Block*Block)
}
