package sim

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// DigestMode says what a [Digest] covers.
type DigestMode uint8

const (
	DigestHeaders DigestMode = iota // packets without payload, and completions
	DigestAll                       // payloads too
	DigestNone
)

// Digest condenses the history of a world: every packet that a device took or dropped
// and every completion that was noted, with their instants, in order. Two runs with
// equal digests did the same. It finds differences, it withstands no forger.
type Digest struct {
	mode DigestMode
	a, b uint64
}

// Sum returns the digest so far.
func (d *Digest) Sum() uint64 { return d.a ^ d.b<<1 ^ d.b>>63 }

// word takes in one number. The two halves step differently, so that a collision of
// one does not hide a difference.
func (d *Digest) word(v uint64) {
	d.a = (d.a ^ v) * 0x9e3779b97f4a7c15
	d.a ^= d.a >> 32
	d.b = (d.b + v) * 0xd6e8feb86659fd93
	d.b ^= d.b >> 29
}

func (d *Digest) packet(now vtime.Time, to mem.NodeIndex, f *mem.Frame, r wire.DropReason) {
	if d.mode == DigestNone {
		return
	}
	p := &f.Packet
	flags := uint64(r) << 3
	if p.AckReq {
		flags |= 1
	}
	if p.SE {
		flags |= 2
	}
	if f.CorruptICRC {
		flags |= 4
	}
	d.word(uint64(now))
	d.word(uint64(uint32(to))<<32 | uint64(uint32(f.From)))
	d.word(uint64(p.Opcode)<<56 | uint64(p.PSN)<<32 | uint64(p.DestQP)<<8 | flags)
	d.word(uint64(f.Bytes)<<32 | uint64(p.AETH.Syndrome)<<24 | uint64(p.AETH.MSN))
	if d.mode == DigestAll {
		d.bytes(p.Payload)
		d.word(p.RETH.VA ^ uint64(p.RETH.DMALen)<<32)
		d.word(p.AtomicAck ^ uint64(p.Imm))
	}
}

func (d *Digest) bytes(b []byte) {
	for ; len(b) >= 8; b = b[8:] {
		d.word(binary.LittleEndian.Uint64(b))
	}
	var tail [8]byte
	copy(tail[:], b)
	d.word(binary.LittleEndian.Uint64(tail[:]))
}

// Completion takes in a completion that a program on node n polled.
func (w *World) Completion(n *Node, wc *cq.WC) {
	d := &w.digest
	if d.mode == DigestNone {
		return
	}
	d.word(uint64(w.now))
	d.word(uint64(uint32(n.Index))<<32 | uint64(wc.QPN)<<8 | uint64(wc.Status))
	d.word(wc.WRID)
	d.word(uint64(wc.Opcode)<<56 | uint64(wc.Flags)<<48 | uint64(wc.ByteLen))
	d.word(uint64(wc.Imm)<<32 | uint64(wc.VendorErr))
}

// Digest returns the digest of everything that happened so far.
func (w *World) Digest() uint64 { return w.digest.Sum() }
