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

DATA by64<>+0(SB)/8, $0x163cd6124
GLOBL by64<>(SB), RODATA, $8

// P, and x^64 divided by P, reflected.
DATA barrett<>+0(SB)/8, $0x1db710641
DATA barrett<>+8(SB)/8, $0x1f7011641
GLOBL barrett<>(SB), RODATA, $16

// ONTO moves Z by the distance in Z0 onto the line in L, with the result in Z.
#define ONTO(Z, T, L) \
	VPCLMULQDQ $0x11, Z0, Z, T; \
	VPCLMULQDQ $0x00, Z0, Z, Z; \
	VPTERNLOGD $0x96, L, T, Z

// LOAD reads the block at SI, STORE writes it at DX.
#define LOAD(A, B, C, D) \
	VMOVDQU64 (SI), A; \
	VMOVDQU64 64(SI), B; \
	VMOVDQU64 128(SI), C; \
	VMOVDQU64 192(SI), D

#define STORE(A, B, C, D) \
	VMOVDQU64 A, (DX); \
	VMOVDQU64 B, 64(DX); \
	VMOVDQU64 C, 128(DX); \
	VMOVDQU64 D, 192(DX)

// FOLD moves the four lines in Z1 to Z4 onto the next block, in Z10 to Z13.
#define FOLD \
	ONTO(Z1, Z5, Z10); \
	ONTO(Z2, Z6, Z11); \
	ONTO(Z3, Z7, Z12); \
	ONTO(Z4, Z8, Z13)

// BEGIN puts the register, in AX, before the first line.
#define BEGIN \
	VBROADCASTI32X4 by2048<>(SB), Z0; \
	VPXORQ Z5, Z5, Z5; \
	VMOVD AX, X5; \
	VPXORQ Z5, Z1, Z1

// LOW32 is the lower half of X's lower half.
#define LOW32(X, Y) \
	VPSLLQ $32, X, Y; \
	VPSRLQ $32, Y, Y

// END leaves in AX what becomes of the register after the four lines in Z1 to Z4: they are
// folded to one, to 16 bytes, to 12, to 8, of which Barrett's reduction takes the rest mod P.
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
	VMOVDQU quarters<>+32(SB), X0; \
	VPCLMULQDQ $0x10, X0, X1, X2; \
	VPSRLDQ $8, X1, X1; \
	VPXOR X2, X1, X1; \
	VMOVQ by64<>(SB), X0; \
	LOW32(X1, X2); \
	VPCLMULQDQ $0x00, X0, X2, X2; \
	VPSRLDQ $4, X1, X1; \
	VPXOR X2, X1, X1; \
	VMOVDQU barrett<>(SB), X0; \
	LOW32(X1, X2); \
	VPCLMULQDQ $0x10, X0, X2, X2; \
	LOW32(X2, X2); \
	VPCLMULQDQ $0x00, X0, X2, X2; \
	VPXOR X2, X1, X1; \
	VPEXTRD $1, X1, AX; \
	VZEROUPPER

// func fold(reg uint32, p *byte, n int) uint32
TEXT ·fold(SB), NOSPLIT, $0-28
	MOVL reg+0(FP), AX
	MOVQ p+8(FP), SI
	MOVQ n+16(FP), CX
	LOAD(Z1, Z2, Z3, Z4)
	BEGIN
	JMP  test

next:
	LOAD(Z10, Z11, Z12, Z13)
	FOLD

test:
	ADDQ $256, SI
	SUBQ $256, CX
	JA   next
	END
	MOVL AX, ret+24(FP)
	RET

// func foldCopy(dst *byte, reg uint32, p uintptr, n int) (after uint32, ok bool)
//
// It has no frame, so that foldCopyFault finds the stack as it was at the call.
TEXT ·foldCopy(SB), NOSPLIT|NOFRAME, $0-37
	MOVQ dst+0(FP), DX
	MOVL reg+8(FP), AX
	MOVQ p+16(FP), SI
	MOVQ n+24(FP), CX
	LOAD(Z1, Z2, Z3, Z4)
	STORE(Z1, Z2, Z3, Z4)
	BEGIN
	JMP  test

next:
	LOAD(Z10, Z11, Z12, Z13)
	STORE(Z10, Z11, Z12, Z13)
	FOLD

test:
	ADDQ $256, SI
	ADDQ $256, DX
	SUBQ $256, CX
	JA   next
	END
	MOVL AX, after+32(FP)
	MOVB $1, ok+36(FP)
	RET

// func foldCopyFault(dst *byte, reg uint32, p uintptr, n int) (after uint32, ok bool)
TEXT ·foldCopyFault(SB), NOSPLIT|NOFRAME, $0-37
	VZEROUPPER
	MOVL $0, after+32(FP)
	MOVB $0, ok+36(FP)
	RET

// func Guard() (start, end, landing uintptr)
TEXT ·Guard(SB), NOSPLIT, $0-24
	LEAQ ·foldCopy(SB), AX
	MOVQ AX, start+0(FP)
	LEAQ ·foldCopyFault(SB), AX
	MOVQ AX, end+8(FP)
	MOVQ AX, landing+16(FP)
	RET
