package spec

// doIndices prints the indices of a send queue under the names they have in the
// kernel.
func (in *Interp) doIndices(a *args) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	x := q.qp
	in.printf("s_head=%d s_tail=%d s_cur=%d s_acked=%d s_last=%d s_avail=%d\n", x.SHead, x.STail, x.SCur, x.SAcked, x.SLast, x.SAvail)
	return nil
}
