#include "textflag.h"

// func Bytes(p unsafe.Pointer, n int)
TEXT ·Bytes(SB), NOSPLIT, $0-16
	MOVQ p+0(FP), AX
	MOVQ n+8(FP), CX
	ADDQ AX, CX
next:
	PREFETCHT0 (AX)
	ADDQ $64, AX
	CMPQ AX, CX
	JB   next
	RET
