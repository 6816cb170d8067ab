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
	body := complete(d, local, sport, id)
	putICRC(d, known.Of(&d.Path, body).ICRC(d.Path.IPID, d.Buf[:body]))
}

// SealInto is Seal, and copies what is sealed to dst, which is as long as d.Buf, in the same
// pass. It returns false if there is payload elsewhere that is not there.
func SealInto(dst []byte, d *Datagram, local ib.GID, sport, id uint16, known *wire.ICRCPrefixes) bool {
	body := complete(d, local, sport, id)
	prefix := known.Of(&d.Path, body)
	if d.FarLen > 0 {
		crc, ok := prefix.LoadICRC(d.Path.IPID, dst[:body], d.Buf[:body-d.FarLen], d.Far)
		if !ok {
			return false
		}
		putICRC(d, crc)
	} else {
		putICRC(d, prefix.CopyICRC(d.Path.IPID, dst, d.Buf[:body]))
	}
	copy(dst[body:], d.Buf[body:])
	return true
}

// complete completes the path, and returns how many bytes the ICRC covers.
func complete(d *Datagram, local ib.GID, sport, id uint16) (body int) {
	d.Path.Src, d.Path.SPort = local, sport
	d.Path.IPID, d.Path.FlowLabel = 0, 0
	if local.IsIPv4() {
		d.Path.IPID = id
	}
	if d.Path.HopLimit == 0 {
		d.Path.HopLimit = DefaultHopLimit
	}
	return len(d.Buf) - wire.ICRCBytes
}

func putICRC(d *Datagram, crc uint32) {
	if d.BadICRC {
		crc = ^crc
	}
	wire.PutICRC(d.Buf[len(d.Buf)-wire.ICRCBytes:], crc)
}
