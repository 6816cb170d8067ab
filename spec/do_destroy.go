package spec

import (
	"fmt"
	"slices"
)

// doDestroy destroys an object: destroy qp a, destroy mr m. After that no directive
// knows the name, unless the device refused.
func (in *Interp) doDestroy(a *args) error {
	kind, name := a.word("kind of object"), a.word("name")
	if err := a.done(); err != nil {
		return err
	}
	var err, lookup error
	switch kind {
	case "qp":
		err, lookup = in.destroyQP(name)
	case "cq":
		var c *cqObj
		if c, lookup = in.cq(name); lookup == nil {
			err = c.node.dev.DestroyCQ(c.cq)
			in.cqs = drop(in.cqs, c, err)
		}
	case "srq":
		var s *srqObj
		if s, lookup = in.srq(name); lookup == nil {
			err = s.node.dev.DestroySRQ(s.srq)
			in.srqs = drop(in.srqs, s, err)
		}
	case "mr":
		err, lookup = in.destroyMR(name)
	case "mw":
		var m *mwObj
		if m, lookup = in.mw(name); lookup == nil {
			err = m.node.dev.DeallocMW(m.mw)
			in.mws = drop(in.mws, m, err)
		}
	case "ah":
		var h *ahObj
		if h, lookup = in.ah(name); lookup == nil {
			err = h.node.dev.DestroyAH(h.ah)
		}
	case "pd":
		err, lookup = in.destroyPD(name)
	default:
		return fmt.Errorf("no kind of object %q", kind)
	}
	if lookup == nil {
		in.result(err)
	}
	return lookup
}

func (in *Interp) destroyQP(name string) (err, lookup error) {
	q, lookup := in.qp(name)
	if lookup == nil {
		err = q.node.dev.DestroyQP(in.now, q.qp)
		in.qps = drop(in.qps, q, err)
	}
	return err, lookup
}

// destroyMR deregisters a region. Its name stays, so that a script can use the dead
// key.
func (in *Interp) destroyMR(name string) (err, lookup error) {
	m, lookup := in.mr(name)
	if lookup == nil {
		err = m.node.dev.DeregMR(in.now, m.mr)
		in.collect(m.node)
	}
	return err, lookup
}

func (in *Interp) destroyPD(name string) (err, lookup error) {
	p, ok := find(in.pds, func(p *pdObj) string { return p.name }, name)
	if !ok {
		return nil, fmt.Errorf("no pd %q", name)
	}
	err = p.node.dev.DeallocPD(p.pd)
	in.pds = drop(in.pds, p, err)
	return err, nil
}

// drop removes e from list if its destruction went well.
func drop[T comparable](list []T, e T, err error) []T {
	if err != nil {
		return list
	}
	return slices.DeleteFunc(list, func(x T) bool { return x == e })
}
