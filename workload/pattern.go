package workload

import "encoding/binary"

// weyl steps from one 8-byte word of a pattern to the next.
const weyl = 0x9e3779b97f4a7c15

// canaryByte fills memory that nobody may write.
const canaryByte = 0xa5

// pattern is the contents of one message. Word 0 names the message, so that a
// receiver that may miss messages can tell which one it has; the words after it
// depend on message and position, so that a byte in the wrong place shows.
type pattern struct {
	first, key uint64
}

func (sc *script) pattern(i uint64) pattern {
	return pattern{first: sc.content ^ i, key: mix(sc.content, i)}
}

// readZonePattern is the contents of memory that is only read.
func readZonePattern(seed uint64, dir direction) pattern {
	k := mix(mix(seed, seedReadZone), uint64(dir))
	return pattern{first: k, key: k}
}

func (p pattern) word(k int) uint64 {
	if k == 0 {
		return p.first
	}
	return p.key + uint64(k)*weyl
}

// fill writes the first bytes of the pattern to b.
func (p pattern) fill(b []byte) {
	k := 0
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, p.word(k))
		k++
	}
	w := p.word(k)
	for i := range b {
		b[i] = byte(w >> (8 * i))
	}
}

// byteAt returns byte i of the pattern.
func (p pattern) byteAt(i int) byte { return byte(p.word(i/8) >> (8 * (i % 8))) }

// mismatch returns the first index where b differs from the pattern from byte off on,
// or -1.
func (p pattern) mismatch(b []byte, off int) int {
	i := 0
	if off%8 == 0 {
		for k := off / 8; len(b)-i >= 8 && binary.LittleEndian.Uint64(b[i:]) == p.word(k); k++ {
			i += 8
		}
	}
	for ; i < len(b); i++ {
		if b[i] != p.byteAt(off+i) {
			return i
		}
	}
	return -1
}

// untouched returns the first index where b is no canary, or -1.
func untouched(b []byte) int {
	const word = canaryByte * 0x0101010101010101
	i := 0
	for len(b)-i >= 8 && binary.LittleEndian.Uint64(b[i:]) == word {
		i += 8
	}
	for ; i < len(b); i++ {
		if b[i] != canaryByte {
			return i
		}
	}
	return -1
}

func fillCanary(b []byte) {
	for i := range b {
		b[i] = canaryByte
	}
}
