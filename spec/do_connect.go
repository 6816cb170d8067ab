package spec

import (
	"errors"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

// doConnect takes two queue pairs from RESET to RTS (or state=) with everything that
// each step needs. psn= is the first PSN from the first to the second, rpsn= that of
// the other direction; other attributes are those of modify. A key with a QP's name in
// front, as a.retry_cnt=0, is for that one only.
func (in *Interp) doConnect(a *args) error {
	var pair [2]*qpObj
	for i := range pair {
		q, err := in.qp(a.word("qp name"))
		if err != nil {
			return err
		}
		pair[i] = q
	}
	target := a.str("state", "RTS")
	psn, rpsn := a.num("psn", 100, ib.PSNMask), a.num("rpsn", 200, ib.PSNMask)
	sets := [2]*args{{}, {}}
	for i, q := range pair {
		peer := pair[1-i]
		sets[i] = connectArgs(a, q.name, peer.name)
		q.attr = qp.Attr{PortNum: 1, AccessFlags: ib.AccessRemoteMask, QKey: 0x1111, PathMTU: min(ib.MTU1024, q.node.dev.Config().MTU), DestQPN: peer.qp.QPN,
			AV: ib.AV{DGID: peer.node.gid, IsGlobal: true, PortNum: 1, HopLimit: 64}, MaxDestRdAtomic: 4, MinRNRTimer: 12,
			SQPSN: ib.PSN(psn), RQPSN: ib.PSN(rpsn), Timeout: 14, RetryCnt: 3, RNRRetry: 3, MaxRdAtomic: 4}
		if i == 1 {
			q.attr.SQPSN, q.attr.RQPSN = q.attr.RQPSN, q.attr.SQPSN
		}
		if _, err := in.qpAttrs(sets[i], &q.attr); err != nil {
			return err
		}
		if err := sets[i].done(); err != nil {
			return err
		}
	}
	if err := a.done(); err != nil {
		return err
	}
	for _, q := range pair {
		if ok, err := in.raise(q, target); !ok || err != nil {
			return err
		}
	}
	in.result(nil)
	return nil
}

// connectArgs selects the attributes for the QP name out of those of both.
func connectArgs(a *args, name, peer string) *args {
	var list []Arg
	for i, x := range a.list {
		if len(x.Vals) == 0 || x.Key == "state" || x.Key == "psn" || x.Key == "rpsn" {
			continue
		}
		key, mine := strings.CutPrefix(x.Key, name+".")
		if mine {
			list = append(list, Arg{key, x.Vals})
			a.used[i] = true
		} else if !strings.HasPrefix(x.Key, peer+".") {
			if !a.has(name + "." + x.Key) {
				list = append(list, x)
			}
			a.used[i] = true
		}
	}
	return newArgs(list)
}

// raise moves a QP up to the target state. ok is false if a step was refused; that is
// printed.
func (in *Interp) raise(q *qpObj, target string) (ok bool, err error) {
	want, known := stateByName(target)
	if !known || want > ib.StateRTS {
		return false, errors.New("connect leads to RESET, INIT, RTR or RTS, not to " + target)
	}
	for s := ib.StateInit; s <= want; s++ {
		q.attr.State = s
		required, _, _ := qp.TransitionMasks(s-1, s, q.qp.Type)
		if err := q.node.dev.ModifyQP(in.now, q.qp, &q.attr, required|ib.AttrState); err != nil {
			in.result(err)
			return false, nil
		}
		in.collect(q.node)
	}
	return true, nil
}

func stateByName(name string) (ib.QPState, bool) {
	for s := range ib.QPState(ib.NumQPStates) {
		if s.String() == name {
			return s, true
		}
	}
	return 0, false
}
