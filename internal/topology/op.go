package topology

import (
	"slices"

	"github.com/rvtsim/rvtsim/ib"
)

// Op is an operation of a flow, by the name that files use.
type Op string

// The operations.
const (
	OpSend     Op = "send"
	OpSendImm  Op = "send_imm"
	OpSendInv  Op = "send_inv"
	OpWrite    Op = "write"
	OpWriteImm Op = "write_imm"
	OpRead     Op = "read"
	OpCmpSwp   Op = "cmp_swp"
	OpFetchAdd Op = "fetch_add"
)

// AtomicBytes is the length of every atomic operation.
const AtomicBytes = 8

type opInfo struct {
	op         Op
	wr         ib.WROpcode
	transports []ib.QPType // man ibv_post_send; SEND_WITH_INV as rdmavt and rxe have it, RC alone
	receive    bool        // consumes a receive work request at the peer
	oneSided   bool        // names remote memory by an rkey
	inline     bool        // may carry INLINE
	solicited  bool        // may carry SOLICITED
	rdAtomic   bool        // counts against max_rd_atomic
	atomic     bool
}

var (
	onRC   = []ib.QPType{ib.QPTypeRC}
	onRCUC = []ib.QPType{ib.QPTypeRC, ib.QPTypeUC}
	onAll  = []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD}
)

// opTable is in the order in which messages list the operations.
var opTable = []opInfo{
	{op: OpSend, wr: ib.WRSend, transports: onAll, receive: true, inline: true, solicited: true},
	{op: OpSendImm, wr: ib.WRSendWithImm, transports: onAll, receive: true, inline: true, solicited: true},
	{op: OpSendInv, wr: ib.WRSendWithInv, transports: onRC, receive: true, inline: true, solicited: true},
	{op: OpWrite, wr: ib.WRRDMAWrite, transports: onRCUC, oneSided: true, inline: true},
	{op: OpWriteImm, wr: ib.WRRDMAWriteWithImm, transports: onRCUC, receive: true, oneSided: true, inline: true, solicited: true},
	{op: OpRead, wr: ib.WRRDMARead, transports: onRC, oneSided: true, rdAtomic: true},
	{op: OpCmpSwp, wr: ib.WRAtomicCmpAndSwp, transports: onRC, oneSided: true, rdAtomic: true, atomic: true},
	{op: OpFetchAdd, wr: ib.WRAtomicFetchAndAdd, transports: onRC, oneSided: true, rdAtomic: true, atomic: true},
}

// info returns the row of o; the zero row for a name that is no operation, which
// Parse never lets through.
func (o Op) info() opInfo {
	for i := range opTable {
		if opTable[i].op == o {
			return opTable[i]
		}
	}
	return opInfo{}
}

// WROpcode is the opcode of the work request.
func (o Op) WROpcode() ib.WROpcode { return o.info().wr }

// TakesReceive reports whether the operation consumes a receive at the peer.
func (o Op) TakesReceive() bool { return o.info().receive }

// OneSided reports whether the operation names remote memory.
func (o Op) OneSided() bool { return o.info().oneSided }

// Atomic reports whether the operation is a CMP_SWP or FETCH_ADD.
func (o Op) Atomic() bool { return o.info().atomic }

// On reports whether QPs of a transport have the operation.
func (o Op) On(t ib.QPType) bool { return slices.Contains(o.info().transports, t) }

// opNames lists the operations that a transport has.
func opNames(t ib.QPType) []string {
	var names []string
	for i := range opTable {
		if slices.Contains(opTable[i].transports, t) {
			names = append(names, string(opTable[i].op))
		}
	}
	return names
}
