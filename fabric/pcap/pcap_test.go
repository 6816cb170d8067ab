package pcap

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

var (
	v4 = wire.Path{Src: ib.GIDFromIPv4(10, 0, 0, 1), Dst: ib.GIDFromIPv4(10, 0, 0, 2), TClass: 0x6a, HopLimit: 64, SPort: 0xc123, IPID: 0xbeef}
	v6 = wire.Path{Src: ib.GID{0: 0xfd, 15: 1}, Dst: ib.GID{0: 0xfd, 15: 2}, TClass: 0x6a, HopLimit: 7, SPort: 0xfedc, FlowLabel: 0xabcde}
	mc = wire.Path{Src: ib.GIDFromIPv4(10, 0, 0, 1), Dst: ib.GIDFromIPv4(239, 1, 2, 3), HopLimit: 1, SPort: 0xc001}
	m6 = wire.Path{Src: ib.GID{0: 0xfd, 15: 1}, Dst: ib.GID{0: 0xff, 1: 0x0e, 15: 0x33}, HopLimit: 1, SPort: 0xc001}
)

// datagram encodes p for path with a correct ICRC.
func datagram(path wire.Path, p wire.Packet) *fabric.Datagram {
	p.PKey = ib.PKeyDefault
	p.Pad = wire.PadFor(len(p.Payload))
	b := wire.AppendPacket(nil, &p)
	crc := wire.ICRC(&path, b)
	b = append(b, 0, 0, 0, 0)
	wire.PutICRC(b[len(b)-4:], crc)
	return &fabric.Datagram{Path: path, Buf: b}
}

// sample is one packet of every opcode and address kind. tshark guesses at payloads of
// 0 and 8 bytes, so there are none of those.
func sample() (list []*fabric.Datagram) {
	payload := []byte("seventeen bytes..")
	for i, path := range []wire.Path{v4, v6, mc, m6} {
		for o := range 256 {
			info := wire.Info(ib.Opcode(o))
			if info == nil {
				continue
			}
			ud := ib.Opcode(o).Transport() == ib.TransportUD
			if path.Dst.IsMulticast() != ud && i >= 2 {
				continue
			}
			p := wire.Packet{Opcode: ib.Opcode(o), DestQP: 0x11, PSN: ib.PSN(len(list)), AETH: wire.AETH{Syndrome: 0x1f, MSN: 1},
				RETH: wire.RETH{VA: 0x1000, RKey: 5, DMALen: 17}, DETH: wire.DETH{QKey: 0x11111111, SrcQP: 0x12}}
			if info.Mask&wire.Payload != 0 {
				p.Payload = payload
			}
			if info.Mask&wire.AtomicWrite != 0 {
				p.Payload = payload[:8]
			}
			list = append(list, datagram(path, p))
		}
	}
	return list
}

func capture(t testing.TB, list []*fabric.Datagram) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b)
	require.NoError(t, err)
	for i, d := range list {
		w.Capture(vtime.Time(i)*1001, d)
	}
	require.NoError(t, w.Close())
	require.NoError(t, w.Close())
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	list := sample()
	r, err := NewReader("mem", bytes.NewReader(capture(t, list)))
	require.NoError(t, err)
	for i, d := range list {
		p, err := r.Next()
		require.NoError(t, err)
		require.EqualValues(t, i+1, p.Number)
		require.Equal(t, vtime.Time(i)*1001, p.At)
		require.Equal(t, d.Path, p.Path)
		require.Equal(t, d.Buf[:len(d.Buf)-4], p.BTH)
		require.Equal(t, binary.LittleEndian.Uint32(d.Buf[len(d.Buf)-4:]), p.ICRC)
		require.True(t, p.CheckICRC(), "packet %d", i)
	}
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
	require.Zero(t, r.Skipped().Total())
	require.EqualValues(t, len(list), r.Packets())
	require.NoError(t, r.Close())
}

