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
type SendWR struct {
	WRID   uint64
	Opcode ib.WROpcode
	Flags  ib.SendFlags
	SGL    []mr.SGE // sg_list, num_sge
	// Inline is the payload if Flags has INLINE; SGL is ignored then. It is copied at
	// the post.
	Inline []byte
	// Imm travels big-endian: 0xcafebabe is ca fe ba be on the wire.
	Imm     uint32
	InvRKey ib.RKey // SEND_WITH_INV, LOCAL_INV: the key to invalidate

	// RDMA and atomics
	RemoteAddr uint64
	RKey       ib.RKey
	CompareAdd uint64 // compare value of CMP_SWP, addend of FETCH_ADD
	Swap       uint64
	Flush      FlushInfo

	// Datagrams
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey
	PKeyIndex  uint16 // GSI only

	// BIND_MW
	Bind BindInfo
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
	RKey   ib.RKey // the window's next key: only the low byte may differ from the current one
	MR     *mr.Region
	Addr   uint64
	Length uint64
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

// SWQE (kernel: rvt_swqe) is an entry of the send queue.
type SWQE struct {
	WR      SendWR // wr; SGL and Inline point into the entry's own storage
	AV      ib.AV  // the AH's contents at the post
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

	sge    []mr.SGE
	inline []byte
}

// Set copies wr into the entry, keeping the entry's storage.
func (w *SWQE) Set(wr *SendWR) {
	sge, inline := append(w.sge[:0], wr.SGL...), w.inline[:0]
	if wr.Flags&ib.SendInline != 0 {
		inline = append(inline, wr.Inline...)
		sge = sge[:0]
	}
	*w = SWQE{WR: *wr, sge: sge, inline: inline}
	w.WR.SGL, w.WR.Inline = sge, inline
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
