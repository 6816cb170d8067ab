package spec

// doResizeCQ changes the size of a completion queue and prints what it is then.
func (in *Interp) doResizeCQ(a *args) error {
	c, err := in.cq(a.word("cq name"))
	if err != nil {
		return err
	}
	cqe := a.count("cqe", 0, 1<<20)
	if err := a.done(); err != nil {
		return err
	}
	err = c.node.dev.ResizeCQ(c.cq, cqe, nil)
	in.collect(c.node)
	if err != nil {
		in.result(err)
		return nil
	}
	in.printf("ok cqe=%d waiting=%d\n", c.cq.CQE(), c.cq.Len())
	return nil
}
