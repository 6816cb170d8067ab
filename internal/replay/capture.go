package replay

import (
	"errors"
	"fmt"
	"io"

	"github.com/rvtsim/rvtsim/fabric/pcap"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// frame is one packet of a capture, decoded, with a copy of its bytes.
type frame struct {
	number uint64
	at     vtime.Time // since the first packet
	path   wire.Path
	pkt    wire.Packet
	raw    []byte // BTH to the last pad byte
}

// capture is a file's RoCE v2 packets.
type capture struct {
	name    string
	frames  []frame
	badICRC int
	bad     []string // packets that do not decode, or not to the same bytes
	skipped uint64
}

// readCapture reads a file and checks each packet by itself: it must decode, encode to
// the same bytes again, and carry the right ICRC.
func readCapture(path string) (*capture, error) {
	r, err := pcap.Open(path)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	c := &capture{name: baseName(path)}
	var start vtime.Time
	for {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(c.frames) == 0 && len(c.bad) == 0 {
			start = p.At
		}
		c.add(p, start)
	}
	c.skipped = r.Skipped().Total()
	return c, nil
}

func (c *capture) add(p *pcap.Packet, start vtime.Time) {
	f := frame{number: p.Number, at: vtime.Time(p.At.Sub(start)), path: p.Path, raw: append([]byte(nil), p.BTH...)}
	if !p.CheckICRC() {
		c.badICRC++
		c.bad = append(c.bad, fmt.Sprintf("packet %d: the ICRC is wrong", p.Number))
		return
	}
	if reason := wire.Decode(f.raw, &f.pkt); reason != wire.DropNone {
		c.bad = append(c.bad, fmt.Sprintf("packet %d: %s", p.Number, reason))
		return
	}
	if again := wire.AppendPacket(nil, &f.pkt); string(again) != string(f.raw) {
		c.bad = append(c.bad, fmt.Sprintf("packet %d: encodes to other bytes than it was decoded from", p.Number))
		return
	}
	c.frames = append(c.frames, f)
}

// ends returns the client's and the server's address: the first packet is the
// client's.
func (c *capture) ends() (client, server ib.GID) {
	if len(c.frames) == 0 {
		return ib.GIDFromIPv4(10, 77, 0, 1), ib.GIDFromIPv4(10, 77, 0, 2)
	}
	return c.frames[0].path.Src, c.frames[0].path.Dst
}

// from returns the packets that addr sent.
func (c *capture) from(addr ib.GID) []frame {
	var fs []frame
	for _, f := range c.frames {
		if f.path.Src == addr {
			fs = append(fs, f)
		}
	}
	return fs
}
