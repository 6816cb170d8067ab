package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
)

// doMcast attaches a queue pair to a multicast group or detaches it.
func (in *Interp) doMcast(a *args) error {
	verb := a.word("attach or detach")
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	gid, err := ib.ParseGID(a.str("gid", ""))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	switch verb {
	case "attach":
		in.result(q.node.dev.AttachMcast(q.qp, gid))
	case "detach":
		in.result(q.node.dev.DetachMcast(q.qp, gid))
	default:
		return fmt.Errorf("mcast attach or detach, not %q", verb)
	}
	return nil
}
