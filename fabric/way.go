package fabric

import (
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Stage is how far along a [Way] a packet is. What a number means is the Way's affair,
// except for these two.
type Stage int32

const (
	Departing Stage = -1 - iota // it has not left yet
	Arrived                     // nothing is before it any more
)

// Way is what lies between a port and a destination: cables that take time, queues that
// wait for bandwidth, switches. It is for networks whose packets travel elsewhere; the
// virtual network has its own. Ports of several hosts may share what is behind their Ways,
// so an implementation is safe for concurrent use, and it does not block for long.
type Way interface {
	// Step moves a packet on that has reached a stage at the instant now, and returns the
	// next stage and when it gets there. payload is how many bytes of p.Bytes are payload.
	// A queue that marks packets does so in path. ok is false if the packet is lost there.
	Step(now vtime.Time, s Stage, p PacketInfo, payload int, path *wire.Path) (next Stage, at vtime.Time, lost LossReason, ok bool)
}

// payloadBytes is how many bytes of payload an encoded packet has.
func payloadBytes(packet []byte, p PacketInfo) int {
	info := wire.Info(p.Opcode)
	if info == nil || info.Mask&wire.Payload == 0 {
		return 0
	}
	return max(0, len(packet)-info.HeaderBytes-int(packet[1]>>4&3)-wire.ICRCBytes)
}
