package replay

import (
	"strings"

	"github.com/rvtsim/rvtsim/qp"
)

// explanation ties a difference to the field of the profile whose value differs from
// what the captured adapter does.
type explanation struct {
	name    string // field of qp.Profile, and what it means here
	differs func(ours, theirs *qp.Profile) bool
	match   func(d *Diff) bool
}

func field(names ...string) func(d *Diff) bool {
	return func(d *Diff) bool {
		for _, n := range names {
			if d.Field == n {
				return true
			}
		}
		return false
	}
}

// explanations are tried in order. They never apply under the profile of the adapter
// that was captured, since then no field differs.
var explanations = []explanation{
	{"AckReqEvery: the profile asks for ACKs inside a long message at other packets", func(a, b *qp.Profile) bool { return a.AckReqEvery != b.AckReqEvery }, field("bth.ack_req")},
	{"AckReqEvery: the profile asks for ACKs inside a long message at other packets", func(a, b *qp.Profile) bool { return a.AckReqEvery != b.AckReqEvery }, func(d *Diff) bool {
		return d.Field == "packet" && d.Ours == "not sent" && strings.Contains(d.Theirs, "ACK credits")
	}},
	{"CreditFlow: the profile gives end-to-end credits; soft-RoCE gives none", func(a, b *qp.Profile) bool { return a.CreditFlow != b.CreditFlow }, field("aeth.syndrome")},
	{"CreditFlow: the profile gives end-to-end credits; soft-RoCE gives none", func(a, b *qp.Profile) bool { return a.CreditFlow != b.CreditFlow }, func(d *Diff) bool {
		return d.Field == "packet" && strings.Contains(d.Ours+d.Theirs, "SEND_ONLY") // one SEND may go before the first credit
	}},
	{"RecvTooSmallNAK: a receive that is too small is answered with another NAK", func(a, b *qp.Profile) bool { return a.RecvTooSmallNAK != b.RecvTooSmallNAK }, func(d *Diff) bool {
		return d.Field == "aeth.syndrome" && strings.Contains(d.Theirs, "OPERATIONAL")
	}},
	{"RecvTooSmall: a receive that is too small completes with another status", func(a, b *qp.Profile) bool { return a.RecvTooSmall != b.RecvTooSmall }, field("wc.status")},
	{"RecvGRHFlag: soft-RoCE sets the GRH flag on every receive", func(a, b *qp.Profile) bool { return a.RecvGRHFlag != b.RecvGRHFlag }, func(d *Diff) bool {
		return d.Field == "wc.wc_flags" && strings.Contains(d.Theirs, "GRH") && !strings.Contains(d.Ours, "GRH")
	}},
	{"SendImmFlag: soft-RoCE sets WITH_IMM on send completions", func(a, b *qp.Profile) bool { return a.SendImmFlag != b.SendImmFlag }, func(d *Diff) bool {
		return d.Field == "wc.wc_flags" && d.Ours == "0" && d.Theirs == "WITH_IMM"
	}},
	{"HopLimitFromRoute: soft-RoCE ignores the hop limit of the address vector", func(a, b *qp.Profile) bool { return a.HopLimitFromRoute != b.HopLimitFromRoute }, field("ip.hop_limit")},
	{"FlowLabelUnsent: soft-RoCE leaves the IPv6 flow label 0", func(a, b *qp.Profile) bool { return a.FlowLabelUnsent != b.FlowLabelUnsent }, field("ip.flow_label")},
	{"NAKAfterRNR: soft-RoCE sends a sequence NAK after an RNR NAK", func(a, b *qp.Profile) bool { return a.NAKAfterRNR != b.NAKAfterRNR }, func(d *Diff) bool {
		return d.Field == "packet" && d.Ours == "not sent" && strings.Contains(d.Theirs, "NAK_PSN_SEQUENCE")
	}},
	{"AckEach: soft-RoCE has no PSN to acknowledge before its first ACK", func(a, b *qp.Profile) bool { return a.AckEach != b.AckEach }, func(d *Diff) bool {
		return strings.Contains(d.Where, "psn=16777215") && d.Field == "bth.psn"
	}},
	{"DupReadAny: soft-RoCE executes a repeated READ as it says", func(a, b *qp.Profile) bool { return a.DupReadAny != b.DupReadAny }, func(d *Diff) bool {
		return d.Field == "packet" && strings.Contains(d.Ours, "READ_RESP")
	}},
	{"UCErrorKillsQP: soft-RoCE fails the receive and the QP when a UC or UD message does not fit", func(a, b *qp.Profile) bool { return a.UCErrorKillsQP != b.UCErrorKillsQP }, func(d *Diff) bool {
		return d.Field == "completion" || d.Field == "qp_state"
	}},
}

// explain finds the choice of the profile that accounts for a difference.
func (c *comparison) explain(d *Diff) string {
	captured := qp.ProfileRXE
	for _, e := range explanations {
		if e.differs(&c.prof, &captured) && e.match(d) {
			return e.name
		}
	}
	return ""
}
