package swqe

import "github.com/rvtsim/rvtsim/ib"

// OpFlags describe an operation.
type OpFlags uint16

const (
	// OpLocal: done by the adapter itself, no packet (kernel: RVT_OPERATION_LOCAL).
	OpLocal OpFlags = 1 << iota
	// OpAtomic: one 8-byte SGE, aligned remote address (kernel: RVT_OPERATION_ATOMIC).
	OpAtomic
	// OpRdAtomic: counts against max_rd_atomic; retired only by its own response. Besides
	// READs and atomics these are ATOMIC_WRITE and FLUSH, whose response is that of an
	// empty READ.
	OpRdAtomic
	// OpCredit: takes a receive at the responder, so it needs an end-to-end credit.
	OpCredit
	// OpInline: may carry its payload inline.
	OpInline
	// OpLocalWrite: writes the local SGEs, so they need LOCAL_WRITE.
	OpLocalWrite
	// OpSolicit: may set the solicited bit.
	OpSolicit
	// OpRDMA: has a remote address and rkey.
	OpRDMA
	// OpImm: carries immediate data.
	OpImm
	// OpPlacement: one of the operations of IBTA annex A19, which not every adapter has.
	OpPlacement
	// OpReserved: has a place in the table but is not implemented yet.
	OpReserved
)

// OpParams (kernel: rvt_operation_params) is what the post checks and the completion
// report about an operation.
type OpParams struct {
	Name     string
	WCOpcode ib.WCOpcode
	RC       bool
	UC       bool
	UD       bool // UD and GSI
	Flags    OpFlags
}

// Allowed reports whether a QP of type t may post the operation.
func (p *OpParams) Allowed(t ib.QPType) bool {
	switch t {
	case ib.QPTypeRC:
		return p.RC
	case ib.QPTypeUC:
		return p.UC
	case ib.QPTypeUD, ib.QPTypeGSI:
		return p.UD
	}
	return false
}

// Has reports whether all of f are set.
func (p *OpParams) Has(f OpFlags) bool { return p.Flags&f == f }

var opTable = [ib.NumWROpcodes]OpParams{
	ib.WRRDMAWrite:         {Name: "RDMA_WRITE", WCOpcode: ib.WCRDMAWrite, RC: true, UC: true, Flags: OpInline | OpRDMA},
	ib.WRRDMAWriteWithImm:  {Name: "RDMA_WRITE_WITH_IMM", WCOpcode: ib.WCRDMAWrite, RC: true, UC: true, Flags: OpInline | OpRDMA | OpCredit | OpSolicit | OpImm},
	ib.WRSend:              {Name: "SEND", WCOpcode: ib.WCSend, RC: true, UC: true, UD: true, Flags: OpInline | OpCredit | OpSolicit},
	ib.WRSendWithImm:       {Name: "SEND_WITH_IMM", WCOpcode: ib.WCSend, RC: true, UC: true, UD: true, Flags: OpInline | OpCredit | OpSolicit | OpImm},
	ib.WRRDMARead:          {Name: "RDMA_READ", WCOpcode: ib.WCRDMARead, RC: true, Flags: OpRDMA | OpRdAtomic | OpLocalWrite},
	ib.WRAtomicCmpAndSwp:   {Name: "ATOMIC_CMP_AND_SWP", WCOpcode: ib.WCCompSwap, RC: true, Flags: OpRDMA | OpAtomic | OpRdAtomic | OpLocalWrite},
	ib.WRAtomicFetchAndAdd: {Name: "ATOMIC_FETCH_AND_ADD", WCOpcode: ib.WCFetchAdd, RC: true, Flags: OpRDMA | OpAtomic | OpRdAtomic | OpLocalWrite},
	ib.WRLocalInv:          {Name: "LOCAL_INV", WCOpcode: ib.WCLocalInv, RC: true, UC: true, Flags: OpLocal},
	ib.WRBindMW:            {Name: "BIND_MW", WCOpcode: ib.WCBindMW, RC: true, UC: true, Flags: OpLocal},
	ib.WRSendWithInv:       {Name: "SEND_WITH_INV", WCOpcode: ib.WCSend, RC: true, Flags: OpInline | OpCredit | OpSolicit},
	ib.WRTSO:               {Name: "TSO", WCOpcode: ib.WCTSO, Flags: OpReserved},
	ib.WRFlush:             {Name: "FLUSH", WCOpcode: ib.WCFlush, RC: true, Flags: OpRDMA | OpRdAtomic | OpPlacement},
	ib.WRAtomicWrite:       {Name: "ATOMIC_WRITE", WCOpcode: ib.WCAtomicWrite, RC: true, Flags: OpInline | OpRDMA | OpRdAtomic | OpPlacement},
}

// Params returns the row of an operation, nil if the number means nothing.
func Params(op ib.WROpcode) *OpParams {
	if int(op) >= len(opTable) || opTable[op].Name == "" {
		return nil
	}
	return &opTable[op]
}
