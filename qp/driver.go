package qp

import (
	"math/bits"

	"github.com/rvtsim/rvtsim/ib"
)

// Driver holds what the kernel driver and the user library around an engine decide by
// themselves, apart from the protocol: the sizes they grant, the attributes they do not
// check, the keys they give out, and when they look at local keys. The zero value gives
// exactly what is asked for and checks everything as early as it can. A host sets it
// beside the profile; see [DriverByName].
type Driver struct {
	// RoundSizes makes queues hold 2^n-1 entries, and the room for gather entries and
	// that for inline data the same (rxe: rxe_queue_init, rxe_qp_init_req).
	RoundSizes bool
	// Unchecked are attributes of modify_qp that are not held against what port and
	// device have: pkey_index, path MTU, max_dest_rd_atomic, max_rd_atomic (rxe:
	// rxe_qp_chk_attr; rdmavt: rvt_modify_qp).
	Unchecked ib.AttrMask
	// ClipPathMTU makes a path MTU above the port's into the port's (hfi1:
	// get_pmtu_from_attr).
	ClipPathMTU bool
	// DestRdStored keeps max_dest_rd_atomic for query_qp and nothing else, so that 0
	// refuses no READ (hfi1_rc_rcv).
	DestRdStored bool
	// AtomicAlignLocal asks for an aligned local address of an atomic at the post, not
	// for an aligned remote one, which the peer checks (rvt_post_one_wr).
	AtomicAlignLocal bool
	// LateLocalCheck looks at the local entries of a send packet by packet, and at those
	// of a READ or atomic when its response arrives: the peer may have acted on a WR
	// that fails (rxe: copy_data in requester and completer).
	LateLocalCheck bool
	// RecvOverflowKills takes a QP to ERR when the completion of a receive is lost, without
	// acknowledging the message, whatever becomes of lost send completions (rxe:
	// RESPST_ERR_CQ_OVERFLOW).
	RecvOverflowKills bool
	// StrayReadStatus is the status of a WR that is no READ and gets a READ response; 0
	// means the profile's BadResponseStatus (rxe: check_ack).
	StrayReadStatus ib.WCStatus
	// InvalidReqStatus is the status of the receive that an invalid request had taken
	// (packets out of order, of a wrong length); 0 means LOC_QP_OP_ERR (rxe:
	// do_class_ac_error).
	InvalidReqStatus ib.WCStatus
	// RemoteRKeyOnly gives a region without remote rights the rkey 0 (rxe: rxe_mr_init).
	RemoteRKeyOnly bool
}

// The drivers: of rdmavt with hfi1, and of soft-RoCE with its library in Linux 6.1.
var (
	DriverRDMAVT = Driver{Unchecked: ib.AttrPathMTU | ib.AttrMaxQPRdAtomic, ClipPathMTU: true, DestRdStored: true, AtomicAlignLocal: true}
	DriverRXE    = Driver{RoundSizes: true, Unchecked: ib.AttrPKeyIndex | ib.AttrPathMTU | ib.AttrMaxDestRdAtomic, LateLocalCheck: true,
		RecvOverflowKills: true, StrayReadStatus: ib.WCFatalErr, InvalidReqStatus: ib.WCRemInvReqErr, RemoteRKeyOnly: true}
)

// DriverByName returns the driver that belongs to the profile of that name. That of the
// standard is the zero value.
func DriverByName(profile string) Driver {
	switch profile {
	case ProfileRDMAVT.Name:
		return DriverRDMAVT
	case ProfileRXE.Name:
		return DriverRXE
	}
	return Driver{}
}

// limits reports whether an attribute is held against what port and device have.
func (d *Driver) limits(attr ib.AttrMask) bool { return d.Unchecked&attr == 0 }

// Entries returns how many entries a queue gets for n asked for.
func (d *Driver) Entries(n int) int {
	if !d.RoundSizes || n < 1 {
		return n
	}
	return 1<<bits.Len(uint(n)) - 1
}

// grant returns the capacities that a QP gets. Only those of a send WQE show: the
// program is told the queue lengths it asked for, though they may hold more.
func (d *Driver) grant(c Cap) Cap {
	const sgeBytes = 16
	if d.RoundSizes {
		room := max(c.MaxSendSGE*sgeBytes, c.MaxInlineData)
		c.MaxSendSGE, c.MaxInlineData = room/sgeBytes, room
	}
	return c
}
