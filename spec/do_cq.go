package spec

import "fmt"

// doCQ creates a completion queue.
func (in *Interp) doCQ(a *args) error {
	name := a.word("cq name")
	n, err := in.device(a)
	if err != nil {
		return err
	}
	cqe := a.count("cqe", 64, 1<<20)
	if err := a.done(); err != nil {
		return err
	}
	if _, err := in.cq(name); err == nil || len(in.cqs) >= maxObjects {
		return fmt.Errorf("cq %q exists already, or there are too many", name)
	}
	c, err := n.dev.CreateCQ(cqe, nil)
	if err == nil {
		in.cqs = append(in.cqs, &cqObj{name, n, c})
	}
	in.result(err)
	return nil
}

// device reads dev=, which names the device that an object belongs to.
func (in *Interp) device(a *args) (*node, error) {
	s := a.str("dev", "")
	if s == "" {
		return nil, fmt.Errorf("missing argument: dev=")
	}
	return in.node(s)
}
