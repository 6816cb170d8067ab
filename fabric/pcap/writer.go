package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"sync"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

const (
	ethernetBytes = 14
	ipv4Bytes     = 20
	ipv6Bytes     = 40
	udpBytes      = 8

	etherTypeIPv4 = 0x0800
	etherTypeIPv6 = 0x86dd
	ipProtoUDP    = 17

	// maxBuf keeps the IP length field in range.
	maxBuf = 0xffff - ipv6Bytes - udpBytes
)

var be = binary.BigEndian

// Writer writes datagrams to a pcapng file. All methods may be called from several
// goroutines. The first error sticks: later captures do nothing, and Err, Flush and
// Close return it.
type Writer struct {
	mu     sync.Mutex
	ng     *pcapgo.NgWriter
	closer io.Closer
	buf    []byte
	count  uint64
	err    error
}

var _ fabric.Sink = (*Writer)(nil)

// NewWriter writes the file header to w and returns a Writer. Flush or Close it at
// the end; w stays the caller's to close.
func NewWriter(w io.Writer) (*Writer, error) {
	ng, err := pcapgo.NewNgWriterInterface(w,
		pcapgo.NgInterface{Name: "rvtsim", LinkType: layers.LinkTypeEthernet, TimestampResolution: 9},
		pcapgo.NgWriterOptions{SectionInfo: pcapgo.NgSectionInfo{Application: "rvtsim"}})
	if err != nil {
		return nil, fmt.Errorf("pcap: write header: %w", err)
	}
	return &Writer{ng: ng}, nil
}

// Create creates or truncates the named file and returns a Writer that owns it.
func Create(name string) (*Writer, error) {
	f, err := os.Create(name)
	if err != nil {
		return nil, fmt.Errorf("pcap: %w", err)
	}
	w, err := NewWriter(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.closer = f
	return w, nil
}

// Capture writes one datagram. The instant becomes the time stamp, in nanoseconds
// since the epoch of the run. The ICRC is written as it is in d.Buf.
func (w *Writer) Capture(at vtime.Time, d *fabric.Datagram) { w.CaptureComment(at, d, "") }

// CaptureComment writes one datagram with a comment, which Wireshark shows with it.
// An empty comment is none.
func (w *Writer) CaptureComment(at vtime.Time, d *fabric.Datagram, comment string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return
	}
	if len(d.Buf) > maxBuf {
		w.err = fmt.Errorf("pcap: datagram of %d bytes does not fit into an IP packet", len(d.Buf))
		return
	}
	w.buf = AppendFrame(w.buf[:0], &d.Path, d.Buf)
	ci := gopacket.CaptureInfo{
		Timestamp:     time.Unix(0, int64(at)).UTC(),
		CaptureLength: len(w.buf),
		Length:        len(w.buf),
	}
	var opts pcapgo.NgPacketOptions
	if comment != "" {
		opts.Comments = []string{comment}
	}
	if err := w.ng.WritePacketWithOptions(ci, w.buf, opts); err != nil {
		w.err = fmt.Errorf("pcap: write packet %d: %w", w.count+1, err)
		return
	}
	w.count++
}

// Count returns how many datagrams were written.
func (w *Writer) Count() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count
}

// Err returns the error that stopped the writer, if any.
func (w *Writer) Err() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// Flush writes what is buffered.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.flush()
}

func (w *Writer) flush() error {
	if err := w.ng.Flush(); err != nil && w.err == nil {
		w.err = fmt.Errorf("pcap: %w", err)
	}
	return w.err
}

// Close flushes, and closes the file of a Writer that came from Create. Captures
// after Close do nothing; closing twice is no error.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if errors.Is(w.err, os.ErrClosed) {
		return nil
	}
	err := w.flush()
	if w.closer != nil {
		err = errors.Join(err, w.closer.Close())
	}
	w.err = fmt.Errorf("pcap: writer: %w", os.ErrClosed)
	return err
}

// AppendFrame appends the Ethernet frame that carries b, a packet from the BTH to the
// ICRC, along path. IPv4 headers have DF set and a UDP checksum of 0, as RoCE v2
// senders do; over IPv6 the UDP checksum is correct, because analysers mark a 0 there
// as illegal. The ICRC does not cover it. len(b) must fit into an IP packet.
func AppendFrame(dst []byte, path *wire.Path, b []byte) []byte {
	ipv4 := path.IsIPv4()
	udpLen := udpBytes + len(b)
	dst = appendMAC(dst, path.Dst, ipv4)
	dst = appendMAC(dst, path.Src, ipv4)
	// A GRH is the IP header, right-aligned in 40 bytes.
	var grh [ib.GRHBytes]byte
	ip := wire.AppendGRH(grh[:0], path, udpLen)
	if ipv4 {
		dst = be.AppendUint16(dst, etherTypeIPv4)
		ip = ip[len(ip)-ipv4Bytes:]
	} else {
		dst = be.AppendUint16(dst, etherTypeIPv6)
	}
	dst = append(dst, ip...)
	udp := len(dst)
	dst = be.AppendUint16(dst, path.SPort)
	dst = be.AppendUint16(dst, wire.UDPPort)
	dst = be.AppendUint16(dst, uint16(udpLen))
	dst = append(dst, 0, 0)
	dst = append(dst, b...)
	if !ipv4 {
		be.PutUint16(dst[udp+6:], udpChecksumIPv6(path, dst[udp:]))
	}
	return dst
}

// appendMAC appends a MAC address that depends on the GID alone: the mapped one for
// multicast, else a locally administered one that shows an IPv4 address in clear.
func appendMAC(dst []byte, gid ib.GID, ipv4 bool) []byte {
	switch {
	case gid.IsMulticast() && ipv4:
		return append(dst, 0x01, 0x00, 0x5e, gid[13]&0x7f, gid[14], gid[15])
	case gid.IsMulticast():
		return append(dst, 0x33, 0x33, gid[12], gid[13], gid[14], gid[15])
	case ipv4:
		return append(dst, 0x02, 0x00, gid[12], gid[13], gid[14], gid[15])
	}
	h := fnv.New64a()
	h.Write(gid[:])
	s := h.Sum64()
	return append(dst, 0x06, byte(s>>32), byte(s>>24), byte(s>>16), byte(s>>8), byte(s))
}

// udpChecksumIPv6 is the checksum of a UDP datagram whose checksum field is 0.
func udpChecksumIPv6(path *wire.Path, udp []byte) uint16 {
	s := uint64(len(udp)) + ipProtoUDP
	s += sum16(path.Src[:]) + sum16(path.Dst[:]) + sum16(udp)
	for s > 0xffff {
		s = s>>16 + s&0xffff
	}
	if s == 0xffff {
		return 0xffff // 0 would mean that there is none
	}
	return ^uint16(s)
}

func sum16(b []byte) (s uint64) {
	for ; len(b) >= 2; b = b[2:] {
		s += uint64(be.Uint16(b))
	}
	if len(b) == 1 {
		s += uint64(b[0]) << 8
	}
	return s
}
