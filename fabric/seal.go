package fabric

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// DefaultHopLimit is what packets carry if their path does not say.
const DefaultHopLimit = 64

// MinDatagramBytes is a BTH and an ICRC.
const MinDatagramBytes = 12 + wire.ICRCBytes

// Seal completes the path of a datagram that leaves from a UDP port of local, and writes its
// ICRC. id is the IPv4 identification that it is going to carry, without meaning over IPv6.
// known is the sender's own.
func Seal(d *Datagram, local ib.GID, sport, id uint16, known *wire.ICRCPrefixes) {
	d.Path.Src, d.Path.SPort = local, sport
	d.Path.IPID, d.Path.FlowLabel = 0, 0
	if local.IsIPv4() {
		d.Path.IPID = id
	}
	if d.Path.HopLimit == 0 {
		d.Path.HopLimit = DefaultHopLimit
	}
	body := len(d.Buf) - wire.ICRCBytes
	crc := known.Of(&d.Path, body).ICRC(d.Path.IPID, d.Buf[:body])
	if d.BadICRC {
		crc = ^crc
	}
	wire.PutICRC(d.Buf[body:], crc)
}
