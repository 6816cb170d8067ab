package udp

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

var (
	gid1 = ib.GIDFromIPv4(127, 0, 0, 1)
	gid2 = ib.GIDFromIPv4(127, 0, 0, 2)
	gid6 = ib.GID{15: 1}

	wide = trainLimits{segments: MaxSegments, segBytes: 9000, bytes: MaxDatagramBytes}
)

// datagram makes one of n bytes, each a function of n and seed.
func datagram(dst ib.GID, n int, seed byte) fabric.Datagram {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i)*7 ^ seed ^ byte(n)
	}
	return fabric.Datagram{Path: wire.Path{Dst: dst}, Buf: b}
}

func datagrams(dst ib.GID, sizes ...int) (out []fabric.Datagram) {
	for i, n := range sizes {
		out = append(out, datagram(dst, n, byte(i)))
	}
	return out
}

func repeat(size, n int) []int {
	s := make([]int, n)
	for i := range s {
		s[i] = size
	}
	return s
}

func TestCoalesceLayout(t *testing.T) {
	tos := datagrams(gid2, 64, 64, 64)
	tos[2].Path.TClass = 8
	hops := datagrams(gid2, 64, 64)
	hops[1].Path.HopLimit = 3
	two := append(datagrams(gid1, 64, 64), datagrams(gid2, 64, 64)...)
	for _, c := range []struct {
		name   string
		src    []fabric.Datagram
		lim    trainLimits
		counts []int
	}{
		{"empty", nil, wide, nil},
		{"one", datagrams(gid2, 64), wide, []int{1}},
		{"equal", datagrams(gid2, 64, 64, 64), wide, []int{3}},
		{"shorter last", datagrams(gid2, 64, 64, 20), wide, []int{3}},
		{"shorter ends the train", datagrams(gid2, 64, 20, 20, 20), wide, []int{2, 2}},
		{"longer begins one", datagrams(gid2, 20, 64, 64), wide, []int{1, 2}},
		{"write: RETH first", datagrams(gid2, 4128, 4112, 4112, 4112), wide, []int{2, 2}},
		{"traffic class", tos, wide, []int{2, 1}},
		{"hop limit", hops, wide, []int{1, 1}},
		{"destination", two, wide, []int{2, 2}},
		{"off", datagrams(gid2, 64, 64, 64), trainLimits{segments: 1, segBytes: 9000, bytes: MaxDatagramBytes}, []int{1, 1, 1}},
		{"segment limit", datagrams(gid2, repeat(64, 9)...), trainLimits{segments: 4, segBytes: 9000, bytes: MaxDatagramBytes}, []int{4, 4, 1}},
		{"byte limit", datagrams(gid2, repeat(4112, 31)...), wide, []int{15, 15, 1}},
		{"above the device's MTU", datagrams(gid2, 9001, 9001, 64, 64), wide, []int{1, 1, 2}},
		{"the batch's limit", datagrams(gid2, repeat(20, batchSize+5)...), wide, []int{batchSize}},
		{"stops at a short one", datagrams(gid2, 64, 64, 15, 64), wide, []int{2}},
		{"stops at the other family", append(datagrams(gid2, 64), datagrams(gid6, 64)...), wide, []int{1}},
		{"stops at the wildcard", datagrams(ib.GIDFromIPv4(0, 0, 0, 0), 64), wide, nil},
		{"stops at a long one", datagrams(gid2, 64, MaxDatagramBytes+1), wide, []int{1}},
		{"largest", datagrams(gid2, MaxDatagramBytes), wide, []int{1}},
	} {
		var counts []int
		for _, tr := range coalesce(nil, c.src, true, c.lim) {
			counts = append(counts, tr.count)
		}
		require.Equal(t, c.counts, counts, c.name)
	}
}

// checkCoalesce states what must hold of any layout, the round trip through split
// first.
func checkCoalesce(t *testing.T, src []fabric.Datagram, v4 bool, lim trainLimits) {
	t.Helper()
	next := 0
	for _, tr := range coalesce(nil, src, v4, lim) {
		require.Equal(t, next, tr.first, "in order, nothing left out")
		require.Positive(t, tr.count)
		var msg []byte
		for i := range tr.count {
			d := &src[tr.first+i]
			require.Equal(t, sendable, examine(d, v4))
			require.True(t, sameFlow(&d.Path, &src[tr.first].Path))
			msg = append(msg, d.Buf...)
		}
		require.Len(t, msg, tr.bytes)
		if tr.count > 1 {
			require.LessOrEqual(t, tr.count, lim.segments)
			require.LessOrEqual(t, tr.bytes, lim.bytes)
			require.LessOrEqual(t, tr.segBytes, lim.segBytes)
		}
		require.Equal(t, tr.count, segmentCount(len(msg), tr.segBytes))
		for i := range tr.count {
			var seg []byte
			seg, msg = nextSegment(msg, tr.segBytes)
			require.True(t, bytes.Equal(src[tr.first+i].Buf, seg), "split(coalesce(x)) is not x")
			require.Equal(t, len(seg), cap(seg))
		}
		require.Empty(t, msg)
		next += tr.count
	}
	if next < len(src) && next < batchSize {
		require.NotEqual(t, sendable, examine(&src[next], v4), "stopped without a reason")
	}
}

