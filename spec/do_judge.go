package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/qp"
)

// doJudge says what a device's host answers when a QP has used up its retries: to wait, to
// begin anew, or, as from the start, that the QP fails. With "always" it answers so to each QP
// whose timer has run out.
func (in *Interp) doJudge(a *args) error {
	n, err := in.node(a.word("device name"))
	if err != nil {
		return err
	}
	v := qp.Verdict{}
	switch w := a.word("wait, again or fail"); w {
	case "wait":
		v.Wait = a.parseDur(a.word("duration"), 0)
	case "again":
		v.Again = true
	case "fail":
	default:
		return fmt.Errorf("a host says wait, again or fail, not %q", w)
	}
	always := a.flag("always")
	if err := a.done(); err != nil {
		return err
	}
	n.verdict, n.always = v, always
	in.result(nil)
	return nil
}

// judge is the host of a device; see rvt.Config.Judge.
func (in *Interp) judge(n *node, p qp.Plea) qp.Verdict {
	what := "again"
	switch {
	case n.verdict == qp.Verdict{}, !p.Last && !n.always:
		return qp.Verdict{} // as without a host
	case n.verdict.Wait > 0:
		what = "wait " + span(n.verdict.Wait)
	}
	in.tracef("%s asks about qp=%v of %v: %s", n.name, p.QPN, p.Peer, what)
	return n.verdict
}
