package spec

// doArm arms a completion queue (ibv_req_notify_cq) for the next completion, or for
// the next solicited one.
func (in *Interp) doArm(a *args) error {
	c, err := in.cq(a.word("cq name"))
	if err != nil {
		return err
	}
	solicited := a.flag("solicited")
	if err := a.done(); err != nil {
		return err
	}
	if c.node.dev.ReqNotify(c.cq, solicited) {
		in.printf("ok missed\n")
		return nil
	}
	in.result(nil)
	return nil
}
