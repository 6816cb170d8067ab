package spec

// doModifySRQ sets the limit or the size of a shared receive queue; without arguments
// it prints them.
func (in *Interp) doModifySRQ(a *args) error {
	s, err := in.srq(a.word("srq name"))
	if err != nil {
		return err
	}
	var maxWR, limit *int
	if a.has("max_wr") {
		n := a.count("max_wr", 0, 1<<16)
		maxWR = &n
	}
	if a.has("limit") {
		n := a.count("limit", 0, 1<<16)
		limit = &n
	}
	if err := a.done(); err != nil {
		return err
	}
	if maxWR != nil || limit != nil {
		if err := s.node.dev.ModifySRQ(s.srq, maxWR, limit); err != nil {
			in.result(err)
			return nil
		}
	}
	q := s.node.dev.QuerySRQ(s.srq)
	in.printf("ok max_wr=%d max_sge=%d limit=%d posted=%d\n", q.MaxWR, q.MaxSGE, q.Limit, s.srq.RQ.Len())
	return nil
}
