package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
)

// doMW allocates a memory window.
func (in *Interp) doMW(a *args) error {
	name := a.word("mw name")
	n, err := in.device(a)
	if err != nil {
		return err
	}
	typ := ib.MWType(a.count("type", 2, 255))
	pd, err := in.pdOf(n, a.str("pd", ""))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if _, err := in.mw(name); err == nil || len(in.mws) >= maxObjects {
		return fmt.Errorf("mw %q exists already, or there are too many", name)
	}
	w, err := n.dev.AllocMW(pd, typ)
	if err == nil {
		in.mws = append(in.mws, &mwObj{name, n, w})
	}
	in.result(err)
	return nil
}
