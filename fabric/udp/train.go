package udp

import (
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// train is a run of consecutive datagrams of a batch that one send carries: the same
// destination, traffic class and hop limit, all of one size but perhaps a shorter
// last one.
type train struct {
	first, count int // index into the batch, number of datagrams
	segBytes     int // size of the first, and so of all but the last
	bytes        int // sum of all sizes
}

// trainLimits bounds what coalesce may put together.
type trainLimits struct {
	segments int // most datagrams; 1 turns coalescing off
	segBytes int // larger datagrams travel alone: a kernel refuses a train of them
	bytes    int // most bytes in all
}

// refusal is why a datagram cannot be sent at all.
type refusal uint8

const (
	sendable refusal = iota
	malformed
	tooLong
)

// examine says whether a port of the given address family can send d.
func examine(d *fabric.Datagram, v4 bool) refusal {
	switch {
	case len(d.Buf) > MaxDatagramBytes:
		return tooLong
	case len(d.Buf) < MinDatagramBytes, d.Path.Dst.IsIPv4() != v4:
		return malformed
	case d.Path.Dst.IsZero(), v4 && d.Path.Dst.IPv4() == [4]byte{}:
		return malformed // a kernel takes the wildcard for the loopback address
	}
	return sendable
}

// sameFlow reports whether two datagrams may share a send.
func sameFlow(a, b *wire.Path) bool {
	return a.Dst == b.Dst && a.TClass == b.TClass && a.HopLimit == b.HopLimit
}

// coalesce lays src out into trains, in order, and appends them to dst. It stops
// before the first datagram that cannot be sent and after batchSize datagrams; the
// trains tell how far it came. It only looks at lengths and paths.
func coalesce(dst []train, src []fabric.Datagram, v4 bool, lim trainLimits) []train {
	open := false // may the last train still grow?
	var cur *train
	for i := range src[:min(len(src), batchSize)] {
		d := &src[i]
		if examine(d, v4) != sendable {
			break
		}
		size := len(d.Buf)
		if open && size <= cur.segBytes && cur.count < lim.segments && cur.bytes+size <= lim.bytes &&
			sameFlow(&src[cur.first].Path, &d.Path) {
			cur.count++
			cur.bytes += size
			open = size == cur.segBytes
			continue
		}
		dst = append(dst, train{first: i, count: 1, segBytes: size, bytes: size})
		cur = &dst[len(dst)-1]
		open = size <= lim.segBytes
	}
	return dst
}

// nextSegment cuts the next datagram off a received message. segBytes is the size
// that the kernel reported, anything <= 0 if the message is a single datagram. The
// segment's capacity ends with it, so appending to it cannot reach its neighbour.
func nextSegment(msg []byte, segBytes int) (seg, rest []byte) {
	if segBytes <= 0 || segBytes >= len(msg) {
		return msg[:len(msg):len(msg)], nil
	}
	return msg[:segBytes:segBytes], msg[segBytes:]
}

// segmentCount is how many datagrams nextSegment will cut a message into.
func segmentCount(bytes, segBytes int) int {
	if segBytes <= 0 || segBytes >= bytes {
		return 1
	}
	return (bytes + segBytes - 1) / segBytes
}

// seal completes the paths of a train's datagrams with what the socket will send and
// writes their ICRCs. The identification of segment i is i.
func seal(src []fabric.Datagram, t train, local ib.GID, sport uint16, known *wire.ICRCPrefixes) {
	for i := range src[t.first : t.first+t.count] {
		fabric.Seal(&src[t.first+i], local, sport, uint16(i), known)
	}
}
