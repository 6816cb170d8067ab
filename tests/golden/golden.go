// Package golden is the corpus of packets captured between two stock Linux soft-RoCE
// adapters. Tests of any package may load it; soft-roce/README.md tells where it
// comes from.
//
// Files are embedded, so the corpus does not depend on the working directory.
package golden

import (
	"bytes"
	"embed"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

//go:embed soft-roce/*.pcap soft-roce/flows.json
var files embed.FS

const dir = "soft-roce"

// Capture is one file: all RoCE packets of one scenario, both directions, in the
// order of the wire.
type Capture struct {
	// Name is the file name without extension and the key in [Flows].
	Name   string
	Frames []Frame
}

// Frame is one captured packet. The slices are the caller's.
type Frame struct {
	At   time.Duration // since the first frame of the capture
	L3   []byte        // IP header
	UDP  []byte        // UDP header
	Body []byte        // BTH to last pad byte
	ICRC uint32        // as on the wire
	Path wire.Path     // from L3 and UDP, IPID included
}

// Captures reads the corpus, in the order of names.
func Captures() ([]Capture, error) {
	entries, err := files.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []Capture
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".pcap")
		if !ok {
			continue
		}
		frames, err := readFrames(path.Join(dir, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("golden: %s: %w", e.Name(), err)
		}
		all = append(all, Capture{Name: name, Frames: frames})
	}
	return all, nil
}

func readFrames(file string) ([]Frame, error) {
	b, err := files.ReadFile(file)
	if err != nil {
		return nil, err
	}
	// A file without packets has a header alone.
	r, err := pcapgo.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	var frames []Frame
	var start time.Time
	for {
		data, info, err := r.ReadPacketData()
		if err == io.EOF {
			return frames, nil
		}
		if err != nil {
			return nil, err
		}
		f, err := parseFrame(gopacket.NewPacket(data, r.LinkType(), gopacket.NoCopy))
		if err != nil {
			return nil, fmt.Errorf("frame %d: %w", len(frames)+1, err)
		}
		if len(frames) == 0 {
			start = info.Timestamp
		}
		f.At = info.Timestamp.Sub(start)
		frames = append(frames, f)
	}
}

func parseFrame(p gopacket.Packet) (f Frame, err error) {
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		f.Path = wire.Path{Src: ib.GID(ip.SrcIP.To16()), Dst: ib.GID(ip.DstIP.To16()), TClass: ip.TOS, HopLimit: ip.TTL, IPID: ip.Id}
	case *layers.IPv6:
		f.Path = wire.Path{Src: ib.GID(ip.SrcIP), Dst: ib.GID(ip.DstIP), TClass: ip.TrafficClass, HopLimit: ip.HopLimit, FlowLabel: ip.FlowLabel}
	default:
		return f, fmt.Errorf("no IP header: %v", p)
	}
	udp, ok := p.TransportLayer().(*layers.UDP)
	if !ok || udp.DstPort != wire.UDPPort {
		return f, fmt.Errorf("not a RoCE packet: %v", p)
	}
	f.L3, f.UDP = p.NetworkLayer().LayerContents(), udp.LayerContents()
	f.Path.SPort = uint16(udp.SrcPort)
	n := len(udp.Payload) - wire.ICRCBytes
	if n < 0 || int(udp.Length) != len(udp.Contents)+len(udp.Payload) {
		return f, fmt.Errorf("cut off: %v", p)
	}
	f.Body = udp.Payload[:n:n]
	f.ICRC = binary.LittleEndian.Uint32(udp.Payload[n:])
	return f, nil
}

// AppendText appends the frame as a line of the text dumps: time in seconds,
// addresses, network fields that vary, the packet.
func (f *Frame) AppendText(dst []byte) []byte {
	dst = fmt.Appendf(dst, "%d.%06d %v > %v sport=%#x", f.At/time.Second, f.At%time.Second/time.Microsecond,
		netip.AddrFrom16(f.Path.Src).Unmap(), netip.AddrFrom16(f.Path.Dst).Unmap(), f.Path.SPort)
	if f.Path.IsIPv4() {
		dst = fmt.Appendf(dst, " id=%#04x", f.Path.IPID)
	}
	if f.Path.TClass != 0 {
		dst = fmt.Appendf(dst, " tclass=%#x", f.Path.TClass)
	}
	if f.Path.FlowLabel != 0 {
		dst = fmt.Appendf(dst, " flow=%#x", f.Path.FlowLabel)
	}
	dst = fmt.Appendf(dst, " icrc=%08x ", f.ICRC)
	var p wire.Packet
	if r := wire.Decode(f.Body, &p); r != wire.DropNone {
		return fmt.Appendf(dst, "drop=%v\n", r)
	}
	return append(p.AppendText(dst), '\n')
}

// Flow is what both programs of a scenario knew and saw.
type Flow struct{ Client, Server Side }

// Side is one end of a scenario.
type Side struct {
	Note    string  `json:"note"` // what the scenario shows
	Ops     string  `json:"ops"`  // operations posted, in the capture program's shorthand
	QPN     ib.QPN  `json:"qpn"`
	DestQPN ib.QPN  `json:"dest_qpn"`
	SQPSN   ib.PSN  `json:"sq_psn"`
	RQPSN   ib.PSN  `json:"rq_psn"`
	RKey    ib.RKey `json:"rkey"`
	VA      Hex     `json:"va"`       // of the region; peers write and read at +0x8000, atomics at +0x1000
	PathMTU int     `json:"path_mtu"` // bytes
	WC      []WC    `json:"wc"`       // completions in polling order
	// StateAfter is the QP state after the last completion; nil where not queried.
	StateAfter *ib.QPState `json:"qp_state_after"`
	// AtomicOld is the client's landing area for the original values of atomics, one
	// per atomic; a place beyond the scenario's last atomic keeps its fill pattern.
	AtomicOld []Hex `json:"atomic_old"`
	AtomicNow *Hex  `json:"atomic_now"`
	// RecvBuffer is the start of the first receive buffer of some UD scenarios.
	RecvBuffer string `json:"recv_buffer_first_56"`
}

// WC is one completion.
type WC struct {
	WRID    uint64      `json:"wr_id"`
	Status  string      `json:"status"` // text of ibv_wc_status_str
	Opcode  ib.WCOpcode `json:"opcode"`
	ByteLen uint32      `json:"byte_len"`
	Flags   ib.WCFlags  `json:"flags"`
	Imm     Hex         `json:"imm"`
	SrcQP   ib.QPN      `json:"src_qp"`
}

// Hex is a number that the JSON file has as a string with 0x.
type Hex uint64

// UnmarshalText reads the number.
func (h *Hex) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 0, 64)
	*h = Hex(v)
	return err
}

// Flows reads flows.json. Captures of the connection manager's tools (cm_*) and of
// mckey have no entry.
func Flows() (map[string]Flow, error) {
	b, err := files.ReadFile(path.Join(dir, "flows.json"))
	if err != nil {
		return nil, err
	}
	var m map[string]Flow
	if err := json.Unmarshal(b, &m); err != nil {
		return nil, fmt.Errorf("golden: flows.json: %w", err)
	}
	return m, nil
}
