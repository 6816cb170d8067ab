package pcap

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Errors that a Reader wraps, with the file's name and the packet's number.
var (
	ErrNotCapture = errors.New("not a pcap or pcapng file")
	ErrTruncated  = errors.New("file ends inside a record")
	ErrDamaged    = errors.New("file is damaged")
)

// Packet is one RoCE v2 packet of a capture. Its slices alias the reader's buffer and
// are valid until the next call of Next.
type Packet struct {
	// Number counts all packets of the file from 1, as Wireshark does.
	Number uint64
	// At is the time stamp in nanoseconds since 1970, or since the epoch of the run
	// if the file is ours; 0 if the record has none.
	At   vtime.Time
	Path wire.Path
	L3   []byte // IP header with IPv4 options
	UDP  []byte // UDP header
	BTH  []byte // BTH to the last pad byte: what wire.Decode takes
	ICRC uint32
}

// CheckICRC reports whether the ICRC in the packet is the right one.
func (p *Packet) CheckICRC() bool { return wire.ICRCRaw(p.L3, p.UDP, p.BTH) == p.ICRC }

// Skipped counts packets that Next passed over.
type Skipped struct {
	LinkType  uint64 // unknown link type
	NotIP     uint64 // ARP and the like, or an IP header that makes no sense
	Fragment  uint64 // IP fragments
	NotUDP    uint64 // other protocols, and UDP behind IPv6 extension headers
	NotRoCE   uint64 // other UDP ports
	Truncated uint64 // cut by the snapshot length
	TooShort  uint64 // no room for a BTH and an ICRC
}

// Total is the sum.
func (s Skipped) Total() uint64 {
	return s.LinkType + s.NotIP + s.Fragment + s.NotUDP + s.NotRoCE + s.Truncated + s.TooShort
}

// source is what the readers of both file formats can do.
type source interface {
	ZeroCopyReadPacketData() ([]byte, gopacket.CaptureInfo, error)
}

// Reader reads the RoCE v2 packets of a capture file. It is not safe for concurrent
// use.
type Reader struct {
	name     string
	src      source
	linkType layers.LinkType // of a pcap file; pcapng has one per packet
	mixed    bool
	closer   io.Closer
	number   uint64
	pkt      Packet
	skipped  Skipped
	err      error // sticks
}

// Open opens a capture file, which may be compressed with gzip.
func Open(name string) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("pcap: %w", err)
	}
	r, err := NewReader(name, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	r.closer = f
	return r, nil
}

// NewReader reads a capture from src. name is for error messages.
func NewReader(name string, src io.Reader) (r *Reader, err error) {
	defer func() {
		if v := recover(); v != nil {
			r, err = nil, fmt.Errorf("pcap: %s: file header: %w: %v", name, ErrDamaged, v)
		}
	}()
	br := bufio.NewReader(src)
	if head, _ := br.Peek(2); len(head) == 2 && head[0] == 0x1f && head[1] == 0x8b {
		gz, err := gzip.NewReader(br)
		if err != nil {
			return nil, fmt.Errorf("pcap: %s: %w: gzip: %v", name, ErrNotCapture, err)
		}
		br = bufio.NewReader(gz)
	}
	magic, err := br.Peek(4)
	if err != nil {
		if err == io.EOF {
			return nil, fmt.Errorf("pcap: %s: %w: only %d bytes long", name, ErrNotCapture, len(magic))
		}
		return nil, fmt.Errorf("pcap: %s: %w", name, err)
	}
	r = &Reader{name: name}
	switch binary.LittleEndian.Uint32(magic) {
	case 0x0a0d0d0a:
		r.mixed = true
		r.src, err = pcapgo.NewNgReader(br, pcapgo.NgReaderOptions{WantMixedLinkType: true})
	case 0xa1b2c3d4, 0xd4c3b2a1, 0xa1b23c4d, 0x4d3cb2a1:
		var p *pcapgo.Reader
		if p, err = pcapgo.NewReader(br); err == nil {
			r.linkType = p.LinkType()
			r.src = p
		}
	default:
		return nil, fmt.Errorf("pcap: %s: %w: it begins with % x", name, ErrNotCapture, magic)
	}
	if err != nil {
		return nil, fmt.Errorf("pcap: %s: file header: %w", name, classify(err))
	}
	return r, nil
}

// Next returns the next RoCE v2 packet, or io.EOF at the end of a sound file. Any
// other error is final.
func (r *Reader) Next() (*Packet, error) {
	for r.err == nil {
		data, ci, err := r.read()
		if err != nil {
			r.err = err
			break
		}
		r.number++
		link := r.linkType
		if r.mixed && len(ci.AncillaryData) > 0 {
			link, _ = ci.AncillaryData[0].(layers.LinkType)
		}
		if count := r.parse(link, data, ci.CaptureLength < ci.Length); count != nil {
			*count++
			continue
		}
		r.pkt.Number = r.number
		r.pkt.At = timeOf(ci.Timestamp)
		return &r.pkt, nil
	}
	return nil, r.err
}

// All iterates over the packets. A final pair has a nil packet and the error, unless
// the file ended soundly.
func (r *Reader) All() iter.Seq2[*Packet, error] {
	return func(yield func(*Packet, error) bool) {
		for {
			p, err := r.Next()
			if err == io.EOF {
				return
			}
			if !yield(p, err) || err != nil {
				return
			}
		}
	}
}

// Packets returns how many packets of any kind have been read.
func (r *Reader) Packets() uint64 { return r.number }

// Skipped returns the counts of packets passed over.
func (r *Reader) Skipped() Skipped { return r.skipped }

// Close closes the file if Open opened it.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = fmt.Errorf("pcap: %s: %w", r.name, os.ErrClosed)
	}
	if r.closer == nil {
		return nil
	}
	c := r.closer
	r.closer = nil
	return c.Close()
}

// read returns the next record. Files come from anywhere, and the parser is not ours,
// so a panic in it becomes an error about the file.
func (r *Reader) read() (data []byte, ci gopacket.CaptureInfo, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("pcap: %s: packet %d: %w: %v", r.name, r.number+1, ErrDamaged, v)
		}
	}()
	data, ci, err = r.src.ZeroCopyReadPacketData()
	switch {
	case err == nil:
		return data, ci, nil
	case err == io.EOF && (r.mixed || ci.CaptureLength == 0):
		return nil, ci, io.EOF
	}
	return nil, ci, fmt.Errorf("pcap: %s: packet %d: %w", r.name, r.number+1, classify(err))
}

// classify turns an error of the parser into one of ours that wraps it.
func classify(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return ErrTruncated
	}
	return fmt.Errorf("%w: %w", ErrDamaged, err)
}

func timeOf(t time.Time) vtime.Time {
	switch s := t.Unix(); {
	case t.IsZero():
		return 0
	case s >= math.MaxInt64/int64(time.Second):
		return vtime.Never - 1
	case s <= math.MinInt64/int64(time.Second):
		return math.MinInt64
	}
	return vtime.Time(t.UnixNano())
}
