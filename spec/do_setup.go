package spec

import "strings"

// doSetup builds the stage that most scenarios play on: devices A and B, on each a
// completion queue (ca, cb) for both directions, a region of 64 KiB with all rights (ma
// filled with a pattern, mb with zeros) and a queue pair (a, b), and connects them. UD
// gets the address handles hb (of A, to B) and ha. The arguments are those of device,
// qp and connect; "srq" gives b a shared receive queue s, cqe= sizes the queues.
func (in *Interp) doSetup(a *args) error {
	cfg, err := in.deviceConfig(a)
	if err != nil {
		return err
	}
	cqe := a.str("cqe", "64")
	srq := a.flag("srq")
	qpArgs, connectArgs := splitSetup(a)
	if err := a.done(); err != nil {
		return err
	}
	for _, name := range []string{"A", "B"} {
		if n, err := in.addDevice(cfg, name); err != nil || n == nil {
			return err
		}
	}
	lines := []string{"cq ca dev=A cqe=" + cqe, "cq cb dev=B cqe=" + cqe, "mr ma dev=A fill=count", "mr mb dev=B"}
	qpb := "qp b dev=B cq=cb" + qpArgs
	if srq {
		lines = append(lines, "srq s dev=B max_wr=16")
		qpb += " srq=s"
	}
	lines = append(lines, "qp a dev=A cq=ca"+qpArgs, qpb, "connect a b"+connectArgs)
	if strings.Contains(qpArgs, "type=ud") {
		lines = append(lines, "ah hb dev=A to=B", "ah ha dev=B to=A")
	}
	for _, line := range lines {
		if err := in.quietly(line); err != nil {
			return err
		}
		if in.print.Len() > 0 {
			return nil // a verb refused; what it said is the result
		}
	}
	in.result(nil)
	return nil
}

// quietly runs a directive line and drops its "ok".
func (in *Interp) quietly(line string) error {
	name, list, err := ParseLine(line)
	if err != nil {
		return err
	}
	err = in.dispatch(name, newArgs(list), "")
	if in.print.String() == "ok\n" {
		in.print.Reset()
	}
	return err
}

// splitSetup sorts the arguments that are left into those of qp and of connect.
func splitSetup(a *args) (qpArgs, connectArgs string) {
	for _, key := range []string{"type", "send_wr", "recv_wr", "send_sge", "recv_sge", "inline"} {
		if v := a.str(key, ""); v != "" {
			qpArgs += " " + key + "=" + strings.ToLower(v)
		}
	}
	if a.flag("sig_all") {
		qpArgs += " sig_all"
	}
	for i := range a.list {
		if a.used[i] || len(a.list[i].Vals) == 0 {
			continue
		}
		a.used[i] = true
		connectArgs += " " + a.list[i].Key + "=(" + strings.Join(a.list[i].Vals, ", ") + ")"
	}
	return qpArgs, connectArgs
}
