package wire

import "strconv"

// DropReason says why an arriving packet was discarded without an answer. A device
// counts its drops per reason; the String form is the counter's label.
type DropReason uint8

const (
	DropNone DropReason = iota

	// Parse level: found in the bytes alone.

	DropTooShort      // shorter than the headers of its opcode
	DropBadTVer       // transport version is not 0
	DropUnknownOpcode // opcode exists on none of RC, UC, UD, CNP
	DropBadLength     // impossible pad count or payload length for the opcode
	DropBadICRC       // invariant CRC does not match

	// Device level: found by a device, its QPs and its ports.

	DropNoQP               // destination QPN is not in use
	DropWrongTransport     // opcode belongs to another transport than the QP
	DropBadPKey            // partition key does not match
	DropBadQKey            // Q_Key of a datagram does not match
	DropQPState            // QP state does not receive
	DropWrongPath          // source address is not the connected peer
	DropNoRecv             // UC or UD: no receive posted
	DropRecvTooSmall       // UC or UD: message longer than the receive
	DropDuplicate          // old PSN that needs no answer
	DropOutOfSequence      // PSN ahead of the expected one, NAK already sent
	DropUnexpectedResponse // response that fits no outstanding request
	DropBadMessage         // UC or UD: message abandoned, a packet did not fit it
	DropNoGRH              // address vector without a global route
	DropNotMember          // multicast group without a local member
	DropPortDown           // port is not active
	DropFaultInjected      // a test asked for the loss
	DropResponderBusy      // RC: too many answers wait; the requester will ask again

	// NumDropReasons is the size of a table indexed by DropReason.
	NumDropReasons = iota
)

var dropNames = [NumDropReasons]string{
	DropNone:               "none",
	DropTooShort:           "too_short",
	DropBadTVer:            "bad_tver",
	DropUnknownOpcode:      "unknown_opcode",
	DropBadLength:          "bad_length",
	DropBadICRC:            "bad_icrc",
	DropNoQP:               "no_qp",
	DropWrongTransport:     "wrong_transport",
	DropBadPKey:            "bad_pkey",
	DropBadQKey:            "bad_qkey",
	DropQPState:            "qp_state",
	DropWrongPath:          "wrong_path",
	DropNoRecv:             "no_recv",
	DropRecvTooSmall:       "recv_too_small",
	DropDuplicate:          "duplicate",
	DropOutOfSequence:      "out_of_sequence",
	DropUnexpectedResponse: "unexpected_response",
	DropBadMessage:         "bad_message",
	DropNoGRH:              "no_grh",
	DropNotMember:          "not_member",
	DropPortDown:           "port_down",
	DropFaultInjected:      "fault_injected",
	DropResponderBusy:      "responder_busy",
}

// String is the reason in snake case, fit for a metric label.
func (r DropReason) String() string {
	if int(r) < len(dropNames) {
		return dropNames[r]
	}
	return "drop_reason_" + strconv.Itoa(int(r))
}
