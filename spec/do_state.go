package spec

import (
	"strings"

	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

var sflagNames = []struct {
	bit  qp.SFlag
	name string
}{
	{qp.SSignalReqWR, "SIGNAL_REQ_WR"}, {qp.SWaitRNR, "WAIT_RNR"}, {qp.SWaitFence, "WAIT_FENCE"}, {qp.SWaitRdAtomic, "WAIT_RDMAR"},
	{qp.SWaitSSNCredit, "WAIT_SSN_CREDIT"}, {qp.SWaitAck, "WAIT_ACK"}, {qp.SWaitWindow, "WAIT_WINDOW"}, {qp.SWaitLast, "WAIT_LAST"},
	{qp.SSendOne, "SEND_ONE"}, {qp.SUnlimitedCredit, "UNLIMITED_CREDIT"},
}

// doState prints the protocol state of a queue pair under the kernel's names.
func (in *Interp) doState(a *args) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	brief := a.flag("brief")
	if err := a.done(); err != nil {
		return err
	}
	x := q.qp
	if brief {
		in.printf("%s\n", x.State)
		return nil
	}
	in.printf("%s s_psn=%d s_next_psn=%d s_last_psn=%d s_ssn=%d s_lsn=%d\n", x.State, x.SPSN, x.SNextPSN, x.SLastPSN, x.SSSN, x.SLSN)
	in.printf("s_retry=%d s_rnr_retry=%d s_num_rd_atomic=%d s_flags=%s\n", x.SRetry, x.SRNRRetry, x.SNumRdAtomic, sflagText(x.SFlags))
	in.printf("r_psn=%d r_msn=%d r_nak_state=0x%x receives=%d\n", x.RPSN, x.RMSN, uint8(x.RNAKState), in.receives(q))
	in.printf("s_timer=%s s_rnr_timer=%s\n", in.due(x.STimerAt), in.due(x.SRNRTimerAt))
	return nil
}

func (in *Interp) receives(q *qpObj) int {
	if q.qp.SRQ != nil {
		return q.qp.SRQ.RQ.Len()
	}
	return q.qp.RQ.Len()
}

// due is a deadline as the time that is left.
func (in *Interp) due(t vtime.Time) string {
	if t == vtime.Never {
		return "off"
	}
	return "in " + span(t.Sub(in.now))
}

func sflagText(f qp.SFlag) string {
	var on []string
	for _, n := range sflagNames {
		if f&n.bit != 0 {
			on = append(on, n.name)
		}
	}
	if len(on) == 0 {
		return "0"
	}
	return strings.Join(on, "|")
}
