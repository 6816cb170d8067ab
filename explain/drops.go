package explain

import (
	"strings"

	"github.com/rvtsim/rvtsim/wire"
)

// drops says why packets were dropped, as a clause behind their number. Those that it does
// not know are of no concern to programs.
var drops = map[wire.DropReason]string{
	wire.DropBadICRC:            "arrived damaged: their checksum (ICRC) was wrong. RC sends them again",
	wire.DropNoQP:               "named a queue pair number that is not in use here: dest_qp_num or remote_qpn of the sender, or a queue pair that was destroyed",
	wire.DropWrongTransport:     "came to a queue pair of another type than their sender's: both ends must be RC, or UC, or UD",
	wire.DropBadPKey:            "had another partition key",
	wire.DropBadQKey:            "were datagrams with a wrong Q_Key: remote_qkey of the work request must be the qkey that the receiver gave to modify_qp",
	wire.DropQPState:            "came to a queue pair that is not in RTR, RTS or later: it answers nothing in RESET, INIT and ERR",
	wire.DropWrongPath:          "came from another address than the one that their queue pair is connected to",
	wire.DropNoRecv:             "found no receive posted on a UC or UD queue pair, which loses them",
	wire.DropRecvTooSmall:       "were longer than the receive that they met on a UC or UD queue pair. A datagram needs 40 bytes more than its data",
	wire.DropDuplicate:          "were repeated requests that need no answer",
	wire.DropOutOfSequence:      "had a PSN ahead of the expected one: something before them is lost, or sq_psn of one end is not rq_psn of the other",
	wire.DropUnexpectedResponse: "answered nothing that was asked",
	wire.DropBadMessage:         "belonged to a UC or UD message that did not arrive whole, or that its queue pair or its key does not allow. UC and UD refuse in silence",
	wire.DropNotMember:          "were for a multicast group that no queue pair here has joined",
	wire.DropPortDown:           "came while the port was down",
	wire.DropFaultInjected:      "were dropped on request, by a fault",
}

// Drops tells why the device called name dropped packets; "" if it dropped none. No
// program is told of those in another way. counts goes by wire.DropReason.
func Drops(name string, counts *[wire.NumDropReasons]uint64) string {
	w := &writer{}
	for r, n := range counts {
		text, known := drops[wire.DropReason(r)]
		if n == 0 || !known {
			continue
		}
		if w.Len() == 0 {
			w.line(0, "Packets that %s has dropped without an answer:", name)
		}
		if n == 1 {
			text = singular.Replace(text)
		}
		w.line(1, "- %s %s.", plural(int(n), "packet"), text)
	}
	return w.String()
}

// singular makes a clause of drops fit one packet.
var singular = strings.NewReplacer("were datagrams", "was a datagram", "were repeated requests that need", "was a repeated request that needs",
	"were ", "was ", "their", "its", "before them", "before it", "loses them", "loses it", "sends them", "sends it", "they met", "it met")

// DropCounts is the form in which reports carry drops: by name, without those that are 0.
func DropCounts(counts map[string]uint64) (c [wire.NumDropReasons]uint64) {
	for r := range c {
		c[r] = counts[wire.DropReason(r).String()]
	}
	return c
}
