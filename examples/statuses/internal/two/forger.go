package two

import (
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/wire"
)

// ForgerQPN and ForgerPSN are what a forger says it has. There is no queue pair.
const (
	ForgerQPN ib.QPN = 0x99
	ForgerPSN ib.PSN = 500
)

// Forger takes B's place with a bare UDP port. It sends packets that no adapter would.
type Forger struct {
	port   *udp.Port
	victim *Side
}

// OpenForger opens the port and connects the side to it.
func OpenForger(victim *Side) *Forger {
	gid, port := parse(Addresses[1])
	cfg := udp.DefaultConfig(gid)
	cfg.Port = port
	f := &Forger{Must(udp.Open(cfg)), victim}
	p := verbs.DefaultConnParams(gid, ForgerQPN)
	p.RQPSN = ForgerPSN
	Check(victim.QP.ToInit(p))
	Check(victim.QP.ToRTR(p))
	Check(victim.QP.ToRTS(p))
	return f
}

func parse(addr string) (ib.GID, uint16) {
	gid, port, err := udp.ParseAddr(addr)
	Check(err)
	return gid, port
}

// Next waits for the next packet from the victim.
func (f *Forger) Next() wire.Packet {
	var pkt wire.Packet
	d := make([]fabric.Datagram, 1)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		Check(f.port.Wait(time.Second))
		if Must(f.port.ReadBatch(d)) == 1 {
			if r := wire.Decode(d[0].Buf[:len(d[0].Buf)-wire.ICRCBytes], &pkt); r != wire.DropNone {
				Check(fmt.Errorf("forger: packet: %v", r))
			}
			return pkt
		}
	}
	panic("forger: no packet came")
}

// Send sends a packet to the victim. Addresses, keys and checksum are filled in.
func (f *Forger) Send(pkt wire.Packet) {
	pkt.DestQP, pkt.PKey, pkt.Pad = f.victim.QP.QPN(), ib.PKeyDefault, wire.PadFor(len(pkt.Payload))
	buf := wire.AppendPacket(nil, &pkt)
	path := wire.Path{Src: f.port.LocalGID(), Dst: f.victim.Dev.GID(), HopLimit: 64, SPort: 0xc000}
	Must(f.port.WriteBatch([]fabric.Datagram{{Path: path, Buf: append(buf, make([]byte, wire.ICRCBytes)...)}}))
}

// Close closes the port.
func (f *Forger) Close() { Check(f.port.Close()) }