func TestBytesAreStable(t *testing.T) {
	a, b := capture(t, sample()), capture(t, sample())
	require.Equal(t, a, b)
	head := string(a[:200])
	for _, host := range []string{"amd64", "arm64", "linux", "darwin", "gopacket"} {
		require.NotContains(t, head, host)
	}
	require.Contains(t, head, "rvtsim")
}

func TestFrameHeaders(t *testing.T) {
	for _, path := range []wire.Path{v4, v6, mc, m6} {
		d := datagram(path, wire.Packet{Opcode: ib.UDSendOnly, Payload: []byte("abcde")})
		f := AppendFrame([]byte("before"), &path, d.Buf)
		require.Equal(t, "before", string(f[:6]))
		pkt := gopacket.NewPacket(f[6:], layers.LayerTypeEthernet, gopacket.Default)
		require.Nil(t, pkt.ErrorLayer())
		eth := pkt.LinkLayer().(*layers.Ethernet)
		udp := pkt.TransportLayer().(*layers.UDP)
		require.EqualValues(t, wire.UDPPort, udp.DstPort)
		require.EqualValues(t, path.SPort, udp.SrcPort)
		require.EqualValues(t, len(d.Buf)+8, udp.Length)
		require.Equal(t, byte(2), eth.SrcMAC[0]&3, "locally administered, not multicast")
		require.Equal(t, path.Dst.IsMulticast(), eth.DstMAC[0]&1 == 1)
		// gopacket's own checksums must equal ours.
		buf := gopacket.NewSerializeBuffer()
		opts := gopacket.SerializeOptions{ComputeChecksums: true}
		if path.IsIPv4() {
			ip := pkt.NetworkLayer().(*layers.IPv4)
			require.Equal(t, layers.IPv4DontFragment, ip.Flags)
			require.Equal(t, path.IPID, ip.Id)
			require.EqualValues(t, 28+len(d.Buf), ip.Length)
			require.Zero(t, udp.Checksum)
			want := ip.Checksum
			require.NoError(t, ip.SerializeTo(buf, opts))
			require.Equal(t, want, ip.Checksum)
		} else {
			ip := pkt.NetworkLayer().(*layers.IPv6)
			require.EqualValues(t, path.FlowLabel, ip.FlowLabel)
			want := udp.Checksum
			require.NotZero(t, want)
			require.NoError(t, udp.SetNetworkLayerForChecksum(ip))
			require.NoError(t, gopacket.Payload(udp.Payload).SerializeTo(buf, opts))
			require.NoError(t, udp.SerializeTo(buf, opts))
			require.Equal(t, want, udp.Checksum)
		}
	}
	macs := map[string]bool{}
	for i := range 1000 {
		macs[string(appendMAC(nil, ib.GID{0: 0xfd, 14: byte(i >> 8), 15: byte(i)}, false))] = true
	}
	require.Len(t, macs, 1000)
}

func TestUDPChecksumIsNeverZero(t *testing.T) {
	// Choose two payload bytes so that the sum is all ones.
	p := v6
	udp := make([]byte, 10)
	udp[8], udp[9] = 0, 0
	s := udpChecksumIPv6(&p, udp)
	be.PutUint16(udp[8:], s)
	require.Equal(t, uint16(0xffff), udpChecksumIPv6(&p, udp))
}

func TestComment(t *testing.T) {
	var b bytes.Buffer
	w, err := NewWriter(&b)
	require.NoError(t, err)
	w.CaptureComment(5, datagram(v4, wire.Packet{Opcode: ib.OpAcknowledge}), "retry 3 of 7")
	require.NoError(t, w.Flush())
	require.EqualValues(t, 1, w.Count())
	ng, err := pcapgo.NewNgReader(&b, pcapgo.NgReaderOptions{})
	require.NoError(t, err)
	_, _, opts, err := ng.ReadPacketDataWithOptions()
	require.NoError(t, err)
	require.Equal(t, []string{"retry 3 of 7"}, opts.Comments)
}

type brokenWriter struct{ left int }

