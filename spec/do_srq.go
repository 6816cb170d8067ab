package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/rvt"
)

// doSRQ creates a shared receive queue.
func (in *Interp) doSRQ(a *args) error {
	name := a.word("srq name")
	n, err := in.device(a)
	if err != nil {
		return err
	}
	attr := rvt.SRQAttr{MaxWR: a.count("max_wr", 16, 1<<16), MaxSGE: a.count("max_sge", 4, 1<<16)}
	limit := a.count("limit", 0, 1<<16)
	pd, err := in.pdOf(n, a.str("pd", ""))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if _, err := in.srq(name); err == nil || len(in.srqs) >= maxObjects {
		return fmt.Errorf("srq %q exists already, or there are too many", name)
	}
	s, err := n.dev.CreateSRQ(pd, attr, nil)
	if err == nil {
		in.srqs = append(in.srqs, &srqObj{name, n, s})
		if limit > 0 {
			err = n.dev.ModifySRQ(s, nil, &limit)
		}
	}
	in.result(err)
	return nil
}
