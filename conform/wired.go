package conform

import (
	"encoding/hex"
	"fmt"

	"github.com/rvtsim/rvtsim/fabric/pcap"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// wiredDUT is a clientDUT whose Client has the other end of the device's wire.
type wiredDUT struct{ clientDUT }

var _ Network = wiredDUT{}

// packet is what p is on the wire, addressed to a queue pair.
func (p *RawPacket) packet(to ib.QPN) wire.Packet {
	return wire.Packet{Opcode: p.Opcode, PKey: ib.PKeyDefault, DestQP: to, PSN: p.PSN, AckReq: p.AckReq,
		AETH: wire.AETH{Syndrome: p.Syndrome, MSN: p.MSN}, RETH: wire.RETH{VA: p.VA, RKey: p.RKey, DMALen: p.DMALen},
		Pad: wire.PadFor(p.Payload), Payload: make([]byte, p.Payload)}
}

// Inject sends a packet to a queue pair with the device's own address as its source: a
// queue pair is connected to one of the same device.
func (d wiredDUT) Inject(qp string, p *RawPacket) {
	pkt := p.packet(d.c.qpns[qp])
	path := wire.Path{Src: d.c.gid, Dst: d.c.gid, HopLimit: 64, SPort: wire.SourcePortUD(pkt.DestQP)}
	b := wire.AppendPacket(nil, &pkt)
	crc := wire.ICRC(&path, b)
	b = append(b, 0, 0, 0, 0)
	wire.PutICRC(b[len(b)-wire.ICRCBytes:], crc)
	d.need("inject", hex.EncodeToString(pcap.AppendFrame(nil, &path, b)))
}

// SetPort pulls the wire out, or plugs it in again.
func (d wiredDUT) SetPort(up bool) { d.need("port", flag(up)) }

// need makes a call that has to succeed: it is not the device that answers it.
func (d wiredDUT) need(command string, arg any) {
	if e := d.c.call(nil, command, arg); e != 0 && d.c.err == nil {
		d.c.err = fmt.Errorf("conform: client: %s: %w", command, e)
	}
}