func (b *brokenWriter) Write(p []byte) (int, error) {
	if b.left -= len(p); b.left < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestWriterErrorsStick(t *testing.T) {
	w, err := NewWriter(&brokenWriter{left: 10000})
	require.NoError(t, err)
	for range 500 {
		w.Capture(0, sample()[0])
	}
	require.ErrorContains(t, w.Err(), "disk full")
	require.ErrorContains(t, w.Flush(), "disk full")
	require.ErrorContains(t, w.Close(), "disk full")

	w, err = NewWriter(io.Discard)
	require.NoError(t, err)
	w.Capture(0, &fabric.Datagram{Path: v4, Buf: make([]byte, 70000)})
	require.ErrorContains(t, w.Err(), "70000 bytes")

	_, err = Create(filepath.Join(t.TempDir(), "no", "such", "dir.pcapng"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.pcapng")
	w, err := Create(name)
	require.NoError(t, err)
	for i := range 3 {
		w.Capture(vtime.Time(i), datagram(v4, wire.Packet{Opcode: ib.OpAcknowledge, PSN: ib.PSN(i)}))
	}
	require.NoError(t, w.Close())
	w.Capture(9, sample()[0])
	require.EqualValues(t, 3, w.Count(), "captures after Close do nothing")
	r, err := Open(name)
	require.NoError(t, err)
	n := 0
	for p, err := range r.All() {
		require.NoError(t, err)
		require.Equal(t, vtime.Time(n), p.At)
		n++
	}
	require.Equal(t, 3, n)
	require.NoError(t, r.Close())
	_, err = Open(name + ".missing")
	require.ErrorIs(t, err, os.ErrNotExist)
}

// legacy writes a pcap file of records with that link type.
func legacy(t testing.TB, link layers.LinkType, nanos bool, records ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if nanos {
		w = pcapgo.NewWriterNanos(&b)
	}
	require.NoError(t, w.WriteFileHeader(1<<16, link))
	for i, rec := range records {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{
			Timestamp: time.Unix(1, int64(i)*1000), CaptureLength: len(rec), Length: len(rec)}, rec))
	}
	return b.Bytes()
}

func TestLinkTypes(t *testing.T) {
	for _, path := range []wire.Path{v4, v6} {
		d := datagram(path, wire.Packet{Opcode: ib.OpSendOnly, PSN: 77, Payload: []byte("abc")})
		eth := AppendFrame(nil, &path, d.Buf)
		ip, typ := eth[14:], eth[12:14]
		join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
		for name, c := range map[string]struct {
			link layers.LinkType
			rec  []byte
		}{
			"ethernet":        {layers.LinkTypeEthernet, eth},
			"ethernet padded": {layers.LinkTypeEthernet, join(eth, make([]byte, 30))},
			"vlan":            {layers.LinkTypeEthernet, join(eth[:12], []byte{0x81, 0, 0, 5}, eth[12:])},
			"qinq":            {layers.LinkTypeEthernet, join(eth[:12], []byte{0x88, 0xa8, 0, 5, 0x81, 0, 0, 5}, eth[12:])},
			"raw":             {layers.LinkTypeRaw, ip},
			"raw 12":          {12, ip},
			"ipv4 or ipv6":    {layers.LinkTypeIPv4, ip},
			"sll":             {layers.LinkTypeLinuxSLL, join(make([]byte, 14), typ, ip)},
			"sll2":            {layers.LinkTypeLinuxSLL2, join(typ, make([]byte, 18), ip)},
		} {
			for _, nanos := range []bool{false, true} {
				r, err := NewReader(name, bytes.NewReader(legacy(t, c.link, nanos, c.rec, c.rec)))
				require.NoError(t, err, name)
				for i := range 2 {
					p, err := r.Next()
					require.NoError(t, err, name)
					require.Equal(t, vtime.Time(1e9+i*1000), p.At)
					require.Equal(t, path, p.Path, name)
					require.True(t, p.CheckICRC(), name)
					var q wire.Packet
					require.Equal(t, wire.DropNone, wire.Decode(p.BTH, &q))
					require.Equal(t, "abc", string(q.Payload))
				}
				_, err = r.Next()
				require.Equal(t, io.EOF, err)
			}
		}
	}
}

func TestSkipping(t *testing.T) {
	good := AppendFrame(nil, &v4, datagram(v4, wire.Packet{Opcode: ib.OpAcknowledge}).Buf)
	good6 := AppendFrame(nil, &v6, datagram(v6, wire.Packet{Opcode: ib.OpAcknowledge}).Buf)
	edit := func(src []byte, at int, v ...byte) []byte {
		b := bytes.Clone(src)
		copy(b[at:], v)
		return b
	}
	records := [][]byte{
		good,
		edit(good, 12, 0x08, 0x06),              // ARP
		edit(good, 14, 0x75),                    // IP version 7
		edit(good, 14, 0x41),                    // header of 4 bytes
		edit(good, 16, 0xff, 0xff),              // longer than captured
		edit(good, 20, 0x20),                    // more fragments
		edit(good, 21, 0x01),                    // fragment offset
		edit(good6, 20, 44),                     // IPv6 fragment header
		edit(good, 23, 6),                       // TCP
		edit(good6, 20, 58),                     // ICMPv6
		edit(good, 36, 0, 53),                   // DNS
		edit(good, 38, 0, 23),                   // UDP length without room for an ICRC
		edit(good, 38, 0xff, 0xff),              // UDP longer than IP
		edit(good, 16, 0, 24),                   // IP too short for a UDP header
		good[:20], {}, edit(good6, 18, 0xff, 0), // cut off, empty, IPv6 longer than captured
		good6,
	}
	r, err := NewReader("x", bytes.NewReader(legacy(t, layers.LinkTypeEthernet, true, records...)))
	require.NoError(t, err)
	var numbers []uint64
	for p, err := range r.All() {
		require.NoError(t, err)
		numbers = append(numbers, p.Number)
	}
	require.Equal(t, []uint64{1, 18}, numbers)
	require.Equal(t, Skipped{NotIP: 7, Fragment: 3, NotUDP: 2, NotRoCE: 2, TooShort: 2}, r.Skipped())

	r, err = NewReader("x", bytes.NewReader(legacy(t, layers.LinkTypeIEEE802_11, true, good)))
	require.NoError(t, err)
	_, err = r.Next()
	require.Equal(t, io.EOF, err)
	require.Equal(t, Skipped{LinkType: 1}, r.Skipped())
}

// TestSnapLength cuts a packet everywhere: it is counted, never half delivered.
func TestSnapLength(t *testing.T) {
	for _, path := range []wire.Path{v4, v6} {
		full := AppendFrame(nil, &path, datagram(path, wire.Packet{Opcode: ib.OpSendOnly, Payload: make([]byte, 32)}).Buf)
		for n := range len(full) {
			var b bytes.Buffer
			w := pcapgo.NewWriterNanos(&b)
			require.NoError(t, w.WriteFileHeader(96, layers.LinkTypeEthernet))
			require.NoError(t, w.WritePacket(gopacket.CaptureInfo{CaptureLength: n, Length: len(full)}, full[:n]))
			r, err := NewReader("x", &b)
			require.NoError(t, err)
			_, err = r.Next()
			require.Equal(t, io.EOF, err, "cut at %d", n)
			s := r.Skipped()
			require.EqualValues(t, 1, s.Total())
			if n > ethernetBytes {
				require.EqualValues(t, 1, s.Truncated, "cut at %d", n)
			}
		}
	}
}

// TestTruncatedFiles cuts files everywhere: either between records, which is a sound
// file, or an error that names the file and the packet.
func TestTruncatedFiles(t *testing.T) {
	list := sample()[:3]
	recs := [][]byte{}
	for _, d := range list {
		recs = append(recs, AppendFrame(nil, &d.Path, d.Buf))
	}
	for name, whole := range map[string][]byte{
		"ng":     capture(t, list),
		"legacy": legacy(t, layers.LinkTypeEthernet, true, recs...),
	} {
		sound := 0
		for n := range len(whole) {
			r, err := NewReader("some.pcap", bytes.NewReader(whole[:n]))
			if err != nil {
				require.ErrorContains(t, err, "some.pcap")
				require.True(t, errors.Is(err, ErrTruncated) || errors.Is(err, ErrNotCapture) && n < 4, "%s cut at %d: %v", name, n, err)
				continue
			}
			for err == nil {
				_, err = r.Next()
			}
			if err == io.EOF {
				sound++
				continue
			}
			require.ErrorIs(t, err, ErrTruncated, "%s cut at %d", name, n)
			require.ErrorContains(t, err, "some.pcap: packet ")
			_, again := r.Next()
			require.Equal(t, err, again)
		}
		// The header alone, and after each packet but the last; pcapng also between
		// its section header and its interface block.
		require.Contains(t, map[string][]int{"ng": {4}, "legacy": {3}}[name], sound, name)
	}
}

func TestNotACapture(t *testing.T) {
	for _, s := range []string{"", "abc", "#!/bin/sh\necho", strings.Repeat("\x00", 100), "\x1f\x8bnot gzip"} {
		_, err := NewReader("notes.txt", strings.NewReader(s))
		require.ErrorIs(t, err, ErrNotCapture)
		require.ErrorContains(t, err, "notes.txt")
	}
	_, err := NewReader("x", strings.NewReader("\x0a\x0d\x0d\x0a\x1c\x00\x00\x00garbage and more garbage"))
	require.ErrorIs(t, err, ErrDamaged)
	_, err = NewReader("x", io.MultiReader(strings.NewReader("ab"), errReader{}))
	require.ErrorContains(t, err, "cable cut")
}

type errReader struct{}

func (errReader) Read([]byte) (int, error) { return 0, errors.New("cable cut") }

func TestGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(capture(t, sample()))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	r, err := NewReader("x.gz", bytes.NewReader(b.Bytes()))
	require.NoError(t, err)
	n := 0
	for _, err := range r.All() {
		require.NoError(t, err)
		n++
	}
	require.Len(t, sample(), n)
	r, err = NewReader("x.gz", bytes.NewReader(b.Bytes()[:b.Len()-20]))
	require.NoError(t, err)
	for err == nil {
		_, err = r.Next()
	}
	require.ErrorIs(t, err, ErrTruncated)
}

