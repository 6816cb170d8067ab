package verbs

import (
	"strconv"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
)

// Types that are used as the core defines them.
type (
	// WC (struct ibv_wc) is a work completion.
	WC = cq.WC
	// SGE (struct ibv_sge) is a scatter/gather entry.
	SGE = mr.SGE
	// AV (struct ibv_ah_attr) says where packets go.
	AV = ib.AV
	// GID is an address: IPv6, or IPv4 as ::ffff:a.b.c.d.
	GID = ib.GID
	// QPAttr (struct ibv_qp_attr) is what Modify sets and Query returns.
	QPAttr = qp.Attr
	// QPCap (struct ibv_qp_cap) is the size of a QP's queues.
	QPCap = qp.Cap
	// SRQAttr (struct ibv_srq_attr) is the size of an SRQ and its limit.
	SRQAttr = rvt.SRQAttr
	// VerbError is the error of a refused call.
	VerbError = ib.VerbError
)

// SendWR (struct ibv_send_wr) is a send work request. The device copies what it needs:
// the value and its slices may be reused when the post returns. The memory that SGL
// names belongs to the device until the completion was polled.
type SendWR struct {
	WRID   uint64
	Opcode ib.WROpcode
	Flags  ib.SendFlags
	SGL    []SGE // sg_list
	// Inline is the payload if Flags has SendInline; SGL is not used then. (In C the
	// payload is what SGL points at.)
	Inline []byte
	// Imm arrives as it is given; on the wire its bytes are big-endian.
	Imm     uint32
	InvRKey ib.RKey // SEND_WITH_INV and LOCAL_INV

	// RDMA and atomics. CompareAdd is the compare value of a compare and swap, and
	// the addend of a fetch and add.
	RemoteAddr       uint64
	RKey             ib.RKey
	CompareAdd, Swap uint64
	// Flush is for FLUSH, which makes earlier WRITEs to the peer's memory visible there
	// (ibv_wr_flush(3)). The peer's QP and region need AccessFlushGlobal.
	Flush FlushInfo

	// Datagrams.
	AH         *AH
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey

	// Bind is for BIND_MW of a type 2 window.
	Bind *BindInfo
}

// FlushInfo says what a FLUSH flushes, and how far.
type FlushInfo = swqe.FlushInfo

// RecvWR (struct ibv_recv_wr) is a receive work request.
type RecvWR struct {
	WRID uint64
	SGL  []SGE
}

// BindInfo (struct ibv_mw_bind_info) says what a memory window is to give access to.
type BindInfo struct {
	MW *MW
	// RKey is the key that the window gets; only its low byte may differ from the
	// present one (see IncRKey). QP.BindMW chooses it itself.
	RKey   ib.RKey
	MR     *MR
	Addr   uint64
	Length uint64
	Access ib.Access
}

// IncRKey (ibv_inc_rkey) returns the next key of a memory window: the low byte is the
// program's and wraps.
func IncRKey(k ib.RKey) ib.RKey { return k&^0xff | (k+1)&0xff }

// BadWR is the error of a post: the work request at Index was refused because of Err,
// the ones before it are posted, the ones after it were not looked at. Err is a
// [*VerbError].
type BadWR struct {
	Index int
	Err   error
}

func (e *BadWR) Error() string {
	return e.Err.Error() + ", at index " + strconv.Itoa(e.Index) + " of the list"
}

// Unwrap returns Err, so that errors.Is finds the errno.
func (e *BadWR) Unwrap() error { return e.Err }
