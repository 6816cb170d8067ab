#include "textflag.h"

// func Guard() (start, end, landing uintptr)
TEXT ·Guard(SB), NOSPLIT, $0-24
	LEAQ ·move(SB), AX
	MOVQ AX, start+0(FP)
	LEAQ ·moveFault(SB), AX
	MOVQ AX, end+8(FP)
	MOVQ AX, landing+16(FP)
	RET

// func move(dst, src uintptr, n int, ahead uintptr, lines int) bool
//
// It has no frame, so that moveFault finds the stack as it was at the call.
TEXT ·move(SB), NOSPLIT|NOFRAME, $0-41
	MOVQ dst+0(FP), DI
	MOVQ src+8(FP), SI
	MOVQ n+16(FP), CX
	MOVQ ahead+24(FP), R8
	MOVQ lines+32(FP), R9
	SUBQ $8, CX
	JL   bytes
	SUBQ $64, CX
	JL   words

line:
	TESTQ R9, R9
	JLE  copy
	PREFETCHT1 (R8) // not into the first level, which the copy is in the middle of using
	ADDQ $64, R8
	DECQ R9

copy:
	MOVOU (SI), X0
	MOVOU 16(SI), X1
	MOVOU 32(SI), X2
	MOVOU 48(SI), X3
	MOVOU X0, (DI)
	MOVOU X1, 16(DI)
	MOVOU X2, 32(DI)
	MOVOU X3, 48(DI)
	ADDQ $64, SI
	ADDQ $64, DI
	SUBQ $64, CX
	JGE  line

words:
	ADDQ $64, CX

word:
	// CX bytes are left before the last eight.
	CMPQ CX, $8
	JL   last
	MOVQ (SI), AX
	MOVQ AX, (DI)
	ADDQ $8, SI
	ADDQ $8, DI
	SUBQ $8, CX
	JMP  word

last:
	// Up to fifteen bytes are left: eight that may overlap, then the last eight.
	MOVQ (SI), AX
	MOVQ (SI)(CX*1), DX
	MOVQ AX, (DI)
	MOVQ DX, (DI)(CX*1)
	MOVB $1, ret+40(FP)
	RET

bytes:
	ADDQ $8, CX

byte:
	MOVB (SI), AX
	MOVB AX, (DI)
	INCQ SI
	INCQ DI
	DECQ CX
	JNZ  byte
	MOVB $1, ret+40(FP)
	RET

// func moveFault(dst, src uintptr, n int, ahead uintptr, lines int) bool
TEXT ·moveFault(SB), NOSPLIT|NOFRAME, $0-41
	MOVB $0, ret+40(FP)
	RET
