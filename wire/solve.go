package wire

// SolveIPID finds the IPv4 identification that makes the ICRC of b on path equal to
// want; path.IPID is ignored. ok is false if there is none, which means that the
// packet is damaged.
//
// A UDP socket does not show the identification of a datagram, yet the ICRC covers
// it. As the CRC is linear, at most one of the 65536 values fits, and the other 16
// bits of the CRC still check the packet: a damaged packet passes with a chance of
// 2^-16. IPv6 has no such field; there ok is a full check and id is 0.
func SolveIPID(path *Path, b []byte, want uint32) (id uint16, ok bool) {
	p := NewICRCPrefix(path, len(b))
	diff := p.ICRC(0, b) ^ want
	if !path.IsIPv4() {
		return 0, diff == 0
	}
	// diff is what the two identification bytes leave in an all-zero register after
	// all that follows them. Turn the register back over those bytes and over the
	// two themselves: the bytes stand in its low half, first byte lowest.
	n := ipv4Bytes - ipv4IDOffset + udpBytes + len(b)
	if n >= maxRewind {
		return 0, false // longer than any UDP datagram
	}
	reg := gfMul(gfMul(diff, rewindLow[n%rewindStep]), rewindHigh[n/rewindStep])
	if reg>>16 != 0 {
		return 0, false
	}
	return uint16(byte(reg))<<8 | uint16(byte(reg>>8)), true
}

// The CRC register is a polynomial over GF(2) modulo the CRC's generator, bit 31
// being the coefficient of x^0. A zero byte multiplies it by x^8.
const (
	crcPoly    uint32 = 0xedb88320
	gfOne      uint32 = 1 << 31
	rewindStep        = 64
	maxRewind         = 1 << 16
)

// rewindLow[n] is x^(-8n); rewindHigh[n] is x^(-8 * rewindStep * n). Their product
// undoes any number of zero bytes below maxRewind.
var (
	rewindLow  = gfPowers[[rewindStep]uint32](gfInverseByte())
	rewindHigh = gfPowers[[maxRewind / rewindStep]uint32](gfMul(rewindLow[rewindStep-1], rewindLow[1]))
)

// gfInverseByte returns x^-8.
func gfInverseByte() uint32 {
	r := gfOne
	for range 8 {
		// Division by x. Only a reduction can have set the top bit, since the shift
		// of a multiplication leaves it clear and the generator has it.
		if r&gfOne != 0 {
			r = (r^crcPoly)<<1 | 1
		} else {
			r <<= 1
		}
	}
	return r
}

// gfPowers fills a table with the powers of base, from the zeroth.
func gfPowers[T [rewindStep]uint32 | [maxRewind / rewindStep]uint32](base uint32) (t T) {
	v := gfOne
	for i := range len(t) {
		t[i] = v
		v = gfMul(v, base)
	}
	return t
}

// gfMul multiplies two registers modulo the generator, in constant time.
func gfMul(a, b uint32) (p uint32) {
	for range 32 {
		p ^= b & -(a >> 31)
		a <<= 1
		b = b>>1 ^ crcPoly&-(b&1)
	}
	return p
}