func TestCoalesceProperty(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	dsts := []ib.GID{gid1, gid2, gid2, gid2}
	sizes := []int{16, 20, 64, 64, 64, 1040, 4112, 4112, 4112, 4128, 15, 0, 9001}
	for range 3000 {
		var src []fabric.Datagram
		for range rng.IntN(40) {
			d := datagram(dsts[rng.IntN(len(dsts))], sizes[rng.IntN(len(sizes))], byte(rng.Uint32()))
			d.Path.TClass = uint8(rng.IntN(8) / 7)
			for range 1 + rng.IntN(6) {
				src = append(src, d)
			}
		}
		checkCoalesce(t, src, true, trainLimits{segments: 1 + rng.IntN(MaxSegments), segBytes: 1000 + rng.IntN(9000), bytes: 5000 + rng.IntN(MaxDatagramBytes-5000)})
	}
}

func FuzzCoalesce(f *testing.F) {
	f.Add([]byte{64, 0, 0, 64, 0, 0, 20, 0, 0, 64, 0, 1}, uint8(4), uint16(3000), true)
	f.Add([]byte{0x10, 0x10, 0, 0x10, 0x10, 0, 0, 0, 0}, uint8(127), uint16(65507), false)
	f.Fuzz(func(t *testing.T, spec []byte, segments uint8, limit uint16, v4 bool) {
		pool := make([]byte, 1<<16)
		for i := range pool {
			pool[i] = byte(i * 31)
		}
		dsts := [4]ib.GID{gid1, gid2, gid6, {}}
		var src []fabric.Datagram
		for ; len(spec) >= 3 && len(src) < 2*batchSize; spec = spec[3:] {
			size := int(binary.LittleEndian.Uint16(spec))
			src = append(src, fabric.Datagram{Buf: pool[:size], Path: wire.Path{Dst: dsts[spec[2]&3], TClass: spec[2] >> 7}})
		}
		lim := trainLimits{segments: 1 + int(segments)%MaxSegments, segBytes: 9000, bytes: min(int(limit), MaxDatagramBytes)}
		checkCoalesce(t, src, v4, lim)
	})
}

// FuzzSplit gives nextSegment hostile sizes: it must end and lose no byte.
func FuzzSplit(f *testing.F) {
	f.Add([]byte("0123456789"), 4)
	f.Add([]byte{}, -1)
	f.Fuzz(func(t *testing.T, msg []byte, segBytes int) {
		var joined []byte
		n := 0
		for rest := msg; n == 0 || len(rest) > 0; n++ {
			var seg []byte
			seg, rest = nextSegment(rest, segBytes)
			joined = append(joined, seg...)
			require.LessOrEqual(t, n, len(msg))
		}
		require.True(t, bytes.Equal(msg, joined))
		require.Equal(t, segmentCount(len(msg), segBytes), n)
	})
}

// icrcOf is the ICRC written down once more, from the header bytes: the seal and the
// check under test share one implementation.
func icrcOf(t testing.TB, p *wire.Path, b []byte) uint32 {
	t.Helper()
	var h []byte
	h = append(h, bytes.Repeat([]byte{0xff}, 8)...)
	udpLen := 8 + len(b) + 4
	if p.Src.IsIPv4() {
		s, d := p.Src.IPv4(), p.Dst.IPv4()
		h = append(h, 0x45, 0xff, byte((20+udpLen)>>8), byte(20+udpLen), byte(p.IPID>>8), byte(p.IPID), 0x40, 0, 0xff, 17, 0xff, 0xff)
		h = append(append(h, s[:]...), d[:]...)
	} else {
		h = append(h, 0x6f, 0xff, 0xff, 0xff, byte(udpLen>>8), byte(udpLen), 17, 0xff)
		h = append(append(h, p.Src[:]...), p.Dst[:]...)
	}
	h = append(h, byte(p.SPort>>8), byte(p.SPort), 0x12, 0xb7, byte(udpLen>>8), byte(udpLen), 0xff, 0xff)
	h = append(h, b...)
	h[len(h)-len(b)+4] = 0xff
	return crc32.ChecksumIEEE(h)
}

