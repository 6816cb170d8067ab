package crcfold

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestFold: the register is what hash/crc32 makes of it, at any alignment and from any
// register before, and FoldCopy has copied what was folded and touched nothing else.
func TestFold(t *testing.T) {
	if !can {
		t.Log("this processor cannot; only that is tested")
		_, n := Fold(0, make([]byte, 2*Block))
		require.Zero(t, n)
		_, n = FoldCopy(make([]byte, 2*Block), 0, make([]byte, 2*Block))
		require.Zero(t, n)
		return
	}
	rapid.Check(t, func(t *rapid.T) {
		skew := rapid.IntRange(0, 80).Draw(t, "skew")
		b := make([]byte, rapid.IntRange(0, 5*Block+17).Draw(t, "length"))
		rand.NewChaCha8(seed(rapid.Uint64().Draw(t, "seed"))).Read(b)
		reg := rapid.Uint32().Draw(t, "register")
		at := append(make([]byte, skew), b...)[skew:]
		after, n := Fold(reg, at)
		require.Equal(t, len(b)/Block*Block, n)
		dst := bytes.Repeat([]byte{0xa5}, skew+len(b)+1)
		again, k := FoldCopy(dst[skew:], reg, at)
		require.Equal(t, n, k)
		require.Equal(t, b[:n], dst[skew:skew+n])
		if n > 0 {
			clear(dst[skew : skew+n])
			loaded, ok := FoldLoad(dst[skew:skew+n], reg, uint64(uintptr(unsafe.Pointer(&at[0]))))
			require.True(t, ok)
			require.Equal(t, after, loaded)
			require.Equal(t, b[:n], dst[skew:skew+n])
		}
		require.Equal(t, bytes.Repeat([]byte{0xa5}, len(b)+1-n), dst[skew+n:])
		require.Equal(t, crc32.Update(^reg, crc32.IEEETable, b[:n]), ^after)
		require.Equal(t, after, again)
	})
}

func seed(n uint64) (s [32]byte) {
	binary.LittleEndian.PutUint64(s[:], n)
	return s
}

// TestConstants computes the constants of the assembly.
func TestConstants(t *testing.T) {
	power := func(n int) uint64 { // x^n mod P, reflected, as a product of 33 bits wants it
		r := uint32(1)
		for range n {
			carry := r >> 31
			r = r<<1 ^ carry*bits.Reverse32(crc32.IEEE)
		}
		return uint64(bits.Reverse32(r)) << 1
	}
	src, err := os.ReadFile("fold_amd64.s")
	require.NoError(t, err)
	var got []uint64
	for _, m := range regexp.MustCompile(`DATA .*\$0x([0-9a-f]+)`).FindAllSubmatch(src, -1) {
		v, err := strconv.ParseUint(string(m[1]), 16, 64)
		require.NoError(t, err)
		got = append(got, v)
	}
	var want []uint64
	for _, d := range []int{2048, 512, 384, 256, 128} {
		want = append(want, power(d+32), power(d-32))
	}
	want = append(want, power(64), reflect33(1<<32|uint64(bits.Reverse32(crc32.IEEE))), reflect33(quotient()))
	require.Equal(t, want, got)
}

// reflect33 turns the 33 bits of v round.
func reflect33(v uint64) uint64 { return bits.Reverse64(v) >> 31 }

// quotient is x^64 divided by P.
func quotient() (q uint64) {
	p := 1<<32 | uint64(bits.Reverse32(crc32.IEEE))
	rest := uint64(1) << 32 // of x^64, its upper half
	for i := 32; i >= 0; i-- {
		q <<= 1
		if rest>>32&1 != 0 {
			q |= 1
			rest ^= p
		}
		rest <<= 1
	}
	return q
}

func BenchmarkFold(b *testing.B) {
	src, dst := make([]byte, 4096), make([]byte, 4096)
	b.Run("fold", func(b *testing.B) {
		b.SetBytes(4096)
		for b.Loop() {
			Fold(0, src)
		}
	})
	b.Run("copy", func(b *testing.B) {
		b.SetBytes(4096)
		for b.Loop() {
			FoldCopy(dst, 0, src)
		}
	})
	b.Run("hash/crc32", func(b *testing.B) {
		b.SetBytes(4096)
		for b.Loop() {
			crc32.Update(0, crc32.IEEETable, src)
		}
	})
}

// TestGuard: what is guarded is one small piece of code, and a fault goes on behind it.
func TestGuard(t *testing.T) {
	start, end, landing := Guard()
	require.Less(t, end-start, uintptr(2048))
	require.GreaterOrEqual(t, landing, end)
	require.Equal(t, start == 0, landing == 0)
}
