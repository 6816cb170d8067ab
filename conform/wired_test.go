package conform

import (
	"bufio"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// wiredClient plays a client that has the other end of the wire. What it is told to send
// goes to frames, and refused is its answer to "port".
func wiredClient(t *testing.T, frames chan<- []byte, refused string) *Client {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { _, _ = ours.Close(), theirs.Close() })
	go func() {
		_, _ = io.WriteString(theirs, "rvtsim-conform 1 65536 1048576 00000000000000000000ffff0a4d0001 wire\n")
		for in := bufio.NewScanner(theirs); in.Scan(); {
			answer := "0"
			switch command, arg, _ := strings.Cut(in.Text(), " "); command {
			case "create_qp":
				answer = "0 17 1 1 1 1 0"
			case "inject":
				b, _ := hex.DecodeString(arg)
				frames <- b
			case "port":
				answer = refused
			}
			_, _ = io.WriteString(theirs, answer+"\n")
		}
	}()
	require.NoError(t, ours.SetDeadline(time.Now().Add(time.Minute)))
	c, err := NewClient(ours)
	require.NoError(t, err)
	return c
}

// TestClientWithAWire: a packet goes to the client as the frame that the peer of the queue
// pair would send, and a client that may not do that makes the run fail.
func TestClientWithAWire(t *testing.T) {
	frames := make(chan []byte, 1)
	c := wiredClient(t, frames, "1")
	d, err := c.Fresh()
	require.NoError(t, err)
	_, n, e := d.CreateQP("A", QPInit{PD: "pd", SendCQ: "A.s", RecvCQ: "A.r"})
	require.Zero(t, e)
	require.Equal(t, ib.QPN(17), n)
	w := d.(Network)
	w.Inject("A", &RawPacket{Opcode: ib.OpReadRespOnly, PSN: 0x100, Syndrome: 0x1f, MSN: 1, Payload: 5})
	require.NoError(t, d.Err())

	p := gopacket.NewPacket(<-frames, layers.LayerTypeEthernet, gopacket.Default)
	ip := p.NetworkLayer().(*layers.IPv4)
	require.Equal(t, "10.77.0.1", ip.SrcIP.String())
	require.Equal(t, "10.77.0.1", ip.DstIP.String())
	udp := p.TransportLayer().(*layers.UDP)
	require.Equal(t, layers.UDPPort(wire.UDPPort), udp.DstPort)
	b := udp.Payload[:len(udp.Payload)-wire.ICRCBytes]
	var got wire.Packet
	require.Equal(t, wire.DropNone, wire.Decode(b, &got))
	require.Equal(t, ib.OpReadRespOnly, got.Opcode)
	require.Equal(t, ib.QPN(17), got.DestQP)
	require.Len(t, got.Payload, 5)
	var crc [wire.ICRCBytes]byte
	wire.PutICRC(crc[:], wire.ICRCRaw(ip.Contents, udp.Contents, b))
	require.Equal(t, crc[:], udp.Payload[len(b):])

	w.SetPort(false)
	require.ErrorIs(t, d.Err(), ib.EPERM)
}