func TestSeal(t *testing.T) {
	for _, dst := range []ib.GID{gid2, gid6} {
		local := gid1
		if !dst.IsIPv4() {
			local = ib.GID{0: 0xfd, 15: 7}
		}
		src := datagrams(dst, 64, 64, 64, 20)
		src[2].BadICRC = true
		src[3].Path.FlowLabel, src[3].Path.IPID, src[3].Path.HopLimit = 77, 99, 9
		seal(src, train{first: 1, count: 3}, local, 4791, new(wire.ICRCPrefixes))
		for i, d := range src[1:] {
			require.Equal(t, local, d.Path.Src)
			require.EqualValues(t, 4791, d.Path.SPort)
			require.Zero(t, d.Path.FlowLabel)
			if local.IsIPv4() {
				require.EqualValues(t, i, d.Path.IPID, "the index within the train")
			} else {
				require.Zero(t, d.Path.IPID)
			}
			want := icrcOf(t, &d.Path, d.Buf[:len(d.Buf)-4])
			if d.BadICRC {
				want = ^want
			}
			require.Equal(t, want, binary.LittleEndian.Uint32(d.Buf[len(d.Buf)-4:]))
		}
		require.EqualValues(t, 64, src[1].Path.HopLimit)
		require.EqualValues(t, 9, src[3].Path.HopLimit)
	}
}

func TestVerify(t *testing.T) {
	sealed := func(local, dst ib.GID, id uint16) (wire.Path, []byte) {
		p := wire.Path{Src: local, Dst: dst, SPort: 4791, IPID: id}
		d := datagram(dst, 300, 1)
		wire.PutICRC(d.Buf[296:], icrcOf(t, &p, d.Buf[:296]))
		return p, d.Buf
	}
	for _, c := range []struct {
		mode      VerifyMode
		id, guess uint16
		want      verdict
	}{
		{VerifySolve, 0, 0, icrcFits},
		{VerifySolve, 7, 7, icrcFits},
		{VerifySolve, 7, 0, icrcSolved},
		{VerifySolve, 0, 7, icrcSolved},
		{VerifySolve, 0xffff, 0, icrcSolved},
		{VerifyZeroID, 0, 0, icrcFits},
		{VerifyZeroID, MaxSegments - 1, 0, icrcSolved},
		{VerifyZeroID, MaxSegments, 0, icrcBad},
		{VerifyZeroID, 0xffff, 0, icrcBad},
	} {
		path, buf := sealed(gid1, gid2, c.id)
		id, v := verify(c.mode, &path, new(wire.ICRCPrefixes), buf, c.guess)
		require.Equal(t, c.want, v, "%+v", c)
		if v != icrcBad {
			require.Equal(t, c.id, id)
		}
		for _, at := range []int{0, 5, 100, 295, 296, 299} {
			buf[at] ^= 0x10
			_, v := verify(c.mode, &path, new(wire.ICRCPrefixes), buf, c.guess)
			require.Equal(t, icrcBad, v, "bit of byte %d flipped", at)
			buf[at] ^= 0x10
		}
	}
	path, buf := sealed(gid6, ib.GID{0: 0xfd, 15: 2}, 0)
	_, v := verify(VerifySolve, &path, new(wire.ICRCPrefixes), buf, 12)
	require.Equal(t, icrcFits, v)
	buf[20] ^= 1
	_, v = verify(VerifySolve, &path, new(wire.ICRCPrefixes), buf, 12)
	require.Equal(t, icrcBad, v)
}

// TestIDGuess counts how many segments of typical trains a guess gets wrong.
func TestIDGuess(t *testing.T) {
	series := func(first, step uint16, n int) (ids []uint16) {
		for i := range n {
			ids = append(ids, first+uint16(i)*step)
		}
		return ids
	}
	for _, c := range []struct {
		name  string
		ids   []uint16
		wrong int
	}{
		{"one send", series(0, 1, 128), 0},
		{"single sends of such a port, merged", series(0, 0, 64), 1},
		{"a counting peer", series(0x1234, 1, 64), 1},
		{"a counting peer, every other packet", series(0xfff0, 2, 64), 2},
		{"two trains merged", append(series(0, 1, 8), series(0, 1, 8)...), 2},
	} {
		g, wrong := newIDGuess(), 0
		for i, id := range c.ids {
			if g.next != id {
				wrong++
			}
			g.learn(id, i == 0)
		}
		require.Equal(t, c.wrong, wrong, c.name)
	}
}
