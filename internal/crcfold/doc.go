// Package crcfold does the bulk of an Ethernet CRC-32 by folding: it replaces a long message
// by 16 bytes that leave the same register behind. With AVX-512 and VPCLMULQDQ it works at
// four lines of the cache at once, where hash/crc32 works at one and waits for it: 4 KiB take
// a third of the time. It can copy the message on the way.
//
// The method is that of Gopal et al., "Fast CRC Computation for Generic Polynomials Using
// PCLMULQDQ Instruction" (Intel, 2009). In a polynomial over two elements, a block that
// stands D bits before another may be moved onto it: its upper half times x^(D+32) mod P and
// its lower one times x^(D-32) mod P, bits reflected.
package crcfold

// Block is the unit of what is folded, in bytes.
const Block = 256

// Fold folds as many whole blocks of b as there are and returns how many bytes that is, 0 if
// the processor cannot. The register that reg, not inverted, becomes over b[:n] is the one
// that 0 becomes over rest.
func Fold(rest *[16]byte, reg uint32, b []byte) (n int) {
	if n = len(b) &^ (Block - 1); n == 0 || !can {
		return 0
	}
	fold(rest, reg, &b[0], n)
	return n
}

// FoldCopy is Fold, and copies those bytes to dst, which is as long as b or longer and does
// not overlap it. It reads each once.
func FoldCopy(dst []byte, rest *[16]byte, reg uint32, b []byte) (n int) {
	if n = len(b) &^ (Block - 1); n == 0 || !can {
		return 0
	}
	foldCopy(&dst[:n][0], rest, reg, &b[0], n)
	return n
}