func TestTimeOf(t *testing.T) {
	require.Equal(t, vtime.Time(0), timeOf(time.Time{}))
	require.Equal(t, vtime.Time(1500), timeOf(time.Unix(0, 1500)))
	require.Equal(t, vtime.Never-1, timeOf(time.Unix(1<<40, 0)))
	require.Less(t, timeOf(time.Unix(-1<<40, 0)), vtime.Time(0))
}

func FuzzReader(f *testing.F) {
	f.Add(capture(f, sample()[:4]))
	d := sample()[0]
	f.Add(legacy(f, layers.LinkTypeEthernet, false, AppendFrame(nil, &d.Path, d.Buf)))
	f.Add(legacy(f, layers.LinkTypeRaw, true, AppendFrame(nil, &v6, d.Buf)[14:]))
	f.Add([]byte("\x0a\x0d\x0d\x0a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := NewReader("fuzz", bytes.NewReader(b))
		if err != nil {
			if !strings.Contains(err.Error(), "fuzz") {
				t.Fatalf("error does not name the file: %v", err)
			}
			return
		}
		total := uint64(0)
		for {
			p, err := r.Next()
			if err != nil {
				break
			}
			total++
			p.CheckICRC()
			var q wire.Packet
			wire.Decode(p.BTH, &q)
			if len(p.BTH) < bthBytes || len(p.UDP) != udpBytes || len(p.L3) < ipv4Bytes {
				t.Fatalf("slices of %d, %d and %d bytes", len(p.L3), len(p.UDP), len(p.BTH))
			}
		}
		if s := r.Skipped(); total+s.Total() != r.Packets() {
			t.Fatalf("%d delivered + %d skipped of %d", total, s.Total(), r.Packets())
		}
	})
}
