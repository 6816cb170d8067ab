package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/wire"
)

// counterList names the counters of a device.
func counterList(c *qp.Counters) []struct {
	name string
	n    uint64
} {
	return []struct {
		name string
		n    uint64
	}{
		{"sent_pkts", c.SentPackets}, {"sent_bytes", c.SentBytes}, {"rcvd_pkts", c.RcvdPackets}, {"rcvd_bytes", c.RcvdBytes},
		{"duplicate_request", c.DuplicateRequest}, {"out_of_seq_request", c.OutOfSeqRequest}, {"rcvd_rnr_err", c.RcvdRNRNAK},
		{"send_rnr_err", c.SentRNRNAK}, {"rcvd_seq_err", c.RcvdSeqNAK}, {"sent_nak", c.SentNAK}, {"ack_deferred", c.AckDeferred},
		{"retry_timeout", c.RetryTimeout}, {"retrans_pkts", c.RetransPackets}, {"retry_exceeded_err", c.RetryExceeded},
		{"retry_rnr_exceeded_err", c.RNRRetryExceeded}, {"retry_spared", c.RetrySpared}, {"lost_response", c.LostResponse}, {"send_err", c.SendErrors},
		{"completions", c.Completions}, {"cq_overflow", c.CQOverflow}, {"async_events", c.AsyncEvents}, {"sends_posted", c.SendsPosted},
		{"recvs_posted", c.RecvsPosted}, {"messages_sent", c.MessagesSent}, {"messages_received", c.MessagesReceived}, {"memory_faults", c.MemoryFaults},
		{"np_ecn_marked_roce_packets", c.ECNMarked}, {"np_cnp_sent", c.SentCNP}, {"rp_cnp_handled", c.HandledCNP},
	}
}

// doCounters prints the named counters of a device, or all that are not zero. Drops
// are called drop.<reason>.
func (in *Interp) doCounters(a *args) error {
	n, err := in.node(a.word("device name"))
	if err != nil {
		return err
	}
	list := counterList(n.dev.Counters())
	for r := range wire.DropReason(wire.NumDropReasons) {
		list = append(list, struct {
			name string
			n    uint64
		}{"drop." + r.String(), n.dev.Counters().Dropped[r]})
	}
	any := false
	for name := a.optWord(); name != ""; name = a.optWord() {
		any = true
		found := false
		for _, c := range list {
			if c.name == name {
				in.printf("%s=%d\n", c.name, c.n)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("no counter %q", name)
		}
	}
	if err := a.done(); err != nil || any {
		return err
	}
	for _, c := range list {
		if c.n != 0 {
			in.printf("%s=%d\n", c.name, c.n)
		}
	}
	return nil
}
