package swqe

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/vtime"
)

// SendWR (struct ibv_send_wr) is a send work request as a program posts it. The
// adapter copies what it keeps, so the caller may reuse the value and its slices as
// soon as the post returns; the memory that SGL names belongs to the adapter until
// the completion has been polled.
//
// What most work requests have comes first; see [SWQE].
type SendWR struct {
	WRID       uint64
	SGL        []mr.SGE // sg_list, num_sge
	RemoteAddr uint64   // RDMA and atomics
	RKey       ib.RKey
	Flags      ib.SendFlags
	// Imm travels big-endian: 0xcafebabe is ca fe ba be on the wire.
	Imm     uint32
	InvRKey ib.RKey // SEND_WITH_INV, LOCAL_INV: the key to invalidate
	Opcode  ib.WROpcode

	PKeyIndex uint16 // datagrams, GSI only
	// Inline is the payload if Flags has INLINE; SGL is ignored then. It is copied at
	// the post.
	Inline []byte

	// Atomics
	CompareAdd uint64 // compare value of CMP_SWP, addend of FETCH_ADD
	Swap       uint64

	Flush FlushInfo

	// Datagrams
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey

	// BIND_MW
	Bind BindInfo
}

// rare reports whether any of the fields from PKeyIndex on is set, other than Inline.
func (wr *SendWR) rare() bool {
	return wr.PKeyIndex != 0 || wr.CompareAdd|wr.Swap != 0 || wr.Flush != FlushInfo{} || wr.AH != nil ||
		wr.RemoteQPN != 0 || wr.RemoteQKey != 0 || wr.Bind != BindInfo{}
}

// FlushInfo says what a FLUSH flushes, and how far (ibv_wr_flush).
type FlushInfo struct {
	Length uint32        // bytes from RemoteAddr on, of a range
	Type   ib.FlushType  // one or both of the bits
	Level  ib.FlushLevel // the range, or the whole region
}

// BindInfo (struct ibv_mw_bind_info and its surroundings) says what a BIND_MW binds.
type BindInfo struct {
	MW     *mr.Window
	MR     *mr.Region
	Addr   uint64
	Length uint64
	RKey   ib.RKey // the window's next key: only the low byte may differ from the current one
	Access ib.Access
}

// AH (struct ibv_ah) is an address handle. Posting copies it, so it may be destroyed
// at once (rdmavt does the same; the C API promises less).
type AH struct {
	PD   mr.PD
	AV   ib.AV
	Live bool
}

// RecvWR (struct ibv_recv_wr) is a receive work request.
type RecvWR struct {
	WRID uint64
	SGL  []mr.SGE
}

// Sum returns the bytes of a scatter/gather list.
func Sum(sgl []mr.SGE) uint64 {
	n := uint64(0)
	for _, e := range sgl {
		n += uint64(e.Length)
	}
	return n
}

// SWQE (kernel: rvt_swqe) is an entry of the send queue. It has 256 bytes, of which most
// operations need the first 128: a queue that goes round costs the cache that much for each.
type SWQE struct {
	PSN     ib.PSN // psn: of the first packet
	LPSN    ib.PSN // lpsn: of the last packet; PSN-1 for a local operation
	Packets uint32 // number of PSNs the message takes, 0 for a local operation
	SSN     uint32 // ssn: send sequence number
	Length  uint32 // length: bytes of the message

	// What happened to it, for explanations.
	Sent    uint32 // packets sent, retransmissions included
	Retries uint32 // times it was sent again after a timeout, NAK or lost response
	RNRNAKs uint32 // RNR NAKs it met
	// FirstSent and LastSent are when its packets were built; they mean something if
	// Sent is not 0.
	FirstSent, LastSent vtime.Time

	// Alone says that its payload could not be fetched once, while others were under way before
	// it: it starts again when these are retired.
	Alone bool

	rare bool   // WR has rare fields or an inline payload, or AV is set
	WR   SendWR // wr; SGL and Inline are the entry's own storage
	AV   ib.AV  // the AH's contents at the post
}

// Set copies wr into the entry, keeping the entry's storage. What is rare is left alone if it
// is not set and was not set before.
func (w *SWQE) Set(wr *SendWR) {
	w.Sent, w.Retries, w.RNRNAKs, w.Alone = 0, 0, 0, false
	w.FirstSent, w.LastSent = 0, 0
	w.PSN, w.LPSN, w.Packets, w.SSN, w.Length = 0, 0, 0, 0, 0
	inline := wr.Flags&ib.SendInline != 0
	if rare := inline || wr.rare(); rare || w.rare {
		w.setRare(wr, inline)
		w.rare = rare
	}
	d := &w.WR
	if d.SGL = d.SGL[:0]; !inline {
		d.SGL = append(d.SGL, wr.SGL...)
	}
	d.WRID, d.Opcode, d.Flags = wr.WRID, wr.Opcode, wr.Flags
	d.RemoteAddr, d.RKey, d.Imm, d.InvRKey = wr.RemoteAddr, wr.RKey, wr.Imm, wr.InvRKey
}

func (w *SWQE) setRare(wr *SendWR, inline bool) {
	sgl, data := w.WR.SGL, w.WR.Inline[:0]
	if inline {
		data = append(data, wr.Inline...)
	}
	w.WR, w.AV = *wr, ib.AV{}
	w.WR.SGL, w.WR.Inline = sgl, data
	if wr.AH != nil {
		w.AV = wr.AH.AV
		w.WR.AH = nil
	}
}

// Op returns the operation's row in the table.
func (w *SWQE) Op() *OpParams { return Params(w.WR.Opcode) }

// Ring is the storage of a send queue: size entries, allocated on first use, so that
// an idle QP costs little. The indices belong to the QP.
type Ring struct {
	size  int
	slots []SWQE
}

// NewRing returns a ring of size entries (max_send_wr + 1).
func NewRing(size int) Ring { return Ring{size: size} }

// Size returns the number of entries.
func (r *Ring) Size() int { return r.size }

// At returns entry i.
func (r *Ring) At(i int) *SWQE {
	if r.slots == nil {
		r.slots = make([]SWQE, r.size)
		sges := make([]mr.SGE, r.size) // one for each: few have more, and these lie together
		for i := range r.slots {
			r.slots[i].WR.SGL = sges[i : i : i+1]
		}
	}
	return &r.slots[i]
}

// Next returns the index after i.
func (r *Ring) Next(i int) int {
	if i++; i >= r.size {
		return 0
	}
	return i
}
