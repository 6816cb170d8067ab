package qp

import "math/bits"

// Driver holds what the kernel driver and the user library around an engine decide by
// themselves, apart from the protocol: the sizes they grant, the attributes they do not
// check, the keys they give out, and when they look at local keys. The zero value gives
// exactly what is asked for and checks everything as early as it can. A host sets it
// beside the profile; see [DriverByName].
type Driver struct {
	// RoundSizes makes queues hold 2^n-1 entries, and the room for gather entries and
	// that for inline data the same (rxe: rxe_queue_init, rxe_qp_init_req).
	RoundSizes bool
	// LaxAttrs accepts any pkey_index, a path MTU above the port's, and any
	// max_dest_rd_atomic (rxe: rxe_qp_chk_attr).
	LaxAttrs bool
	// LateLocalCheck looks at the local entries of a send packet by packet, and at those
	// of a READ or atomic when its response arrives: the peer may have acted on a WR
	// that fails (rxe: copy_data in requester and completer).
	LateLocalCheck bool
	// RemoteRKeyOnly gives a region without remote rights the rkey 0 (rxe: rxe_mr_init).
	RemoteRKeyOnly bool
}

// DriverRXE is the driver and library of Linux 6.1's soft-RoCE.
var DriverRXE = Driver{RoundSizes: true, LaxAttrs: true, LateLocalCheck: true, RemoteRKeyOnly: true}

// DriverByName returns the driver that belongs to the profile of that name; rdmavt's
// and the standard's give exactly what is asked for.
func DriverByName(profile string) Driver {
	if profile == ProfileRXE.Name {
		return DriverRXE
	}
	return Driver{}
}

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
