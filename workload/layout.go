package workload

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
)

// gapBytes of canary lie between any two pieces of memory that are in use.
const gapBytes = 64

// layout says where an endpoint's memory is used for what. Offsets are from the start
// of its buffer. Both endpoints compute the layouts of both from the spec.
//
// The local part holds the slots that messages are sent from and received into; the
// remote part is what the peer may write, read and change. They are separate regions.
type layout struct {
	sendSlots, recvSlots, writeSlots int
	sendStride, recvStride, writeMax int
	recvBytes                        int

	sendAt, recvAt                   int
	remoteAt                         int // start of the remote region
	writeAt, readAt, atomicAt, wndAt int
	readBytes                        int
	total                            int
}

// Addresses. The remote region is known to the peer by another address than the local
// one, so that a device that mixes them up is found out.
const (
	localBase  uint64 = 0x10000
	remoteIOVA uint64 = 0x7e0000000000
)

// role is what an endpoint does in a flow.
type role struct {
	sends, receives bool
}

func (s *Spec) layout(r role) layout {
	var l layout
	longest := max(s.Sizes.Longest(), atomicBytes)
	at := gapBytes
	if r.sends {
		l.sendSlots = s.QPs * s.Depth
		l.sendStride = stride(longest)
		l.sendAt = at
		at += l.sendSlots * l.sendStride
	}
	if r.receives && s.TakesReceives() {
		l.recvSlots = s.QPs * s.RecvDepth
		if s.SRQSize > 0 {
			l.recvSlots = s.SRQSize
		}
		l.recvBytes = s.RecvSize
		if s.Transport == ib.QPTypeUD {
			l.recvBytes += ib.GRHBytes
		}
		l.recvStride = stride(l.recvBytes)
		l.recvAt = at
		at += l.recvSlots * l.recvStride
	}
	at = (at + gapBytes - 1) &^ (gapBytes - 1)
	l.remoteAt = at
	if r.receives && s.any(swqe.OpRDMA) {
		at += gapBytes
		l.atomicAt = at // the words of the QPs, and one that all share
		at += (s.QPs+1)*atomicBytes + gapBytes
		l.writeMax = stride(longest)
		l.writeAt = at
		if s.takes(ib.WRRDMAWrite) || s.takes(ib.WRRDMAWriteWithImm) {
			l.writeSlots = s.QPs * s.Depth
			at += l.writeSlots * l.writeMax
		}
		l.readAt = at
		if s.takes(ib.WRRDMARead) {
			l.readBytes = longest + 2*gapBytes
			at += l.readBytes
		}
		at += gapBytes
	}
	if r.receives && s.takes(ib.WRSendWithInv) {
		l.wndAt = at
		at += gapBytes
	}
	l.total = at + gapBytes
	return l
}

// stride is the distance of slots for n bytes: room for a shifted start and a gap.
func stride(n int) int { return (n+7)&^7 + 8 + gapBytes }

// shift moves the start of a slot off its alignment, so that all alignments occur.
func shift(slot int) int { return (slot * 3) & 7 }

func (l *layout) sendSlot(slot int) int { return l.sendAt + slot*l.sendStride + shift(slot) }

func (l *layout) recvSlot(slot int) int { return l.recvAt + slot*l.recvStride + shift(slot) }

func (l *layout) writeSlot(slot int) int { return l.writeAt + slot*l.writeMax + shift(slot) }

func (l *layout) atomicWord(i int) int { return l.atomicAt + i*atomicBytes }

// remote turns an offset into the address that the peer uses.
func (l *layout) remote(off int) uint64 { return remoteIOVA + uint64(off-l.remoteAt) }

func (s *Spec) arenaBytes() uint64 {
	longest := uint64(max(s.Sizes.Longest(), atomicBytes)) + 2*gapBytes
	slots := uint64(s.QPs) * uint64(s.Depth)
	recv := uint64(s.QPs) * uint64(s.RecvDepth)
	if s.SRQSize > 0 {
		recv = uint64(s.SRQSize)
	}
	return 2*slots*longest + recv*(uint64(s.RecvSize)+2*gapBytes)
}
