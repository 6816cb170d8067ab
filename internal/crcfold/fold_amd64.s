#include "textflag.h"

// x^(D+32) and x^(D-32) mod P, reflected, for the distances D between what is folded and
// what it is folded onto. TestConstants computes them.
DATA by2048<>+0(SB)/8, $0x11542778a
DATA by2048<>+8(SB)/8, $0x1322d1430
GLOBL by2048<>(SB), RODATA, $16

DATA by512<>+0(SB)/8, $0x154442bd4
DATA by512<>+8(SB)/8, $0x1c6e41596
GLOBL by512<>(SB), RODATA, $16

// The quarters of a line onto the last one of them.
DATA quarters<>+0(SB)/8, $0x03db1ecdc
DATA quarters<>+8(SB)/8, $0x174359406
DATA quarters<>+16(SB)/8, $0x0f1da05aa
DATA quarters<>+24(SB)/8, $0x15a546366
DATA quarters<>+32(SB)/8, $0x1751997d0
DATA quarters<>+40(SB)/8, $0x0ccaa009e
DATA quarters<>+48(SB)/8, $0
DATA quarters<>+56(SB)/8, $0
GLOBL quarters<>(SB), RODATA, $64

// ONTO moves Z by the distance in Z0 onto the line in L, with the result in Z.
#define ONTO(Z, T, L) \
	VPCLMULQDQ $0x11, Z0, Z, T; \
	VPCLMULQDQ $0x00, Z0, Z, Z; \
	VPTERNLOGD $0x96, L, T, Z

// BEGIN puts the register, in AX, before the first line.
#define BEGIN \
	VBROADCASTI32X4 by2048<>(SB), Z0; \
	VPXORQ Z5, Z5, Z5; \
	VMOVD AX, X5; \
	VPXORQ Z5, Z1, Z1

// END makes 16 bytes at DI of the four lines in Z1 to Z4.
#define END \
	VBROADCASTI32X4 by512<>(SB), Z0; \
	ONTO(Z1, Z5, Z2); \
	ONTO(Z1, Z5, Z3); \
	ONTO(Z1, Z5, Z4); \
	VMOVDQU64 quarters<>(SB), Z0; \
	VEXTRACTI32X4 $3, Z1, X4; \
	VPCLMULQDQ $0x11, Z0, Z1, Z5; \
	VPCLMULQDQ $0x00, Z0, Z1, Z1; \
	VPXORQ Z5, Z1, Z1; \
	VEXTRACTI32X4 $1, Z1, X2; \
	VEXTRACTI32X4 $2, Z1, X3; \
	VPXORQ X1, X2, X1; \
	VPXORQ X3, X4, X3; \
	VPXORQ X3, X1, X1; \
	VMOVDQU X1, (DI); \
	VZEROUPPER

// func fold(rest *[16]byte, reg uint32, p *byte, n int)
TEXT ·fold(SB), NOSPLIT, $0-32
	MOVQ rest+0(FP), DI
	MOVL reg+8(FP), AX
	MOVQ p+16(FP), SI
	MOVQ n+24(FP), CX
	VMOVDQU64 (SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	VMOVDQU64 192(SI), Z4
	BEGIN
	JMP  test

next:
	VMOVDQU64 (SI), Z10
	VMOVDQU64 64(SI), Z11
	VMOVDQU64 128(SI), Z12
	VMOVDQU64 192(SI), Z13
	ONTO(Z1, Z5, Z10)
	ONTO(Z2, Z6, Z11)
	ONTO(Z3, Z7, Z12)
	ONTO(Z4, Z8, Z13)

test:
	ADDQ $256, SI
	SUBQ $256, CX
	JA   next
	END
	RET

// func foldCopy(dst *byte, rest *[16]byte, reg uint32, p *byte, n int)
TEXT ·foldCopy(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DX
	MOVQ rest+8(FP), DI
	MOVL reg+16(FP), AX
	MOVQ p+24(FP), SI
	MOVQ n+32(FP), CX
	VMOVDQU64 (SI), Z1
	VMOVDQU64 64(SI), Z2
	VMOVDQU64 128(SI), Z3
	VMOVDQU64 192(SI), Z4
	VMOVDQU64 Z1, (DX)
	VMOVDQU64 Z2, 64(DX)
	VMOVDQU64 Z3, 128(DX)
	VMOVDQU64 Z4, 192(DX)
	BEGIN
	JMP  test

next:
	VMOVDQU64 (SI), Z10
	VMOVDQU64 64(SI), Z11
	VMOVDQU64 128(SI), Z12
	VMOVDQU64 192(SI), Z13
	VMOVDQU64 Z10, (DX)
	VMOVDQU64 Z11, 64(DX)
	VMOVDQU64 Z12, 128(DX)
	VMOVDQU64 Z13, 192(DX)
	ONTO(Z1, Z5, Z10)
	ONTO(Z2, Z6, Z11)
	ONTO(Z3, Z7, Z12)
	ONTO(Z4, Z8, Z13)

test:
	ADDQ $256, SI
	ADDQ $256, DX
	SUBQ $256, CX
	JA   next
	END
	RET
