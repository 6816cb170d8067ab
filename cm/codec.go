package cm

import "encoding/binary"

var be = binary.BigEndian

// codec moves fields between a struct and big-endian bits. One description of a
// message serves both directions, so that what is decoded is what would be encoded.
// Bits that no field covers are not decoded, and encoded as 0.
type codec struct {
	b        []byte
	decoding bool
}

// field moves the width bits whose first, the most significant one, is bit of byte off;
// bit 0 is the most significant bit of a byte. The field lies within 8 bytes from off.
func field[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *codec, off, bit, width int, v *T) {
	n := (bit + width + 7) / 8
	var word uint64
	for _, x := range c.b[off : off+n] {
		word = word<<8 | uint64(x)
	}
	shift := 8*n - bit - width
	mask := ^uint64(0) >> (64 - width)
	if c.decoding {
		*v = T(word >> shift & mask)
		return
	}
	word = word&^(mask<<shift) | (uint64(*v)&mask)<<shift
	for i := n - 1; i >= 0; i-- {
		c.b[off+i] = byte(word)
		word >>= 8
	}
}

// whole moves a field of whole bytes.
func whole[T ~uint8 | ~uint16 | ~uint32 | ~uint64](c *codec, off, bytes int, v *T) {
	field(c, off, 0, 8*bytes, v)
}

// oneBit moves one bit.
func oneBit(c *codec, off, bit int, v *bool) {
	var x uint8
	if *v {
		x = 1
	}
	field(c, off, bit, 1, &x)
	*v = x == 1
}

// raw moves bytes as they are.
func (c *codec) raw(off int, p []byte) {
	if c.decoding {
		copy(p, c.b[off:])
	} else {
		copy(c.b[off:], p)
	}
}
